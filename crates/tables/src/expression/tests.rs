//! What the expression grammar promises.
//!
//! Replay a failure of a random test with `ATOLL_SEED=N cargo test -p atoll-tables expression`.
#![allow(clippy::disallowed_methods)]

mod agreement;
mod errors;
mod generator;
mod grammar;
mod intervals;
mod oracle;
mod rows;

/// Runs a random test with each of its seeds, or with the one of `ATOLL_SEED`.
fn with_seeds(count: u64, test: impl Fn(&mut fastrand::Rng)) {
    let seeds = match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=count).collect::<Vec<u64>>(),
    };
    for seed in seeds {
        // Nothing that a failed run leaves behind is looked at.
        let run = std::panic::AssertUnwindSafe(|| test(&mut fastrand::Rng::with_seed(seed)));
        let result = std::panic::catch_unwind(run);
        assert!(result.is_ok(), "replay with ATOLL_SEED={seed} cargo test -p atoll-tables expression");
    }
}

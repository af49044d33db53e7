//! Random tests: many seeds, or the one that is asked for, and the command that replays a failure.
#![allow(clippy::disallowed_methods)]

/// Tells how to run a seed again if the test fails while it lives.
struct Replay<'a> {
    test: &'a str,
    seed: u64,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!("seed {seed}; replay: ATOLL_SEED={seed} cargo test -p atoll-tables {test}");
        }
    }
}

/// Runs `check` with this many seeds, or with `ATOLL_SEED` alone.
pub(crate) fn for_seeds(test: &str, seeds: u64, mut check: impl FnMut(&mut fastrand::Rng)) {
    let asked = std::env::var("ATOLL_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in asked.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        let _replay = Replay { test, seed };
        check(&mut fastrand::Rng::with_seed(seed));
    }
}

//! Randomized tests: runs many seeds, or a single requested one, and prints the command that replays a
//! failure.
#![allow(clippy::disallowed_methods)]

/// Prints how to replay the seed if the test panics while this guard is alive.
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

/// Runs `check` for `seeds` seeds, or only for the seed in `ATOLL_SEED` if that is set.
pub(crate) fn for_seeds(test: &str, seeds: u64, mut check: impl FnMut(&mut fastrand::Rng)) {
    let asked = std::env::var("ATOLL_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in asked.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        let _replay = Replay { test, seed };
        check(&mut fastrand::Rng::with_seed(seed));
    }
}

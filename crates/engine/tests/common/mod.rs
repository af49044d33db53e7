//! Runs from seeds, side by side; a failing run says how to replay it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;

/// Runs at the same time: a run is pure computation, and one test seldom has more processors.
const LANES: usize = 2;

/// The outcome of each seed, or of the one in `ATOLL_SEED`.
pub fn each_seed<T: Send>(test: &str, usual: RangeInclusive<u64>, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let seeds = match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => usual.collect::<Vec<u64>>(),
    };
    let (waiting, done) = (Mutex::new(seeds.into_iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                let next = || waiting.lock().unwrap().next();
                while let Some(seed) = next() {
                    let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| run(seed))) else {
                        panic!("replay with ATOLL_SEED={seed} cargo test -p atoll-engine --test {test}")
                    };
                    done.lock().unwrap().push(outcome);
                }
            });
        }
    });
    done.into_inner().unwrap()
}

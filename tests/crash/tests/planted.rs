//! Every bug planted in the engine is caught by some seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use atoll_crash::soak::run_seeds;
use atoll_crash::{EngineBug, EngineSubject};

/// Seeds after which a bug counts as missed. Of most a few seeds are enough; groups that are chained to
/// nothing come to lie where a new group ends in one of a thousand.
const SEEDS: u64 = 4000;

#[test]
fn every_bug_planted_in_the_engine_is_caught() {
    let mut missed = Vec::new();
    for bug in EngineBug::ALL {
        let tally = run_seeds::<EngineSubject>(0, SEEDS, Some(bug), true);
        match tally.violations.first() {
            Some(violation) => println!("{bug:?}: caught after {} seeds: {violation}", tally.seeds),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not caught in {SEEDS} seeds: {missed:?}");
}

//! Every bug planted in the engine is caught by some seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use atoll_crash::soak::run_seeds;
use atoll_crash::{EngineBug, EngineSubject};

/// Seeds after which a bug counts as missed.
const SEEDS: u64 = 1000;

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

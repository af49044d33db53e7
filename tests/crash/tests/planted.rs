//! Every bug planted in the engine is caught by some seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use atoll_crash::soak::{run_seeds, shows};
use atoll_crash::{EngineBug, EngineSubject, run_seed};

/// The number of seeds after which a bug counts as missed. Most bugs need only a few seeds; log groups that
/// are not chained to their predecessor end up where a new group ends only in one seed of a thousand.
const SEEDS: u64 = 4000;

/// Bugs that the engine's own assertions detect first.
const ASSERTING: [EngineBug; 0] = [];

#[test]
fn every_bug_planted_in_the_engine_is_caught() {
    let (mut missed, mut doubted) = (Vec::new(), Vec::new());
    for bug in EngineBug::ALL {
        let tally = run_seeds::<EngineSubject>(0, SEEDS, Some(bug), true);
        match tally.violations.first() {
            Some(violation) => {
                println!("{bug:?}: caught after {} seeds: {violation}", tally.seeds);
                let asserts = ASSERTING.contains(&bug);
                let shown = shows(violation, asserts, |seed| run_seed::<EngineSubject>(seed, None));
                doubted.extend(shown.err().map(|why| (bug, why)));
            }
            None => missed.push(bug),
        }
    }
    assert!(doubted.is_empty(), "not shown to be caught: {doubted:#?}");
    assert!(missed.is_empty(), "not caught in {SEEDS} seeds: {missed:?}");
}

//! Every bug planted in the protocol is caught by some seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use atoll_ring_simulation::soak::run_seeds;
use atoll_ring_simulation::{Bug, Case};

/// Seeds after which a bug counts as missed. Of most a few dozen are enough.
const SEEDS: u64 = 4000;

#[test]
fn every_bug_planted_in_the_protocol_is_caught() {
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        let tally = run_seeds(0, SEEDS, &Case { bug: Some(bug), ..Case::default() }, true);
        match tally.violations.first() {
            Some(violation) => println!("{bug:?}: caught after {} seeds: {violation}", tally.seeds),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not caught in {SEEDS} seeds: {missed:?}");
}

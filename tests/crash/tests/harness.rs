//! The harness itself: it passes a store that keeps its promises, and catches every planted bug.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use atoll_crash::counts::BEYOND_A_TOY;
use atoll_crash::soak::run_seeds;
use atoll_crash::{Toy, ToyBug};

const SEEDS: u64 = 300;
const SEEDS_FEW: u64 = 20;

#[test]
fn a_sound_store_passes_and_every_fault_occurs() {
    let tally = run_seeds::<Toy>(0, SEEDS, None, true);
    for violation in &tally.violations {
        eprintln!("{violation}");
    }
    assert!(tally.violations.is_empty(), "replay: cargo run --release -p atoll-crash -- sim --toy --seed N");
    assert_eq!(tally.seeds, SEEDS);
    let never = tally.counts.never(&BEYOND_A_TOY);
    assert!(never.is_empty(), "never occurred: {never:?}");
}

#[test]
fn every_bug_planted_in_the_toy_is_caught() {
    let missed: Vec<ToyBug> = ToyBug::ALL
        .into_iter()
        .filter(|bug| run_seeds::<Toy>(0, 400, Some(*bug), true).violations.is_empty())
        .collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

#[test]
fn a_panic_around_a_run_takes_no_seed_along_nor_what_was_found() {
    let tally = run_seeds::<Toy>(0, SEEDS_FEW, Some(ToyBug::SnapshotPanics), false);
    assert_eq!(tally.seeds, SEEDS_FEW);
    let around = tally.violations.iter().filter(|violation| violation.what.contains("around the run"));
    assert!(around.count() > 0, "{:?}", tally.violations);
}

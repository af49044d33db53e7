//! The engine on a disk that loses power, tears writes and lies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use atoll_crash::EngineSubject;
use atoll_crash::soak::run_seeds;

const SEEDS: u64 = 2000;

#[test]
fn no_synced_write_is_lost_no_read_is_wrong_and_every_fault_occurs() {
    let tally = run_seeds::<EngineSubject>(0, SEEDS, None, false);
    for (name, count) in tally.counts.all() {
        println!("{name:40} {count}");
    }
    for violation in &tally.violations {
        eprintln!(
            "{violation}\n  replay: cargo run --release -p atoll-crash -- sim --seed {}",
            violation.seed
        );
    }
    assert_eq!(tally.violations.len(), 0, "seeds that broke a promise");
    let never = tally.counts.never(&[]);
    assert!(never.is_empty(), "never occurred in {SEEDS} seeds: {never:?}");
}

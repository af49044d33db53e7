//! The engine on a disk that loses power, tears writes and lies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

use atoll_crash::soak::run_seeds;
use atoll_crash::{EngineSubject, Run};

const SEEDS: u64 = 2000;
/// How many seeds are run twice.
const TWICE: u64 = 20;

#[test]
fn no_synced_write_is_lost_no_read_is_wrong_and_every_fault_occurs() {
    let tally = run_seeds::<EngineSubject>(0, SEEDS, None, false);
    for (name, count) in tally.counts.all() {
        println!("{name:40} {count}");
    }
    println!("{}", tally.whole());
    for violation in &tally.violations {
        eprintln!(
            "{violation}\n  replay: cargo run --release -p atoll-crash -- sim --seed {}",
            violation.seed
        );
    }
    assert_eq!(tally.violations.len(), 0, "seeds that broke a promise");
    assert_eq!(tally.seeds, SEEDS);
    let never = tally.counts.never(&[]);
    assert!(never.is_empty(), "never occurred in {SEEDS} seeds: {never:?}");
    assert!(!tally.is_shallow(), "too few: {}", tally.whole());
}

/// Everything that a seed did: a trace of each step, and the final bytes of the disk.
fn story(seed: u64) -> (Vec<String>, Vec<u8>) {
    let mut run = Run::<EngineSubject>::new(seed, None);
    run.trace = Some(Vec::new());
    run.run_in_place().unwrap();
    let bytes = run.disk_bytes();
    (run.trace.unwrap_or_default(), bytes)
}

#[test]
fn a_seed_repeats_itself_step_by_step_and_byte_by_byte() {
    for seed in 0..TWICE {
        // In another thread hashers have other seeds: nothing may depend on their order.
        let other = std::thread::spawn(move || story(seed));
        let (steps, bytes) = story(seed);
        let (other_steps, other_bytes) = other.join().unwrap();
        let parted = steps.iter().zip(&other_steps).find(|(one, other)| one != other);
        assert_eq!(parted, None, "seed {seed} took another course");
        assert!(steps.len() == other_steps.len() && bytes == other_bytes, "seed {seed} left other bytes");
    }
}

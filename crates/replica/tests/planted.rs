//! Bugs planted in the protocol are caught by some seed of the random runs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

// These runs do not use every kind of fault.
#[allow(dead_code)]
#[path = "random/faults.rs"]
mod faults;
#[path = "random/history.rs"]
mod history;
#[path = "random/schedule.rs"]
mod schedule;
#[path = "random/world.rs"]
mod world;

use atoll_replica::{Bug, plant};
use faults::Faults;
use std::sync::atomic::{AtomicUsize, Ordering};
use world::World;

/// The number of seeds of each kind after which a bug counts as missed.
const SEEDS: u64 = 1000;

/// The bugs that these runs must catch. The others need conditions that do not occur here, above all clocks
/// and processes that stop at one exact moment, or are caught sooner by the simulation of the whole ring:
/// `OldPrimaryHeard` takes 689 seeds here.
const SEEN: [Bug; 18] = [
    Bug::AppliedOnReceipt,
    Bug::NotTruncated,
    Bug::ReadBeforeRecommit,
    Bug::SaidBeforeLogged,
    Bug::CountedBeforeLogged,
    Bug::CommittedWithoutOne,
    Bug::DismissedAlone,
    Bug::PromiseBroken,
    Bug::LeaseOfAnyTable,
    Bug::AdmittedAlone,
    Bug::AdmittedEarly,
    Bug::EpochsNotCompared,
    Bug::PreviousIgnored,
    Bug::MatchedKept,
    Bug::UnverifiedSaid,
    Bug::InstalledOverNewer,
    Bug::LossForgotten,
    Bug::OldProposalTaken,
];

/// Bugs that an assertion of the protocol detects first: an entry of an older epoch after one of a newer
/// epoch.
const ASSERTING: [Bug; 1] = [Bug::OldProposalTaken];

/// The description of a panic.
const A_PANIC: &str = "a panic";

/// Runs a seed with this bug, or without any, and judges the run.
fn judged(bug: Option<Bug>, seed: u64, faults: &'static Faults) -> Result<(), String> {
    plant(bug);
    let judged = std::panic::catch_unwind(|| World::new(seed, faults, false).run());
    plant(None);
    judged.unwrap_or_else(|_| Err(A_PANIC.to_owned()))
}

/// The report of the first seed that detects the bug. A panic does not count for a bug without an assertion,
/// nor does anything that the same seed reports without the bug: such a seed would detect any bug.
fn seen(bug: Bug) -> Option<String> {
    for seed in 0..SEEDS {
        for (kind, faults) in [("logged", &Faults::LOGGED), ("memory", &Faults::MEMORY)] {
            if let Err(wrong) = judged(Some(bug), seed, faults) {
                let is_sign = wrong != A_PANIC || ASSERTING.contains(&bug);
                assert!(is_sign, "{bug:?}, {kind} {seed}: {wrong}, which is no sign of it");
                assert_eq!(judged(None, seed, faults), Ok(()), "{bug:?}, {kind} {seed}: without the bug");
                return Some(format!("{kind} {seed}: {wrong}"));
            }
        }
    }
    None
}

#[test]
fn bugs_planted_in_the_protocol_are_seen() {
    let chosen = std::env::var("ATOLL_BUG").ok();
    let bugs: Vec<_> = SEEN
        .into_iter()
        .chain(Bug::ALL.into_iter().filter(|bug| chosen.is_some() && !SEEN.contains(bug)))
        .filter(|bug| chosen.as_ref().is_none_or(|chosen| *chosen == format!("{bug:?}")))
        .collect();
    // Some bugs are caught at once and some after hundreds of seeds, so each idle thread takes the next bug.
    let next = AtomicUsize::new(0);
    let look = || {
        let mut missed = Vec::new();
        while let Some(&bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
            match seen(bug) {
                Some(what) => println!("{bug:?}: {}", what.chars().take(160).collect::<String>()),
                None => missed.push(bug),
            }
        }
        missed
    };
    let missed: Vec<Bug> = std::thread::scope(|scope| {
        let other = scope.spawn(look);
        let mut missed = look();
        missed.extend(other.join().unwrap());
        missed
    });
    assert!(missed.is_empty(), "not seen in {SEEDS} seeds: {missed:?}");
}

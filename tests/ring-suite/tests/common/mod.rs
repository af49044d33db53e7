//! Runs the conformance suite on a ring.
#![allow(dead_code, clippy::disallowed_methods, clippy::print_stdout)]

use atoll_conformance::{
    Outcome, Relayed, Renamed, SEED_DEFAULT, SharedStore, Size, Subject, empty, run_check, run_seeded,
};
use atoll_ring_client::{LatencyClass, RingOptions, RingStore};
use atoll_store::StoreError;
use std::sync::Arc;
use std::time::Duration;

pub fn run(subject: &dyn Subject) {
    run_but(subject, &[]);
}

/// Like [`run`], but a broken check that is named in `disturbed` is run again, at most twice. Such checks
/// count disturbances by others, and a node that dies disturbs every caller that waits there.
pub fn run_but(subject: &dyn Subject, disturbed: &[&str]) {
    let size = match std::env::var("CONFORMANCE_SIZE").as_deref() {
        Ok("full") => Size::Full,
        _ => Size::Quick,
    };
    let seed =
        std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED_DEFAULT);
    let report = match std::env::var("CONFORMANCE_CHECK") {
        Ok(check) => run_check(subject, &check, size, seed),
        Err(_) => run_seeded(subject, size, seed),
    };
    println!("{report}");
    for check in &report.checks {
        let is_broken = |outcome: &Outcome| matches!(outcome, Outcome::Broken(_));
        let is_kept = |_| {
            let again = run_check(subject, check.name, size, seed);
            println!("again: {again}");
            !again.checks.is_empty() && !again.checks.iter().any(|check| is_broken(&check.outcome))
        };
        let may_be_disturbed = disturbed.contains(&check.name);
        let holds = !is_broken(&check.outcome) || (may_be_disturbed && (0..2).any(is_kept));
        assert!(holds, "{}: {:?}", check.name, check.outcome);
    }
    let is_whole = report.checks.len() > 1;
    let not_tried: Vec<&str> = report.skipped().map(|check| check.name).collect();
    assert!(!is_whole || not_tried == OF_WHAT_SURVIVES, "not tried: {not_tried:?}");
}

/// The checks that nodes in memory cannot run; all others must run.
const OF_WHAT_SURVIVES: [&str; 5] = [
    "what_was_acknowledged_is_there_after_close",
    "what_was_flushed_survives_the_process",
    "what_was_synced_survives_power_loss",
    "batches_are_not_torn_by_a_crash",
    "request_ids_survive_with_their_writes",
];

/// A wait polls only after this long, so that what wakes it is always a write, however busy the machine is.
const TURN: Duration = Duration::from_secs(3600);

/// The options of the store number `opened`: every other store has a latency class.
pub fn options(seeds: Vec<String>, opened: u32) -> RingOptions {
    let latency = if opened.is_multiple_of(2) { LatencyClass::None } else { LatencyClass::Fifty };
    RingOptions { latency, turn: TURN, ..RingOptions::of(seeds) }
}

/// Empties a ring so that it can be used like a new one: starting another ring for each check would take
/// longer than the checks.
pub async fn reuse(store: RingStore) -> Result<SharedStore, StoreError> {
    empty(&store).await?;
    Ok(Arc::new(Relayed(Renamed { store, stranger: fastrand::u128(..) })))
}

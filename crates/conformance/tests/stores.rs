//! The suite passes honest stores and rejects every store with a planted fault, by the check named.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

use atoll_conformance::broken::{NoFlaw, PlantedSubject, Specimen, specimens};
use atoll_conformance::{Memory, Report, SEED_DEFAULT, Size, run_seeded};
use std::sync::Mutex;
use std::time::Instant;

/// The seed of these tests; `CONFORMANCE_SEED=n cargo test -p atoll-conformance` takes another.
fn seed() -> u64 {
    std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED_DEFAULT)
}

#[test]
fn the_memory_store_keeps_every_promise() {
    let report = run_seeded(&Memory::default(), Size::Quick, seed());
    print!("{report}");
    assert!(report.is_clean(), "{report}");
    let volatile =
        ["after_close", "survives_the_process", "survives_power_loss", "torn_by_a_crash", "survive_with"];
    assert_eq!(report.skipped().count(), volatile.len(), "{report}");
    for skipped in report.skipped() {
        assert!(volatile.iter().any(|name| skipped.name.contains(name)), "{report}");
    }
}

#[test]
fn a_store_that_survives_keeps_every_promise_and_skips_none() {
    let report = run_seeded(&PlantedSubject::<NoFlaw>::named("no flaw"), Size::Quick, seed());
    print!("{report}");
    assert!(report.is_clean() && report.skipped().count() == 0, "{report}");
}

#[test]
#[ignore = "a minute; run it with `cargo test -p atoll-conformance --release -- --ignored`"]
fn the_memory_store_keeps_every_promise_at_full_size() {
    for report in [
        run_seeded(&Memory::default(), Size::Full, seed()),
        run_seeded(&PlantedSubject::<NoFlaw>::named("no flaw"), Size::Full, seed()),
    ] {
        print!("{report}");
        for check in &report.checks {
            println!("{:>10.1?} {}", check.took, check.name);
        }
        assert!(report.is_clean(), "{report}");
    }
}

/// The whole suite on every specimen, a few at a time.
fn examine(specimens: Vec<Specimen>) -> Vec<(Specimen, Report)> {
    let waiting = Mutex::new(specimens);
    let examined = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(specimen) = { waiting.lock().unwrap().pop() } {
                    let report = run_seeded(&*specimen.subject, Size::Quick, seed());
                    examined.lock().unwrap().push((specimen, report));
                }
            });
        }
    });
    examined.into_inner().unwrap()
}

#[test]
fn every_store_with_a_planted_fault_is_rejected_by_the_check_that_is_named() {
    let started = Instant::now();
    let examined = examine(specimens());
    assert!(examined.len() >= 20);
    let mut missed = Vec::new();
    for (Specimen { name, caught_by, .. }, report) in &examined {
        let found: Vec<_> = report.broken().map(|check| check.name).collect();
        println!("{name}: rejected by {} checks in {:.1?}, named {caught_by}", found.len(), report.took());
        if !found.contains(caught_by) {
            missed.push(format!("{name} is not caught by {caught_by}:\n{report}"));
        }
    }
    println!("{} planted stores, {:.1?}", examined.len(), started.elapsed());
    assert!(missed.is_empty(), "{}", missed.concat());
}

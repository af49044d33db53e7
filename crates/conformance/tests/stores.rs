//! The suite passes correct stores and rejects every store with a planted fault, by the check that the
//! specimen names.
//!
//! `CONFORMANCE_SEED=n` takes another seed, `CONFORMANCE_SIZE=full` the full size, which takes minutes:
//! `cargo xtask soak conformance` runs it on every implementation, seed after seed.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods)]

use atoll_conformance::broken::{NoFlaw, PlantedSubject, Specimen, specimens};
use atoll_conformance::{Checked, Memory, Outcome, Report, SEED_DEFAULT, Size, run_seeded};
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn seed() -> u64 {
    std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED_DEFAULT)
}

fn size() -> Size {
    match std::env::var("CONFORMANCE_SIZE").as_deref() {
        Err(_) | Ok("quick") => Size::Quick,
        Ok("full") => Size::Full,
        Ok(other) => panic!("CONFORMANCE_SIZE is quick or full, not {other:?}"),
    }
}

#[test]
fn the_memory_store_keeps_every_promise() {
    let report = run_seeded(&Memory::default(), size(), seed());
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
    let report = run_seeded(&PlantedSubject::<NoFlaw>::named("no flaw"), size(), seed());
    print!("{report}");
    for slow in report.checks.iter().filter(|check| check.took > Duration::from_millis(50)) {
        println!("{:>10.1?} {}", slow.took, slow.name);
    }
    assert!(report.is_clean() && report.skipped().count() == 0, "{report}");
}

/// More than there are cores: a fault planted in a wait shows as a time-out, and time-outs run side by side.
const AT_ONCE: usize = 12;

/// The whole suite on every specimen, many at a time.
fn examine(specimens: Vec<Specimen>) -> Vec<(Specimen, Report)> {
    let waiting = Mutex::new(specimens);
    let examined = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
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

/// How the message of a check begins that did not find the fault it looks for: the store broke down first, or
/// hung.
const BROKE_DOWN: [&str; 4] =
    ["panicked", "did not end within", "a call that must succeed failed", "a call did not return"];

/// Whether the check of this name found what it looks for.
fn is_caught(report: &Report, by: &str) -> bool {
    report.checks.iter().filter(|check| check.name == by).any(|check| match &check.outcome {
        Outcome::Broken(how) => !BROKE_DOWN.iter().any(|beginning| how.starts_with(beginning)),
        Outcome::Kept | Outcome::Skipped(_) => false,
    })
}

#[test]
fn a_store_that_only_breaks_down_is_caught_by_no_check() {
    let report = |how: &str| Report {
        subject: "planted".to_owned(),
        size: Size::Quick,
        seed: 0,
        checks: vec![Checked {
            name: "some check",
            outcome: Outcome::Broken(how.to_owned()),
            took: Duration::ZERO,
        }],
    };
    assert!(is_caught(&report("value after write 3: expected 3, found 2"), "some check"));
    assert!(!is_caught(&report("value after write 3: expected 3, found 2"), "another"));
    for how in BROKE_DOWN {
        assert!(!is_caught(&report(&format!("{how}: whatever it is")), "some check"), "{how}");
    }
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
        if !is_caught(report, caught_by) {
            missed.push(format!("{name} is not caught by {caught_by}:\n{report}"));
        }
    }
    println!("{} planted stores, {:.1?}", examined.len(), started.elapsed());
    assert!(missed.is_empty(), "{}", missed.concat());
}

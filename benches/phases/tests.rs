//! The phases measure what they say, and detect wrong results.

use super::faulty::{Fault, plant};
use super::*;
use std::path::Path;

fn spec(phase: Phase, engine: EngineName, folder: &Path) -> Spec {
    Spec {
        engine,
        phase,
        folder: folder.to_owned(),
        records: 2500,
        value_bytes: 100,
        requests: 1600,
        answer: folder.join("answer"),
    }
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("atoll-bench-phases-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn all_phases_of_every_engine_run_and_read_nothing_wrong() {
    let phases = [Phase::Load, Phase::Get, Phase::GetMany, Phase::Scan, Phase::Update, Phase::Verify];
    for engine in EngineName::ALL.into_iter().filter(|name| name.is_built()) {
        let folder = folder(engine.name());
        for phase in phases {
            let skipped = match phase {
                Phase::Scan => engine == EngineName::Harness,
                Phase::Update => engine == EngineName::Harness,
                Phase::Verify => !engine.is_persistent(),
                _ => false,
            };
            if skipped {
                continue;
            }
            let result = run(&spec(phase, engine, &folder))
                .unwrap_or_else(|error| panic!("{} {phase:?}: {error}", engine.name()));
            assert_eq!(result.wrong, 0, "{} {phase:?}: {:?}", engine.name(), result.first_wrong);
            assert!(result.operations > 0 && result.settled_cpu_seconds >= result.cpu_seconds * 0.99);
            let reads = !matches!(phase, Phase::Load);
            assert_eq!(result.checked > 0, reads, "{} {phase:?}", engine.name());
        }
        let _ = std::fs::remove_dir_all(&folder);
    }
}

#[test]
fn the_check_after_updates_finds_a_lost_one() {
    for engine in EngineName::ALL.into_iter().filter(|name| name.is_built() && name.is_persistent()) {
        let folder = folder(&format!("lost-{}", engine.name()));
        run(&spec(Phase::Load, engine, &folder)).expect("loads");
        // Without the updates of YCSB A, every updated record counts as a lost update.
        let result = run(&spec(Phase::Verify, engine, &folder)).expect("verifies");
        assert!(result.wrong > 100, "{}: {}", engine.name(), result.wrong);
        let _ = std::fs::remove_dir_all(&folder);
    }
}

#[test]
fn a_range_that_goes_and_comes_back_is_counted_and_looked_at() {
    let folder = folder("ranges");
    let result = run(&spec(Phase::Ranges, EngineName::Atoll, &folder)).expect("runs");
    assert_eq!(result.wrong, 0, "{:?}", result.first_wrong);
    assert!(result.checked > 0 && result.extra[ranges::WRITTEN] > 0.0, "{:?}", result.extra);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn figures_follow_from_what_was_counted() {
    let result = PhaseResult {
        operations: 1000,
        wall_seconds: 0.5,
        cpu_seconds: 0.002,
        settled_cpu_seconds: 0.003,
        io: IoBytes { handed_over: 300, to_disk: 200 },
        user_bytes: 100,
        latency: Some(Latency { worst_running_us: 50.0, worst_own_us: 30.0, ..Latency::default() }),
        // Perhaps of another moment.
        control_worst_us: 50.0,
        ..PhaseResult::default()
    };
    assert!((result.cpu_us() - 2.0).abs() < 1e-9);
    assert!((result.settled_cpu_us() - 3.0).abs() < 1e-9);
    assert!((result.kilo_operations_per_second() - 2.0).abs() < 1e-9);
    assert!((result.bytes_handed_over() - 3.0).abs() < 1e-9);
    assert!((result.bytes_to_disk() - 2.0).abs() < 1e-9);
    assert!((result.bytes_at_most() - 3.0).abs() < 1e-9);
    assert_eq!(result.worst_excess_us(), Some(30.0));
}

/// Runs phases one after the other on an Atoll store, the last one with a planted fault.
fn with_fault(name: &str, phases: &[Phase], fault: Option<Fault>) -> PhaseResult {
    let folder = folder(name);
    let (last, before) = phases.split_last().expect("a phase");
    for &phase in before {
        run(&spec(phase, EngineName::Atoll, &folder)).expect("runs");
    }
    plant(fault);
    let last = spec(*last, EngineName::Atoll, &folder);
    // Making the control group may not be permitted; the checks are the same without it.
    let ran = if last.phase == Phase::Beyond { beyond::run_unconfined(&last) } else { run(&last) };
    plant(None);
    let result = ran.expect("runs");
    let _ = std::fs::remove_dir_all(&folder);
    result
}

#[test]
fn one_writer_and_two_do_the_same_work_for_each_call() {
    let one = with_fault("one-writer", &[Phase::Load, Phase::Update], None);
    let two = with_fault("two-writers", &[Phase::Load, Phase::Update, Phase::UpdatePair], None);
    assert_eq!((one.wrong, two.wrong), (0, 0), "{:?} {:?}", one.first_wrong, two.first_wrong);
    let timed = |result: &PhaseResult| result.latency.map(|latency| latency.calls);
    assert_eq!(timed(&one), Some(1600));
    assert_eq!(timed(&two), timed(&one));
}

#[test]
fn scans_of_a_fresh_store_and_of_an_aged_one_do_the_same_work() {
    let phases = [Phase::Load, Phase::Overwrite, Phase::ScanAged];
    let fresh = with_fault("fresh", &[Phase::Load, Phase::Scan], None);
    let aged = with_fault("aged", &phases, None);
    assert_eq!((fresh.wrong, aged.wrong), (0, 0), "{:?} {:?}", fresh.first_wrong, aged.first_wrong);
    // Gets of all records, one scan of everything, and the two passes.
    assert_eq!(aged.checked + 1, fresh.checked, "opening checks one more");
    let calls = |result: &PhaseResult| result.latency.map(|latency| latency.calls);
    assert_eq!(calls(&aged), calls(&fresh));
}

#[test]
fn scans_out_of_order_are_wrong_in_a_fresh_store_and_in_an_aged_one() {
    let repeats = Some(Fault::RepeatsEntries);
    let fresh = with_fault("fresh-order", &[Phase::Load, Phase::Scan], repeats);
    let aged = with_fault("aged-order", &[Phase::Load, Phase::Overwrite, Phase::ScanAged], repeats);
    // The whole store once, and each scan of more than one entry, twice if it is timed as well.
    assert!(fresh.wrong > 2500 + 1600 && aged.wrong > 2500 + 1600, "{} {}", fresh.wrong, aged.wrong);
}

#[test]
fn updates_that_one_writer_or_one_of_two_loses_are_wrong() {
    let loses = Some(Fault::LosesPuts);
    let one = with_fault("loses-one", &[Phase::Load, Phase::Update], loses);
    assert!(one.wrong > 100, "{}", one.wrong);
    let two = with_fault("loses-two", &[Phase::Load, Phase::Update, Phase::UpdatePair], loses);
    assert!(two.wrong > 0, "what one loses, the other may have overwritten, but not all of it");
}

#[test]
fn puts_that_are_lost_are_wrong_in_every_phase_that_puts() {
    let (loses, forgets) = (Some(Fault::LosesPuts), Some(Fault::ForgetsAtClose));
    // With two threads the number depends on the order: the other thread may have overwritten a lost put.
    let phases = [
        ("single", &[Phase::LoadSingle][..], 1250),
        ("pair", &[Phase::Load, Phase::Update, Phase::UpdatePair], 1),
        ("beyond", &[Phase::Beyond], 300),
    ];
    for (name, phases, least) in phases {
        let right = with_fault(name, phases, None);
        assert_eq!(right.wrong, 0, "{name}: {:?}", right.first_wrong);
        assert!(right.checked >= 800, "{name}: {}", right.checked);
        assert!(with_fault(name, phases, loses).wrong >= least, "{name}");
        // Only a later check finds that.
        assert!(with_fault(name, phases, forgets).wrong > 100, "{name}");
    }
}

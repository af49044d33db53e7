//! The phases measure what they say, and see what is wrong.

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
        // Without the updates of A, every updated record is a lost update.
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
        // Of another moment, maybe.
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

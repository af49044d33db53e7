//! The aftermath of updates: the space of the store after its records were overwritten many times, and the
//! cost of scans then.

use super::read::{check_whole_order, scans};
use super::window::Window;
use super::write::open_timed;
use super::{PhaseResult, SCAN_ENTRIES, SEED, Spec};
use crate::measure::allocated_bytes;
use crate::peers::{Engine, EngineError};
use crate::workloads::{Key, Verifier, Zipfian, fill_value, hash_of_counter, scan_requests};

/// Updates per record.
pub const OVERWRITES: u64 = 10;
/// Space relative to live data after settling and closing.
pub const SPACE_SETTLED: &str = "space over live data, settled";
/// The peak of the same while serving.
pub const SPACE_SERVING: &str = "space over live data, most while serving";

/// Records of zipfian updates, in order; update `n` writes version `n + 1`.
fn updated(records: u64) -> impl Iterator<Item = (u64, u64)> {
    let mut choices = Zipfian::new(records, SEED + 7);
    (1..=records * OVERWRITES).map(move |version| (choices.next_record(), version))
}

/// Zipfian updates, ten per record; a snapshot is held during half of them if the engine has snapshots.
pub fn overwrite(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let (updates, live) = (spec.records * OVERWRITES, (spec.records * spec.record_bytes()) as f64);
    let mut value = vec![0; spec.value_bytes];
    let mut most: f64 = 0.0;
    let mut window = Window::start();
    for (record, version) in updated(spec.records) {
        let key = Key::of_counter(record);
        fill_value(&key, version, &mut value);
        engine.put(&key.0, &value)?;
        if version == updates * 3 / 10 {
            engine.hold_snapshot()?;
        } else if version == updates * 8 / 10 {
            engine.let_go_of_snapshot();
        }
        if version.is_multiple_of(spec.records.div_ceil(4)) {
            most = most.max(allocated_bytes(&spec.folder)? as f64 / live);
        }
    }
    window.end_calls(updates, None);
    window.close(engine)?;
    let settled = allocated_bytes(&spec.folder)? as f64 / live;
    let mut result = window.finish(spec, open_ms, Verifier::new(spec.value_bytes));
    result.extra.extend([(SPACE_SETTLED.to_owned(), settled), (SPACE_SERVING.to_owned(), most.max(settled))]);
    Ok(result)
}

/// Scans of 100 entries in an overwritten store, with the same work as scans of a fresh one. Before that,
/// every record must hold its last version, or if it had no updates the one that earlier phases wrote, and
/// a scan of everything must find the same.
pub fn scan(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let requests = scan_requests(spec.records, spec.requests, SCAN_ENTRIES, SEED + 2);
    let (mut engine, open_ms) = open_timed(spec)?;
    engine.expect_only_reads()?;
    let versions = check_versions(engine.as_mut(), spec, &mut verifier)?;
    let mut expected: Vec<(u64, u64)> =
        (0..).map(hash_of_counter).zip(versions.into_iter().map(u64::from)).collect();
    expected.sort_unstable();
    check_whole_order(engine.as_mut(), expected.into_iter(), &mut verifier)?;
    let window = scans(engine.as_mut(), &requests, versions_of(spec), &mut verifier)?;
    engine.close()?;
    let mut result = window.finish(spec, open_ms, verifier);
    result.user_bytes = 0;
    Ok(result)
}

/// All versions are below this one.
fn versions_of(spec: &Spec) -> u64 {
    spec.records * OVERWRITES + 1
}

/// Gets every record and returns their versions.
fn check_versions(
    engine: &mut dyn Engine,
    spec: &Spec,
    verifier: &mut Verifier,
) -> Result<Vec<u32>, EngineError> {
    let mut last = vec![0_u32; spec.records as usize];
    updated(spec.records).for_each(|(record, version)| last[record as usize] = version as u32);
    for (counter, version) in (0..).zip(&mut last) {
        let key = Key::of_counter(counter);
        engine.get(&key.0, &mut |value| match *version {
            0 => *version = verifier.find(&key.0, versions_of(spec), value) as u32,
            version => verifier.check(&key.0, u64::from(version), value),
        })?;
    }
    Ok(last)
}

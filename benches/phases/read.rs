//! Phases that read: YCSB C one by one and in batches, scans, and the check after YCSB A.
//!
//! CPU time is measured over a pass without a clock in it; a second, shorter pass times every call.

use super::window::Window;
use super::write::{load_batches, open_timed};
use super::{PhaseResult, READ_BATCH, SCAN_ENTRIES, SEED, Spec};
use crate::measure::{ControlThread, LatencyMeter};
use crate::peers::{Engine, EngineError};
use crate::workloads::{
    Key, ScanRequest, Verifier, hash_of_counter, point_requests, scan_requests, update_requests,
    versions_after,
};

/// The timed pass makes one call for this many of the first pass.
const TIMED_SHARE: usize = 5;

/// Reads every record once, so that all of it is cached; fills an engine that keeps nothing on disk.
pub fn warm(engine: &mut dyn Engine, spec: &Spec, verifier: &mut Verifier) -> Result<(), EngineError> {
    if !spec.engine.is_persistent() {
        load_batches(engine, spec, || {})?;
    }
    for counter in 0..spec.records {
        let key = Key::of_counter(counter);
        engine.get(&key.0, &mut |value| verifier.check(&key.0, 0, value))?;
    }
    Ok(())
}

/// Opens for reading, with everything cached.
fn open_warm(spec: &Spec, verifier: &mut Verifier) -> Result<(Box<dyn Engine>, f64), EngineError> {
    let started = std::time::Instant::now();
    let (mut engine, mut open_ms) = open_timed(spec)?;
    if spec.engine.is_persistent() {
        let first = Key::of_counter(0);
        engine.get(&first.0, &mut |value| verifier.check(&first.0, 0, value))?;
        open_ms = started.elapsed().as_secs_f64() * 1000.0;
        engine.expect_only_reads()?;
    }
    warm(engine.as_mut(), spec, verifier)?;
    Ok((engine, open_ms))
}

/// Makes all calls once untimed for their CPU time, and a part of them again for their latencies.
fn two_passes<Call>(
    calls: &[Call],
    keys_per_call: usize,
    mut make: impl FnMut(&Call) -> Result<(), EngineError>,
) -> Result<Window, EngineError> {
    let mut window = Window::start();
    for call in calls {
        make(call)?;
    }
    window.end_calls((calls.len() * keys_per_call) as u64, None);
    let control = ControlThread::start();
    let mut meter = LatencyMeter::start();
    for call in &calls[..calls.len() / TIMED_SHARE] {
        make(call)?;
        meter.lap();
    }
    window.set_latency(&meter, &control.finish());
    Ok(window)
}

fn close(engine: Box<dyn Engine>) -> Result<(), EngineError> {
    // Nothing was written, so there is nothing to settle.
    engine.close()
}

/// YCSB C, one get at a time.
pub fn get(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let requests = point_requests(spec.records, spec.requests, SEED);
    let (mut engine, open_ms) = open_warm(spec, &mut verifier)?;
    let window = two_passes(&requests, 1, |&record| {
        let key = Key::of_counter(u64::from(record));
        engine.get(&key.0, &mut |value| verifier.check(&key.0, 0, value))
    })?;
    close(engine)?;
    Ok(window.finish(spec, open_ms, verifier))
}

/// YCSB C in batches of 16. An operation is one key; a latency is that of a batch.
pub fn get_many(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let requests = point_requests(spec.records, spec.requests, SEED + 1);
    let batches: Vec<&[u32]> = requests.chunks_exact(READ_BATCH).collect();
    let (mut engine, open_ms) = open_warm(spec, &mut verifier)?;
    let window = two_passes(&batches, READ_BATCH, |batch| {
        let keys: [Key; READ_BATCH] = std::array::from_fn(|place| Key::of_counter(u64::from(batch[place])));
        let slices: [&[u8]; READ_BATCH] = std::array::from_fn(|place| keys[place].as_ref());
        let mut answers = 0;
        engine.get_many(&slices, &mut |place, value| {
            answers += 1;
            verifier.check(slices[place], 0, value);
        })?;
        if answers != READ_BATCH {
            verifier.note(format!("{answers} answers to {READ_BATCH} keys"));
        }
        Ok(())
    })?;
    close(engine)?;
    Ok(window.finish(spec, open_ms, verifier))
}

/// Scans of 100 from zipfian starts. An operation is one scan.
pub fn scan(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let requests = scan_requests(spec.records, spec.requests, SCAN_ENTRIES, SEED + 2);
    let (mut engine, open_ms) = open_warm(spec, &mut verifier)?;
    let mut hashes: Vec<u64> = (0..spec.records).map(hash_of_counter).collect();
    hashes.sort_unstable();
    check_whole_order(engine.as_mut(), hashes.into_iter().map(|hash| (hash, 0)), &mut verifier)?;
    let window = scans(engine.as_mut(), &requests, 1, &mut verifier)?;
    close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    result.user_bytes = 0;
    Ok(result)
}

/// Makes these scans of records with versions below `versions`. The checks cost the same whatever the
/// number of versions, so that scans of a fresh store and of an overwritten one can be compared.
pub fn scans(
    engine: &mut dyn Engine,
    requests: &[ScanRequest],
    versions: u64,
    verifier: &mut Verifier,
) -> Result<Window, EngineError> {
    two_passes(requests, 1, |request| scan_once(engine, request, versions, verifier))
}

#[inline]
fn scan_once(
    engine: &mut dyn Engine,
    request: &ScanRequest,
    versions: u64,
    verifier: &mut Verifier,
) -> Result<(), EngineError> {
    let (first, last) = (request.first_key(), request.last_key());
    let mut entries = 0;
    let mut before = [0; 3];
    engine.scan(&first.0, SCAN_ENTRIES as usize, &mut |key, value| {
        verifier.check_any(key, versions, Some(value));
        let place = order_of(key);
        if place <= before {
            verifier.note(format!("{} does not come after the entry before", key.escape_ascii()));
        }
        before = place;
        entries += 1;
    })?;
    if entries != request.entries || before != order_of(&last.0) {
        verifier.note(format!("scan of {} entries to {:?} ended after {entries}", request.entries, last));
    }
    Ok(())
}

/// A key as three numbers that sort like the keys, without a call for comparisons; zeros if it is not a
/// key.
#[inline]
fn order_of(key: &[u8]) -> [u64; 3] {
    let word = |at: usize| {
        let bytes = key.get(at..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
    };
    [word(0), word(8), word(16)]
}

/// Checks the whole store in order, given the hashes of keys with their versions: no key is missing,
/// repeated, unknown or stale.
pub fn check_whole_order(
    engine: &mut dyn Engine,
    mut expected: impl ExactSizeIterator<Item = (u64, u64)>,
    verifier: &mut Verifier,
) -> Result<(), EngineError> {
    engine.scan(b"user", usize::MAX >> 1, &mut |key, value| {
        let due = expected.next().map(|(hash, version)| (Key::of_hash(hash), version));
        match due {
            Some((right, version)) if right.as_ref() == key => verifier.check(key, version, Some(value)),
            other => verifier.note(format!("{} where {other:?} was due", key.escape_ascii())),
        }
    })?;
    let missing = expected.len();
    if missing > 0 {
        verifier.note(format!("{missing} keys missing at the end"));
    }
    Ok(())
}

/// After YCSB A, in a new process: checks that every record holds the version of its last update.
pub fn verify(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let versions = versions_after(spec.records, &update_requests(spec.records, spec.requests, SEED + 3));
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut window = Window::start();
    for (counter, &version) in (0..).zip(&versions) {
        let key = Key::of_counter(counter);
        engine.get(&key.0, &mut |value| verifier.check(&key.0, version, value))?;
    }
    window.end_calls(spec.records, None);
    close(engine)?;
    Ok(window.finish(spec, open_ms, verifier))
}

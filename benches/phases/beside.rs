//! More than one thread on one store: two that run YCSB A, and one that reads while a checkpoint is written.

use super::window::Window;
use super::write::open_timed;
use super::{PhaseResult, SEED, Spec};
use crate::measure::LatencyMeter;
use crate::peers::{Engine, EngineError};
use crate::workloads::{Key, UpdateRequest, Verifier, fill_value, point_requests, update_requests};
use std::sync::atomic::{AtomicBool, Ordering};

/// The reader's p99 while checkpoints are written, over its p99 in quiet.
pub const READER_RATIO: &str = "reader p99 beside a checkpoint over quiet";
/// How many checkpoints the reader is beside.
const CHECKPOINTS: u64 = 5;

/// Records have versions below this: request `n` of a phase on this store writes version `n + 1`, the checkpoints' rounds
/// are fewer than that, and a value of another key would have to be of some version far beyond.
fn versions(spec: &Spec) -> u64 {
    spec.requests + 1
}

/// Reads every record once, so that all of it is cached.
fn read_all(engine: &mut dyn Engine, spec: &Spec, verifier: &mut Verifier) -> Result<(), EngineError> {
    for counter in 0..spec.records {
        let key = Key::of_counter(counter);
        engine.get(&key.0, &mut |value| verifier.check_any(&key.0, versions(spec), value))?;
    }
    Ok(())
}

/// YCSB A by two threads, half of the calls each; what they read is checked, versions up to the last one.
pub fn update_pair(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut verifier = Verifier::new(spec.value_bytes);
    read_all(engine.as_mut(), spec, &mut verifier)?;
    let requests = update_requests(spec.records, spec.requests, SEED + 9);
    let (ours, theirs) = requests.split_at(requests.len() / 2);
    let beside = engine.beside()?;
    let mut window = Window::start();
    let found = std::thread::scope(|scope| {
        let other = scope.spawn(|| run_updates(beside().as_mut(), spec, theirs));
        let own = run_updates(engine.as_mut(), spec, ours)?;
        let other = other.join().map_err(|_| "the second thread panicked")??;
        Ok::<_, EngineError>([own, other])
    })?;
    for what in found.into_iter().filter_map(|found| found.first_wrong) {
        verifier.note(what);
    }
    window.end_calls(spec.requests, None);
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    let updates = requests.iter().filter(|request| request.is_update()).count() as u64;
    result.user_bytes = updates * spec.record_bytes();
    Ok(result)
}

fn run_updates(
    engine: &mut dyn Engine,
    spec: &Spec,
    requests: &[UpdateRequest],
) -> Result<Verifier, EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut value = vec![0; spec.value_bytes];
    for (number, request) in (0..).zip(requests) {
        let key = Key::of_counter(request.record());
        if request.is_update() {
            fill_value(&key, number + 1, &mut value);
            engine.put(&key.0, &value)?;
        } else {
            engine.get(&key.0, &mut |value| verifier.check_any(&key.0, versions(spec), value))?;
        }
    }
    Ok(verifier)
}

/// One thread gets records, first alone, then beside checkpoints of a tenth of the records, and of nothing else:
/// the updates between them are made while it pauses.
pub fn read_beside(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut verifier = Verifier::new(spec.value_bytes);
    read_all(engine.as_mut(), spec, &mut verifier)?;
    let requests = point_requests(spec.records, spec.requests, SEED + 11);
    let mut window = Window::start_with_control();
    let mut quiet = LatencyMeter::start();
    let ended = AtomicBool::new(false);
    read_until(engine.as_mut(), spec, requests.iter().copied(), &ended, &mut quiet, &mut verifier)?;
    let mut value = vec![0; spec.value_bytes];
    let mut meter = LatencyMeter::start();
    for round in 0..CHECKPOINTS {
        for counter in (round..spec.records).step_by(10) {
            let key = Key::of_counter(counter);
            fill_value(&key, round + 1, &mut value);
            engine.put(&key.0, &value)?;
        }
        let (beside, ended) = (engine.beside()?, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut reader = beside();
                let passes = requests.len().saturating_mul(1000);
                let calls = requests.iter().cycle().copied().take(passes);
                meter.resume();
                read_until(reader.as_mut(), spec, calls, &ended, &mut meter, &mut verifier)
            });
            let written = engine.checkpoint();
            ended.store(true, Ordering::Release);
            reading.join().map_err(|_| "the reader panicked")??;
            written
        })?;
    }
    window.end_calls(spec.requests, Some(meter.finish()));
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    result.extra.insert(READER_RATIO.to_owned(), meter.finish().p99_us / quiet.finish().p99_us);
    Ok(result)
}

/// Timed gets of these records, until they are over or `ended` says so.
fn read_until(
    engine: &mut dyn Engine,
    spec: &Spec,
    requests: impl IntoIterator<Item = u32>,
    ended: &AtomicBool,
    meter: &mut LatencyMeter,
    verifier: &mut Verifier,
) -> Result<(), EngineError> {
    for record in requests {
        if ended.load(Ordering::Acquire) {
            break;
        }
        let key = Key::of_counter(u64::from(record));
        engine.get(&key.0, &mut |value| verifier.check_any(&key.0, versions(spec), value))?;
        meter.lap();
    }
    Ok(())
}

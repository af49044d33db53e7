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
/// The same while the store is copied, as a backup does.
pub const BACKUP_RATIO: &str = "reader p99 beside a backup over quiet";
/// Log segments that were cleaned by those checkpoints.
pub const SEGMENTS_CLEANED: &str = "log segments cleaned beside the reader";
/// How many copies the reader is beside.
const BACKUPS: usize = 2;
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

/// One thread gets records, first alone, then beside checkpoints of a tenth of the records, then beside copies of all, and of
/// nothing else: the updates between checkpoints are made while it pauses. Long values lie in the log, which checkpoints
/// clean.
pub fn read_beside(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut reading = Reading::of(spec);
    read_all(engine.as_mut(), spec, &mut reading.verifier)?;
    let mut window = Window::start_with_control();
    let mut quiet = LatencyMeter::start();
    let never = AtomicBool::new(false);
    let calls = reading.requests.iter().copied();
    read_until(engine.as_mut(), spec, calls, &never, &mut quiet, &mut reading.verifier)?;
    let quiet = quiet.finish().p99_us;
    let mut value = vec![0; spec.value_bytes];
    let mut checkpoints = LatencyMeter::start();
    for round in 0..CHECKPOINTS {
        for counter in (round..spec.records).step_by(10) {
            let key = Key::of_counter(counter);
            fill_value(&key, round + 1, &mut value);
            engine.put(&key.0, &value)?;
        }
        reading.beside(engine.as_mut(), &mut checkpoints, |engine| engine.checkpoint())?;
    }
    let cleaned = engine.segments_cleaned();
    let backup = cleaned.map(|_| back_up_beside(engine.as_mut(), &mut reading)).transpose()?;
    window.end_calls(spec.requests, Some(&checkpoints));
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, reading.verifier);
    let ratio = checkpoints.finish().p99_us / quiet;
    result.extra.insert(READER_RATIO.to_owned(), ratio);
    if let Some((cleaned, backup)) = cleaned.zip(backup) {
        result.extra.insert(SEGMENTS_CLEANED.to_owned(), cleaned as f64);
        result.extra.insert(BACKUP_RATIO.to_owned(), backup / quiet);
    }
    Ok(result)
}

/// The reader's p99 beside copies of the store.
fn back_up_beside(engine: &mut dyn Engine, reading: &mut Reading) -> Result<f64, EngineError> {
    let mut meter = LatencyMeter::start();
    let folder = reading.spec.folder.join("backup");
    for _ in 0..BACKUPS {
        std::fs::create_dir_all(&folder)?;
        reading.beside(engine, &mut meter, |engine| engine.back_up(&folder))?;
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(meter.finish().p99_us)
}

/// A thread that reads.
struct Reading {
    spec: Spec,
    requests: Vec<u32>,
    verifier: Verifier,
}

impl Reading {
    fn of(spec: &Spec) -> Self {
        let requests = point_requests(spec.records, spec.requests, SEED + 11);
        Self { spec: spec.clone(), requests, verifier: Verifier::new(spec.value_bytes) }
    }

    /// Reads for as long as `work` takes.
    fn beside(
        &mut self,
        engine: &mut dyn Engine,
        meter: &mut LatencyMeter,
        work: impl FnOnce(&mut dyn Engine) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let (beside, ended) = (engine.beside()?, AtomicBool::new(false));
        let Self { spec, requests, verifier } = self;
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut reader = beside();
                let passes = requests.len().saturating_mul(1000);
                let calls = requests.iter().cycle().copied().take(passes);
                meter.resume();
                read_until(reader.as_mut(), spec, calls, &ended, meter, verifier)
            });
            let worked = work(engine);
            ended.store(true, Ordering::Release);
            reading.join().map_err(|_| "the reader panicked")??;
            worked
        })
    }
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

//! Phases that write: the load in batches, the load by single puts, and YCSB A.

use super::window::Window;
use super::{LOAD_BATCH, PhaseResult, SEED, Spec};
use crate::measure::LatencyMeter;
use crate::peers::{self, Engine, EngineError};
use crate::workloads::{Batch, Key, Others, UpdateRequest, Verifier, fill_value, update_requests};
use std::time::Instant;

/// Opens the store of the spec; returns the milliseconds that took.
pub fn open_timed(spec: &Spec) -> Result<(Box<dyn Engine>, f64), EngineError> {
    let started = Instant::now();
    let engine = peers::open(spec.engine, &spec.folder, spec.open_options())?;
    #[cfg(test)]
    let engine = super::faulty::planted(engine);
    Ok((engine, started.elapsed().as_secs_f64() * 1000.0))
}

/// Reopens the store after all measurements and checks it, unless the engine keeps nothing.
pub fn check_again(
    spec: &Spec,
    result: &mut PhaseResult,
    check: impl FnOnce(&mut dyn Engine, &mut Verifier) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    if !spec.engine.is_persistent() {
        return Ok(());
    }
    let (mut engine, _) = open_timed(spec)?;
    let mut verifier = Verifier::new(spec.value_bytes);
    check(engine.as_mut(), &mut verifier)?;
    engine.close()?;
    result.add_checks(verifier);
    Ok(())
}

/// Inserts all records in batches; `batch_ended` is called after each.
pub fn load_batches(
    engine: &mut dyn Engine,
    spec: &Spec,
    mut batch_ended: impl FnMut(),
) -> Result<(), EngineError> {
    let mut batch = Batch::new(spec.value_bytes);
    let mut from = 0;
    while from < spec.records {
        let to = (from + LOAD_BATCH).min(spec.records);
        batch.refill(from..to);
        engine.load_batch(&mut batch.records())?;
        batch_ended();
        from = to;
    }
    Ok(())
}

/// YCSB load in batches of 1,000. A latency is that of a batch.
pub fn load(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut window = Window::start_with_control();
    let mut meter = LatencyMeter::start();
    load_batches(engine.as_mut(), spec, || meter.lap())?;
    window.end_calls(spec.records, Some(&meter));
    window.close(engine)?;
    Ok(window.finish(spec, open_ms, Verifier::new(spec.value_bytes)))
}

/// YCSB load, one put at a time; then looks up every record.
pub fn load_single(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut value = vec![0; spec.value_bytes];
    let mut window = Window::start_with_control();
    let mut meter = LatencyMeter::start();
    for counter in 0..spec.records {
        let key = Key::of_counter(counter);
        fill_value(&key, 0, &mut value);
        engine.put(&key.0, &value)?;
        meter.lap();
    }
    window.end_calls(spec.records, Some(&meter));
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, Verifier::new(spec.value_bytes));
    check_again(spec, &mut result, |engine, verifier| super::read::warm(engine, spec, verifier))?;
    Ok(result)
}

/// Makes these calls of YCSB A, timing each and checking each get: the same work for every caller, alone or
/// beside another.
pub fn make_updates(
    engine: &mut dyn Engine,
    spec: &Spec,
    requests: &[UpdateRequest],
    others: Others,
) -> Result<(Verifier, LatencyMeter), EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut value = vec![0; spec.value_bytes];
    let mut meter = LatencyMeter::start();
    for request in requests {
        let (key, version) = (Key::of_counter(request.record()), request.version());
        if request.is_update() {
            fill_value(&key, version, &mut value);
            engine.put(&key.0, &value)?;
        } else {
            engine.get(&key.0, &mut |value| verifier.check_beside(&key.0, version, others, value))?;
        }
        meter.lap();
    }
    Ok((verifier, meter))
}

/// YCSB A: half gets, half updates, zipfian. Version `n` of a record is written by request `n - 1`.
pub fn update(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut verifier = Verifier::new(spec.value_bytes);
    super::read::warm(engine.as_mut(), spec, &mut verifier)?;
    let requests = update_requests(spec.records, spec.requests, SEED + 3);
    let mut window = Window::start_with_control();
    let (found, meter) = make_updates(engine.as_mut(), spec, &requests, Others::NONE)?;
    window.end_calls(spec.requests, Some(&meter));
    verifier.join(found);
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    let updates = requests.iter().filter(|request| request.is_update()).count() as u64;
    result.user_bytes = updates * spec.record_bytes();
    Ok(result)
}

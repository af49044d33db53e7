//! Recovery: a process is killed while everything that it loaded is in the log, and another one opens the
//! store.

use super::window::Window;
use super::write::{load_batches, open_timed};
use super::{PhaseResult, Spec};
use crate::peers::EngineError;
use crate::workloads::{Key, Verifier};

/// Loads, writes its result and kills this process, without closing or flushing anything.
pub fn fill(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut window = Window::start();
    load_batches(engine.as_mut(), spec, || {})?;
    window.end_calls(spec.records, None);
    let result = window.finish(spec, open_ms, Verifier::new(spec.value_bytes));
    std::fs::write(&spec.answer, serde_json::to_vec(&result)?)?;
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    Err("the process outlived its own kill".into())
}

/// Opens, answers one get, and then checks that every acknowledged record is there.
pub fn open(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut window = Window::start();
    let started = std::time::Instant::now();
    let (mut engine, _) = open_timed(spec)?;
    let last = Key::of_counter(spec.records - 1);
    engine.get(&last.0, &mut |value| verifier.check(&last.0, 0, value))?;
    let ready_ms = started.elapsed().as_secs_f64() * 1000.0;
    window.end_calls(1, None);
    let replayed = engine.records_replayed();
    if replayed.is_some_and(|replayed| replayed < spec.records) {
        verifier.note(format!("only {replayed:?} of {} records were in the log tail", spec.records));
    }
    for counter in 0..spec.records {
        let key = Key::of_counter(counter);
        engine.get(&key.0, &mut |value| verifier.check(&key.0, 0, value))?;
    }
    engine.close()?;
    let mut result = window.finish(spec, ready_ms, verifier);
    result.user_bytes = spec.records * spec.record_bytes();
    result.extra.extend(replayed.map(|replayed| ("records replayed".to_owned(), replayed as f64)));
    Ok(result)
}

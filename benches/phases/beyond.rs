//! Data four times the memory budget, inside a control group of the budget and 64 MiB, so that the page
//! cache cannot help: a load, then updates, then gets.

use super::window::Window;
use super::write::{check_again, load_batches, open_timed};
use super::{PhaseResult, SEED, Spec};
use crate::measure::{LatencyMeter, anonymous_bytes, confine, io_bytes, write_calls};
use crate::peers::{Engine, EngineError};
use crate::workloads::{Key, Verifier, Zipfian, fill_value};
use std::time::Instant;

/// Updates per second.
pub const UPDATES: &str = "updates a second, data 4x budget";
/// Gets per second.
pub const GETS: &str = "gets a second, data 4x budget";
/// Bytes that the updates wrote outside of the log, relative to the bytes of data.
pub const METADATA: &str = "written beside the log over data, data 4x budget";
/// The same of load and updates together: the figures published of Tucana are of its load.
pub const METADATA_LOADED: &str = "written beside the log over data, load included, data 4x budget";
/// Mean length of a write call of the updates, in KB.
pub const MEAN_WRITE: &str = "mean write KB, data 4x budget";
/// The same of load and updates together.
pub const MEAN_WRITE_LOADED: &str = "mean write KB, load included, data 4x budget";
/// Peak anonymous memory relative to the budget, without the bench's own before opening.
pub const MEMORY: &str = "anonymous memory over budget, data 4x budget";
/// Memory that the control group allows beyond the budget.
const SLACK_BYTES: u64 = 64 << 20;
/// Calls between two readings of the memory.
const LOOK_EVERY: u64 = 4096;
/// Of the records without updates, one in this many is looked up in the end.
const UNTOUCHED_EACH: u64 = 20;

/// The peak of the memory.
struct Watch {
    before: u64,
    most: u64,
}

impl Watch {
    fn look(&mut self, number: u64) {
        if number.is_multiple_of(LOOK_EVERY) {
            self.most = self.most.max(anonymous_bytes().saturating_sub(self.before));
        }
    }
}

/// What this process has handed to write calls.
#[derive(Clone, Copy)]
struct Handed {
    bytes: u64,
    calls: u64,
}

impl Handed {
    fn now() -> Self {
        Self { bytes: io_bytes().handed_over, calls: write_calls() }
    }

    fn since(self, before: Self) -> Self {
        Self { bytes: self.bytes - before.bytes, calls: self.calls - before.calls }
    }

    /// The bytes without those of the log, which has the `logged` bytes of records once, over `data`.
    fn beside_the_log(self, logged: u64, data: u64) -> f64 {
        self.bytes.saturating_sub(logged) as f64 / data as f64
    }

    fn mean_kb(self) -> f64 {
        self.bytes as f64 / 1000.0 / self.calls.max(1) as f64
    }
}

/// What was written, by what was counted before the load, before the updates and after them.
fn written(spec: &Spec, [before_load, before_updates, after]: [Handed; 3]) -> [(String, f64); 4] {
    let [loaded, updated] = [spec.records, spec.requests].map(|records| records * spec.record_bytes());
    let (updates, all) = (after.since(before_updates), after.since(before_load));
    [
        (METADATA.to_owned(), updates.beside_the_log(updated, loaded)),
        (METADATA_LOADED.to_owned(), all.beside_the_log(loaded + updated, loaded)),
        (MEAN_WRITE.to_owned(), updates.mean_kb()),
        (MEAN_WRITE_LOADED.to_owned(), all.mean_kb()),
    ]
}

/// The calls, drawn before anything is measured or confined.
struct Calls {
    /// Records to update, in order; update `n` writes version `n + 1`.
    updates: Vec<u32>,
    /// Records to get afterwards, and the versions that they have then.
    gets: Vec<(u32, u32)>,
    /// The version of each record after the updates.
    last: Vec<u32>,
}

impl Calls {
    fn of(spec: &Spec) -> Self {
        let mut choices = Zipfian::new(spec.records, SEED + 13);
        let mut draw = || choices.next_record() as u32;
        let updates: Vec<u32> = (0..spec.requests).map(|_| draw()).collect();
        let mut last = vec![0; spec.records as usize];
        (1..).zip(&updates).for_each(|(version, &record)| last[record as usize] = version);
        let mut get = || {
            let record = draw();
            (record, last[record as usize])
        };
        let gets = (0..spec.requests).map(|_| get()).collect();
        Self { updates, gets, last }
    }

    /// Looks up each updated record, and some of the others.
    fn check_last(&self, engine: &mut dyn Engine, verifier: &mut Verifier) -> Result<(), EngineError> {
        let all = (0..).zip(&self.last);
        let looked_up = all.filter(|(counter, version)| **version > 0 || counter % UNTOUCHED_EACH == 0);
        for (counter, &version) in looked_up {
            let key = Key::of_counter(counter);
            engine.get(&key.0, &mut |value| verifier.check(&key.0, u64::from(version), value))?;
        }
        Ok(())
    }
}

/// Loads, updates and gets with little memory, then looks up what was updated.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let calls = Calls::of(spec);
    let _confined = confine(budget(spec)? + SLACK_BYTES)?;
    measure(spec, &calls)
}

fn budget(spec: &Spec) -> Result<u64, EngineError> {
    Ok(spec.open_options().budget_bytes.ok_or("no budget was given")?)
}

fn measure(spec: &Spec, calls: &Calls) -> Result<PhaseResult, EngineError> {
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut value = vec![0; spec.value_bytes];
    let mut watch = Watch { before: anonymous_bytes(), most: 0 };
    let (mut engine, open_ms) = open_timed(spec)?;
    let before_load = Handed::now();
    let mut batches = 0;
    load_batches(engine.as_mut(), spec, || {
        batches += LOOK_EVERY / 16;
        watch.look(batches);
    })?;
    engine.settle()?;
    let before_updates = Handed::now();
    let mut window = Window::start_with_control();
    let mut meter = LatencyMeter::start();
    let started = Instant::now();
    for (number, &record) in (0..).zip(&calls.updates) {
        let key = Key::of_counter(u64::from(record));
        fill_value(&key, number + 1, &mut value);
        engine.put(&key.0, &value)?;
        meter.lap();
        watch.look(number);
    }
    // The updates include the work that they left to be done.
    engine.checkpoint()?;
    engine.settle()?;
    let update_seconds = started.elapsed().as_secs_f64();
    let readings = [before_load, before_updates, Handed::now()];
    let started = Instant::now();
    for (number, &(record, version)) in (0..).zip(&calls.gets) {
        let key = Key::of_counter(u64::from(record));
        engine.get(&key.0, &mut |value| verifier.check(&key.0, u64::from(version), value))?;
        watch.look(number);
    }
    let get_seconds = started.elapsed().as_secs_f64();
    window.end_calls(spec.requests * 2, Some(&meter));
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    result.extra.extend(written(spec, readings));
    result.extra.extend([
        (UPDATES.to_owned(), spec.requests as f64 / update_seconds),
        (GETS.to_owned(), spec.requests as f64 / get_seconds),
        (MEMORY.to_owned(), watch.most as f64 / budget(spec)? as f64),
    ]);
    check_again(spec, &mut result, |engine, verifier| calls.check_last(engine, verifier))?;
    Ok(result)
}

/// Runs the phase without a memory limit; it checks the same.
#[cfg(test)]
pub fn run_unconfined(spec: &Spec) -> Result<PhaseResult, EngineError> {
    measure(spec, &Calls::of(spec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::EngineName;
    use crate::phases::Phase;
    use std::path::PathBuf;

    #[test]
    fn what_the_load_wrote_beside_the_log_counts_and_what_came_before_does_not() {
        let spec = Spec {
            engine: EngineName::Atoll,
            phase: Phase::Beyond,
            folder: PathBuf::new(),
            records: 100,
            value_bytes: 100,
            requests: 50,
            answer: PathBuf::new(),
        };
        let (data, updated) = (100 * spec.record_bytes(), 50 * spec.record_bytes());
        let before_load = Handed { bytes: 7_000, calls: 3 };
        // The load writes its records to the log and seven times more; the updates write theirs and half of
        // the data.
        let before_updates = Handed { bytes: 7_000 + 8 * data, calls: 3 + 8 };
        let after = Handed { bytes: before_updates.bytes + updated + data / 2, calls: 3 + 8 + 2 };
        let figures = written(&spec, [before_load, before_updates, after]);
        let figure = |name: &str| figures.iter().find(|figure| figure.0 == name).map(|figure| figure.1);
        assert_eq!((figure(METADATA), figure(METADATA_LOADED)), (Some(0.5), Some(7.5)));
        let kb = |bytes: u64, calls: u64| Some(bytes as f64 / 1000.0 / calls as f64);
        assert_eq!(figure(MEAN_WRITE), kb(updated + data / 2, 2));
        assert_eq!(figure(MEAN_WRITE_LOADED), kb(8 * data + updated + data / 2, 10));
    }
}

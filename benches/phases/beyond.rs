//! Data four times the memory budget, inside a control group of the budget and 64 MiB, so that no page cache
//! helps: a load, then updates, then gets.

use super::window::Window;
use super::write::{load_batches, open_timed};
use super::{PhaseResult, SEED, Spec};
use crate::measure::{LatencyMeter, anonymous_bytes, confine, io_bytes, write_calls};
use crate::peers::EngineError;
use crate::workloads::{Key, Verifier, Zipfian, fill_value};
use std::time::Instant;

/// Updates a second.
pub const UPDATES: &str = "updates a second, data 4x budget";
/// Gets a second.
pub const GETS: &str = "gets a second, data 4x budget";
/// Bytes that the updates wrote beside the log, over the bytes of data.
pub const METADATA: &str = "written beside the log over data, data 4x budget";
/// Mean length of a write call, in KB.
pub const MEAN_WRITE: &str = "mean write KB, data 4x budget";
/// The most anonymous memory over the budget; the bench's own before opening is taken off.
pub const MEMORY: &str = "anonymous memory over budget, data 4x budget";
/// Memory beside the budget that the control group leaves.
const SLACK_BYTES: u64 = 64 << 20;
/// Calls between two looks at the memory.
const LOOK_EVERY: u64 = 4096;

/// The most memory seen.
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

/// Loads, updates and gets.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let budget = spec.open_options().budget_bytes.ok_or("no budget was given")?;
    let _confined = confine(budget + SLACK_BYTES)?;
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut value = vec![0; spec.value_bytes];
    let mut choices = Zipfian::new(spec.records, SEED + 13);
    let mut watch = Watch { before: anonymous_bytes(), most: 0 };
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut batches = 0;
    load_batches(engine.as_mut(), spec, || {
        batches += LOOK_EVERY / 16;
        watch.look(batches);
    })?;
    engine.settle()?;
    let (io_before, calls_before) = (io_bytes(), write_calls());
    let mut window = Window::start_with_control();
    let mut meter = LatencyMeter::start();
    let started = Instant::now();
    for number in 0..spec.requests {
        let key = Key::of_counter(choices.next_record());
        fill_value(&key, number + 1, &mut value);
        engine.put(&key.0, &value)?;
        meter.lap();
        watch.look(number);
    }
    // What the updates left to be done counts with them.
    engine.checkpoint()?;
    engine.settle()?;
    let update_seconds = started.elapsed().as_secs_f64();
    let written = io_bytes().handed_over - io_before.handed_over;
    let calls = write_calls() - calls_before;
    let started = Instant::now();
    for number in 0..spec.requests {
        let key = Key::of_counter(choices.next_record());
        engine.get(&key.0, &mut |value| verifier.check_any(&key.0, spec.requests + 1, value))?;
        watch.look(number);
    }
    let get_seconds = started.elapsed().as_secs_f64();
    window.end_calls(spec.requests * 2, Some(&meter));
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    let user = spec.requests * spec.record_bytes();
    let data = (spec.records * spec.record_bytes()) as f64;
    result.extra.extend([
        (UPDATES.to_owned(), spec.requests as f64 / update_seconds),
        (GETS.to_owned(), spec.requests as f64 / get_seconds),
        (METADATA.to_owned(), written.saturating_sub(user) as f64 / data),
        (MEAN_WRITE.to_owned(), written as f64 / 1000.0 / calls.max(1) as f64),
        (MEMORY.to_owned(), watch.most as f64 / budget as f64),
    ]);
    Ok(result)
}

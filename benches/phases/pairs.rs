//! Short pairs, inserted, looked up and removed one at a time: the load that NoVoHT was designed for and
//! was measured with beside Kyoto Cabinet and Berkeley DB (ZHT, section 2.3.3 of the text, figure 2.5:
//! average latency of each).

use super::window::Window;
use super::write::open_timed;
use super::{PhaseResult, Spec};
use crate::peers::{Engine, EngineError};
use crate::workloads::{Key, Verifier, fill_value};
use std::time::Instant;

/// Figures of this phase: wall clock microseconds per operation.
pub const INSERT_US: &str = "us an insert";
pub const GET_US: &str = "us a get";
pub const REMOVE_US: &str = "us a remove";
/// All three operations, in their order.
pub const OPERATIONS: [&str; 3] = [INSERT_US, GET_US, REMOVE_US];

/// Primes above every count of records, so that multiples of each visit each record once, in an order of
/// their own.
const STRIDES: [u64; 2] = [2_654_435_761, 4_294_967_291];

/// Inserts all records, gets all in another order, and removes all in a third.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let (mut engine, open_ms) = open_timed(spec)?;
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut value = vec![0; spec.value_bytes];
    let mut window = Window::start();
    let insert_us = each(spec, 0, |key| {
        fill_value(key, 0, &mut value);
        engine.put(&key.0, &value)
    })?;
    let get_us =
        each(spec, STRIDES[0], |key| engine.get(&key.0, &mut |value| verifier.check(&key.0, 0, value)))?;
    let remove_us = each(spec, STRIDES[1], |key| engine.remove(&key.0))?;
    window.end_calls(3 * spec.records, None);
    check_empty(engine.as_mut(), spec, &mut verifier)?;
    window.close(engine)?;
    let mut result = window.finish(spec, open_ms, verifier);
    result.user_bytes = spec.records * spec.record_bytes();
    let figures = [insert_us, get_us, remove_us];
    result.extra = OPERATIONS.into_iter().map(str::to_owned).zip(figures).collect();
    Ok(result)
}

/// Does something for every record, in the order of multiples of `stride`, or in counting order if it is 0.
/// Returns the microseconds for one.
fn each(
    spec: &Spec,
    stride: u64,
    mut make: impl FnMut(&Key) -> Result<(), EngineError>,
) -> Result<f64, EngineError> {
    let started = Instant::now();
    for counter in order(spec.records, stride) {
        make(&Key::of_counter(counter))?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / spec.records.max(1) as f64)
}

/// The numbers below `records`, in that order.
fn order(records: u64, stride: u64) -> impl Iterator<Item = u64> {
    (0..records).map(move |number| if stride == 0 { number } else { number * stride % records })
}

/// Checks with a thousand records that the removed ones are gone.
fn check_empty(engine: &mut dyn Engine, spec: &Spec, verifier: &mut Verifier) -> Result<(), EngineError> {
    for counter in (0..spec.records).step_by((spec.records / 1000).max(1) as usize) {
        let key = Key::of_counter(counter);
        engine.get(&key.0, &mut |value| {
            verifier.checked += 1;
            if value.is_some() {
                verifier.note(format!("{} is there after it was removed", key.0.escape_ascii()));
            }
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_visits_each_record_once_and_each_is_another() {
        for records in [99, 2500, 30_000] {
            let orders = [0, STRIDES[0], STRIDES[1]].map(|stride| order(records, stride).collect::<Vec<_>>());
            for one in &orders {
                let mut sorted = one.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..records), "of {records}");
            }
            let [counting, gets, removes] = orders;
            assert!(counting != gets && gets != removes && removes != counting, "of {records}");
        }
    }
}

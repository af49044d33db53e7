//! Appends of 100 B: to a value of 60 MiB they should cost what they cost to an empty one.

use super::window::Window;
use super::{PhaseResult, Spec};
use crate::measure::cpu_seconds;
use crate::peers::EngineError;
use crate::plan::APPEND_RATIO;
use crate::workloads::Verifier;
use atoll_disk::{FileDisk, Mode};
use atoll_engine::{Durability, Engine, Options, Tree};
use std::sync::Arc;

const APPENDS: u64 = 2000;
const APPENDED_BYTES: usize = 100;
const LARGE_BYTES: usize = 60 << 20;

/// Appends to many empty values, and as often to one that is large; the CPU time of all threads until
/// everything is synced counts.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    std::fs::create_dir_all(&spec.folder)?;
    let disk = FileDisk::open(&spec.folder.join("store"), Mode::Create)?;
    let engine = Engine::open(Arc::new(disk), Options::default())?;
    let values = engine.tree("values")?;
    let large = vec![7; LARGE_BYTES];
    values.put(b"large", &large, Durability::Flushed)?;
    engine.sync()?;
    let mut window = Window::start();
    let empty_us = cost_of_appends(&engine, &values, |number| format!("empty {number}").into_bytes())?;
    let large_us = cost_of_appends(&engine, &values, |_| b"large".to_vec())?;
    window.end_calls(2 * APPENDS, None);
    let mut verifier = Verifier::new(spec.value_bytes);
    check(&values, &large, &mut verifier)?;
    drop(values);
    engine.close()?;
    let mut result = window.finish(spec, 0.0, verifier);
    result.extra.insert("us an append to empty".to_owned(), empty_us);
    result.extra.insert("us an append to 60 MiB".to_owned(), large_us);
    result.extra.insert(APPEND_RATIO.to_owned(), large_us / empty_us);
    Ok(result)
}

fn cost_of_appends(
    engine: &Engine,
    values: &Tree,
    key_of: impl Fn(u64) -> Vec<u8>,
) -> Result<f64, EngineError> {
    let before = cpu_seconds();
    for number in 0..APPENDS {
        values.append(&key_of(number), &appended(number), Durability::Flushed)?;
    }
    engine.sync()?;
    Ok((cpu_seconds() - before) * 1e6 / APPENDS as f64)
}

fn appended(number: u64) -> [u8; APPENDED_BYTES] {
    [number as u8; APPENDED_BYTES]
}

/// Every byte of the large value, and every tenth small one.
fn check(values: &Tree, large: &[u8], verifier: &mut Verifier) -> Result<(), EngineError> {
    let mut expected = large.to_vec();
    (0..APPENDS).for_each(|number| expected.extend(appended(number)));
    let mut compare = |key: Vec<u8>, expected: &[u8]| -> Result<(), EngineError> {
        verifier.checked += 1;
        let is_right = values.get_with(&key, |value| value == Some(expected))?;
        if !is_right {
            verifier.note(format!("value {} is not what was appended", key.escape_ascii()));
        }
        Ok(())
    };
    compare(b"large".to_vec(), &expected)?;
    (0..APPENDS)
        .step_by(10)
        .try_for_each(|number| compare(format!("empty {number}").into_bytes(), &appended(number)))
}

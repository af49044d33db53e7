//! Splits half of a tree off into a tree of its own and absorbs it again: the bytes written, and the time.

use super::window::Window;
use super::{PhaseResult, Spec};
use crate::measure::{IoBytes, io_bytes};
use crate::peers::EngineError;
use crate::workloads::{Key, Verifier, fill_value};
use atoll_disk::{FileDisk, Mode};
use atoll_engine::{Durability, Engine, Options, Tree};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Bytes written to split off and absorb, and by the checkpoints after each, in percent of the bytes of the
/// records.
pub const WRITTEN: &str = "split off and absorb: percent of the data written";
/// One record in this many is read again.
const READ_EVERY: usize = 997;

/// Loads, reopens, splits off and absorbs.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    std::fs::create_dir_all(&spec.folder)?;
    let path = spec.folder.join("store");
    let (engine, tree) = open(&path)?;
    tree.bulk_load((0..spec.records).map(|number| record(spec, number)))?;
    engine.close()?;
    // The tree is not in memory then.
    let (engine, tree) = open(&path)?;
    let mut window = Window::start();
    let before = io_bytes();
    let started = Instant::now();
    let (upper, _) = tree.split_off(&Key::of_hash(spec.records / 2).0, "upper", Durability::Synced)?;
    let split_ms = started.elapsed().as_secs_f64() * 1000.0;
    engine.checkpoint()?;
    let started = Instant::now();
    tree.absorb(&upper, Durability::Synced)?;
    let absorb_ms = started.elapsed().as_secs_f64() * 1000.0;
    engine.checkpoint()?;
    let written = since(before);
    window.end_calls(2, None);
    let mut verifier = Verifier::new(spec.value_bytes);
    check(spec, &tree, &upper, &mut verifier)?;
    engine.close()?;
    let mut result = window.finish(spec, 0.0, verifier);
    let data = spec.records * spec.record_bytes();
    result.extra.extend([
        (WRITTEN.to_owned(), written as f64 * 100.0 / data as f64),
        ("bytes written".to_owned(), written as f64),
        ("ms to split off".to_owned(), split_ms),
        ("ms to absorb".to_owned(), absorb_ms),
    ]);
    Ok(result)
}

/// A store that writes only by calls, so that all writes are counted.
fn open(path: &Path) -> Result<(Engine, Tree), EngineError> {
    let disk = FileDisk::open(path, Mode::Create)?;
    let engine = Engine::open(Arc::new(disk), Options { log_windows: false, ..Options::default() })?;
    let tree = engine.tree("records")?;
    Ok((engine, tree))
}

fn since(before: IoBytes) -> u64 {
    let now = io_bytes();
    (now.handed_over - before.handed_over).max(now.to_disk - before.to_disk)
}

/// A record; numbers are in key order.
fn record(spec: &Spec, number: u64) -> (Key, Vec<u8>) {
    let (key, mut value) = (Key::of_hash(number), vec![0; spec.value_bytes]);
    fill_value(&key, 0, &mut value);
    (key, value)
}

/// Checks that everything is there again, exactly once.
fn check(spec: &Spec, tree: &Tree, upper: &Tree, verifier: &mut Verifier) -> Result<(), EngineError> {
    let (all, left) = (tree.len()?, upper.len()?);
    if (all, left) != (spec.records, 0) {
        verifier.note(format!("{all} and {left} records of {}", spec.records));
    }
    for number in (0..spec.records).step_by(READ_EVERY) {
        let key = Key::of_hash(number);
        tree.get_with(&key.0, |value| verifier.check(&key.0, 0, value))?;
    }
    Ok(())
}

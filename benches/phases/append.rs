//! Appends of 100 B through the contract, on a folder: appending to a value of 60 MiB should cost as much
//! as appending to an empty one.

use super::contract::block_on;
use super::window::Window;
use super::{PhaseResult, Spec};
use crate::measure::cpu_seconds;
use crate::peers::EngineError;
use crate::plan::APPEND_RATIO;
use crate::workloads::Verifier;
use atoll_disk::{FileDisk, Mode};
use atoll_embedded::{EmbeddedStore, StoreOptions};
use atoll_engine::{Engine, Options};
use atoll_store::{Cell, ReadOptions, Store, WriteOptions};
use std::sync::Arc;

const APPENDS: u64 = 2000;
const APPENDED_BYTES: usize = 100;
const LARGE_BYTES: usize = 60 << 20;
const LARGE: &[u8] = b"large";
const SORT: &[u8] = b"";

/// Appends to many empty values, and as often to a large one; measures the CPU time of all threads until
/// everything is synced.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    std::fs::create_dir_all(&spec.folder)?;
    let disk = FileDisk::open(&spec.folder.join("store"), Mode::Create)?;
    let engine = Engine::open(Arc::new(disk), Options::default())?;
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::on_engine(engine, StoreOptions::default(), "bench")?);
    block_on(measure(spec, store.as_ref()))?
}

async fn measure(spec: &Spec, store: &dyn Store) -> Result<PhaseResult, EngineError> {
    let large = vec![7; LARGE_BYTES];
    store.put(Cell::new(LARGE, SORT), &large, WriteOptions::default()).await?;
    store.sync().await?;
    // Whoever is measured first would pay for all that is made at the first appends, and it is the divisor.
    cost_of_appends(store, uncounted_key).await?;
    let mut window = Window::start();
    let empty_us = cost_of_appends(store, empty_key).await?;
    let large_us = cost_of_appends(store, |_| LARGE.to_vec()).await?;
    window.end_calls(2 * APPENDS, None);
    let mut verifier = Verifier::new(spec.value_bytes);
    check(store, large, &mut verifier).await?;
    store.close().await?;
    let mut result = window.finish(spec, 0.0, verifier);
    result.extra.insert("us an append to empty".to_owned(), empty_us);
    result.extra.insert("us an append to 60 MiB".to_owned(), large_us);
    result.extra.insert(APPEND_RATIO.to_owned(), large_us / empty_us);
    Ok(result)
}

fn empty_key(number: u64) -> Vec<u8> {
    format!("empty {number}").into_bytes()
}

fn uncounted_key(number: u64) -> Vec<u8> {
    format!("uncounted {number}").into_bytes()
}

fn appended(number: u64) -> [u8; APPENDED_BYTES] {
    [number as u8; APPENDED_BYTES]
}

async fn cost_of_appends(store: &dyn Store, key_of: impl Fn(u64) -> Vec<u8>) -> Result<f64, EngineError> {
    let before = cpu_seconds();
    for number in 0..APPENDS {
        let key = key_of(number);
        store.append(Cell::new(&key, SORT), &appended(number), WriteOptions::default()).await?;
    }
    store.sync().await?;
    Ok((cpu_seconds() - before) * 1e6 / APPENDS as f64)
}

/// Checks every byte of the large value, and every tenth small one.
async fn check(store: &dyn Store, mut large: Vec<u8>, verifier: &mut Verifier) -> Result<(), EngineError> {
    (0..APPENDS).for_each(|number| large.extend(appended(number)));
    let small = (0..APPENDS).step_by(10).map(|number| (empty_key(number), appended(number).to_vec()));
    for (key, expected) in std::iter::once((LARGE.to_vec(), large)).chain(small) {
        verifier.checked += 1;
        let value = store.get(Cell::new(&key, SORT), ReadOptions::default()).await?;
        if value.as_deref() != Some(expected.as_slice()) {
            verifier.note(format!("value {} is not what was appended", key.escape_ascii()));
        }
    }
    Ok(())
}

//! The embedded contract, asynchronous and through a trait object, compared with the bare engine, in
//! memory.
//!
//! Both hold the same records; the contract's partition keys are the engine's keys, with one cell each. The
//! two sides take turns, because the first in a process pays for the first touch of its memory, and the
//! second reuses what the first freed. The first turn of each does not count; in the counted turns each
//! side goes first equally often.

use super::window::Window;
use super::{PhaseResult, SEED, Spec};
use crate::measure::cpu_seconds;
use crate::peers::{CACHE_BYTES, EngineError};
use crate::plan::{CONTRACT_GET, CONTRACT_PUT};
use crate::workloads::{Key, Verifier, fill_value, point_requests};
use atoll_embedded::{EmbeddedStore, StoreOptions};
use atoll_engine::{Durability, Engine, Options, Tree};
use atoll_store::{Cell, ReadOptions, Store, WriteOptions};
use std::sync::Arc;

/// Sort key of the one cell of every partition.
const SORT: &[u8] = b"";

/// Measures both sides.
pub fn run(spec: &Spec) -> Result<PhaseResult, EngineError> {
    let options = StoreOptions { engine: engine_options(), ..StoreOptions::default() };
    let make = || Ok::<Arc<dyn Store>, EngineError>(Arc::new(EmbeddedStore::in_memory(options.clone())?));
    measure(spec, make)
}

fn engine_options() -> Options {
    Options { memory_bytes: CACHE_BYTES, ..Options::default() }
}

/// Runs a future as users do: on a runtime.
pub fn block_on<F: Future>(future: F) -> Result<F::Output, EngineError> {
    Ok(tokio::runtime::Builder::new_current_thread().build()?.block_on(future))
}

/// CPU microseconds of a put and of a get.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Costs {
    put_us: f64,
    get_us: f64,
}

/// The side whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Engine,
    Contract,
}

/// How many turns of each side count: an even number, so that each goes first equally often.
const TURNS: usize = 2;

/// Runs both sides in turn without counting the first turn of each. Returns the mean costs, the engine's
/// first.
fn in_turn(mut cost: impl FnMut(Side) -> Result<Costs, EngineError>) -> Result<[Costs; 2], EngineError> {
    let mut sums = [Costs::default(); 2];
    for turn in 0..=TURNS {
        let sides = [Side::Engine, Side::Contract];
        let order = if turn % 2 == 0 { sides } else { [sides[1], sides[0]] };
        for side in order {
            let costs = cost(side)?;
            if turn > 0 {
                let sum = &mut sums[side as usize];
                sum.put_us += costs.put_us / TURNS as f64;
                sum.get_us += costs.get_us / TURNS as f64;
            }
        }
    }
    Ok(sums)
}

/// Measures both sides; `make` makes an empty store for each turn.
fn measure(
    spec: &Spec,
    make: impl Fn() -> Result<Arc<dyn Store>, EngineError>,
) -> Result<PhaseResult, EngineError> {
    let requests = point_requests(spec.records, spec.requests, SEED);
    let mut verifier = Verifier::new(spec.value_bytes);
    let mut window = Window::start();
    let [bare, contract] = in_turn(|side| match side {
        Side::Engine => cost_of_engine(spec, &requests, &mut verifier),
        Side::Contract => block_on(cost_of_store(spec, make()?.as_ref(), &requests, &mut verifier))?,
    })?;
    // For each side: its puts and two passes of gets.
    window.end_calls(2 * (TURNS as u64 + 1) * (spec.records + 2 * spec.requests), None);
    let mut result = window.finish(spec, 0.0, verifier);
    let figures = [
        ("us an engine's put", bare.put_us),
        ("us an engine's get", bare.get_us),
        ("us a contract's put", contract.put_us),
        ("us a contract's get", contract.get_us),
        (CONTRACT_PUT, contract.put_us / bare.put_us),
        (CONTRACT_GET, contract.get_us / bare.get_us),
    ];
    result.extra.extend(figures.map(|(name, figure)| (name.to_owned(), figure)));
    Ok(result)
}

/// The cost of one of `count` operations since `before`.
fn cost_since(before: f64, count: usize) -> f64 {
    (cpu_seconds() - before) * 1e6 / count.max(1) as f64
}

fn cost_of_engine(spec: &Spec, requests: &[u32], verifier: &mut Verifier) -> Result<Costs, EngineError> {
    let engine = Engine::in_memory(engine_options())?;
    let records = engine.tree("records")?;
    let mut value = vec![0; spec.value_bytes];
    let before = cpu_seconds();
    for counter in 0..spec.records {
        let key = Key::of_counter(counter);
        fill_value(&key, 0, &mut value);
        records.put(&key.0, &value, Durability::Flushed)?;
    }
    let put_us = cost_since(before, spec.records as usize);
    gets_of_engine(&records, requests, verifier)?;
    let before = cpu_seconds();
    gets_of_engine(&records, requests, verifier)?;
    Ok(Costs { put_us, get_us: cost_since(before, requests.len()) })
}

fn gets_of_engine(records: &Tree, requests: &[u32], verifier: &mut Verifier) -> Result<(), EngineError> {
    for &record in requests {
        let key = Key::of_counter(u64::from(record));
        records.get_with(&key.0, |value| verifier.check(&key.0, 0, value))?;
    }
    Ok(())
}

async fn cost_of_store(
    spec: &Spec,
    store: &dyn Store,
    requests: &[u32],
    verifier: &mut Verifier,
) -> Result<Costs, EngineError> {
    let mut value = vec![0; spec.value_bytes];
    let before = cpu_seconds();
    for counter in 0..spec.records {
        let key = Key::of_counter(counter);
        fill_value(&key, 0, &mut value);
        store.put(Cell::new(&key, SORT), &value, WriteOptions::default()).await?;
    }
    let put_us = cost_since(before, spec.records as usize);
    gets_of_store(store, requests, verifier).await?;
    let before = cpu_seconds();
    gets_of_store(store, requests, verifier).await?;
    Ok(Costs { put_us, get_us: cost_since(before, requests.len()) })
}

async fn gets_of_store(
    store: &dyn Store,
    requests: &[u32],
    verifier: &mut Verifier,
) -> Result<(), EngineError> {
    for &record in requests {
        let key = Key::of_counter(u64::from(record));
        let value = store.get(Cell::new(&key, SORT), ReadOptions::default()).await?;
        verifier.check(&key.0, 0, value.as_deref());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::EngineName;
    use crate::phases::Phase;
    use std::path::PathBuf;

    #[test]
    fn each_side_goes_first_as_often_as_the_other_and_its_first_turn_counts_for_nothing() {
        let mut turns = Vec::new();
        let costs = in_turn(|side| {
            turns.push(side);
            let us = if turns.len() <= 2 { 100.0 } else { turns.len() as f64 };
            Ok(Costs { put_us: us, get_us: us })
        });
        let [engine, contract] = costs.expect("costs");
        assert!(turns[..2].contains(&Side::Engine) && turns[..2].contains(&Side::Contract));
        let firsts: Vec<Side> = turns[2..].chunks(2).map(|turn| turn[0]).collect();
        let of_engine = firsts.iter().filter(|side| **side == Side::Engine).count();
        assert_eq!((of_engine * 2, firsts.len()), (firsts.len(), TURNS));
        // The fourth and fifth of all turns are the engine's, the third and sixth the contract's.
        assert_eq!((engine.put_us, contract.get_us), (4.5, 4.5));
    }

    #[test]
    fn any_store_can_be_held_against_the_engine() {
        let spec = Spec {
            engine: EngineName::Atoll,
            phase: Phase::Contract,
            folder: PathBuf::new(),
            records: 1000,
            value_bytes: 100,
            requests: 2000,
            answer: PathBuf::new(),
        };
        let result = measure(&spec, || Ok(Arc::new(atoll_memory::MemoryStore::new()))).expect("measures");
        assert_eq!((result.checked, result.wrong), (24_000, 0), "{:?}", result.first_wrong);
        assert!(result.extra[CONTRACT_GET] > 0.0 && result.extra[CONTRACT_PUT] > 0.0);
    }
}

//! A client's memory saves reads, and never returns what another client has changed since.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_cassandra::{CassandraStore, Options};
use atoll_conformance::SharedStore;
use atoll_store::{Batch, Buffer, ByteRange, Cell, ReadOptions, SortRange, Store, StoreError, WriteOptions};
use common::{Namespaces, contacts};
use scylla::client::session_builder::SessionBuilder;
use std::collections::BTreeMap;

type Model = BTreeMap<u8, Vec<u8>>;

const CELLS: u8 = 4;
const ROUNDS: usize = 600;

/// Applies a random mutation to the model and adds it to the batch.
fn apply(model: &mut Model, random: &mut fastrand::Rng, batch: Batch) -> Batch {
    let (sort, value) = (random.u8(0..CELLS), vec![random.u8(..); random.usize(1..40)]);
    match random.u8(0..10) {
        0..=4 => {
            model.insert(sort, value.clone());
            batch.put([sort], value)
        }
        5..=7 => {
            model.entry(sort).or_default().extend_from_slice(&value);
            batch.append([sort], value)
        }
        8 => {
            model.remove(&sort);
            batch.delete([sort])
        }
        _ => {
            model.retain(|of, _| *of < sort);
            batch.delete_range(SortRange::half_open([sort], [CELLS]))
        }
    }
}

/// Adds a random condition to the batch; returns whether it holds.
fn condition(model: &Model, random: &mut fastrand::Rng, batch: Batch) -> (Batch, bool) {
    let sort = random.u8(0..CELLS);
    let actual = model.get(&sort);
    match (random.u8(0..4), actual) {
        (0, _) => (batch.if_absent([sort]), actual.is_none()),
        (1, _) => (batch.if_equals([sort], b"another".to_vec()), false),
        (_, Some(actual)) => (batch.if_equals([sort], actual.clone()), true),
        (_, None) => (batch.if_absent([sort]), true),
    }
}

#[tokio::test]
async fn clients_that_take_turns_never_write_by_what_they_remember() {
    let Some(contacts) = contacts() else { return };
    let seed = std::env::var("MEMORY_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    let namespaces = Namespaces::new(contacts, "conformance");
    let namespace = namespaces.fresh();
    let stores: Vec<SharedStore> = vec![
        namespaces.open_as(namespace.clone()).await.unwrap(),
        namespaces.open_as(namespace).await.unwrap(),
    ];
    let mut model = Model::new();
    let mut at = 0;
    for round in 0..ROUNDS {
        // Stays with one client long enough for it to rely on its memory, then switches to the other.
        if random.u8(0..12) == 0 {
            at = 1 - at;
        }
        let mut expected = model.clone();
        let (mut batch, mut holds) = (Batch::on(*b"p"), true);
        for _ in 0..random.usize(0..3) {
            let (more, does_hold) = condition(&model, &mut random, batch);
            (batch, holds) = (more, holds && does_hold);
        }
        for _ in 0..random.usize(1..3) {
            batch = apply(&mut expected, &mut random, batch);
        }
        let told = format!("seed {seed}, round {round}, client {at}: {batch:?}");
        match stores[at].write(batch, WriteOptions::default()).await {
            Ok(_) => assert!(holds, "{told} was done"),
            Err(StoreError::Conflict(_)) => assert!(!holds, "{told} was refused"),
            Err(error) => panic!("{told}: {error}"),
        }
        if holds {
            model = expected;
        }
        let sort = random.u8(0..CELLS);
        let read =
            stores[random.usize(0..2)].get(Cell::new("p", &[sort]), ReadOptions::default()).await.unwrap();
        assert_eq!(read.map(|read| read.to_vec()), model.get(&sort).cloned(), "{told}, cell {sort}");
    }
}

fn vowed(range: ByteRange) -> ReadOptions {
    ReadOptions { range, immutable: true, ..ReadOptions::default() }
}

#[tokio::test]
async fn what_was_created_and_read_once_is_answered_from_memory_until_this_client_deletes_it() {
    let Some(contacts) = contacts() else { return };
    let namespaces = Namespaces::new(contacts.clone(), "conformance");
    let namespace = namespaces.fresh();
    let open = |memory_bytes| {
        CassandraStore::open(Options { memory_bytes, ..namespaces.options(namespace.clone()) })
    };
    let (remembers, forgets) = (open(64 << 20).await.unwrap(), open(0).await.unwrap());
    let session = SessionBuilder::new().known_nodes(contacts).build().await.unwrap();
    for len in [10_usize, 700_000] {
        let value = Buffer::build(len, |bytes| fastrand::Rng::with_seed(len as u64).fill(bytes));
        let (name, part) = (format!("object {len}"), ByteRange::new(len as u64 / 3, len as u64 / 2));
        let cell = Cell::new(&name, "");
        forgets.create(cell, value.clone(), WriteOptions::default()).await.unwrap();
        for store in [&remembers, &forgets] {
            assert_eq!(store.get(cell, vowed(ByteRange::ALL)).await.unwrap().as_ref(), Some(&value));
        }
        // The rows are deleted without notifying any client.
        let partition = [&namespace[..], name.as_bytes()].concat();
        let delete = "DELETE FROM conformance.cells WHERE p = ?";
        session.query_unpaged(delete, (partition,)).await.unwrap();
        assert_eq!(remembers.get(cell, vowed(ByteRange::ALL)).await.unwrap().as_ref(), Some(&value));
        let (start, end) = part.within(len as u64);
        let read = remembers.get(cell, vowed(part)).await.unwrap();
        assert_eq!(read.as_deref(), Some(&value[start as usize..end as usize]));
        assert_eq!(forgets.get(cell, vowed(ByteRange::ALL)).await.unwrap(), None);
        // Without the vow, memory answers nothing.
        assert_eq!(remembers.get(cell, ReadOptions::default()).await.unwrap(), None);
        remembers.delete_partition(name.as_bytes(), WriteOptions::default()).await.unwrap();
        assert_eq!(remembers.get(cell, vowed(ByteRange::ALL)).await.unwrap(), None);
    }
}

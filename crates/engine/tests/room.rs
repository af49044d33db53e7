//! Which writers wait for memory, for how much, and how long: batches, updates, and stores whose nodes exceed
//! the memory.
//!
//! The bound applies to the peak that the engine ever counted.
//!
//! Not under sanitizers, like the other tests of the budget.

#![cfg(not(atoll_plain_memory))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::MemoryDisk;
use atoll_engine::{Durability, Engine, EngineError, Options, Tree, WriteBatch};
use std::sync::Arc;

const BUDGET: u64 = 4 << 20;
/// Records of about 120 bytes: four times the budget.
const RECORDS: u64 = 140_000;
/// Changes of a batch; their leaves are a twelfth of the budget.
const BATCH: u64 = 42;

fn options() -> Options {
    Options {
        memory_bytes: BUDGET,
        checkpoint_bytes: 1 << 30,
        log_segment_bytes: 64 << 10,
        ..Options::default()
    }
}

/// Keys in an order unrelated to that of the numbers.
fn key(number: u64) -> Vec<u8> {
    format!("user{:020}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(12)
}

fn batch_at(tree: &Tree, first: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    (first..first + BATCH).for_each(|number| batch.put(tree, &key(number), &value(number)));
    batch
}

#[track_caller]
fn assert_within(engine: &Engine, what: &str) {
    let stats = engine.stats();
    assert!(stats.memory_bytes_most <= BUDGET + BUDGET / 10, "{what}: {stats:?}");
}

#[test]
fn batches_in_no_order_stay_within_the_budget() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    for first in (0..RECORDS).step_by(BATCH as usize) {
        engine.write(&batch_at(&tree, first), Durability::Buffered).unwrap();
    }
    assert_within(&engine, "batches");
}

#[test]
fn updates_that_write_batches_stay_within_the_budget() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    for first in (0..RECORDS).step_by(BATCH as usize) {
        let batch = batch_at(&tree, first);
        engine.update::<_, EngineError>(Durability::Buffered, |_| Ok((Some(batch), ()))).unwrap();
    }
    assert_within(&engine, "updates");
}

#[test]
fn many_writers_who_wait_are_all_let_go() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (engine, tree) = (&engine, &tree);
            scope.spawn(move || {
                for first in (writer * RECORDS / 4..(writer + 1) * RECORDS / 4).step_by(BATCH as usize) {
                    engine.write(&batch_at(tree, first), Durability::Buffered).unwrap();
                }
            });
        }
    });
    // Each thread may have passed the check before the others wrote: a batch and its copy for each.
    let stats = engine.stats();
    assert!(stats.memory_bytes_most <= 2 * BUDGET, "{stats:?}");
    assert!(tree.len().unwrap() >= RECORDS);
}

#[test]
fn a_large_group_counts_while_it_is_on_its_way_to_the_log() {
    let options = Options { memory_bytes: 64 << 20, background: false, ..options() };
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options).unwrap();
    let tree = engine.tree("records").unwrap();
    let mut batch = WriteBatch::new();
    (0..100).for_each(|number| batch.put(&tree, &key(number), &[7; 50_000]));
    engine.write(&batch, Durability::Buffered).unwrap();
    let (most, values) = (engine.stats().memory_bytes_most, 100 * 50_000);
    assert!(most > 2 * values, "{most} for {values} bytes of values");
    assert!(engine.stats().memory_bytes < values * 3 / 2, "{:?}", engine.stats());
}

#[test]
fn values_that_are_on_disk_make_room_and_nobody_waits_for_it() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    for number in 0..8_000 {
        tree.put(&key(number), &[number as u8; 2000], Durability::Flushed).unwrap();
    }
    assert_within(&engine, "values");
    let made = engine.stats().checkpoints_made;
    assert!(made < 20, "{made} checkpoints for a megabyte of leaves");
}

/// A store of four times the budget whose log is empty.
fn filled(disk: &Arc<MemoryDisk>) -> Engine {
    let plenty = Options { memory_bytes: 1 << 30, background: false, ..options() };
    let engine = Engine::open(disk.clone(), plenty).unwrap();
    let tree = engine.tree("records").unwrap();
    for first in (0..RECORDS).step_by(BATCH as usize) {
        engine.write(&batch_at(&tree, first), Durability::Buffered).unwrap();
    }
    engine.checkpoint().unwrap();
    engine
}

#[test]
fn deletes_of_what_is_not_there_are_replayed_a_few_leaves_at_a_time() {
    let disk: Arc<MemoryDisk> = Arc::default();
    let engine = filled(&disk);
    let tree = engine.tree("records").unwrap();
    for number in 0..RECORDS / 2 {
        let absent = [&key(number)[..], b"?"].concat();
        tree.delete(&absent, Durability::Buffered).unwrap();
    }
    engine.sync().unwrap();
    // As a crash would leave it.
    let left = Arc::new(MemoryDisk::with_bytes(disk.to_bytes()));
    let opened = Engine::open(left, options()).unwrap();
    assert_within(&opened, "opening");
    assert!(opened.tree("records").unwrap().get(&key(3)).unwrap().is_some());
}

#[test]
fn inner_nodes_of_a_large_store_leave_room_for_others() {
    const LITTLE: u64 = 1 << 20;
    const MANY: u64 = 500_000;
    let disk: Arc<MemoryDisk> = Arc::default();
    let plenty = Options { memory_bytes: 1 << 30, background: false, ..options() };
    let engine = Engine::open(disk.clone(), plenty).unwrap();
    let key = |number: u64| number.to_be_bytes();
    let records = (0..MANY).map(|number| (key(number), value(number)));
    engine.tree("records").unwrap().bulk_load(records).unwrap();
    engine.close().unwrap();
    let engine = Engine::open(disk, Options { memory_bytes: LITTLE, ..options() }).unwrap();
    let tree = engine.tree("records").unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for step in 0..6_000 {
        let number = random.u64(..MANY);
        tree.get_with(&key(number), |found| assert_eq!(found, Some(&*value(number)))).unwrap();
        if step % 20 == 0 {
            tree.put(&key(number), &value(number), Durability::Buffered).unwrap();
        }
    }
    let stats = engine.stats();
    assert!(stats.memory_bytes_most <= LITTLE + LITTLE / 8, "{stats:?}");
    assert!(engine.check().unwrap().damage.is_empty());
}

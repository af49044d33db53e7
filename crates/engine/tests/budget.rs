//! The memory budget: it holds whatever the engine is asked to do, and without losing or refusing anything.
//!
//! The bound applies to the peak that the engine ever counted, so that a peak within one call is caught as
//! well. A test of something that counts shows that it is counted: otherwise no checkpoint would be made for
//! it.
//!
//! Not under sanitizers: the counting is the same, and the other tests touch the same memory in a tenth of
//! the time.

#![cfg(not(atoll_plain_memory))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, Stats, Tree, WriteBatch};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BUDGET: u64 = 2 << 20;
/// Records of about 120 bytes: four times the budget.
const RECORDS: u64 = 70_000;

fn options() -> Options {
    Options {
        memory_bytes: BUDGET,
        checkpoint_bytes: 64 << 20,
        log_segment_bytes: 64 << 10,
        ..Options::default()
    }
}

/// Keys in an order unrelated to that of the numbers.
fn key(number: u64) -> Vec<u8> {
    format!("user{:020}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).into_bytes()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    [number.to_le_bytes(), version.to_le_bytes()].concat().repeat(6)
}

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

#[track_caller]
fn assert_within(engine: &Engine, what: &str) {
    let stats: Stats = engine.stats();
    assert!(stats.memory_bytes_most <= BUDGET + BUDGET / 10, "{what}: {stats:?}");
}

fn count(tree: &Tree) -> u64 {
    let mut count = 0;
    tree.scan(ALL, Direction::Forward, |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    count
}

fn load(engine: &Engine, tree: &Tree) {
    for number in 0..RECORDS {
        tree.put(&key(number), &value(number, 0), Durability::Buffered).unwrap();
        if number.is_multiple_of(64) {
            assert_within(engine, "the load");
        }
    }
}

#[test]
fn a_load_and_updates_of_four_times_the_budget_stay_within_it_and_lose_nothing() {
    let disk: Arc<MemoryDisk> = Arc::default();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    load(&engine, &tree);
    let mut random = fastrand::Rng::with_seed(3);
    let mut versions = vec![0; RECORDS as usize];
    for version in 1..12_000 {
        let number = random.u64(..RECORDS);
        tree.put(&key(number), &value(number, version), Durability::Buffered).unwrap();
        versions[number as usize] = version;
        if version.is_multiple_of(64) {
            assert_within(&engine, "updates");
        }
    }
    for (number, &version) in (0..).zip(&versions) {
        tree.get_with(&key(number), |found| assert_eq!(found, Some(&*value(number, version)))).unwrap();
    }
    assert_within(&engine, "gets");
    assert_eq!(count(&tree), RECORDS);
    assert_within(&engine, "a scan");
    engine.close().unwrap();
    let engine = Engine::open(disk, options()).unwrap();
    assert!(engine.check().unwrap().damage.is_empty());
    assert_eq!(engine.tree("records").unwrap().len().unwrap(), RECORDS);
}

#[test]
fn values_and_leaves_share_one_budget() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    let long = |number: u64| vec![number as u8; 2000];
    for number in 0..4_000 {
        tree.put(&key(number), &long(number), Durability::Flushed).unwrap();
        assert_within(&engine, "long values");
    }
    for number in (0..4_000).rev() {
        assert_eq!(&*tree.get(&key(number)).unwrap().unwrap().to_buffer().unwrap(), long(number).as_slice());
        assert_within(&engine, "reading them back");
    }
}

#[test]
fn readers_and_writers_together_stay_within_the_budget() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    load(&engine, &tree);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for seed in 0..2 {
            let (tree, done) = (tree.clone(), &done);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !done.load(Ordering::Acquire) {
                    let number = random.u64(..RECORDS);
                    tree.get_with(&key(number), |found| {
                        assert_eq!(
                            found.map(|found| found[..8].to_vec()),
                            Some(number.to_le_bytes().to_vec())
                        );
                    })
                    .unwrap();
                }
            });
        }
        for version in 0..6_000 {
            let number = version * 7919 % RECORDS;
            tree.put(&key(number), &value(number, version), Durability::Buffered).unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_within(&engine, "readers and writers");
}

#[test]
fn snapshots_of_changing_trees_are_read_back_from_the_disk_and_slow_nobody_down() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    load(&engine, &tree);
    let mut random = fastrand::Rng::with_seed(11);
    let mut versions = vec![0; RECORDS as usize];
    let before = engine.stats().checkpoints_made;
    let snapshots: Vec<_> = (1..5)
        .map(|round| {
            for step in 0..3_000 {
                let number = random.u64(..RECORDS);
                let version = round * 10_000 + step;
                tree.put(&key(number), &value(number, version), Durability::Buffered).unwrap();
                versions[number as usize] = version;
            }
            (engine.snapshot(), versions.clone())
        })
        .collect();
    assert_within(&engine, "updates under snapshots");
    // Each update dirties a leaf, and with each checkpoint a good half of the budget is full of such leaves.
    let leaves_at_once = BUDGET / 8256 / 4;
    let made = engine.stats().checkpoints_made - before;
    assert!(made <= 2 * 12_000 / leaves_at_once + 8, "{made} checkpoints: they come without pause");
    for (snapshot, versions) in &snapshots {
        for _ in 0..500 {
            let number = random.u64(..RECORDS);
            let found = snapshot.get(&tree, &key(number)).unwrap().unwrap().to_buffer().unwrap();
            assert_eq!(&*found, value(number, versions[number as usize]).as_slice());
        }
    }
    let mut number = 0;
    let (snapshot, versions) = &snapshots[0];
    let expected: std::collections::BTreeMap<_, _> =
        (0..RECORDS).map(|number| (key(number), value(number, versions[number as usize]))).collect();
    let mut expected = expected.into_iter();
    snapshot
        .scan(&tree, ALL, Direction::Forward, |key, found| {
            let (next, value) = expected.next().unwrap();
            assert!(next == key && *value == *found.bytes().unwrap(), "record {number}");
            number += 1;
            // What the scan holds must be released while it runs, not only afterwards.
            if number % 40 == 0 {
                tree.put(key, &value, Durability::Buffered).unwrap();
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(number, RECORDS);
    assert_within(&engine, "reading snapshots");
    drop(snapshots);
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert!(engine.check().unwrap().damage.is_empty());
    assert_eq!(engine.stats().retired_bytes, 0, "what was written for them comes back");
}

#[test]
fn appends_count_before_they_are_written() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("grown").unwrap();
    for number in 0..16_000_u64 {
        tree.append(&key(number % 400), &[number as u8; 700], Durability::Buffered).unwrap();
    }
    assert_within(&engine, "appends");
    for number in 0..400 {
        let found = tree.get(&key(number)).unwrap().unwrap().to_buffer().unwrap();
        let expected: Vec<u8> = (0..40).flat_map(|round| [(round * 400 + number) as u8; 700]).collect();
        assert_eq!(&*found, expected.as_slice());
    }
}

#[test]
fn what_left_the_trees_counts_until_a_checkpoint_empties_the_list() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    // A single leaf, so that nothing else grows.
    for number in 0..100_000_u64 {
        tree.put(&key(number % 8), &[number as u8; 300], Durability::Flushed).unwrap();
    }
    assert_within(&engine, "overwriting");
}

/// A store in which nothing is written in the background, with room for everything.
fn left_alone() -> Engine {
    let options = Options { memory_bytes: 64 << 20, background: false, ..options() };
    Engine::open(Arc::new(MemoryDisk::new()), options).unwrap()
}

#[test]
fn pieces_joined_from_appends_count_as_unwritten_until_a_checkpoint() {
    let engine = left_alone();
    let tree = engine.tree("grown").unwrap();
    for _ in 0..400 {
        tree.append(b"key", &[7; 700], Durability::Flushed).unwrap();
    }
    // The last few are in the log, and not yet part of a joined piece.
    let unwritten = engine.stats().unwritten_memory_bytes;
    assert!((250_000..320_000).contains(&unwritten), "{unwritten} of 280,000 bytes");
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().unwritten_memory_bytes, 0);
}

#[test]
fn what_left_the_trees_counts_as_unwritten_until_a_checkpoint() {
    let engine = left_alone();
    let tree = engine.tree("records").unwrap();
    for _ in 0..20_000 {
        tree.put(b"key", &[7; 300], Durability::Flushed).unwrap();
    }
    let unwritten = engine.stats().unwritten_memory_bytes;
    assert!(unwritten > 600_000, "{unwritten} for 20,000 places");
    engine.checkpoint().unwrap();
    assert!(engine.stats().unwritten_memory_bytes < 8 << 10, "{:?}", engine.stats());
}

#[test]
fn a_range_delete_of_everything_holds_a_few_leaves_at_a_time() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    load(&engine, &tree);
    let inner_bytes = engine.stats().inner_memory_bytes;
    let kept = key(7);
    let mut batch = WriteBatch::new();
    batch.delete_range(&tree, (Bound::Unbounded, Bound::Excluded(&kept)));
    batch.delete_range(&tree, (Bound::Excluded(&kept), Bound::Unbounded));
    engine.write(&batch, Durability::Flushed).unwrap();
    assert_eq!((tree.len().unwrap(), count(&tree)), (1, 1));
    assert_within(&engine, "a range delete");
    engine.checkpoint().unwrap();
    assert!(engine.check().unwrap().damage.is_empty());
    let left = engine.stats().inner_memory_bytes;
    assert!(left < inner_bytes / 16, "{left} of {inner_bytes} bytes of nodes are left for one record");
}

#[test]
fn replaying_a_range_delete_of_everything_holds_a_few_leaves_at_a_time() {
    let disk: Arc<MemoryDisk> = Arc::default();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    load(&engine, &engine.tree("records").unwrap());
    engine.close().unwrap();
    let engine = Engine::open(disk.clone(), Options { background: false, ..options() }).unwrap();
    let tree = engine.tree("records").unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(&tree, ALL);
    engine.write(&batch, Durability::Flushed).unwrap();
    // As a crash would leave it.
    let left = Arc::new(MemoryDisk::with_bytes(disk.to_bytes()));
    let opened = Engine::open(left, options()).unwrap();
    assert_within(&opened, "opening");
    assert_eq!(opened.tree("records").unwrap().len().unwrap(), 0);
}

#[test]
fn opening_brings_back_no_more_than_there_was_room_for() {
    let disk: Arc<MemoryDisk> = Arc::default();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    load(&engine, &tree);
    for round in 0..10 {
        for number in 0..500 {
            let number = (round * 500 + number) * 7919 % RECORDS;
            tree.put(&key(number), &value(number, 1), Durability::Flushed).unwrap();
        }
        // As a crash would leave it: with what was handed to the disk, and nothing more.
        let left = Arc::new(MemoryDisk::with_bytes(disk.to_bytes()));
        let opened = Engine::open(left, options()).unwrap();
        assert_within(&opened, "opening");
        assert_eq!(opened.tree("records").unwrap().len().unwrap(), RECORDS);
    }
}

#[test]
fn who_may_not_write_or_has_no_thread_beside_does_not_wait() {
    let disk: Arc<MemoryDisk> = Arc::default();
    // The log has four times the budget; a reader makes leaves from it and cannot write them.
    let plenty = Options { memory_bytes: 1 << 30, background: false, ..options() };
    let engine = Engine::open(disk.clone(), plenty).unwrap();
    let tree = engine.tree("records").unwrap();
    load_all(&tree);
    engine.sync().unwrap();
    let reader = Engine::open(disk.clone(), Options { read_only: true, ..options() }).unwrap();
    let read = reader.tree("records").unwrap();
    assert!(matches!(read.put(b"key", b"value", Durability::Flushed), Err(EngineError::ReadOnly { .. })));
    assert_eq!(count(&read), RECORDS);
    drop((read, reader, tree, engine));
    let alone = Engine::open(disk, Options { background: false, ..options() }).unwrap();
    let tree = alone.tree("records").unwrap();
    tree.put(b"key", b"value", Durability::Flushed).unwrap();
    assert!(tree.get(b"key").unwrap().is_some());
}

fn load_all(tree: &Tree) {
    for number in 0..RECORDS {
        tree.put(&key(number), &value(number, 0), Durability::Buffered).unwrap();
    }
}

/// A disk on which the checkpoint thread panics, and whose reads are counted.
#[derive(Default)]
struct Watched {
    disk: MemoryDisk,
    panics: bool,
    reads: AtomicU64,
    /// Bytes of reads longer than any page or value.
    long_read_bytes: AtomicU64,
}

impl Relay for Watched {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if target.len() > 64 << 10 {
            self.long_read_bytes.fetch_add(target.len() as u64, Ordering::Relaxed);
        }
        self.disk.read_at(offset, target)
    }

    fn sync(&self) -> Result<(), DiskError> {
        let is_background = std::thread::current().name() == Some("atoll-checkpoint");
        assert!(
            !(self.panics && is_background),
            "the thread that makes checkpoints panics, as this test wants"
        );
        self.disk.sync()
    }
}

#[test]
fn writers_do_not_wait_for_a_thread_that_panicked() {
    let disk = Arc::new(Watched { panics: true, ..Watched::default() });
    let engine = Engine::open(disk, options()).unwrap();
    let tree = engine.tree("records").unwrap();
    // Writes go on until memory is full, because the log keeps them, and are then refused.
    let put = |number| tree.put(&key(number), &value(number, 0), Durability::Buffered);
    let taken = (0..RECORDS).take_while(|&number| put(number).is_ok()).count() as u64;
    assert!((1000..RECORDS).contains(&taken), "{taken}");
    assert!(matches!(put(taken), Err(EngineError::Broken { .. })));
    assert_within(&engine, "puts that no checkpoint will write");
    assert_eq!(count(&tree), taken);
}

#[test]
fn reads_keep_leaves_again_once_what_filled_the_memory_is_gone() {
    let disk: Arc<Watched> = Arc::default();
    let engine = Engine::open(disk.clone(), Options { background: false, ..options() }).unwrap();
    let tree = engine.tree("records").unwrap();
    for number in 0..RECORDS {
        tree.put(&key(number), &value(number, 0), Durability::Buffered).unwrap();
        if number.is_multiple_of(2_000) {
            engine.checkpoint().unwrap();
        }
    }
    engine.checkpoint().unwrap();
    let get = |number: u64| tree.get_with(&key(number), |found| assert!(found.is_some())).unwrap();
    let reads_of_few = || {
        let before = disk.reads.load(Ordering::Relaxed);
        (0..50).for_each(get);
        disk.reads.load(Ordering::Relaxed) - before
    };
    // Leaves fill the memory while a snapshot shares the nodes above them, so that none can be evicted.
    (1_000..4_000).for_each(get);
    let snapshot = engine.snapshot();
    (4_000..9_000).for_each(get);
    drop(snapshot);
    let rounds = (0..200).take_while(|_| reads_of_few() > 0).count();
    assert!(rounds < 200, "every round still reads {} leaves from the disk", reads_of_few());
}

#[test]
fn checkpoints_pause_while_memory_is_full_of_what_none_can_write() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let (sorted, tree) = (engine.tree("sorted").unwrap(), engine.tree("records").unwrap());
    let before = engine.stats().checkpoints_made;
    let records = (0..30_000_u64).map(|number| {
        // The leaves being built are in no tree yet.
        if number > 15_000 && number % 10 == 0 {
            tree.put(&key(number % 50), &value(number, 0), Durability::Flushed).unwrap();
        }
        (number.to_be_bytes(), value(number, 0))
    });
    sorted.bulk_load(records).unwrap();
    let made = engine.stats().checkpoints_made - before;
    assert!(made < 200, "{made} checkpoints for 1,500 short writes");
    assert_eq!(sorted.len().unwrap(), 30_000);
}

fn long(number: u64, version: u64) -> Vec<u8> {
    value(number, version).repeat(100)
}

/// A store with little memory and a segment of this many values of 9,600 bytes, of which one in ten is alive.
fn with_a_long_segment(disk: &Arc<Watched>, values: u64) -> (Engine, Tree) {
    let plenty = Options { memory_bytes: 1 << 30, background: false, ..options() };
    let engine = Engine::open(disk.clone(), plenty).unwrap();
    let tree = engine.tree("records").unwrap();
    // All in one group, for which the log makes a segment of its own.
    let mut batch = WriteBatch::new();
    (0..values).for_each(|number| batch.put(&tree, &key(number), &long(number, 0)));
    engine.write(&batch, Durability::Flushed).unwrap();
    engine.close().unwrap();
    let engine = Engine::open(disk.clone(), Options { background: false, ..options() }).unwrap();
    let tree = engine.tree("records").unwrap();
    for number in (0..values).filter(|number| number % 10 > 0) {
        tree.put(&key(number), &long(number, 1), Durability::Flushed).unwrap();
    }
    (engine, tree)
}

#[track_caller]
fn assert_all_long(engine: &Engine, tree: &Tree, values: u64) {
    for number in 0..values {
        let found = tree.get(&key(number)).unwrap().unwrap().to_buffer().unwrap();
        assert!(*found == *long(number, u64::from(number % 10 > 0)), "key {number}");
    }
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn a_segment_that_is_longer_than_the_budget_is_cleaned_within_it() {
    // Five times the budget.
    const VALUES: u64 = 1200;
    let disk: Arc<Watched> = Arc::default();
    let (engine, tree) = with_a_long_segment(&disk, VALUES);
    let before = engine.stats();
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert_within(&engine, "cleaning");
    let stats = engine.stats();
    assert!(stats.values_moved >= VALUES / 10, "{before:?} {stats:?}");
    assert!(stats.log_segment_bytes < VALUES * 12_000, "{before:?} {stats:?}");
    drop((tree, engine));
    let engine = Engine::open(disk, Options { background: false, ..options() }).unwrap();
    assert_all_long(&engine, &engine.tree("records").unwrap(), VALUES);
}

#[test]
fn a_long_segment_is_read_once_by_those_who_clean_it() {
    const VALUES: u64 = 600;
    const LENGTH: u64 = VALUES * 9_700;
    // In one step or, where memory is full of what the checkpoint is to write, part by part.
    for (filling, most) in [(0, LENGTH + (256 << 10)), (RECORDS / 4, 3 * LENGTH)] {
        let disk: Arc<Watched> = Arc::default();
        let (engine, tree) = with_a_long_segment(&disk, VALUES);
        let other = engine.tree("other").unwrap();
        let before = disk.long_read_bytes.load(Ordering::Relaxed);
        let mut checkpoints = 0;
        while engine.stats().values_moved < VALUES / 10 {
            for number in 0..filling {
                other.put(&key(number), &value(number, checkpoints), Durability::Buffered).unwrap();
            }
            engine.checkpoint().unwrap();
            checkpoints += 1;
            assert!(checkpoints < 60, "{:?}", engine.stats());
        }
        assert_eq!(checkpoints > 5, filling > 0, "{checkpoints} checkpoints");
        let read = disk.long_read_bytes.load(Ordering::Relaxed) - before;
        assert!(read <= most, "{read} bytes of {LENGTH} in {checkpoints} checkpoints");
        assert_all_long(&engine, &tree, VALUES);
    }
}

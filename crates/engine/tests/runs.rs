//! How pages go to disk and come back: in long runs, and past the system's page cache where memory is short
//! or much is written.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{BLOCK, Disk, DiskError, MemoryDisk, Relay};
use atoll_engine::{Direction, Durability, Engine, Options, WriteBatch};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A disk that records how it is written and read.
#[derive(Default)]
struct Noted {
    disk: MemoryDisk,
    /// Writes past the cache, and their bytes.
    runs: AtomicU64,
    run_bytes: AtomicU64,
    reads_past: AtomicU64,
    reads: AtomicU64,
}

impl Noted {
    /// The counts since the last call: reads past the cache, other reads, runs and their bytes.
    fn since(&self) -> [u64; 4] {
        [&self.reads_past, &self.reads, &self.runs, &self.run_bytes]
            .map(|counter| counter.swap(0, Ordering::Relaxed))
    }
}

impl Relay for Noted {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(offset, target)
    }

    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.reads_past.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(offset, target)
    }

    fn write_past(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let is_whole = |number: usize| number.is_multiple_of(BLOCK);
        assert!(is_whole(offset as usize) && is_whole(bytes.len()), "{} bytes at {offset}", bytes.len());
        assert!(is_whole(bytes.as_ptr().addr()), "in memory");
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.run_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.disk.write_at(offset, bytes)
    }
}

const RECORDS: u64 = 240_000;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(format!("user{:012}", number % RECORDS).as_bytes());
    key
}

fn value(number: u64, version: u64) -> [u8; 92] {
    let mut value = [0; 92];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..16].copy_from_slice(&version.to_le_bytes());
    value
}

/// A store of 26 MB with this much memory, loaded in random order.
fn loaded(disk: &Arc<Noted>, memory_bytes: u64) -> Engine {
    let options = Options { memory_bytes, background: false, keep: Duration::ZERO, ..Options::default() };
    let engine = Engine::open(Arc::<Noted>::clone(disk), options).unwrap();
    put_all(&engine, 0, RECORDS, 104_729);
    engine
}

const ROUNDS: u64 = 12;

fn stride(version: u64) -> u64 {
    7919 + 2 * version
}

fn place(step: u64, stride: u64) -> usize {
    (step * stride % RECORDS) as usize
}

/// Puts `count` records in the order of multiples of a prime, with a checkpoint every few megabytes.
fn put_all(engine: &Engine, version: u64, count: u64, stride: u64) {
    let tree = engine.tree("t").unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..count {
        let number = place(number, stride) as u64;
        batch.put(&tree, &key(number), &value(number, version));
        if batch.len() == 500 {
            engine.write(&batch, Durability::Buffered).unwrap();
            batch.clear();
            if engine.stats().unwritten_memory_bytes > 2 << 20 {
                engine.checkpoint().unwrap();
            }
        }
    }
    engine.write(&batch, Durability::Buffered).unwrap();
    engine.checkpoint().unwrap();
}

#[test]
fn what_fits_in_memory_goes_through_the_cache_of_the_system() {
    let disk = Arc::new(Noted::default());
    let engine = loaded(&disk, 256 << 20);
    let tree = engine.tree("t").unwrap();
    for number in (0..RECORDS).step_by(100) {
        assert!(tree.get(&key(number)).unwrap().is_some());
    }
    let [reads_past, _, runs, _] = disk.since();
    assert_eq!((reads_past, runs), (0, 0));
}

#[test]
fn what_a_long_checkpoint_writes_does_not_fill_the_cache() {
    const CACHED: u64 = 64 << 20;
    let disk = Arc::new(Noted::default());
    let options = Options { background: false, keep: Duration::ZERO, ..Options::default() };
    let engine = Engine::open(Arc::<Noted>::clone(&disk), options).unwrap();
    let tree = engine.tree("t").unwrap();
    let put = |numbers: std::ops::Range<u64>| {
        let mut batch = WriteBatch::new();
        for number in numbers {
            batch.put(&tree, &number.to_be_bytes(), &[number as u8; 250]);
        }
        engine.write(&batch, Durability::Buffered).unwrap();
        engine.checkpoint().unwrap();
        disk.since()
    };
    let [.., past] = put(0..340_000);
    // Everything written is about as long as the records, in leaves that were filled one after the other.
    let beyond = 340_000 * (8 + 250) - CACHED;
    assert!(past.abs_diff(beyond) < 2 << 20, "{past} of {beyond}");
    let [.., past] = put(1000..1010);
    assert_eq!(past, 0, "the next one is short");
    for number in (0..340_000_u64).step_by(100) {
        let found = tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap();
        assert!(found[..] == [number as u8; 250], "{number}");
    }
    drop(tree);
    engine.close().unwrap();
    let engine = Engine::open(disk, Options { background: false, ..Options::default() }).unwrap();
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn where_memory_is_short_pages_go_past_the_cache_in_long_runs() {
    let disk = Arc::new(Noted::default());
    let engine = loaded(&disk, 6 << 20);
    disk.since();
    for version in 1..ROUNDS {
        put_all(&engine, version, RECORDS / 4, stride(version));
    }
    let [_, _, runs, bytes] = disk.since();
    assert!(bytes / runs > 300_000, "{runs} runs of {bytes} bytes");
    let tree = engine.tree("t").unwrap();
    let mut expected = vec![0; RECORDS as usize];
    for version in 1..ROUNDS {
        (0..RECORDS / 4).for_each(|step| expected[place(step, stride(version))] = version);
    }
    for number in (0..RECORDS).step_by(100) {
        let found = tree.get(&key(number)).unwrap().unwrap().to_buffer().unwrap();
        assert!(found[..] == value(number, expected[number as usize]), "{number}");
    }
    let [reads_past, reads, ..] = disk.since();
    assert!(reads_past > 300 && reads < 10, "{reads_past} reads past the cache, {reads} through it");
    // A few records far from each other stay in memory, although there is no room for all their leaves.
    let some = || (0..RECORDS).step_by(RECORDS as usize / 400);
    some().for_each(|number| assert!(tree.get(&key(number)).unwrap().is_some()));
    let leaves = engine.stats().leaf_memory_bytes / 8256;
    disk.since();
    some().for_each(|number| assert!(tree.get(&key(number)).unwrap().is_some()));
    let [reads_past, ..] = disk.since();
    assert!(leaves < 300 && reads_past < 20, "{leaves} leaves, {reads_past} of 400 records were read again");
    // One after the other, so that the system may read ahead.
    let mut count = 0;
    let all = (Bound::Unbounded, Bound::Unbounded);
    tree.scan(all, Direction::Forward, |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    let [reads_past, reads, ..] = disk.since();
    assert_eq!(count, RECORDS);
    assert!(reads > 1000 && reads_past == 0, "{reads_past} reads past the cache, {reads} through it");
    assert!(engine.check().unwrap().damage.is_empty());
}

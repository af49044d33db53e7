//! Writes to cells whose leaves are not in memory. Small puts read nothing, and succeed even if the leaf
//! cannot be read; what must be read is read by other threads.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
use atoll_embedded::{EmbeddedStore, StoreOptions};
use atoll_engine::{Engine, Options};
use atoll_store::{Batch, Cell, Durability, ErrorKind, Outcome, ReadOptions, RequestId, Store, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;

const PARTITION: &[u8] = b"p";
const CELLS: u32 = 20_000;

/// A disk in memory that counts reads, with a separate count for one thread, and can make reads fail.
struct Counting {
    bytes: MemoryDisk,
    caller: ThreadId,
    reads: AtomicU64,
    reads_of_caller: AtomicU64,
    is_unreadable: AtomicBool,
}

impl Relay for Counting {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let of_caller = u64::from(std::thread::current().id() == self.caller);
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.reads_of_caller.fetch_add(of_caller, Ordering::Relaxed);
        if self.is_unreadable.load(Ordering::Relaxed) {
            let (operation, source) = (Operation::Read, std::io::Error::other("planted"));
            return Err(DiskError { operation, name: "counting".into(), offset, source });
        }
        self.bytes.read_at(offset, target)
    }
}

impl Counting {
    /// The reads since the last call of this: all of them, and those of the caller.
    fn since(&self) -> (u64, u64) {
        (self.reads.swap(0, Ordering::Relaxed), self.reads_of_caller.swap(0, Ordering::Relaxed))
    }
}

fn sort(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn old(number: u32) -> Vec<u8> {
    format!("old, {number:08}").repeat(7).into_bytes()
}

fn new(number: u32) -> Vec<u8> {
    format!("new, {number:08}").repeat(7).into_bytes()
}

fn plain() -> WriteOptions {
    WriteOptions::default()
}

fn open(disk: &Arc<Counting>) -> EmbeddedStore {
    let engine = Options {
        background: false,
        log_segment_bytes: 64 << 10,
        memory_bytes: 64 << 20,
        blind_puts: true,
        ..Options::default()
    };
    let opened = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, engine.clone()).unwrap();
    EmbeddedStore::on_engine(opened, StoreOptions { engine, ..StoreOptions::default() }, "test").unwrap()
}

/// A store with all leaves but a few on disk only, so that the places of leaves are known.
async fn filled() -> (Arc<Counting>, EmbeddedStore) {
    let disk = Arc::new(Counting {
        bytes: MemoryDisk::new(),
        caller: std::thread::current().id(),
        reads: AtomicU64::default(),
        reads_of_caller: AtomicU64::default(),
        is_unreadable: AtomicBool::default(),
    });
    let store = open(&disk);
    for first in (0..CELLS).step_by(500) {
        let numbers = first..first + 500;
        let batch = numbers.fold(Batch::on(PARTITION), |batch, number| batch.put(sort(number), old(number)));
        store.write(batch, plain()).await.unwrap();
    }
    store.close().await.unwrap();
    let store = open(&disk);
    find_leaves(&store).await;
    disk.since();
    (disk, store)
}

async fn put(store: &EmbeddedStore, number: u32) {
    store.put(Cell::new(PARTITION, &sort(number)), &new(number), plain()).await.unwrap();
}

async fn get(store: &EmbeddedStore, number: u32) -> Option<Vec<u8>> {
    let value = store.get(Cell::new(PARTITION, &sort(number)), ReadOptions::default()).await.unwrap();
    value.map(|value| value.to_vec())
}

/// Puts to some cells, so that the places of leaves are known.
async fn find_leaves(store: &EmbeddedStore) {
    for number in (0..CELLS).step_by(1000) {
        put(store, number).await;
    }
}

/// Numbers of cells that share no leaf with each other, nor with a cell that was put before.
fn apart() -> impl Iterator<Item = u32> {
    (100..CELLS).step_by(200)
}

#[tokio::test]
async fn small_puts_to_absent_leaves_read_nothing() {
    let (disk, store) = filled().await;
    let id = |number: u32| RequestId { client: 7, sequence: number.into() };
    for number in apart() {
        // Three ways to put.
        let batch = Batch::on(PARTITION).put(sort(number), new(number));
        match number % 600 {
            100 => put(&store, number).await,
            300 => drop(store.write(batch.put(sort(number + 1), new(number + 1)), plain()).await.unwrap()),
            _ => {
                let synced = Some(Durability::Synced);
                let options = WriteOptions { request: Some(id(number)), durability: synced, ..plain() };
                assert!(!store.write(batch.clone(), options).await.unwrap().repeated);
                assert!(store.write(batch, options).await.unwrap().repeated);
            }
        }
    }
    assert_eq!(disk.since(), (0, 0));
    for number in apart() {
        assert_eq!(get(&store, number).await, Some(new(number)), "{number}");
    }
    assert_eq!(disk.since(), (0, 0), "what was put is found beside the leaves");
    store.engine().checkpoint().unwrap();
    let also = |number: u32| if number % 600 == 300 { new(number + 1) } else { old(number + 1) };
    for number in apart() {
        assert_eq!(get(&store, number + 1).await, Some(also(number)), "{number}");
        assert_eq!(get(&store, number + 2).await, Some(old(number + 2)), "{number}");
    }
    assert_eq!(store.engine().tree("cells").unwrap().len().unwrap(), CELLS.into());
    assert!(store.engine().check().unwrap().damage.is_empty());
}

#[tokio::test]
async fn a_small_put_needs_no_leaf_that_can_be_read() {
    let (disk, store) = filled().await;
    disk.is_unreadable.store(true, Ordering::Relaxed);
    for number in apart() {
        put(&store, number).await;
    }
    assert_eq!(get(&store, 100).await, Some(new(100)));
    // Writes that need the leaf are still refused.
    let batch = || Batch::on(PARTITION);
    for batch in [
        batch().delete(sort(101)),
        batch().append(sort(101), b"more".to_vec()),
        batch().put(sort(101), vec![7; 300]),
        batch().if_absent(sort(101)).put(sort(101), b"first".to_vec()),
    ] {
        let refused = store.write(batch, plain()).await.unwrap_err();
        assert_eq!(refused.outcome(), Outcome::Refused, "{refused}");
    }
    disk.is_unreadable.store(false, Ordering::Relaxed);
    for number in apart() {
        assert_eq!(get(&store, number + 1).await, Some(old(number + 1)), "{number}");
        assert_eq!(get(&store, number).await, Some(new(number)), "{number}");
    }
    store.close().await.unwrap();
    assert!(open(&disk).engine().check().unwrap().damage.is_empty());
}

#[tokio::test]
async fn what_has_to_be_read_for_a_write_is_read_by_other_threads() {
    let (disk, store) = filled().await;
    let batch = || Batch::on(PARTITION);
    let put_many =
        |count: u32| (100..100 + count).fold(batch(), |batch, at| batch.put(sort(at), vec![9; 250]));
    let write = async |batch: Batch| {
        let written = store.write(batch, plain()).await;
        assert_eq!(disk.reads_of_caller.swap(0, Ordering::Relaxed), 0, "a write blocked its thread");
        (disk.reads.swap(0, Ordering::Relaxed), written.map_err(|error| error.kind()))
    };
    // Together more than fits beside one leaf, though each of them alone would.
    let (reads, written) = write(put_many(40)).await;
    assert!(reads > 0 && written.is_ok(), "{reads} {written:?}");
    // With a condition that holds, and with one that does not.
    let (reads, written) = write(batch().if_equals(sort(700), old(700)).put(sort(700), new(700))).await;
    assert!(reads > 0 && written.is_ok(), "{reads} {written:?}");
    let (reads, written) = write(batch().if_absent(sort(1100)).put(sort(1100), new(1100))).await;
    assert_eq!((reads > 0, written.unwrap_err()), (true, ErrorKind::Conflict));
    // Beside one leaf, and into another leaf that is read for it.
    let (reads, written) =
        write(batch().put(sort(1500), new(1500)).append(sort(1700), b"more".to_vec())).await;
    assert!(reads > 0 && written.is_ok(), "{reads} {written:?}");
    let (reads, written) = write(batch().put(sort(2100), new(2100)).delete(sort(2101))).await;
    assert!(reads > 0 && written.is_ok(), "{reads} {written:?}");
    let (reads, written) = write(batch().put(sort(2500), vec![9; 300])).await;
    assert!(reads > 0 && written.is_ok(), "{reads} {written:?}");
    for number in 100..140 {
        assert_eq!(get(&store, number).await, Some(vec![9; 250]), "{number}");
    }
    for number in [700, 1500, 2100] {
        assert_eq!(get(&store, number).await, Some(new(number)), "{number}");
    }
    assert_eq!(get(&store, 1100).await, Some(old(1100)));
    assert_eq!(get(&store, 1700).await, Some([&old(1700)[..], b"more"].concat()));
    assert_eq!(get(&store, 2101).await, None);
    assert_eq!(get(&store, 2500).await, Some(vec![9; 300]));
    assert_eq!(store.engine().tree("cells").unwrap().len().unwrap(), u64::from(CELLS) - 1);
}

#[tokio::test]
async fn what_was_put_beside_a_leaf_is_found_again_without_that_leaf() {
    let (disk, store) = filled().await;
    for number in apart() {
        put(&store, number).await;
    }
    store.close().await.unwrap();
    let store = open(&disk);
    find_leaves(&store).await;
    disk.since();
    let before = store.engine().stats().leaf_memory_bytes;
    for number in apart() {
        assert_eq!(get(&store, number).await, Some(new(number)), "{number}");
    }
    // The page of records beside the leaf is read, and not the leaf's own.
    let count = apart().count() as u64;
    assert_eq!(disk.since(), (count, 0));
    let kept = store.engine().stats().leaf_memory_bytes - before;
    assert!(kept < count * 4096, "{kept} bytes");
    for number in apart() {
        assert_eq!(get(&store, number + 1).await, Some(old(number + 1)), "{number}");
    }
    let reads = disk.since();
    assert_eq!(reads, (count, 0), "a leaf without what lies beside it is one page as well");
}

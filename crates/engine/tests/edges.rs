//! Edge cases in which a promise is easily broken; each was found by reading the engine and kept as a test.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
use atoll_engine::{Direction, Durability, Engine, Options, Tree};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

fn options() -> Options {
    Options { background: false, log_segment_bytes: 64 << 10, store_id: Some(7), ..Options::default() }
}

fn open(disk: &Arc<dyn Disk>) -> (Engine, Tree) {
    let engine = Engine::open(Arc::clone(disk), options()).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

fn keys_of(tree: &Tree, direction: Direction) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    tree.scan(ALL, direction, |key, _| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    keys
}

fn key(number: u32) -> Vec<u8> {
    // Keys with different first bytes leave their leaves without a common prefix.
    let mut key = number.wrapping_mul(2_654_435).to_be_bytes().to_vec();
    key.resize(100, b'k');
    key
}

/// The scan notes its position, so that it can continue behind a page that has to be read first.
#[test]
fn a_scan_that_has_to_read_behind_an_empty_leaf_shows_every_key_once() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let (engine, tree) = open(&disk);
    for number in 0..1500 {
        tree.put(&key(number), &[7; 100], Durability::Buffered).unwrap();
    }
    let all = keys_of(&tree, Direction::Forward);
    engine.close().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        for emptied in (100usize..1300).step_by(31) {
            let fresh: Arc<dyn Disk> = Arc::new(MemoryDisk::with_bytes(image(&disk)));
            let (_engine, tree) = open(&fresh);
            // A page of empty leaves in the middle, with its neighbours in memory on one side only.
            let gone = emptied..emptied + 150;
            let mut expected = all.clone();
            expected.drain(gone.clone());
            let near = match direction {
                Direction::Forward => &all[..gone.start],
                Direction::Backward => &all[gone.end..],
            };
            for key in near {
                tree.get(key).unwrap();
            }
            for key in &all[gone] {
                tree.delete(key, Durability::Buffered).unwrap();
            }
            if direction == Direction::Backward {
                expected.reverse();
            }
            let found = keys_of(&tree, direction);
            assert_eq!(found.len(), expected.len(), "{direction:?} {emptied}");
            assert!(found == expected, "{direction:?} {emptied}");
        }
    }
}

fn image(disk: &Arc<dyn Disk>) -> Vec<u8> {
    let mut bytes = vec![0; disk.len().unwrap() as usize];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Leaves of keys with long common prefixes hold little; joined under a shorter prefix they would hold a lot.
#[test]
fn leaves_of_long_keys_are_joined_only_when_the_whole_keys_fit() {
    let engine = Engine::in_memory(options()).unwrap();
    let tree = engine.tree("t").unwrap();
    let long = |first: u8, number: u32| {
        let mut key = vec![first; 40_000];
        key.extend_from_slice(&number.to_be_bytes());
        key
    };
    let mut keys = Vec::new();
    for first in [b'a', b'b', b'c'] {
        for number in 0..400 {
            let key = long(first, number);
            tree.put(&key, &[1; 60], Durability::Buffered).unwrap();
            keys.push(key);
        }
    }
    assert_eq!(tree.len().unwrap(), 1200);
    // Every twelfth key stays.
    for (index, key) in keys.iter().enumerate().rev().filter(|(index, _)| index % 12 != 0) {
        tree.delete(key, Durability::Buffered).unwrap();
        assert_eq!(tree.get(key).unwrap().map(|value| value.len()), None, "{index}");
    }
    let left: Vec<Vec<u8>> = keys.into_iter().step_by(12).collect();
    assert!(keys_of(&tree, Direction::Forward) == left);
}

#[test]
fn values_in_memory_are_counted_as_they_come_and_go() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let (engine, tree) = open(&disk);
    for number in 0..100u32 {
        tree.put(&number.to_be_bytes(), &[3; 301], Durability::Flushed).unwrap();
    }
    drop((engine, tree));
    let small = Options { memory_bytes: 16 << 10, ..options() };
    let engine = Engine::open(Arc::clone(&disk), small).unwrap();
    let tree = engine.tree("t").unwrap();
    for number in 0..100u32 {
        assert_eq!(tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap().len(), 301);
    }
    let held = engine.stats().value_memory_bytes;
    assert!((301..=16 << 10).contains(&held), "{held}");
}

/// A disk in memory whose syncs wait at a gate, and may fail behind it.
#[derive(Default)]
struct Gate {
    bytes: MemoryDisk,
    /// Whether syncs wait, and whether they fail.
    closed: Mutex<(bool, bool)>,
    opened: Condvar,
    syncing: AtomicUsize,
    at_once: AtomicUsize,
}

impl Gate {
    fn set(&self, closed: bool, fails: bool) {
        *self.closed.lock().unwrap() = (closed, fails);
        self.opened.notify_all();
    }
}

impl Relay for Gate {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn sync(&self) -> Result<(), DiskError> {
        let now = self.syncing.fetch_add(1, Ordering::AcqRel) + 1;
        self.at_once.fetch_max(now, Ordering::AcqRel);
        std::thread::yield_now();
        let closed = self.opened.wait_while(self.closed.lock().unwrap(), |closed| closed.0).unwrap();
        self.syncing.fetch_sub(1, Ordering::AcqRel);
        if closed.1 {
            let source = std::io::Error::other("planted");
            return Err(DiskError { operation: Operation::Sync, name: "gate".into(), offset: 0, source });
        }
        Ok(())
    }
}

#[test]
fn whoever_waits_for_a_sync_that_fails_hears_that_the_write_took_effect() {
    let disk = Arc::new(Gate::default());
    let (_engine, tree) = open(&(Arc::clone(&disk) as Arc<dyn Disk>));
    disk.set(true, true);
    let tree = &tree;
    std::thread::scope(|threads| {
        let put = |key: &'static [u8]| threads.spawn(move || tree.put(key, b"v", Durability::Synced));
        let puts = [put(b"one"), put(b"two"), put(b"three")];
        while tree.len().unwrap() < 3 {
            std::thread::yield_now();
        }
        disk.set(false, true);
        for put in puts {
            let error = put.join().unwrap().unwrap_err();
            assert!(error.is_unknown(), "{error}");
        }
    });
    // A later write is refused before anything happens.
    assert!(!tree.put(b"four", b"v", Durability::Flushed).unwrap_err().is_unknown());
}

#[test]
fn a_checkpoint_and_a_commit_never_sync_at_the_same_time() {
    let disk = Arc::new(Gate::default());
    let (engine, tree) = open(&(Arc::clone(&disk) as Arc<dyn Disk>));
    let (engine, tree) = (&engine, &tree);
    std::thread::scope(|threads| {
        for thread in 0..3u8 {
            threads.spawn(move || {
                for number in 0..200u8 {
                    tree.put(&[thread, number], b"v", Durability::Synced).unwrap();
                }
            });
        }
        threads.spawn(move || (0..100).for_each(|_| assert!(engine.checkpoint().is_ok())));
    });
    assert_eq!(disk.at_once.load(Ordering::Acquire), 1);
}

/// A store of many leaves, closed, and opened again with a budget for a few.
fn large_behind_a_small_budget(options: Options) -> (Engine, Tree) {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let (engine, tree) = open(&disk);
    for number in 0..3_000 {
        tree.put(&key(number), &[7; 100], Durability::Buffered).unwrap();
    }
    engine.create_snapshot("all").unwrap();
    engine.close().unwrap();
    let engine = Engine::open(disk, Options { memory_bytes: 96 << 10, ..options }).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

#[test]
fn scans_and_snapshots_of_a_store_larger_than_memory_keep_to_the_budget() {
    for read_only in [false, true] {
        let (engine, tree) = large_behind_a_small_budget(Options { read_only, ..options() });
        let assert_bounded = |what: &str| {
            let held = engine.stats().leaf_memory_bytes;
            assert!(held < 256 << 10, "{what}: {held}");
        };
        let keys = keys_of(&tree, Direction::Forward);
        assert_eq!(keys.len(), 3_000);
        assert_bounded("a scan");
        let snapshot = engine.open_snapshot("all").unwrap();
        for key in keys.iter().step_by(10) {
            assert!(snapshot.get(&tree, key).unwrap().is_some());
        }
        assert_bounded("gets from a snapshot");
    }
}

#[test]
fn after_closing_nothing_more_reaches_the_disk() {
    for _ in 0..20 {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let (engine, tree) = open(&disk);
        std::thread::scope(|threads| {
            for thread in 0..3u8 {
                let tree = tree.clone();
                threads.spawn(move || {
                    for number in 0u32.. {
                        let key = [&[thread][..], &number.to_be_bytes()].concat();
                        if tree.put(&key, &[1; 400], Durability::Flushed).is_err() {
                            break;
                        }
                    }
                });
            }
            let mut writer = tree.value_writer(b"long").unwrap();
            writer.write(&[5; 100]).unwrap();
            while tree.len().unwrap() < 50 {
                std::thread::yield_now();
            }
            engine.clone().close().unwrap();
            let then = image(&disk);
            writer.write(&[6; 2 << 20]).unwrap_err();
            engine.checkpoint().unwrap_err();
            std::thread::yield_now();
            assert!(image(&disk) == then);
        });
    }
}

#[test]
fn gets_of_a_store_larger_than_memory_keep_to_the_budget() {
    let memory_bytes = 4 << 20;
    let options = Options { background: false, memory_bytes, ..Options::default() };
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options).unwrap();
    let tree = engine.tree("t").unwrap();
    let records: Vec<(Vec<u8>, Vec<u8>)> =
        (0..200_000u32).map(|number| (number.to_be_bytes().to_vec(), vec![number as u8; 100])).collect();
    for batch in records.chunks(1000) {
        tree.put_many(batch, Durability::Flushed).unwrap();
    }
    engine.checkpoint().unwrap();
    for (key, value) in &records {
        tree.get_with(key, |found| assert_eq!(found, Some(value.as_slice()))).unwrap();
    }
    let held = engine.stats().leaf_memory_bytes;
    assert!(held <= memory_bytes, "{held} bytes of leaves under a budget of {memory_bytes}");
    for window in records.chunks(64) {
        let keys: Vec<&[u8]> = window.iter().map(|(key, _)| key.as_slice()).collect();
        tree.get_many(&keys, |index, found| assert_eq!(found, Some(window[index].1.as_slice()))).unwrap();
    }
    let held = engine.stats().leaf_memory_bytes;
    assert!(held <= memory_bytes, "{held} bytes of leaves under a budget of {memory_bytes}");
}

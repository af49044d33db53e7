//! What a snapshot keeps of replaced values costs a few words for each part of the log, not for each value;
//! and the check of it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

#[path = "common/counted.rs"]
mod counted;

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
use atoll_engine::{Durability, Engine, Options, Tree};
use counted::Counted;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const KEYS: u32 = 20_000;

fn open<D: Disk>(disk: &Arc<D>) -> (Engine, Tree) {
    let options = Options {
        background: false,
        log_segment_bytes: 1 << 20,
        log_windows: false,
        store_id: Some(7),
        ..Options::default()
    };
    let engine = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

fn fill(tree: &Tree, round: u8) {
    for number in 0..KEYS {
        tree.put(&number.to_be_bytes(), &[round; 300], Durability::Buffered).unwrap();
    }
}

#[test]
fn values_that_a_snapshot_keeps_do_not_make_each_checkpoint_longer() {
    let disk = Arc::new(MemoryDisk::new());
    let (engine, tree) = open(&disk);
    let check = |engine: &Engine| {
        let damage = engine.check().unwrap().damage;
        assert!(damage.is_empty(), "{damage:?}");
    };
    fill(&tree, 0);
    engine.create_snapshot("kept").unwrap();
    engine.checkpoint().unwrap();
    let before = engine.checkpoint().unwrap().written_bytes;
    for round in 1..4 {
        fill(&tree, round);
        engine.checkpoint().unwrap();
    }
    check(&engine);
    let after = engine.checkpoint().unwrap().written_bytes;
    // One word for each of them would be 160 KB.
    assert!(after < before + (16 << 10), "{before} bytes before, {after} after");
    engine.close().unwrap();
    let (engine, tree) = open(&disk);
    check(&engine);
    let kept = engine.open_snapshot("kept").unwrap();
    for number in (0..KEYS).step_by(7) {
        let value = kept.get(&tree, &number.to_be_bytes()).unwrap().unwrap();
        assert_eq!(*value.to_buffer().unwrap(), [0; 300], "{number}");
    }
    drop(kept);
    // All of it goes with the snapshot.
    engine.delete_snapshot("kept").unwrap();
    for _ in 0..4 {
        engine.checkpoint().unwrap();
        check(&engine);
    }
    let len = disk.len().unwrap();
    fill(&tree, 9);
    engine.checkpoint().unwrap();
    assert!(disk.len().unwrap() <= len, "{} bytes were not used again", disk.len().unwrap() - len);
    check(&engine);
}

#[test]
fn a_check_counts_the_bytes_that_a_snapshot_shares_once() {
    let disk = Arc::new(MemoryDisk::new());
    let (engine, tree) = open(&disk);
    fill(&tree, 0);
    // A value beyond 64 KiB has a place of its own.
    tree.put(b"long", &[7; 200_000], Durability::Buffered).unwrap();
    engine.checkpoint().unwrap();
    let bytes = || engine.check().unwrap().bytes;
    let before = bytes();
    assert!(before > u64::from(KEYS) * 300, "{before}");
    engine.create_snapshot("kept").unwrap();
    engine.checkpoint().unwrap();
    let shared = bytes();
    assert!(shared < before + (64 << 10), "{before} bytes before, {shared} with the snapshot");
    // Values that only the snapshot has count as well.
    fill(&tree, 1);
    engine.checkpoint().unwrap();
    let apart = bytes();
    assert!(apart > 2 * before - (512 << 10), "{before} bytes before, {apart} once all was replaced");
}

#[test]
fn a_check_reads_what_snapshots_share_once_and_what_only_they_have_too() {
    let disk = Arc::<Counted>::default();
    let (engine, tree) = open(&disk);
    let read_by_check = || {
        let before = disk.read.load(Ordering::Relaxed);
        let damage = engine.check().unwrap().damage;
        assert!(damage.is_empty(), "{damage:?}");
        disk.read.load(Ordering::Relaxed) - before
    };
    let short_bytes = u64::from(KEYS) * 300;
    fill(&tree, 0);
    tree.put(b"long", &[7; 5_000_000], Durability::Buffered).unwrap();
    engine.checkpoint().unwrap();
    let once = read_by_check();
    assert!(once > short_bytes + 5_000_000, "{once}");
    for name in ["a", "b", "c"] {
        engine.create_snapshot(name).unwrap();
        // Each has a root of its own, and one leaf.
        tree.put(&7u32.to_be_bytes(), name.as_bytes(), Durability::Buffered).unwrap();
        engine.checkpoint().unwrap();
    }
    let shared = read_by_check();
    assert!(shared < once + once / 4, "{once} bytes without snapshots, {shared} with three");
    fill(&tree, 1);
    engine.checkpoint().unwrap();
    let apart = read_by_check();
    assert!(apart > shared + short_bytes / 2, "{shared} bytes before, {apart} once all was replaced");
}

type Happening = Box<dyn FnOnce() + Send>;

/// A disk in memory on which something happens before the read of this number.
#[derive(Default)]
struct Interrupted {
    bytes: MemoryDisk,
    reads: AtomicU64,
    happening: Mutex<Option<(u64, Happening)>>,
}

impl Relay for Interrupted {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let happening = self.happening.lock().unwrap().take_if(|(at, _)| *at == read);
        if let Some((_, happening)) = happening {
            happening();
        }
        self.bytes.read_at(offset, target)
    }
}

#[test]
fn a_snapshot_that_is_deleted_during_a_check_keeps_its_space_until_the_check_ends() {
    let disk = Arc::<Interrupted>::default();
    let (engine, tree) = open(&disk);
    fill(&tree, 0);
    engine.checkpoint().unwrap();
    engine.create_snapshot("kept").unwrap();
    fill(&tree, 1);
    engine.checkpoint().unwrap();
    let reads = || disk.reads.load(Ordering::Relaxed);
    let check = || {
        let before = reads();
        let damage = engine.check().unwrap().damage;
        assert!(damage.is_empty(), "{damage:?}");
        reads() - before
    };
    let reads_of_check = check();
    let its = engine.clone();
    let happening: Happening = Box::new(move || {
        its.delete_snapshot("kept").unwrap();
        for _ in 0..2 {
            its.checkpoint().unwrap();
        }
    });
    // The current tree takes about the first half of the reads, and the snapshot the second.
    *disk.happening.lock().unwrap() = Some((reads() + reads_of_check / 4 * 3, happening));
    let kept_bytes = engine.stats().retired_bytes;
    assert!(kept_bytes > u64::from(KEYS) * 300, "{kept_bytes}");
    check();
    assert!(disk.happening.lock().unwrap().is_none(), "the check read less than before");
    engine.checkpoint().unwrap();
    let left_bytes = engine.stats().retired_bytes;
    assert!(left_bytes < kept_bytes / 2, "of {kept_bytes} bytes, {left_bytes} are kept after the check");
    check();
}

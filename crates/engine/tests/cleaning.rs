//! Space comes back: from values that were overwritten or deleted, beside writers, and once snapshots let go.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, FileDisk, MemoryDisk, Mode};
use atoll_engine::{Durability, Engine, Options, Stats, Tree};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SEGMENT: u64 = 64 << 10;
const VALUE: usize = 1000;

fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: SEGMENT,
        checkpoint_bytes: u64::MAX,
        seed: Some(7),
        ..Options::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("reef/{number:08}").into_bytes()
}

/// The value of a key at some version; no two are alike.
fn value(number: u64, version: u64) -> Vec<u8> {
    let mut value = vec![version as u8; VALUE];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[8..16].copy_from_slice(&version.to_le_bytes());
    value
}

fn put(tree: &Tree, number: u64, version: u64) {
    tree.put(&key(number), &value(number, version), Durability::Buffered).unwrap();
}

fn assert_holds(tree: &Tree, number: u64, version: u64) {
    let found = tree.get(&key(number)).unwrap().map(|value| value.to_buffer().unwrap().to_vec());
    assert_eq!(found, Some(value(number, version)), "key {number}");
}

/// What cleaning promises after a checkpoint, the segment that the log writes to aside.
fn assert_bound(stats: &Stats) {
    let bound = stats.log_value_bytes * 4 / 3 + 4 * SEGMENT;
    assert!(stats.log_segment_bytes <= bound, "{stats:?}");
}

#[test]
fn segments_stay_within_their_bound_however_often_values_are_overwritten() {
    let mut random = fastrand::Rng::with_seed(11);
    let disk: Arc<MemoryDisk> = Arc::default();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    let mut versions = vec![0; 1500];
    (0..1500).for_each(|number| put(&tree, number, 0));
    for version in 1..30 {
        for _ in 0..600 {
            // Some are written all the time, most hardly ever.
            let number = random.u64(..1500).min(random.u64(..1500)).min(random.u64(..1500));
            versions[number as usize] = version;
            put(&tree, number, version);
        }
        engine.checkpoint().unwrap();
        assert_bound(&engine.stats());
    }
    let stats = engine.stats();
    assert!(stats.segments_cleaned > 20 && stats.values_moved > 100, "{stats:?}");
    let live = 1500 * VALUE as u64;
    assert!(stats.file_bytes - stats.free_bytes < live * 3 / 2 + 6 * SEGMENT, "{stats:?}");
    assert!(stats.spare_bytes <= stats.file_bytes / 8 + 3 * SEGMENT, "{stats:?}");
    assert!(engine.check().unwrap().damage.is_empty());
    engine.close().unwrap();
    let engine = Engine::open(disk, options()).unwrap();
    let tree = engine.tree("records").unwrap();
    versions.iter().zip(0..).for_each(|(version, number)| assert_holds(&tree, number, *version));
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn what_a_writer_sets_while_its_segment_is_cleaned_is_never_undone() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (0..600).for_each(|number| put(&tree, number, 0));
    let done = AtomicBool::new(false);
    let versions = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(5);
            let mut versions = vec![0; 600];
            for version in 1..40_000 {
                let number = random.u64(..600).min(random.u64(..600));
                put(&tree, number, version);
                versions[number as usize] = version;
                assert_holds(&tree, number, version);
            }
            done.store(true, Ordering::Release);
            versions
        });
        while !done.load(Ordering::Acquire) {
            engine.checkpoint().unwrap();
        }
        writer.join().unwrap()
    });
    assert!(engine.stats().values_moved > 0);
    versions.iter().zip(0..).for_each(|(version, number)| assert_holds(&tree, number, *version));
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn a_snapshot_reads_what_it_saw_and_its_space_comes_back_when_it_goes() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (0..1000).for_each(|number| put(&tree, number, 0));
    engine.create_snapshot("before").unwrap();
    let held = engine.snapshot();
    for version in 1..12 {
        (0..1000).filter(|number| number % 10 != 0).for_each(|number| put(&tree, number, version));
        engine.checkpoint().unwrap();
    }
    for snapshot in [&held, &engine.open_snapshot("before").unwrap()] {
        for number in 0..1000 {
            let found = snapshot.get(&tree, &key(number)).unwrap().expect("it was there");
            assert_eq!(&*found.to_buffer().unwrap(), value(number, 0).as_slice());
        }
    }
    let pinned = engine.stats().log_segment_bytes;
    drop(held);
    engine.delete_snapshot("before").unwrap();
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    let stats = engine.stats();
    assert_bound(&stats);
    assert!(stats.log_segment_bytes < pinned * 3 / 4, "{pinned} {stats:?}");
    (0..1000).for_each(|number| assert_holds(&tree, number, if number % 10 == 0 { 0 } else { 11 }));
}

#[test]
fn appended_pieces_move_and_the_value_stays_whole() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    let mut whole = Vec::new();
    // Each is less than half of the one before, so none is joined with it.
    for (version, len) in (0..).zip([40_000, 15_000, 6_000, 2_500, 1_000, 400]) {
        let bytes = vec![version as u8; len];
        tree.append(b"long", &bytes, Durability::Flushed).unwrap();
        whole.extend_from_slice(&bytes);
        // What dies around it makes its segment worth cleaning.
        (0..400).for_each(|number| put(&tree, number, version));
    }
    for version in 6..12 {
        (0..400).for_each(|number| put(&tree, number, version));
        engine.checkpoint().unwrap();
        let found = tree.get(b"long").unwrap().expect("it is there").to_buffer().unwrap();
        assert!(*found == *whole, "at version {version}");
    }
    assert!(engine.stats().values_moved > 0, "{:?}", engine.stats());
    assert!(engine.check().unwrap().damage.is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_whose_records_are_deleted_gives_its_space_back() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let disk = Arc::new(FileDisk::open(&path, Mode::Create).unwrap());
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (0..8000).for_each(|number| put(&tree, number, 0));
    engine.checkpoint().unwrap();
    let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let before = taken();
    for number in (0..8000).filter(|number| number % 20 != 0) {
        tree.delete(&key(number), Durability::Flushed).unwrap();
    }
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    disk.sync().unwrap();
    assert!(before > 8_000_000, "{before}");
    assert!(taken() < before / 5, "{} of {before}: {:?}", taken(), engine.stats());
    (0..8000).step_by(20).for_each(|number| assert_holds(&tree, number, 0));
}

//! Space comes back: from values that were overwritten or deleted, beside writers, and once snapshots are
//! gone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, DiskError, FileDisk, MemoryDisk, Mode, Operation, Relay};
use atoll_engine::{Durability, Engine, Options, Stats, Tree};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SEGMENT: u64 = 64 << 10;
const VALUE: usize = 1000;

fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: SEGMENT,
        checkpoint_bytes: u64::MAX,
        store_id: Some(7),
        ..Options::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("reef/{number:08}").into_bytes()
}

/// The value of a key in some version; all of them differ.
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

/// The bound that holds after a checkpoint with cleaning, apart from the log's present segment.
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
fn values_that_are_moved_stay_in_memory_for_their_readers() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (0..600).for_each(|number| put(&tree, number, 0));
    (0..600).filter(|number| number % 5 > 0).for_each(|number| put(&tree, number, 1));
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert!(engine.stats().values_moved > 50, "{:?}", engine.stats());
    for number in 0..600 {
        let value = tree.get(&key(number)).unwrap().unwrap();
        assert!(value.is_resident(), "key {number} would be read from the disk");
        assert_holds(&tree, number, u64::from(number % 5 > 0));
    }
}

#[test]
fn memory_of_overwritten_values_is_used_again() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (0..200).for_each(|number| put(&tree, number, 0));
    engine.sync().unwrap();
    let first = engine.stats().value_memory_bytes;
    for version in 1..40 {
        for number in 0..200 {
            // Most of them one at a time, some in a batch.
            if number % 4 > 0 {
                tree.put(&key(number), &value(number, version), Durability::Flushed).unwrap();
            } else {
                let pair = [(key(number), value(number, version)), (key(900), value(900, version))];
                tree.put_many(&pair, Durability::Flushed).unwrap();
            }
        }
    }
    let last = engine.stats().value_memory_bytes;
    // Of each overwritten value only its place in the queue is left.
    assert!(last < first + 40 * 250 * 200, "{first} {last}");
    (0..200).for_each(|number| assert_holds(&tree, number, 39));
    engine.checkpoint().unwrap();
    (0..200).for_each(|number| assert_holds(&tree, number, 39));
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
        // Values that die around it make its segment worth cleaning.
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

/// A disk in memory on which reads of one page fail, however often they are tried.
#[derive(Default)]
struct BadPage {
    bytes: MemoryDisk,
    /// Reads of pages before that one, and the offset of the page once it was read.
    left: AtomicU64,
    page: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl Relay for BadPage {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        // Segments are longer.
        if target.len() < 16 << 10 && offset > 8192 {
            if self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| match left {
                NEVER => None,
                left => Some(left.saturating_sub(1)),
            }) == Ok(0)
                && self.page.load(Ordering::Acquire) == NEVER
            {
                self.page.store(offset, Ordering::Release);
            }
            if self.page.load(Ordering::Acquire) == offset {
                let source = std::io::Error::other("a bad page");
                return Err(DiskError { operation: Operation::Read, name: "bad".into(), offset, source });
            }
        }
        self.bytes.read_at(offset, target)
    }
}

#[test]
fn a_page_that_cannot_be_read_keeps_nothing_else_from_being_moved_and_loses_nothing() {
    for left in [0, 1, 2, 5, 11, 17, 23, 40] {
        let disk = Arc::new(BadPage { left: NEVER.into(), page: NEVER.into(), ..BadPage::default() });
        let small = Options { memory_bytes: 64 << 10, ..options() };
        let engine = Engine::open(disk.clone(), small.clone()).unwrap();
        let tree = engine.tree("records").unwrap();
        (0..3000).for_each(|number| put(&tree, number, 0));
        engine.close().unwrap();
        let engine = Engine::open(disk.clone(), small.clone()).unwrap();
        let tree = engine.tree("records").unwrap();
        (0..3000).filter(|number| number % 3 > 0).for_each(|number| put(&tree, number, 1));
        disk.left.store(left, Ordering::Release);
        // Whether this fails depends on the page; what matters is what is there afterwards.
        let (first, _) = (engine.checkpoint(), engine.checkpoint());
        disk.left.store(NEVER, Ordering::Release);
        disk.page.store(NEVER, Ordering::Release);
        for number in 0..3000 {
            assert_holds(&tree, number, u64::from(number % 3 > 0));
        }
        (0..3000).filter(|number| number % 3 == 1).for_each(|number| put(&tree, number, 2));
        engine.checkpoint().unwrap();
        assert!(engine.check().unwrap().damage.is_empty(), "{left} {first:?}");
        assert!(engine.stats().values_moved > 0, "{left} {first:?}");
        for number in 0..3000 {
            assert_holds(&tree, number, [0, 2, 1][number as usize % 3]);
        }
    }
}

#[test]
fn cleaning_ends_where_memory_is_full_of_what_cannot_go() {
    let (ended, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let small = Options { memory_bytes: 256 << 10, ..options() };
        let engine = Engine::open(Arc::new(MemoryDisk::new()), small).unwrap();
        let tree = engine.tree("records").unwrap();
        (0..20_000).for_each(|number| put(&tree, number, 0));
        engine.checkpoint().unwrap();
        for number in (0..20_000).filter(|number| number % 4 > 0) {
            put(&tree, number, 1);
        }
        engine.checkpoint().unwrap();
        engine.checkpoint().unwrap();
        (0..20_000).step_by(37).for_each(|number| assert_holds(&tree, number, u64::from(number % 4 > 0)));
        ended.send(engine.stats().values_moved).unwrap();
    });
    let moved = wait.recv_timeout(std::time::Duration::from_secs(240));
    assert!(moved.is_ok_and(|moved| moved > 0), "{moved:?}");
}

#[test]
fn segments_of_after_a_snapshot_are_cleaned_while_it_is_held() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (0..200).for_each(|number| put(&tree, number, 0));
    engine.create_snapshot("for ever").unwrap();
    let mut random = fastrand::Rng::with_seed(2);
    let mut most = 0;
    for version in 1..60 {
        for _ in 0..300 {
            put(&tree, random.u64(..1000).min(random.u64(..1000)), version);
        }
        engine.checkpoint().unwrap();
        most = most.max(engine.stats().log_segment_bytes);
    }
    // What is alive, what the snapshot holds, and the slack of the bound.
    let bound = (1200 * VALUE as u64) * 4 / 3 + 10 * SEGMENT;
    assert!(most <= bound, "{most} {bound} {:?}", engine.stats());
    let before = engine.open_snapshot("for ever").unwrap();
    for number in 0..200 {
        let found = before.get(&tree, &key(number)).unwrap().expect("it was there");
        assert_eq!(&*found.to_buffer().unwrap(), value(number, 0).as_slice());
    }
}

/// A disk in memory that counts the reads as long as a segment.
#[derive(Default)]
struct Counted {
    bytes: MemoryDisk,
    segments_read: AtomicU64,
}

impl Relay for Counted {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if target.len() as u64 >= SEGMENT / 2 {
            self.segments_read.fetch_add(1, Ordering::Relaxed);
        }
        self.bytes.read_at(offset, target)
    }
}

#[test]
fn segments_of_after_a_snapshot_are_cleaned_after_a_restart_too() {
    let disk: Arc<Counted> = Arc::default();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    // A fifth of the first segments is alive, and the snapshot needs that.
    (0..1000).for_each(|number| put(&tree, number, 0));
    for number in (0..1000).filter(|number| number % 5 > 0) {
        tree.delete(&key(number), Durability::Buffered).unwrap();
    }
    engine.create_snapshot("for ever").unwrap();
    (0..3).for_each(|_| _ = engine.checkpoint().unwrap());
    (1000..2200).for_each(|number| put(&tree, number, 0));
    engine.checkpoint().unwrap();
    assert_eq!(engine.stats().segments_cleaned, 0, "there is nothing to clean yet");
    engine.close().unwrap();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (1000..2200).filter(|number| number % 10 > 0).for_each(|number| put(&tree, number, 1));
    (0..8).for_each(|_| _ = engine.checkpoint().unwrap());
    let stats = engine.stats();
    // Of some nineteen segments a tenth is alive, until so little of the log is dead that cleaning rests.
    assert!(stats.segments_cleaned > 5 && stats.values_moved > 30, "{stats:?}");
    // What the snapshot needs stays where it is, and is not read again with each checkpoint.
    disk.segments_read.store(0, Ordering::Relaxed);
    (0..3).for_each(|_| _ = engine.checkpoint().unwrap());
    assert_eq!(disk.segments_read.load(Ordering::Relaxed), 0);
    let before = engine.open_snapshot("for ever").unwrap();
    for number in (0..1000).step_by(5) {
        let found = before.get(&tree, &key(number)).unwrap().expect("it was there");
        assert_eq!(&*found.to_buffer().unwrap(), value(number, 0).as_slice());
        assert_holds(&tree, number, 0);
    }
    (1000..2200).for_each(|number| assert_holds(&tree, number, u64::from(number % 10 > 0)));
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

/// A disk in memory on which, for a while, no read as long as a segment succeeds.
#[derive(Default)]
struct Sick {
    bytes: MemoryDisk,
    is_sick: AtomicBool,
}

impl Relay for Sick {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if target.len() as u64 >= SEGMENT / 2 && self.is_sick.load(Ordering::Acquire) {
            let source = std::io::Error::other("for a while");
            return Err(DiskError { operation: Operation::Read, name: "sick".into(), offset, source });
        }
        self.bytes.read_at(offset, target)
    }
}

#[test]
fn segments_that_could_not_be_read_once_are_cleaned_when_they_can() {
    let disk: Arc<Sick> = Arc::default();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("records").unwrap();
    (0..1500).for_each(|number| put(&tree, number, 0));
    engine.checkpoint().unwrap();
    (0..1500).filter(|number| number % 10 > 0).for_each(|number| put(&tree, number, 1));
    disk.is_sick.store(true, Ordering::Release);
    engine.checkpoint().unwrap();
    let before = engine.stats();
    assert_eq!(before.segments_cleaned, 0);
    disk.is_sick.store(false, Ordering::Release);
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    let stats = engine.stats();
    assert!(stats.segments_cleaned > 0 && stats.log_segments < before.log_segments, "{before:?} {stats:?}");
    assert_bound(&stats);
    (0..1500).for_each(|number| assert_holds(&tree, number, u64::from(number % 10 > 0)));
}

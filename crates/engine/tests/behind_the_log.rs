//! Failures and panics while the log has a write and the trees do not: the caller is never told that nothing
//! happened, no reader sees half of the write, and the next opening has all of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, DiskError, FaultPlan, MemoryDisk, Relay, SimDisk};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, Tree, WriteBatch};
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Records of about 120 bytes: three times the memory.
const RECORDS: u32 = 20_000;
const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const LAST: &[u8] = b"zzzzz";

fn options(memory_bytes: u64) -> Options {
    Options {
        memory_bytes,
        background: false,
        log_segment_bytes: 64 << 10,
        store_id: Some(7),
        ..Options::default()
    }
}

fn open(disk: Arc<dyn Disk>) -> (Engine, Tree) {
    let engine = Engine::open(disk, options(1 << 20)).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

fn fill(disk: Arc<dyn Disk>) {
    let engine = Engine::open(disk, options(1 << 30)).unwrap();
    let tree = engine.tree("t").unwrap();
    for number in 0..RECORDS {
        tree.put(&number.to_be_bytes(), &[number as u8; 120], Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
}

fn filled() -> SimDisk {
    let disk = SimDisk::seeded(1);
    fill(Arc::new(disk.clone()));
    disk
}

fn count(tree: &Tree) -> Result<u32, EngineError> {
    let mut count = 0;
    tree.scan(ALL, Direction::Forward, |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

/// A flag that is set once the store reports that it broke.
fn told(engine: &Engine) -> Arc<AtomicBool> {
    let told: Arc<AtomicBool> = Arc::default();
    let tells = Arc::clone(&told);
    engine.when_broken(move || assert!(!tells.swap(true, Ordering::AcqRel), "told twice"));
    told
}

/// Adds one record and deletes all others.
fn batch(tree: &Tree) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(tree, LAST, b"v");
    batch.delete_range(tree, (Bound::Unbounded, Bound::Excluded(LAST)));
    batch
}

fn is_broken(error: EngineError) -> bool {
    matches!(error, EngineError::Broken { .. })
}

/// Asserts that nothing of a half-done write is visible to any caller.
#[track_caller]
fn assert_answers_nothing(engine: &Engine, tree: &Tree) {
    assert!(tree.get(LAST).is_err_and(is_broken));
    assert!(tree.get(&1u32.to_be_bytes()).is_err_and(is_broken));
    assert!(tree.try_get(LAST).is_err_and(is_broken));
    assert!(tree.get_many(&[LAST], |_, _| ()).is_err_and(is_broken));
    assert!(tree.len().is_err_and(is_broken) && tree.is_empty().is_err_and(is_broken));
    assert!(count(tree).is_err_and(is_broken));
    let snapshot = engine.snapshot();
    assert!(snapshot.get(tree, LAST).is_err_and(is_broken) && snapshot.len(tree).is_err_and(is_broken));
    assert!(tree.put(b"next", b"v", Durability::Buffered).is_err_and(is_broken));
    assert!(engine.write(&batch(tree), Durability::Flushed).is_err_and(is_broken));
    assert!(engine.checkpoint().is_err_and(is_broken) && engine.sync().is_err_and(is_broken));
    assert!(engine.close_shared().is_err_and(is_broken));
    assert!(engine.is_closed() && engine.close_shared().is_ok());
}

#[test]
fn a_range_that_cannot_be_read_again_behind_the_log_is_an_unknown_outcome_and_no_half_of_it_is_seen() {
    let disk = filled();
    let reads = {
        let copy = disk.fork();
        let (engine, tree) = open(Arc::new(copy.clone()));
        let before = copy.counters().reads;
        engine.write(&batch(&tree), Durability::Flushed).unwrap();
        copy.counters().reads - before
    };
    let (mut refused, mut unknown) = (0, 0);
    for struck in (0..reads).rev().step_by(1 + reads as usize / 24) {
        let copy = disk.fork();
        let (engine, tree) = open(Arc::new(copy.clone()));
        let told_before = told(&engine);
        copy.set_plan(FaultPlan { fail_read: Some(struck), ..FaultPlan::default() });
        let error = engine.write(&batch(&tree), Durability::Flushed).unwrap_err();
        copy.set_plan(FaultPlan::default());
        let told_after = told(&engine);
        for told in [told_before, told_after] {
            assert_eq!(told.load(Ordering::Acquire), error.is_unknown(), "read {struck}: {error}");
        }
        let left = if error.is_unknown() {
            let is_read = |error: &EngineError| matches!(error, EngineError::Disk(_));
            assert!(matches!(&error, EngineError::Undecided { source, .. } if is_read(source)), "{error:?}");
            assert_answers_nothing(&engine, &tree);
            unknown += 1;
            1
        } else {
            assert_eq!(count(&tree).unwrap(), RECORDS, "read {struck}: {error}");
            tree.put(LAST, b"v", Durability::Flushed).unwrap();
            refused += 1;
            RECORDS + 1
        };
        let (engine, tree) = open(Arc::new(copy.kill()));
        assert_eq!(count(&tree).unwrap(), left, "read {struck}: {error}");
        assert!(engine.check().unwrap().damage.is_empty());
    }
    assert!(refused > 0 && unknown > 0, "{refused} refused, {unknown} unknown of {reads} reads");
}

#[test]
fn what_was_buffered_is_in_the_log_when_a_write_behind_it_is_said_to_be() {
    const BUFFERED: &[u8] = b"zzzzzz, buffered";
    let disk = filled();
    let written = |copy: &SimDisk, struck| {
        let (engine, tree) = open(Arc::new(copy.clone()));
        tree.put(BUFFERED, b"v", Durability::Buffered).unwrap();
        let before = copy.counters().reads;
        copy.set_plan(FaultPlan { fail_read: struck, ..FaultPlan::default() });
        let written = engine.write(&batch(&tree), Durability::Buffered);
        copy.set_plan(FaultPlan::default());
        let reads = copy.counters().reads - before;
        // As a caller does after an error.
        drop(engine.close_shared());
        (written, reads)
    };
    let (whole, reads) = written(&disk.fork(), None);
    whole.unwrap();
    let mut unknown = 0;
    for struck in (0..reads).rev().step_by(1 + reads as usize / 24) {
        let copy = disk.fork();
        let (struck_by, _) = written(&copy, Some(struck));
        if !struck_by.unwrap_err().is_unknown() {
            continue;
        }
        unknown += 1;
        let (_engine, tree) = open(Arc::new(copy.kill()));
        assert!(tree.get(BUFFERED).unwrap().is_some(), "read {struck}: what was acknowledged before is lost");
        assert_eq!(count(&tree).unwrap(), 2, "read {struck}");
    }
    assert!(unknown > 0, "none of {reads} reads");
}

#[test]
fn a_move_of_a_range_whose_pages_cannot_be_read_is_refused_or_unknown_and_never_half_done() {
    let disk = filled();
    let at = (RECORDS / 2).to_be_bytes();
    let steps = |tree: &Tree| -> Result<(), EngineError> {
        let (upper, _) = tree.split_off(&at, "upper", Durability::Flushed)?;
        upper.put(LAST, b"v", Durability::Flushed)?;
        tree.absorb(&upper, Durability::Flushed).map(|_| ())
    };
    let mut failed = 0;
    for struck in 0.. {
        let copy = disk.fork();
        let (engine, tree) = open(Arc::new(copy.clone()));
        copy.set_plan(FaultPlan { fail_read: Some(struck), ..FaultPlan::default() });
        let Err(error) = steps(&tree) else { break };
        copy.set_plan(FaultPlan::default());
        failed += 1;
        let seen = |engine: &Engine| -> Result<Vec<u32>, EngineError> {
            engine.tree_names().iter().map(|name| count(&engine.tree(name)?)).collect()
        };
        let before = seen(&engine);
        let after = seen(&open(Arc::new(copy.kill())).0).unwrap();
        match before {
            Ok(before) => {
                assert!(!error.is_unknown() && before == after, "{struck}: {error} {before:?} {after:?}")
            }
            Err(_) => assert!(error.is_unknown(), "{struck}: {error}"),
        }
    }
    assert!(failed > 0);
}

/// A disk in memory that panics once, in a chosen later read or write.
#[derive(Default)]
struct Panicking {
    bytes: MemoryDisk,
    reads: AtomicU64,
    writes: AtomicU64,
}

fn strike(left: &AtomicU64, what: &str) {
    let struck = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
    assert!(struck != Ok(1), "a {what} panics, as this test wants");
}

impl Relay for Panicking {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        strike(&self.reads, "read");
        self.bytes.read_at(offset, target)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        strike(&self.writes, "write");
        self.bytes.write_at(offset, bytes)
    }
}

impl Panicking {
    /// The disk as the next opening finds it.
    fn copied(&self) -> Arc<dyn Disk> {
        Arc::new(MemoryDisk::with_bytes(self.bytes.to_bytes()))
    }
}

fn panics<R>(run: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(run)).is_err()
}

#[test]
fn a_panic_while_the_log_takes_a_write_leaves_no_store_that_goes_on() {
    for is_batch in [false, true] {
        let disk: Arc<Panicking> = Arc::default();
        let (engine, tree) = open(disk.clone());
        tree.put(LAST, b"before", Durability::Flushed).unwrap();
        disk.writes.store(1, Ordering::Release);
        assert!(panics(|| match is_batch {
            true => engine.write(&batch(&tree), Durability::Flushed),
            false => tree.put(b"struck", b"v", Durability::Flushed),
        }));
        assert_answers_nothing(&engine, &tree);
        let (_engine, tree) = open(disk.copied());
        assert_eq!(count(&tree).unwrap(), 1);
        tree.put(b"next", b"v", Durability::Flushed).unwrap();
    }
}

#[test]
fn a_panic_in_the_middle_of_a_range_delete_shows_nobody_a_half_of_it() {
    let disk: Arc<Panicking> = Arc::default();
    fill(disk.clone());
    let image = disk.bytes.to_bytes();
    let reads = {
        const MANY: u64 = 1 << 40;
        let copy =
            Arc::new(Panicking { bytes: MemoryDisk::with_bytes(image.clone()), ..Panicking::default() });
        let (engine, tree) = open(copy.clone());
        copy.reads.store(MANY, Ordering::Release);
        engine.write(&batch(&tree), Durability::Flushed).unwrap();
        MANY - copy.reads.load(Ordering::Acquire)
    };
    let copy = Arc::new(Panicking { bytes: MemoryDisk::with_bytes(image), ..Panicking::default() });
    let (engine, tree) = open(copy.clone());
    copy.reads.store(reads, Ordering::Release);
    assert!(panics(|| engine.write(&batch(&tree), Durability::Flushed)));
    assert_answers_nothing(&engine, &tree);
    assert_eq!(count(&open(copy.copied()).1).unwrap(), 1);
}

#[test]
fn a_checkpoint_that_panicked_is_the_last_one_and_writes_go_on() {
    let disk: Arc<Panicking> = Arc::default();
    fill(disk.clone());
    // There is room for everything written.
    let engine = Engine::open(disk.clone(), options(4 << 20)).unwrap();
    let tree = engine.tree("t").unwrap();
    for number in 0..2000u32 {
        tree.put(&number.to_be_bytes(), &[1; 500], Durability::Flushed).unwrap();
    }
    disk.writes.store(1, Ordering::Release);
    assert!(panics(|| engine.checkpoint()));
    // It took the list of what was to be freed with it, so no later checkpoint may commit.
    assert!(engine.checkpoint().is_err_and(is_broken));
    tree.put(LAST, b"v", Durability::Synced).unwrap();
    assert_eq!(count(&tree).unwrap(), RECORDS + 1);
    assert!(engine.close_shared().is_err_and(is_broken));
    let (engine, tree) = open(disk.copied());
    assert_eq!(count(&tree).unwrap(), RECORDS + 1);
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn behind_a_checkpoint_that_panicked_writes_are_refused_where_memory_or_the_log_is_full() {
    const MEMORY: u64 = 1 << 20;
    // A new key for each put, or one key for all of them.
    for (memory_bytes, keys) in [(MEMORY, u32::MAX), (1 << 30, 1)] {
        let disk: Arc<Panicking> = Arc::default();
        let options = Options { checkpoint_bytes: 1 << 20, ..options(memory_bytes) };
        let engine = Engine::open(disk.clone(), options.clone()).unwrap();
        let tree = engine.tree("t").unwrap();
        tree.put(LAST, b"v", Durability::Flushed).unwrap();
        disk.writes.store(1, Ordering::Release);
        assert!(panics(|| engine.checkpoint()));
        let put = |number: u32| tree.put(&(number % keys).to_be_bytes(), &[7; 200], Durability::Flushed);
        let (taken, refused) =
            (0..200_000).map(|number| (number, put(number))).find(|(_, put)| put.is_err()).unwrap();
        assert!(is_broken(refused.unwrap_err()));
        assert!(taken > 1000, "{taken} puts");
        let stats = engine.stats();
        assert!(stats.memory_bytes_most <= memory_bytes + memory_bytes / 10, "{taken} puts: {stats:?}");
        if keys == 1 {
            assert!(engine.write(&batch(&tree), Durability::Flushed).is_err_and(is_broken));
        }
        // Every accepted put is found, in this store and by the next opening.
        let distinct = taken.min(keys);
        assert_eq!(count(&tree).unwrap(), distinct + 1);
        assert!(engine.close_shared().is_err_and(is_broken));
        let engine = Engine::open(disk.copied(), options).unwrap();
        assert_eq!(count(&engine.tree("t").unwrap()).unwrap(), distinct + 1);
    }
}

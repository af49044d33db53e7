//! Bulk loads whose checkpoint fails: nothing of them is left, and a crash afterwards changes nothing. Where
//! that cannot be promised, the error says that the outcome is unknown.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, FaultPlan, MemoryDisk, Operation, Relay, SimDisk, Survival};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, SyncTicket, Tree, WriteBatch};
use atoll_errors::ErrorKind;
use std::collections::BTreeMap;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const RECORDS: u32 = 3000;

/// A key among the loaded ones.
const LOADED: [u8; 4] = 7_u32.to_be_bytes();

fn open(disk: &SimDisk) -> (Engine, Tree) {
    open_on(Arc::new(disk.clone()))
}

fn open_on(disk: Arc<dyn Disk>) -> (Engine, Tree) {
    let options =
        Options { background: false, log_segment_bytes: 64 << 10, store_id: Some(7), ..Options::default() };
    let engine = Engine::open(disk, options).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

/// Short records, with some longer ones among them.
fn records() -> impl Iterator<Item = ([u8; 4], Vec<u8>)> {
    (0..RECORDS)
        .map(|number| (number.to_be_bytes(), vec![number as u8; if number % 50 == 0 { 1000 } else { 100 }]))
}

fn content(tree: &Tree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    tree.scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, |key, value| {
        found.insert(key.to_vec(), value.bytes().unwrap().to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

/// A store with an empty tree, all of it synced.
fn prepared(seed: u64) -> (SimDisk, Engine, Tree) {
    let disk = SimDisk::seeded(seed);
    let (engine, tree) = open(&disk);
    engine.tree("other").unwrap().put(b"k", b"v", Durability::Synced).unwrap();
    (disk, engine, tree)
}

#[test]
fn what_is_appended_after_a_load_that_failed_is_the_same_after_a_crash() {
    let mut failed = [0; 2];
    for (with_checkpoint, struck) in
        [false, true].into_iter().flat_map(|with| (0..20).map(move |at| (with, at)))
    {
        let (disk, engine, tree) = prepared(struck);
        disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
        let loaded = tree.bulk_load(records());
        disk.set_plan(FaultPlan::default());
        // The later writes belong to nothing.
        let Err(error) = loaded else { continue };
        assert!(!error.is_unknown(), "{struck}: {error}");
        assert!(tree.is_empty().unwrap() && tree.len().unwrap() == 0, "{struck}");
        tree.append(&LOADED, b"tail", Durability::Synced).unwrap();
        let before = content(&tree);
        assert_eq!(before, BTreeMap::from([(LOADED.to_vec(), b"tail".to_vec())]), "{struck}");
        if with_checkpoint {
            engine.checkpoint().unwrap();
            assert!(engine.check().unwrap().damage.is_empty(), "{struck}");
        }
        let (engine, tree) = open(&disk.crash());
        assert_eq!(content(&tree), before, "{struck}");
        assert!(engine.check().unwrap().damage.is_empty(), "{struck}");
        failed[usize::from(with_checkpoint)] += 1;
    }
    // Leaves, inner nodes, the table, and both superblocks.
    assert!(failed.into_iter().all(|count| (4..20).contains(&count)), "{failed:?}");
}

#[test]
fn a_load_that_failed_does_not_come_back_when_the_power_fails_at_once() {
    for survival in [Survival::Nothing, Survival::Everything, Survival::Mixed] {
        let mut failed = 0;
        for struck in 0..20 {
            let (disk, _engine, tree) = prepared(struck);
            disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
            let loaded = tree.bulk_load(records());
            // The later writes belong to nothing.
            let Err(error) = loaded else { continue };
            assert!(!error.is_unknown(), "{struck}: {error}");
            let (engine, tree) = open(&disk.crash_with(survival));
            assert!(tree.is_empty().unwrap() && tree.len().unwrap() == 0, "{survival:?} {struck}");
            assert!(engine.check().unwrap().damage.is_empty(), "{survival:?} {struck}");
            failed += 1;
        }
        // Leaves, inner nodes, the table, and both superblocks.
        assert!((4..20).contains(&failed), "{survival:?} {failed}");
    }
}

#[test]
fn a_load_whose_removal_could_not_be_synced_may_survive_and_says_so() {
    let (disk, _engine, tree) = prepared(33);
    let before = disk.counters();
    tree.bulk_load(records()).unwrap();
    let after = disk.counters();
    // The last write is the second superblock. The last sync follows it; where that write fails, the sync of
    // the removal takes its place.
    let (write, sync) = (after.writes - before.writes - 1, after.syncs - before.syncs - 1);
    let (disk, _engine, tree) = prepared(33);
    disk.set_plan(FaultPlan { fail_write: Some(write), fail_sync: Some(sync), ..FaultPlan::default() });
    let error = tree.bulk_load(records()).unwrap_err();
    assert!(matches!(error, EngineError::NotDurable { .. }), "{error}");
    assert_eq!(disk.counters().write_errors, before.write_errors + 1, "another write was struck");
    let refused = tree.append(&LOADED, b"tail", Durability::Synced).unwrap_err();
    assert!(matches!(refused, EngineError::Poisoned { .. }), "{refused}");
    let count = open(&disk.crash()).1.len().unwrap();
    assert!(count == 0 || count == u64::from(RECORDS), "{count}");
}

#[test]
fn a_load_that_finds_no_room_leaves_an_empty_tree_which_is_loaded_later() {
    let (disk, engine, tree) = prepared(30);
    disk.set_plan(FaultPlan { space_left: Some(20_000), ..FaultPlan::default() });
    let refused = tree.bulk_load(records()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutOfSpace, "{refused}");
    assert!(tree.is_empty().unwrap());
    // A small group needs no more room.
    engine.tree("other").unwrap().put(b"k", b"w", Durability::Flushed).unwrap();
    disk.set_plan(FaultPlan::default());
    assert_eq!(tree.bulk_load(records()).unwrap(), u64::from(RECORDS));
    let (engine, tree) = open(&disk.crash());
    assert_eq!(tree.len().unwrap(), u64::from(RECORDS));
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn a_load_that_cannot_be_taken_back_ends_the_store_before_a_write_relies_on_it() {
    let (disk, _engine, tree) = prepared(31);
    disk.set_plan(FaultPlan { read_only: true, ..FaultPlan::default() });
    let error = tree.bulk_load(records()).unwrap_err();
    assert!(error.is_unknown(), "{error}");
    disk.set_plan(FaultPlan::default());
    let refused = tree.append(&LOADED, b"tail", Durability::Synced).unwrap_err();
    assert!(matches!(refused, EngineError::Broken { .. }), "{refused}");
    assert!(matches!(tree.get(&LOADED), Err(EngineError::Broken { .. })));
    assert!(open(&disk.crash()).1.is_empty().unwrap());
}

#[test]
fn a_load_whose_sync_failed_may_survive_and_nothing_is_written_after_it() {
    let (disk, _engine, tree) = prepared(32);
    disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
    let error = tree.bulk_load(records()).unwrap_err();
    assert!(matches!(error, EngineError::NotDurable { .. }), "{error}");
    disk.set_plan(FaultPlan::default());
    let refused = tree.append(&LOADED, b"tail", Durability::Synced).unwrap_err();
    assert!(matches!(refused, EngineError::Poisoned { .. }), "{refused}");
    let count = open(&disk.crash()).1.len().unwrap();
    assert!(count == 0 || count == u64::from(RECORDS), "{count}");
}

/// A disk on which another caller's sync fails during the next write, once it is given the caller's ticket.
#[derive(Default)]
struct SyncFailsMeanwhile {
    bytes: MemoryDisk,
    ticket: Mutex<Option<SyncTicket>>,
    fails: AtomicBool,
}

impl Relay for SyncFailsMeanwhile {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let ticket = self.ticket.lock().unwrap().take();
        if let Some(ticket) = ticket {
            self.fails.store(true, Ordering::Relaxed);
            assert!(ticket.run().is_err(), "the sync was to fail");
            self.fails.store(false, Ordering::Relaxed);
        }
        self.bytes.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        if self.fails.load(Ordering::Relaxed) {
            let source = io::Error::other("planted");
            return Err(DiskError {
                operation: Operation::Sync,
                name: "meanwhile".into(),
                offset: 0,
                source,
            });
        }
        self.bytes.sync()
    }
}

#[test]
fn a_load_that_meets_another_callers_failed_sync_may_survive_and_says_so() {
    let disk = Arc::new(SyncFailsMeanwhile::default());
    let (engine, tree) = open_on(disk.clone());
    let mut batch = WriteBatch::new();
    batch.put(&engine.tree("other").unwrap(), b"k", b"v");
    let ticket = engine.write_visible(&batch).unwrap();
    *disk.ticket.lock().unwrap() = Some(ticket);
    let error = tree.bulk_load(records()).unwrap_err();
    assert!(disk.ticket.lock().unwrap().is_none(), "the load wrote nothing");
    // Its records are still there, so it may not be told that there is nothing of it.
    assert_eq!(tree.len().unwrap(), u64::from(RECORDS));
    assert!(error.is_unknown(), "{error}");
    let refused = tree.append(&LOADED, b"tail", Durability::Synced).unwrap_err();
    assert!(matches!(refused, EngineError::Poisoned { .. }), "{refused}");
}

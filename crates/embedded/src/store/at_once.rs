//! Writes that decide nothing: that they go on beside others, share their syncs, and fail as other writes do.

use super::{EmbeddedStore, StoreOptions, keys};
use atoll_disk::{Disk, DiskError, FaultPlan, Relay, SimDisk};
use atoll_engine::{Amended, Durability as Class, Engine, Options};
use atoll_store::{
    Batch, Cell, Durability, Outcome, ReadOptions, RequestId, Store, StoreError, WriteOptions, Written,
};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const PARTITION: &[u8] = b"p";
/// Values that lie in the log: a leaf has room for a change of one, however full it is.
const OLD: &[u8] = &[7; 300];
const NEW: &[u8] = &[8; 300];

/// Writers beside the one that is under way. The engine has four places for such writers, so most of these
/// find another one than it has.
const WRITERS: u32 = 8;
/// Cells between those of two writers, so that they lie in different leaves.
const APART: u32 = 500;

/// Whatever takes this long waits for something that does not come.
const LONG: Duration = Duration::from_secs(20);

const FLUSHED: WriteOptions =
    WriteOptions { durability: Some(Durability::Flushed), deadline: None, request: None };
const SYNCED: WriteOptions =
    WriteOptions { durability: Some(Durability::Synced), deadline: None, request: None };

fn open(disk: Arc<dyn Disk>) -> EmbeddedStore {
    let engine = Options { background: false, ..Options::default() };
    let opened = Engine::open(disk, engine.clone()).unwrap();
    EmbeddedStore::on_engine(opened, StoreOptions { engine, ..StoreOptions::default() }, "test").unwrap()
}

fn now<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(call)
}

fn sort_of(number: u32) -> Vec<u8> {
    format!("{number:06}").into_bytes()
}

/// Whether one of several writers ends while another write is under way, which has not left the engine's
/// gate.
fn ends_beside(
    limit: Duration,
    write: impl Fn(&EmbeddedStore, &[u8]) -> Result<Written, StoreError> + Sync,
) -> bool {
    let store = open(Arc::new(SimDisk::seeded(1)));
    let (store, write) = (&store, &write);
    now(async {
        let buffered = WriteOptions::durable(Durability::Buffered);
        for number in 0..(WRITERS + 1) * APART {
            // The value of the write that is under way lies in its leaf.
            let value = if number == 0 { &OLD[..10] } else { OLD };
            store.put(Cell::new(PARTITION, &sort_of(number)), value, buffered).await.unwrap();
        }
    });
    let taken = keys::joined(Cell::new(PARTITION, &sort_of(0)));
    let (ended, ends) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut is_beside = false;
        let amended = store.inner.cells.amend::<8>(&taken, Class::Buffered, |_| {
            for number in 1..=WRITERS {
                let ended = ended.clone();
                scope.spawn(move || {
                    let written = write(store, &sort_of(number * APART));
                    let _ = ended.send(written.is_ok());
                });
            }
            is_beside = ends.recv_timeout(limit) == Ok(true);
            None
        });
        assert_eq!(amended.unwrap(), Amended::Seen, "no write was under way");
        is_beside
    })
}

#[test]
fn a_write_of_one_cell_that_decides_nothing_ends_beside_one_that_is_under_way() {
    let on = || Batch::on(PARTITION);
    for class in Durability::ALL {
        let options = WriteOptions::durable(class);
        let in_time = WriteOptions { deadline: Some(LONG), ..options };
        let put = ends_beside(LONG, |store, sort| now(store.put(Cell::new(PARTITION, sort), NEW, options)));
        assert!(put, "a put, {class:?}");
        let put = ends_beside(LONG, |store, sort| now(store.put(Cell::new(PARTITION, sort), NEW, in_time)));
        assert!(put, "a put with a deadline, {class:?}");
        let put = ends_beside(LONG, |store, sort| now(store.write(on().put(sort, NEW), options)));
        assert!(put, "a batch of a put, {class:?}");
        let appended = ends_beside(LONG, |store, sort| now(store.write(on().append(sort, NEW), options)));
        assert!(appended, "a batch of an append, {class:?}");
        let deleted = ends_beside(LONG, |store, sort| now(store.write(on().delete(sort), options)));
        assert!(deleted, "a batch of a delete, {class:?}");
    }
}

#[test]
fn a_write_that_decides_something_waits_for_the_one_that_is_under_way() {
    let short = Duration::from_millis(200);
    let on = || Batch::on(PARTITION);
    let decided =
        ends_beside(short, |store, sort| now(store.write(on().if_equals(sort, OLD).put(sort, NEW), FLUSHED)));
    assert!(!decided, "a batch with a condition");
    let request = Some(RequestId { client: 7, sequence: 1 });
    let named = WriteOptions { request, ..FLUSHED };
    assert!(!ends_beside(short, |store, sort| now(store.write(on().put(sort, NEW), named))), "with an id");
}

/// A disk whose syncs wait while it is held.
struct HeldSyncs {
    disk: SimDisk,
    is_held: Mutex<bool>,
    changed: Condvar,
    begun: AtomicUsize,
}

impl HeldSyncs {
    fn seeded(seed: u64) -> Arc<Self> {
        let (disk, begun) = (SimDisk::seeded(seed), AtomicUsize::new(0));
        Arc::new(Self { disk, is_held: Mutex::new(false), changed: Condvar::new(), begun })
    }

    fn hold(&self, is_held: bool) {
        *self.is_held.lock() = is_held;
        self.changed.notify_all();
    }

    fn begun(&self) -> usize {
        self.begun.load(Ordering::Acquire)
    }
}

impl Relay for HeldSyncs {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        self.changed.wait_while(&mut self.is_held.lock(), |is_held| *is_held);
        self.disk.sync()
    }
}

#[tokio::test]
async fn tasks_that_wait_for_a_sync_share_it_and_leave_their_thread_to_others() {
    let disk = HeldSyncs::seeded(2);
    let store = open(disk.clone());
    disk.hold(true);
    // A write that blocks this thread would block it for ever.
    let ((told, watched), rescuer) = (mpsc::channel::<()>(), disk.clone());
    let rescue = std::thread::spawn(move || {
        let is_stuck = watched.recv_timeout(LONG).is_err();
        rescuer.hold(false);
        is_stuck
    });
    let before = disk.begun();
    let sorts: Vec<Vec<u8>> = (0..10).map(sort_of).collect();
    let mut waiting = Vec::new();
    for (number, sort) in sorts.iter().enumerate() {
        let cell = Cell::new(PARTITION, sort);
        let mut written = match number % 3 {
            0 => store.put(cell, NEW, SYNCED),
            1 => store.write(Batch::on(PARTITION).put(sort.clone(), NEW), SYNCED),
            _ => store.write(Batch::on(PARTITION).append(sort.clone(), NEW), SYNCED),
        };
        assert!(futures::poll!(&mut written).is_pending(), "{number}: it waits for its sync");
        let seen = store.get(cell, ReadOptions::default()).await.unwrap();
        assert_eq!(seen.as_deref(), Some(NEW), "{number}: it is visible before");
        waiting.push(written);
    }
    // This lets the syncs go.
    let _ = told.send(());
    assert!(!rescue.join().unwrap(), "a write blocked its thread");
    for written in waiting {
        assert_eq!(written.await.unwrap().durability, Durability::Synced);
    }
    // One may have begun before all were in the log; another one covers the rest.
    let syncs = disk.begun() - before;
    assert!((1..=2).contains(&syncs), "{syncs} syncs");
}

#[tokio::test]
async fn every_task_whose_shared_sync_fails_is_told_so() {
    let disk = HeldSyncs::seeded(3);
    let store = open(disk.clone());
    disk.hold(true);
    let mut one = store.put(Cell::new(PARTITION, b"one"), NEW, SYNCED);
    let mut other = store.write(Batch::on(PARTITION).put(b"other", NEW), SYNCED);
    assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut other).is_pending());
    disk.disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
    disk.hold(false);
    for error in [one.await.unwrap_err(), other.await.unwrap_err()] {
        assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    }
}

#[tokio::test]
async fn a_write_whose_sync_fails_is_told_as_one_that_decides_and_the_store_takes_no_more() {
    type Change = fn(Batch) -> Batch;
    let writes: [(&str, Change); 5] = [
        ("put", |batch| batch.put(b"k", NEW)),
        ("append", |batch| batch.append(b"k", NEW)),
        ("delete", |batch| batch.delete(b"k")),
        ("two puts", |batch| batch.put(b"k", NEW).put(b"l", NEW)),
        ("a condition", |batch| batch.if_equals(b"k", OLD).put(b"k", NEW)),
    ];
    let cell = Cell::new(PARTITION, b"k");
    let mut told = Vec::new();
    for (what, changed) in writes {
        let disk = SimDisk::seeded(4);
        let store = open(Arc::new(disk.clone()));
        store.put(cell, OLD, FLUSHED).await.unwrap();
        disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
        let error = store.write(changed(Batch::on(PARTITION)), SYNCED).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Unknown, "{what}: {error}");
        told.push(error.to_string());
        let seen = store.get(cell, ReadOptions::default()).await.unwrap();
        assert_ne!(seen.as_deref(), Some(OLD), "{what}: it took effect");
        for options in [FLUSHED, SYNCED] {
            let next = store.write(Batch::on(PARTITION).append(b"k", OLD), options).await.unwrap_err();
            assert_eq!(next.outcome(), Outcome::Refused, "{what}: {next}");
            assert!(matches!(next, StoreError::Unavailable { .. }), "{what}: {next}");
        }
        let still = store.get(cell, ReadOptions::default()).await.unwrap();
        assert_eq!(still, seen, "{what}: what was refused changed nothing");
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}

//! Calls on a store whose disk is stalled: which of them wait for it, and how they end at their deadlines.
//! Also the outcomes of retried writes.

use super::{EmbeddedStore, StoreOptions, keys};
use atoll_disk::{Disk, DiskError, FaultPlan, MemoryDisk, Relay, SimDisk};
use atoll_engine::{Engine, Options};
use atoll_store::clock::ManualClock;
use atoll_store::{
    Batch, Buffer, ByteRange, Cell, Conflict, Durability, ErrorKind, Expectation, Outcome, Read, ReadOptions,
    RequestId, Store, StoreError, Timestamp, Waited, WriteOptions,
};
use futures::StreamExt;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// A disk that stalls the threads of one name while it is held.
struct Held {
    disk: SimDisk,
    threads: &'static str,
    is_held: Mutex<bool>,
    changed: Condvar,
    bytes_read: AtomicUsize,
}

impl Held {
    fn on(disk: &SimDisk, threads: &'static str) -> Arc<Self> {
        let (disk, changed) = (disk.clone(), Condvar::new());
        let (is_held, bytes_read) = (Mutex::new(true), AtomicUsize::new(0));
        Arc::new(Self { disk, threads, is_held, changed, bytes_read })
    }

    fn pass(&self) {
        if std::thread::current().name() == Some(self.threads) {
            self.changed.wait_while(&mut self.is_held.lock(), |is_held| *is_held);
        }
    }

    fn release(&self) {
        *self.is_held.lock() = false;
        self.changed.notify_all();
    }
}

impl Relay for Held {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.pass();
        self.bytes_read.fetch_add(target.len(), Ordering::Relaxed);
        self.disk.read_at(offset, target)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.pass();
        self.disk.write_at(offset, bytes)
    }
}

#[tokio::test]
async fn a_write_that_waits_for_a_checkpoint_holds_up_nobody_and_ends_at_its_deadline() {
    let disk = Held::on(&SimDisk::seeded(1), "atoll-checkpoint");
    let engine = Options { memory_bytes: 4 << 20, log_segment_bytes: 1 << 20, ..Options::default() };
    let opened = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, engine.clone()).unwrap();
    let options = StoreOptions { engine, ..StoreOptions::default() };
    let store = EmbeddedStore::on_engine(opened, options, "test").unwrap();
    // A write that blocks this thread would block it for ever.
    let (watched, rescuer) = (std::sync::mpsc::channel::<()>(), Arc::clone(&disk));
    let rescue = std::thread::spawn(move || {
        let is_stuck = watched.1.recv_timeout(Duration::from_secs(20)).is_err();
        rescuer.release();
        is_stuck
    });
    let deadline = Some(Duration::from_millis(50));
    // The log holds every write, so that a checkpoint begins with the pages, and holds no lock then.
    let plain = WriteOptions { durability: Some(Durability::Flushed), ..WriteOptions::default() };
    let mut late = None;
    for number in 0..100_000_u32 {
        let (sort, options) = (number.to_be_bytes(), WriteOptions { deadline, ..plain });
        let cell = Cell::new(b"p", &sort);
        if let Err(error) = store.put(cell, &[7; 1000], options).await {
            late = Some(error);
            break;
        }
    }
    // It only waited for room, so it cannot have taken effect.
    assert_eq!(late.expect("memory never fills").outcome(), Outcome::Refused);
    // Without a deadline the write waits, and other calls do not.
    let mut waiting = store.put(Cell::new(b"p", b"more"), &[7; 1000], plain);
    assert!(futures::poll!(&mut waiting).is_pending());
    let last = Cell::new(b"p", b"more");
    assert!(store.get(last, ReadOptions::default()).await.unwrap().is_none());
    watched.0.send(()).unwrap();
    assert!(!rescue.join().unwrap(), "a write blocked its thread");
    waiting.await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_read_whose_deadline_passed_counts_as_refused() {
    let disk = SimDisk::seeded(2);
    let cell = Cell::new(b"p", b"k");
    let first = Engine::open(Arc::new(disk.clone()), Options::default()).unwrap();
    let first = EmbeddedStore::on_engine(first, StoreOptions::default(), "test").unwrap();
    first.put(cell, &[7; 100_000], WriteOptions::default()).await.unwrap();
    first.close().await.unwrap();
    // Threads of the runtime read the disk.
    let disk = Held::on(&disk, "tokio-rt-worker");
    let opened = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, Options::default()).unwrap();
    let store = EmbeddedStore::on_engine(opened, StoreOptions::default(), "test").unwrap();
    let deadline = Some(Duration::from_millis(20));
    let late = store.get(cell, ReadOptions { deadline, ..ReadOptions::default() }).await;
    disk.release();
    let late = late.expect_err("it lies on disk");
    assert_eq!((late.kind(), late.outcome()), (ErrorKind::Unavailable, Outcome::Refused), "{late}");
    assert_eq!(store.get(cell, ReadOptions::default()).await.unwrap().unwrap().len(), 100_000);
}

/// Reads after which the writer of a [`Busy`] disk rests in any case.
const BUSY_READS_MAX: usize = 1000;

/// A disk on which a write comes before each read by a thread other than this one.
struct Busy {
    disk: SimDisk,
    caller: std::thread::ThreadId,
    write: Mutex<Option<Box<dyn FnMut() + Send>>>,
    writes: AtomicUsize,
}

impl Relay for Busy {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        // A commit reads on the thread of its caller, and keeps all other writers away.
        let is_ahead = std::thread::current().id() != self.caller;
        if is_ahead && self.writes.load(Ordering::Relaxed) < BUSY_READS_MAX {
            let taken = self.write.lock().take();
            if let Some(mut write) = taken {
                self.writes.fetch_add(1, Ordering::Relaxed);
                write();
                *self.write.lock() = Some(write);
            }
        }
        self.disk.read_at(offset, target)
    }
}

#[tokio::test]
async fn a_write_stops_reading_ahead_where_other_writers_undo_that() {
    const CELLS: u32 = 2000;
    let sort = |number: u32| number.to_be_bytes();
    let options = Options { background: false, blind_puts: true, hot_bytes: Some(0), ..Options::default() };
    let open = |disk: Arc<dyn Disk>| {
        let opened = Engine::open(disk, options.clone()).unwrap();
        let options = StoreOptions { engine: options.clone(), ..StoreOptions::default() };
        EmbeddedStore::on_engine(opened, options, "test").unwrap()
    };
    let last = Batch::on(b"p");
    let changes = [
        (last.clone().put(sort(CELLS - 1), vec![8; 300]), vec![8; 300]),
        (last.append(sort(CELLS - 1), b"more".to_vec()), [&[7; 100][..], b"more"].concat()),
    ];
    for (batch, expected) in changes {
        let disk = SimDisk::seeded(6);
        let first = open(Arc::new(disk.clone()));
        for number in 0..CELLS {
            first.put(Cell::new(b"p", &sort(number)), &[7; 100], WriteOptions::default()).await.unwrap();
        }
        first.close().await.unwrap();
        drop(first);
        let (write, writes) = (Mutex::new(None), AtomicUsize::new(0));
        let busy = Arc::new(Busy { disk, caller: std::thread::current().id(), write, writes });
        let store = open(Arc::clone(&busy) as Arc<dyn Disk>);
        // From here on it is known where the leaves are.
        store.put(Cell::new(b"p", &sort(0)), b"first", WriteOptions::default()).await.unwrap();
        // What goes beside the leaf of the last cell during each read of it, so that none of them counts.
        let (tree, key) =
            (store.engine().tree("cells").unwrap(), keys::joined(Cell::new(b"p", &sort(CELLS))));
        let between = move || {
            tree.put(&key, b"between", atoll_engine::Durability::Buffered).unwrap();
        };
        *busy.write.lock() = Some(Box::new(between));
        store.write(batch, WriteOptions::default()).await.unwrap();
        let taken = busy.write.lock().take();
        drop(taken);
        let writes = busy.writes.load(Ordering::Relaxed);
        assert!((2..=10).contains(&writes), "{writes} writes came between");
        for (number, value) in [(CELLS - 1, expected), (CELLS, b"between".to_vec())] {
            let found = store.get(Cell::new(b"p", &sort(number)), ReadOptions::default()).await.unwrap();
            assert_eq!(found.map(|found| found.to_vec()), Some(value), "cell {number}");
        }
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_range_that_is_in_memory_waits_for_no_thread_whatever_the_rest_of_its_value_does() {
    let disk = SimDisk::seeded(5);
    let cell = Cell::new(b"p", b"k");
    let first = Engine::open(Arc::new(disk.clone()), Options::default()).unwrap();
    let first = EmbeddedStore::on_engine(first, StoreOptions::default(), "test").unwrap();
    // A large value in a batch is stored in several pieces.
    let batch = Batch::on(b"p").put(b"k", vec![7; 2 << 20]);
    first.write(batch, WriteOptions::default()).await.unwrap();
    first.close().await.unwrap();
    // The thread that reads the disk for the caller never returns.
    let disk = Held::on(&disk, "tokio-rt-worker");
    let opened = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, Options::default()).unwrap();
    let store = EmbeddedStore::on_engine(opened, StoreOptions::default(), "test").unwrap();
    let value = store.inner.cells.get(&keys::joined(cell)).unwrap().unwrap();
    value.read(0, 1000).unwrap();
    let range = |offset| ByteRange::new(offset, 1000);
    let get = |offset| store.get(cell, ReadOptions { range: range(offset), ..ReadOptions::default() });
    let read = |offset| Read { range: range(offset), ..Read::new(b"p", b"k") };
    assert!(futures::poll!(get(0)).is_ready());
    let many = futures::poll!(store.get_many(vec![read(0), read(500)]).collect::<Vec<_>>());
    assert!(matches!(many, Poll::Ready(answers) if answers.len() == 2));
    let mut absent = get(1 << 20);
    assert!(futures::poll!(&mut absent).is_pending());
    disk.release();
    assert_eq!(absent.await.unwrap().unwrap()[..], [7; 1000]);
}

/// A store that was opened with one value of `len` bytes, of which nothing was read yet, and the value's
/// cell.
async fn opened_with(len: usize) -> (Arc<Held>, EmbeddedStore, Cell<'static>) {
    let disk = SimDisk::seeded(6);
    let first = Engine::open(Arc::new(disk.clone()), Options::default()).unwrap();
    let first = EmbeddedStore::on_engine(first, StoreOptions::default(), "test").unwrap();
    first.write(Batch::on(b"p").put(b"k", vec![7; len]), WriteOptions::default()).await.unwrap();
    first.close().await.unwrap();
    let disk = Held::on(&disk, "of nobody");
    let opened = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, Options::default()).unwrap();
    let store = EmbeddedStore::on_engine(opened, StoreOptions::default(), "test").unwrap();
    (disk, store, Cell::new(b"p", b"k"))
}

#[tokio::test]
async fn a_conflict_reads_and_keeps_no_more_of_a_long_value_than_it_tells() {
    const LEN: usize = 8 << 20;
    let (disk, store, cell) = opened_with(LEN).await;
    let before = disk.bytes_read.load(Ordering::Relaxed);
    let refused = store.create(cell, Buffer::from(b"w".to_vec()), WriteOptions::default()).await;
    let read = disk.bytes_read.load(Ordering::Relaxed) - before;
    let Err(StoreError::Conflict(conflict)) = refused else { panic!("{refused:?}") };
    let told = conflict.actual.unwrap();
    assert_eq!((told.len(), conflict.actual_bytes), (Conflict::ACTUAL_BYTES_MAX, LEN as u64));
    assert!((Conflict::ACTUAL_BYTES_MAX..2 << 20).contains(&read), "{read} bytes were read");
    assert!(told.allocated_bytes() < 2 << 20, "{} bytes are kept", told.allocated_bytes());
}

#[tokio::test]
async fn a_wait_for_a_value_reads_no_more_of_a_long_one_than_tells_them_apart() {
    const LEN: usize = 8 << 20;
    let (disk, store, cell) = opened_with(LEN).await;
    let before = disk.bytes_read.load(Ordering::Relaxed);
    for expected in [None, Some(Buffer::copy_from(&[7; 1000]))] {
        let waited = store.wait(cell, Expectation::Equals(expected), Duration::ZERO).await;
        assert_eq!(waited.unwrap(), Waited::TimedOut);
    }
    let read = disk.bytes_read.load(Ordering::Relaxed) - before;
    assert!(read < 2 << 20, "{read} bytes were read");
    let there = store.wait(cell, Expectation::Differs(None), Duration::ZERO).await.unwrap();
    assert!(matches!(there, Waited::Met(Some(value)) if value.len() == LEN), "all of what is met is told");
}

#[tokio::test]
async fn a_write_whose_sync_failed_stays_unknown_however_often_it_is_asked_for() {
    for is_full in [false, true] {
        let disk = SimDisk::seeded(3);
        let options = Options { background: false, memory_bytes: 1 << 20, ..Options::default() };
        let opened = Engine::open(Arc::new(disk.clone()), options).unwrap();
        let store = EmbeddedStore::on_engine(opened, StoreOptions::default(), "test").unwrap();
        // Memory is full of what a checkpoint would have to write.
        for number in 0..if is_full { 20_000_u32 } else { 1 } {
            let sort = number.to_be_bytes();
            let cell = Cell::new(b"filling", &sort);
            store.put(cell, &[7; 100], WriteOptions::default()).await.unwrap();
        }
        let cell = Cell::new(b"p", b"k");
        let named = |sequence, durability| WriteOptions {
            request: Some(RequestId { client: 7, sequence }),
            durability: Some(durability),
            ..WriteOptions::default()
        };
        disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
        for again in 0..4 {
            let durability = if again < 2 { Durability::Synced } else { Durability::Flushed };
            let error = store.put(cell, b"value", named(1, durability)).await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::Unknown, "{again}, {is_full}: {error}");
        }
        assert_eq!(*store.get(cell, ReadOptions::default()).await.unwrap().unwrap(), *b"value");
        // Another write is known not to have taken effect.
        let other = store.put(cell, b"other", named(2, Durability::Flushed)).await.unwrap_err();
        assert_eq!(other.outcome(), Outcome::Refused, "{other}");
    }
}

fn named_by(sequence: u64) -> WriteOptions {
    WriteOptions { request: Some(RequestId { client: 7, sequence }), ..WriteOptions::default() }
}

#[tokio::test]
async fn a_conflict_looks_through_no_ids() {
    let store = EmbeddedStore::in_memory(StoreOptions::default()).unwrap();
    let cell = Cell::new(b"p", b"k");
    for sequence in 0..100 {
        store.put(cell, b"v", named_by(sequence)).await.unwrap();
    }
    for sequence in 100..200 {
        let created = store.create(cell, Buffer::from(b"w".to_vec()), named_by(sequence)).await;
        assert_eq!(created.unwrap_err().kind(), ErrorKind::Conflict);
    }
    let searches = || store.inner.requests.as_ref().unwrap().searches.load(Ordering::Relaxed);
    assert_eq!(searches(), 0);
    // An error that stops a retry says nothing about the earlier write.
    store.close().await.unwrap();
    let again = store.put(cell, b"v", named_by(7)).await.unwrap_err();
    assert_eq!(again.outcome(), Outcome::Unknown, "{again}");
    let new = store.put(cell, b"v", named_by(1000)).await.unwrap_err();
    assert_eq!(new.outcome(), Outcome::Refused, "{new}");
    assert_eq!(searches(), 2);
}

#[tokio::test]
async fn a_write_whose_id_cannot_be_read_is_unknown_when_it_is_asked_for_again() {
    let (count, sick, began) = (5000_u64, 2500, Timestamp(0x1122_3344_5566_0000));
    let (disk, clock) = (Arc::new(MemoryDisk::new()), Arc::new(ManualClock::starting_at(began)));
    let open = || {
        let engine = Options { background: false, log_windows: false, ..Options::default() };
        let opened = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, engine.clone()).unwrap();
        let options = StoreOptions { engine, clock: clock.clone(), ..StoreOptions::default() };
        EmbeddedStore::on_engine(opened, options, "test").unwrap()
    };
    let write = async |store: &EmbeddedStore, sequence: u64| {
        let batch = Batch::on(*b"p").put(*b"k", sequence.to_be_bytes().to_vec());
        store.write(batch, named_by(sequence)).await
    };
    let store = open();
    for sequence in 0..count {
        write(&store, sequence).await.unwrap();
        clock.advance(Duration::from_nanos(1));
    }
    store.close().await.unwrap();
    drop(store);
    let mut bytes = vec![0; disk.len().unwrap() as usize];
    disk.read_at(0, &mut bytes).unwrap();
    // The time of the write is stored beside its id, and nowhere else.
    let needle = (began.0 + sick).to_le_bytes();
    let places = (0..bytes.len() - 8).filter(|&at| bytes[at..].starts_with(&needle));
    places.for_each(|at| disk.write_at(at as u64, &[1]).unwrap());
    let store = open();
    assert!(write(&store, 0).await.unwrap().repeated && write(&store, count - 1).await.unwrap().repeated);
    let again = write(&store, sick).await.unwrap_err();
    assert_eq!(again.outcome(), Outcome::Unknown, "{again}");
    assert!(again.to_string().contains("cannot be read"), "{again}");
}

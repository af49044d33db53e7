//! A store that counts operations, and lets a test delay or refuse some of them.

use atoll_conformance::{Relay, Relayed};
use atoll_store::{
    Batch, Buffer, Cell, Mutation, Read, ReadOptions, ScanPage, ScanRequest, Store, StoreError, StoreFuture,
    StoreStream, WriteOptions, Written,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The store.
pub type Door = Relayed<Doorway>;

/// Counters of operations, and which of them are delayed, refused or lost.
pub struct Doorway {
    inner: Arc<dyn Store>,
    /// The number of reads of cells outside of manifests.
    pub object_reads: AtomicUsize,
    pub reads: AtomicUsize,
    pub writes: AtomicUsize,
    /// The bytes put into manifest partitions, one number for each write.
    pub manifest_bytes: Mutex<Vec<usize>>,
    /// The number of coming writes of objects that are held, in order of arrival; permits release them.
    pub held: AtomicUsize,
    pub gate: Semaphore,
    /// The same for writes to manifests.
    pub held_commits: AtomicUsize,
    /// The number of writes of objects that pass before any is refused.
    pub passing: AtomicUsize,
    /// The number of writes of objects that are refused after those.
    pub refused: AtomicUsize,
    /// The number of coming writes to manifests that are refused, not counting those that are held.
    pub refused_commits: AtomicUsize,
    /// Whether every write is refused, as by a store opened for reading.
    pub is_read_only: AtomicBool,
    /// The number of writes to manifests that are carried out and then never return.
    pub swallowed: AtomicUsize,
    /// The number of writes to manifests that are carried out and answered with an unknown outcome.
    pub unheard: AtomicUsize,
    /// Whether writes to manifests are lost, with an unknown outcome.
    pub is_lost: AtomicBool,
    /// Whether the store is unreachable for writes to manifests.
    pub is_gone: AtomicBool,
}

/// The prefix of a table's partitions; the table's identity of 16 bytes follows.
const TABLES: &[u8] = b"\0atoll.table/";

/// Whether a partition is an object of a table. Decided by position, since the identity may contain the same
/// bytes by chance.
pub fn is_object(partition: &[u8]) -> bool {
    let rest = partition.strip_prefix(TABLES).and_then(|rest| rest.get(16..));
    rest.is_some_and(|rest| rest.starts_with(b"/o/"))
}

fn is_manifest(partition: &[u8]) -> bool {
    partition.starts_with(TABLES) && partition.ends_with(b"/m")
}

/// Takes one from a counter, unless it is 0.
fn take(counter: &AtomicUsize) -> bool {
    counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Doorway {
    /// Puts the door in front of a store.
    pub fn before(inner: Arc<dyn Store>) -> Arc<Door> {
        Arc::new(Relayed(Doorway {
            inner,
            object_reads: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            writes: AtomicUsize::new(0),
            manifest_bytes: Mutex::new(Vec::new()),
            held: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            held_commits: AtomicUsize::new(0),
            passing: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            refused_commits: AtomicUsize::new(0),
            is_read_only: AtomicBool::new(false),
            swallowed: AtomicUsize::new(0),
            unheard: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        }))
    }

    fn count_read(&self, partition: &[u8]) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if is_object(partition) {
            self.object_reads.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn count_write(&self, batch: &Batch) {
        self.writes.fetch_add(1, Ordering::SeqCst);
        if is_manifest(&batch.partition) {
            let bytes = |mutation: &Mutation| match mutation {
                Mutation::Put(sort, value) | Mutation::Append(sort, value) => sort.len() + value.len(),
                Mutation::Delete(_) | Mutation::DeleteRange(_) => 0,
            };
            self.manifest_bytes.lock().unwrap().push(batch.mutations.iter().map(bytes).sum());
        }
    }
}

impl Relay for Doorway {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        if self.is_read_only.load(Ordering::SeqCst) {
            return Box::pin(async { Err(StoreError::ReadOnly { place: "the door".to_owned() }) });
        }
        self.count_write(&batch);
        let is_object = is_object(&batch.partition) && !batch.mutations.is_empty();
        let held = is_object && take(&self.held);
        let refused = is_object && !take(&self.passing) && take(&self.refused);
        let held = held || is_manifest(&batch.partition) && take(&self.held_commits);
        let refused = refused || is_manifest(&batch.partition) && !held && take(&self.refused_commits);
        let swallowed = is_manifest(&batch.partition) && take(&self.swallowed);
        let is_unheard = is_manifest(&batch.partition) && take(&self.unheard);
        let is_lost = is_manifest(&batch.partition) && self.is_lost.load(Ordering::SeqCst);
        let is_gone = is_manifest(&batch.partition) && !held && self.is_gone.load(Ordering::SeqCst);
        let unknown = || {
            let reason = "the door lost it".to_owned();
            Err(StoreError::Unknown { what: "a write", reason, source: None })
        };
        Box::pin(async move {
            if is_lost {
                return unknown();
            }
            if held {
                self.gate.acquire().await.unwrap().forget();
            }
            if is_gone {
                let (place, host) = ("the door".to_owned(), "elsewhere".to_owned());
                return Err(StoreError::Owned { place, host, pid: 1 });
            }
            if refused {
                return Err(StoreError::OutOfSpace { place: "the door".to_owned(), source: None });
            }
            let written = self.inner.write(batch, options).await;
            if swallowed {
                futures::future::pending::<()>().await;
            }
            if is_unheard { unknown() } else { written }
        })
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.count_read(cell.partition);
        self.inner.get(cell, options)
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        reads.iter().for_each(|read| self.count_read(&read.partition));
        self.inner.get_many(reads)
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.count_read(&request.partition);
        self.inner.scan(request)
    }
}

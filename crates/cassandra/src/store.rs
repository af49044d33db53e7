//! The store: checks limits and deadlines before each operation, and holds the state that operations share.

use crate::clock::StoreClock;
use crate::connect::connect;
use crate::lanes::Lanes;
use crate::leaving::{Gone, Leaving, delete_later};
use crate::link::Link;
use crate::options::Options;
use crate::settings::ClusterSettings;
use crate::sweep::Swept;
use crate::wait::Polls;
use crate::write::{Done, Writing};
use crate::{create, listing, read, scan, settings, sweep, wait};
use atoll_store::watch::Watches;
use atoll_store::{
    Batch, Buffer, Capabilities, Cell, Durability, Expectation, Limits, PartitionKey, PartitionPage,
    PartitionQuery, Place, Read, ReadOptions, ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture,
    StoreStream, Timestamp, Waited, WriteOptions, Written, create_conditionally, within,
};
use futures::StreamExt;
use futures::stream;
use scylla::routing::partitioner::{Murmur3Partitioner, Partitioner, PartitionerHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The usual time from another client's write to the return of a wait for it.
const WAIT_LATENCY: Duration = Duration::from_millis(100);

/// A store on a Cassandra cluster.
///
/// It works inside the tokio runtime in which it was opened. Its futures are boxed: unnamed future types
/// would be compiled anew, together with most of the driver, in every crate that awaits them.
#[derive(Clone)]
pub struct CassandraStore {
    shared: Arc<Shared>,
}

/// The state that all calls of one store share.
pub(crate) struct Shared {
    pub(crate) link: Arc<Link>,
    pub(crate) lanes: Arc<Lanes>,
    leaving: Arc<Leaving>,
    pub(crate) limits: Limits,
    pub(crate) watches: Watches,
    pub(crate) polls: Polls,
    pub(crate) clock: StoreClock,
    is_closed: AtomicBool,
}

impl CassandraStore {
    /// Connects to the cluster; creates the keyspace and tables if they do not exist and the options say so.
    ///
    /// # Errors
    /// `invalid-input` for wrong options, `unavailable` if no contact point answers, `unauthenticated` if the
    /// cluster does not accept the credentials or the role lacks a permission, `not-found` if there is no
    /// store and none is to be created, `newer-format` if a newer release created it.
    pub fn open(options: Options) -> StoreFuture<'static, Self> {
        Box::pin(open(options))
    }

    /// Deletes what clients that ended in the middle of a write left behind: chunks that are older than `age`
    /// and that no cell refers to. The store does so by itself once a week with an age of a day. A greater
    /// age loses nothing; an age below the duration of the longest write in flight would be wrong.
    ///
    /// # Errors
    /// Those of reading and writing; chunks deleted before the error stay deleted.
    pub fn sweep(&self, age: Duration) -> StoreFuture<'_, Swept> {
        Box::pin(async move {
            self.shared.check_writable(WriteOptions::default())?;
            sweep::sweep(&self.shared, age).await
        })
    }
}

async fn open(options: Options) -> Result<CassandraStore, StoreError> {
    options.validate().map_err(|error| StoreError::InvalidInput {
        what: "options",
        problem: error.to_string(),
        hint: "the guide to Cassandra lists them",
    })?;
    let waiters_max = options.waiters_max;
    let (link, settings) = connect(options).await?;
    let shared = Shared {
        link: Arc::new(link),
        lanes: Arc::default(),
        leaving: Arc::default(),
        limits: limits(settings),
        watches: Watches::new(waiters_max),
        polls: Polls::default(),
        clock: StoreClock::default(),
        is_closed: AtomicBool::new(false),
    };
    let shared = Arc::new(shared);
    if !shared.link.options.read_only {
        tokio::spawn(sweep::sweep_now_and_then(Arc::downgrade(&shared)));
    }
    // Reads too depend on what the nodes are set to.
    tokio::spawn(settings::look_now_and_then(Arc::downgrade(&shared)));
    Ok(CassandraStore { shared })
}

/// The limits of the cluster: each node logs a conditional batch twice, with its keys and overhead.
fn limits(settings: ClusterSettings) -> Limits {
    let contract = Limits::CONTRACT;
    let mutation_bytes = settings.mutation_bytes_max.unwrap_or(u64::MAX);
    let batch_bytes = usize::try_from(mutation_bytes / 2).unwrap_or(usize::MAX).min(contract.batch_bytes);
    Limits { batch_bytes, ..contract }
}

impl Shared {
    /// The partition key as stored in the table.
    pub(crate) fn key(&self, partition: &[u8]) -> PartitionKey {
        [self.link.options.namespace.as_slice(), partition].concat()
    }

    /// The partition key as callers know it.
    pub(crate) fn without_namespace<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.strip_prefix(self.link.options.namespace.as_slice()).unwrap_or(key)
    }

    /// The token of a key of the table.
    pub(crate) fn token(&self, key: &[u8]) -> i64 {
        let mut hasher = Murmur3Partitioner.build_hasher();
        hasher.write(key);
        hasher.finish().value()
    }

    /// Deletes chunks once no reader can still be reading them, and none of them is still on its way.
    pub(crate) fn let_go_later(&self, chunks: Vec<Gone>) {
        delete_later(&self.link, &self.leaving, chunks);
    }

    /// Deletes chunks that no cell ever referred to, in the background.
    pub(crate) fn let_go(&self, chunks: Vec<Gone>) {
        if chunks.is_empty() {
            return;
        }
        let link = Arc::clone(&self.link);
        tokio::spawn(async move {
            for (id, count) in chunks {
                link.delete_chunks(id, count).await;
            }
        });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Whether calls can be made: the store is open, and no node is set to what breaks its promises.
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        match self.is_closed() {
            true => Err(StoreError::closed(self.link.place.clone())),
            false => self.link.guarantees.check(),
        }
    }

    fn check_writable(&self, options: WriteOptions) -> Result<Durability, StoreError> {
        self.check_open()?;
        if self.link.options.read_only {
            return Err(StoreError::ReadOnly { place: self.link.place.clone() });
        }
        self.capabilities().durability_for(options.durability)
    }

    fn capabilities(&self) -> Capabilities {
        let durability = match self.link.guarantees.is_synced() {
            true => vec![Durability::Flushed, Durability::Synced],
            false => vec![Durability::Flushed],
        };
        Capabilities {
            limits: self.limits,
            durability_default: durability.last().copied().unwrap_or(Durability::Flushed),
            durability,
            cheap_scans_across_large_values: true,
            waiters_max: self.link.options.waiters_max,
            wait_latency: WAIT_LATENCY,
            parallelism_best: self.link.parallelism,
            round_trip: self.link.round_trip(),
            request_memory: self.link.options.request_memory,
            // Limited by time alone.
            request_memory_count: 0,
        }
    }

    async fn get(
        self: &Arc<Self>,
        cell: Cell<'_>,
        range: atoll_store::ByteRange,
        is_vowed: bool,
    ) -> Result<Option<Buffer>, StoreError> {
        self.limits.check_cell(cell)?;
        self.check_open()?;
        read::read(self, &self.key(cell.partition), cell.sort, range, is_vowed).await
    }

    async fn write(self: &Arc<Self>, batch: Batch, options: WriteOptions) -> Result<Written, StoreError> {
        self.limits.check_batch(&batch)?;
        let durability = self.check_writable(options)?;
        let is_sent = AtomicBool::new(false);
        let may_be_done = || is_sent.load(Ordering::SeqCst);
        let writing = Writing::new(self, &batch, options.request, &is_sent);
        let done = within(options.deadline, ("write", &self.link.place), may_be_done, writing.run()).await;
        // Whatever the outcome.
        self.link.kept.forget(&self.key(&batch.partition), &batch);
        let done = done?;
        if done == Done::Now {
            self.watches.wrote(&batch);
        }
        Ok(Written { durability, repeated: done == Done::Before })
    }

    async fn create(
        self: &Arc<Self>,
        cell: Cell<'_>,
        value: Buffer,
        options: WriteOptions,
    ) -> Result<Written, StoreError> {
        self.limits.check_cell(cell)?;
        self.limits.check_value(value.len() as u64)?;
        let durability = self.check_writable(options)?;
        let is_sent = AtomicBool::new(false);
        let may_be_done = || is_sent.load(Ordering::SeqCst);
        let creating = create::create(self, cell, &value, &is_sent);
        let repeated = within(options.deadline, ("create", &self.link.place), may_be_done, creating).await?;
        if !repeated {
            self.watches.wrote_cell(cell);
        }
        Ok(Written { durability, repeated })
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.watches.close();
    }
}

impl Store for CassandraStore {
    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            let reading = self.shared.get(cell, options.range, options.immutable);
            // A read changes nothing, so a read that is given up counts as not done.
            within(options.deadline, ("get", &self.shared.link.place), || false, reading).await
        })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let shared = &self.shared;
        let parallelism = shared.link.parallelism;
        let answers = stream::iter(reads.into_iter().enumerate()).map(move |(at, read)| async move {
            let cell = Cell::new(&read.partition, &read.sort);
            (at, shared.get(cell, read.range, read.immutable).await)
        });
        answers.buffer_unordered(parallelism).boxed()
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move { self.shared.write(batch, options).await })
    }

    fn create<'a>(
        &'a self,
        cell: Cell<'a>,
        value: Buffer,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        // Only a conditional write can remember a request id.
        if options.request.is_some() {
            return Box::pin(create_conditionally(self, cell, value, options));
        }
        Box::pin(self.shared.create(cell, value, options))
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        Box::pin(async move {
            self.shared.check_open()?;
            scan::page(&self.shared, request).await
        })
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(async move {
            self.shared.limits.check_cell(cell)?;
            self.shared.limits.check_expectation(&expectation)?;
            self.shared.check_open()?;
            wait::wait(&self.shared, cell, expectation, time_out).await
        })
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        Box::pin(async move {
            self.shared.check_open()?;
            listing::page(&self.shared, query).await
        })
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        Box::pin(async move {
            self.shared.check_open()?;
            listing::splits(&self.shared, readers)
        })
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        Box::pin(async move {
            self.shared.limits.check_partition(partition)?;
            self.shared.check_open()?;
            Ok(listing::place(&self.shared, &self.shared.key(partition)))
        })
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async move {
            self.shared.check_open()?;
            self.shared.clock.now(&self.shared.link).await
        })
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        // Every acknowledgement already has the strongest durability class.
        Box::pin(async move { self.shared.check_open() })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.shared.close();
            // No later call deletes them. A late reader reads its cell again.
            let link = &self.shared.link;
            let gone = stream::iter(self.shared.leaving.all());
            let deleting =
                gone.for_each_concurrent(link.parallelism, |(id, count)| link.delete_chunks(id, count));
            // If the cluster does not answer, the rest is left to a sweep.
            if tokio::time::timeout(link.options.request_time_out, deleting).await.is_err() {
                tracing::debug!("chunks are left to the next sweep");
            }
            Ok(())
        })
    }
}

//! The contract on the engine: cells in one tree, request ids in another, in one commit.
//!
//! Invariant: a call never blocks its thread on the disk; reads and syncs that take it run on tokio's
//! threads for blocking work, where there is a runtime.

mod convert;
mod keys;
mod pages;
mod requests;
mod snapshots;
mod splits;

use atoll_engine::{
    Attempt, Durability as Class, Engine, EngineError, Options, Reader, SyncTicket, Tree, WriteBatch,
};
use atoll_store::clock::{Clock, SystemClock};
use atoll_store::watch::Watches;
use atoll_store::{
    Batch, Buffer, ByteRange, Capabilities, Cell, Condition, Conflict, Durability, Expectation, Limits,
    Mutation, PartitionPage, PartitionQuery, Place, Read, ReadOptions, ScanPage, ScanRequest, Split, Store,
    StoreError, StoreFuture, StoreStream, Timestamp, Waited, WriteOptions, Written,
};
pub(crate) use convert::refused;
use futures::StreamExt;
use pages::Part;
use requests::Requests;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How an embedded store behaves beyond the engine's options.
#[derive(Clone)]
pub struct StoreOptions {
    /// The engine's options.
    pub engine: Options,
    /// Tells `now`, and when a request id is old.
    pub clock: Arc<dyn Clock>,
    /// For how long a request id is remembered.
    pub request_memory: Duration,
    /// How many request ids are remembered.
    pub request_memory_count: usize,
    /// How many waits may be open at once.
    pub waiters_max: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            engine: Options::default(),
            clock: Arc::new(SystemClock::default()),
            request_memory: Duration::from_secs(600),
            request_memory_count: 100_000,
            waiters_max: 1_000_000,
        }
    }
}

/// A store in this process, on an engine.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    cells: Tree,
    requests: Option<Requests>,
    watches: Watches,
    options: StoreOptions,
    place: String,
    is_in_memory: bool,
}

const LIMITS: Limits = Limits::CONTRACT;

impl EmbeddedStore {
    /// A store in memory.
    ///
    /// # Errors
    /// `invalid-input` for options that make no sense.
    pub fn in_memory(options: StoreOptions) -> Result<Self, StoreError> {
        let engine = Engine::in_memory(options.engine.clone());
        Self::on(engine.map_err(|error| refused("open", "mem:", error))?, options, "mem:", true)
    }

    /// The store of an engine that is open; `place` is its name in messages.
    ///
    /// # Errors
    /// Those of the engine's disk.
    pub fn on_engine(engine: Engine, options: StoreOptions, place: &str) -> Result<Self, StoreError> {
        Self::on(engine, options, place, false)
    }

    fn on(
        engine: Engine,
        options: StoreOptions,
        place: &str,
        is_in_memory: bool,
    ) -> Result<Self, StoreError> {
        let failed = |error| refused("open", place, error);
        let cells = engine.tree("cells").map_err(failed)?;
        let requests = if options.engine.read_only {
            None
        } else {
            let memory_ns = u64::try_from(options.request_memory.as_nanos()).unwrap_or(u64::MAX);
            let tree = engine.tree("requests").map_err(failed)?;
            Some(Requests::load(tree, memory_ns, options.request_memory_count).map_err(failed)?)
        };
        let watches = Watches::new(options.waiters_max);
        let inner =
            Inner { engine, cells, requests, watches, options, place: place.to_owned(), is_in_memory };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The engine underneath, for its upkeep.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// How many waits are open now.
    #[must_use]
    pub fn waits_open(&self) -> usize {
        self.inner.watches.open()
    }

    /// Runs what may wait for the disk where that hurts nobody.
    async fn off_thread<T: Send + 'static>(
        &self,
        what: &'static str,
        run: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = Arc::clone(&self.inner);
        match tokio::runtime::Handle::try_current() {
            Err(_) => run(&inner),
            Ok(runtime) => match runtime.spawn_blocking(move || run(&inner)).await {
                Ok(result) => result,
                Err(lost) => Err(StoreError::Unknown {
                    what,
                    reason: "the runtime shut down".into(),
                    source: Some(Arc::new(lost)),
                }),
            },
        }
    }

    async fn read(&self, cell: Cell<'_>, range: ByteRange) -> Result<Option<Buffer>, StoreError> {
        LIMITS.check_cell(cell)?;
        let key = keys::joined(cell);
        let value = loop {
            match self.inner.cells.try_get(&key).map_err(|error| self.inner.refused("get", error))? {
                Attempt::Ready(None) => return Ok(None),
                Attempt::Ready(Some(value)) => break value,
                Attempt::NeedsRead(ticket) => {
                    self.off_thread("get", |inner| ticket.run().map_err(|error| inner.refused("get", error)))
                        .await?;
                }
            }
        };
        let (from, to) = range.within(value.len());
        let is_resident = value.is_resident();
        let bytes = move |inner: &Inner| {
            value.read(from, to - from).map(Some).map_err(|error| inner.refused("get", error))
        };
        if is_resident { bytes(&self.inner) } else { self.off_thread("get", bytes).await }
    }

    async fn commit(&self, batch: Batch, options: WriteOptions) -> Result<Written, StoreError> {
        LIMITS.check_batch(&batch)?;
        let durability = self.capabilities().durability_for(options.durability)?;
        let deadline = options.deadline;
        let written = async {
            let ranges = batch.mutations.iter().any(|mutation| matches!(mutation, Mutation::DeleteRange(_)));
            if ranges && !self.inner.is_in_memory {
                // A range may have to be read from disk as a whole.
                let decided = move |inner: &Inner| inner.commit(&batch, options, durability);
                return self.made_durable(self.off_thread("write", decided).await?).await;
            }
            self.read_before(&batch).await?;
            self.made_durable(self.inner.commit(&batch, options, durability)?).await
        };
        within(deadline, "write", written).await
    }

    /// Reads the pages that a write will change, elsewhere.
    async fn read_before(&self, batch: &Batch) -> Result<(), StoreError> {
        if self.inner.is_in_memory {
            return Ok(());
        }
        let conditions = batch.conditions.iter().map(Condition::sort);
        let mutations = batch.mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Put(sort, _) | Mutation::Append(sort, _) | Mutation::Delete(sort) => {
                Some(sort.as_slice())
            }
            Mutation::DeleteRange(_) => None,
        });
        for sort in conditions.chain(mutations) {
            self.read_before_key(&keys::joined(Cell::new(&batch.partition, sort))).await?;
        }
        Ok(())
    }

    async fn read_before_key(&self, key: &[u8]) -> Result<(), StoreError> {
        while let Some(ticket) = self.inner.cells.read_before_write(key) {
            self.off_thread("write", |inner| ticket.run().map_err(|error| inner.refused("write", error)))
                .await?;
        }
        Ok(())
    }

    /// Waits for the sync that a write asked for.
    async fn made_durable(
        &self,
        (written, ticket): (Written, Option<SyncTicket>),
    ) -> Result<Written, StoreError> {
        if let Some(ticket) = ticket {
            self.off_thread("write", |inner| ticket.run().map_err(|error| inner.refused("write", error)))
                .await?;
        } else if written.repeated && written.durability == Durability::Synced {
            // The write took effect before, but the sync behind it may not have ended, or have failed.
            self.off_thread("write", |inner| {
                inner.engine.sync().map_err(|error| inner.refused("write", error))
            })
            .await?;
        }
        Ok(written)
    }
}

impl Inner {
    fn refused(&self, what: &'static str, error: EngineError) -> StoreError {
        refused(what, &self.place, error)
    }

    /// The answer to a read that needs no disk; none for one that does.
    fn read_now(&self, cell: Cell<'_>, range: ByteRange) -> Option<Result<Option<Buffer>, StoreError>> {
        if let Err(error) = LIMITS.check_cell(cell) {
            return Some(Err(error));
        }
        match keys::with_joined(cell, |key| self.cells.try_get(key)) {
            Err(error) => Some(Err(self.refused("get", error))),
            Ok(Attempt::Ready(None)) => Some(Ok(None)),
            Ok(Attempt::Ready(Some(value))) if value.is_resident() => {
                let (from, to) = range.within(value.len());
                Some(value.read(from, to - from).map(Some).map_err(|error| self.refused("get", error)))
            }
            Ok(_) => None,
        }
    }

    /// Conditions, mutations and the request id in one commit; then whoever waits is woken.
    fn commit(
        &self,
        batch: &Batch,
        options: WriteOptions,
        durability: Durability,
    ) -> Result<(Written, Option<SyncTicket>), StoreError> {
        let now = options.request.map(|_| self.options.clock.now());
        let remembering = options.request.zip(now).zip(self.requests.as_ref());
        let mut remembered = None;
        let decide = |reader: &Reader<'_>| -> Result<_, Failed> {
            if let Some(((id, _), requests)) = remembering
                && requests.is_known(id)?
            {
                return Ok((None, ()));
            }
            self.check_conditions(reader, batch)?;
            let mut changes = self.changes_of(batch);
            if let Some(((id, now), requests)) = remembering {
                remembered = Some((requests, id, requests.remember(id, now, &mut changes)));
            }
            Ok((Some(changes), ()))
        };
        let ended = if durability == Durability::Synced && !self.is_in_memory {
            self.engine.update_visible(decide).map(|((), ticket)| (ticket.is_none(), ticket))
        } else {
            let ended = self.engine.update(class_of(durability), decide);
            ended.map(|((), commit)| (commit.is_none(), None))
        };
        let (repeated, ticket) = match ended {
            Ok(ended) => ended,
            Err(failed) => {
                if let (Some((requests, id, cleared)), false) = (remembered, failed.is_unknown()) {
                    requests.forget(id, cleared);
                }
                return Err(failed.into_store_error(self));
            }
        };
        if !repeated {
            self.watches.wrote(batch);
        }
        Ok((Written { durability, repeated }, ticket))
    }

    fn check_conditions(&self, reader: &Reader<'_>, batch: &Batch) -> Result<(), Failed> {
        for (place, condition) in batch.conditions.iter().enumerate() {
            let key = keys::joined(Cell::new(&batch.partition, condition.sort()));
            let value = reader.get(&self.cells, &key)?;
            let holds = match (condition, &value) {
                (Condition::Absent(_), value) => value.is_none(),
                (Condition::Equals(..), None) => false,
                // Different lengths need no look at the bytes.
                (Condition::Equals(_, expected), Some(value)) => {
                    value.len() == expected.len() as u64 && *value.to_buffer()? == **expected
                }
            };
            if !holds {
                let actual = value.map(|value| value.to_buffer()).transpose()?;
                let conflict = Conflict::new(place, condition.sort().to_vec(), actual.as_ref());
                return Err(Failed::Store(StoreError::Conflict(Box::new(conflict))));
            }
        }
        Ok(())
    }

    fn changes_of(&self, batch: &Batch) -> WriteBatch {
        let mut changes = WriteBatch::new();
        let key = |sort: &[u8]| keys::joined(Cell::new(&batch.partition, sort));
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Put(sort, value) => {
                    changes.put_buffer(&self.cells, &key(sort), value.to_owned_alone())
                }
                Mutation::Append(sort, bytes) => {
                    changes.append_buffer(&self.cells, &key(sort), bytes.to_owned_alone())
                }
                Mutation::Delete(sort) => changes.delete(&self.cells, &key(sort)),
                Mutation::DeleteRange(range) if range.is_empty() => {}
                Mutation::DeleteRange(range) => {
                    let range = keys::KeyRange::of(&batch.partition, range);
                    changes.delete_range(&self.cells, range.bounds());
                }
            }
        }
        changes
    }

    /// One cell set without conditions: the shortest way through the engine.
    fn put_one(
        &self,
        cell: Cell<'_>,
        key: &[u8],
        value: &[u8],
        class: Durability,
    ) -> Result<Written, StoreError> {
        let put = self.cells.put(key, value, class_of(class));
        put.map_err(|error| self.refused("put", error))?;
        self.watches.wrote_cell(cell);
        Ok(Written { durability: class, repeated: false })
    }

    fn page(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        let after = request.check(&LIMITS)?;
        pages::scan(&self.cells, request, after, &LIMITS).map_err(|error| self.refused("scan", error))
    }

    fn list(&self, query: &PartitionQuery) -> Result<PartitionPage, StoreError> {
        let after = query.check()?;
        let part = query.split.as_ref().map_or(Ok(Part::default()), Part::of)?;
        pages::list(&self.cells, query, &part, after, &LIMITS)
            .map_err(|error| self.refused("partition_keys", error))
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.engine.is_closed() { Err(StoreError::closed(self.place.clone())) } else { Ok(()) }
    }
}

/// A write that was given up while it was decided.
enum Failed {
    Engine(EngineError),
    Store(StoreError),
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Failed {
    /// Whether the write may have taken effect all the same.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_unknown())
    }

    fn into_store_error(self, inner: &Inner) -> StoreError {
        match self {
            Self::Engine(error) => inner.refused("write", error),
            Self::Store(error) => error,
        }
    }
}

fn class_of(durability: Durability) -> Class {
    match durability {
        Durability::Buffered => Class::Buffered,
        Durability::Flushed => Class::Flushed,
        Durability::Synced => Class::Synced,
    }
}

/// Gives up waiting at the deadline; what was under way may still happen.
async fn within<T>(
    deadline: Option<Duration>,
    what: &'static str,
    run: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match deadline {
        None => run.await,
        Some(deadline) => tokio::time::timeout(deadline, run).await.unwrap_or_else(|late| {
            let reason = format!("no answer within {deadline:?}");
            Err(StoreError::Unknown { what, reason, source: Some(Arc::new(late)) })
        }),
    }
}

impl Store for EmbeddedStore {
    fn capabilities(&self) -> Capabilities {
        let (durability, durability_default) = if self.inner.is_in_memory {
            (vec![Durability::Buffered], Durability::Buffered)
        } else {
            (Durability::ALL.to_vec(), Durability::Flushed)
        };
        Capabilities {
            limits: LIMITS,
            durability,
            durability_default,
            cheap_scans_across_large_values: true,
            waiters_max: self.inner.options.waiters_max,
            wait_latency: Duration::from_micros(20),
            parallelism_best: 16,
            round_trip: Duration::from_micros(1),
            request_memory: self.inner.options.request_memory,
            request_memory_count: self.inner.options.request_memory_count,
        }
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        // What lies in memory is answered here and now; the future only carries it.
        if let Some(answer) = self.inner.read_now(cell, options.range) {
            return Box::pin(std::future::ready(answer));
        }
        Box::pin(async move {
            match options.deadline {
                None => self.read(cell, options.range).await,
                deadline => within(deadline, "get", self.read(cell, options.range)).await,
            }
        })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let answers = reads.into_iter().enumerate().map(move |(place, read)| async move {
            (place, self.read(Cell::new(&read.partition, &read.sort), read.range).await)
        });
        futures::stream::iter(answers).buffer_unordered(64).boxed()
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(self.commit(batch, options))
    }

    fn put<'a>(&'a self, cell: Cell<'a>, value: &'a [u8], options: WriteOptions) -> StoreFuture<'a, Written> {
        let is_plain = options.request.is_none() && options.deadline.is_none();
        let class = options.durability.unwrap_or(if self.inner.is_in_memory {
            Durability::Buffered
        } else {
            Durability::Flushed
        });
        let answers_at_once = self.inner.is_in_memory && class == Durability::Buffered
            || !self.inner.is_in_memory && class != Durability::Synced;
        Box::pin(async move {
            if !is_plain || !answers_at_once {
                return self.commit(Batch::on(cell.partition).put(cell.sort, value), options).await;
            }
            LIMITS.check_cell(cell)?;
            LIMITS.check_value(value.len() as u64)?;
            let key = keys::joined(cell);
            if !self.inner.is_in_memory {
                self.read_before_key(&key).await?;
            }
            self.inner.put_one(cell, &key, value, class)
        })
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        Box::pin(async move {
            if self.inner.is_in_memory {
                return self.inner.page(&request);
            }
            self.off_thread("scan", move |inner| inner.page(&request)).await
        })
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        let checked = LIMITS.check_expectation(&expectation).and_then(|()| LIMITS.check_cell(cell));
        Box::pin(async move {
            checked?;
            self.inner.watches.wait(cell, expectation, time_out, || self.read(cell, ByteRange::ALL)).await
        })
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        Box::pin(self.off_thread("partition_keys", move |inner| inner.list(&query)))
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        Box::pin(async move {
            self.inner.check_open()?;
            splits::deal(&self.inner.cells, readers)
        })
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        Box::pin(async move {
            LIMITS.check_partition(partition)?;
            self.inner.check_open()?;
            Ok(Place::Here)
        })
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async move { self.inner.check_open().map(|()| self.inner.options.clock.now()) })
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        Box::pin(
            self.off_thread("sync", |inner| {
                inner.engine.sync().map_err(|error| inner.refused("sync", error))
            }),
        )
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.off_thread("close", |inner| {
            inner.watches.close();
            inner.engine.close_shared().map_err(|error| inner.refused("close", error))
        }))
    }
}

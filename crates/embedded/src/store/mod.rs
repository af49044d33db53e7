//! The contract on the engine: cells in one tree, request ids in another, in one commit.
//!
//! Invariant: a call does not block its thread on the disk. Reads and syncs that need the disk, and writes
//! that wait for a checkpoint to make room in memory, run on tokio's threads for blocking work, where there
//! is a runtime. One exception: between the look at a page that a write will change and its commit, most
//! likely because of other writers, the page may be evicted, or may take no further record beside it. The
//! commit then reads that page on its own thread.

mod convert;
mod ending;
mod keys;
mod pages;
mod requests;
mod room;
mod snapshots;
mod splits;
mod write;

#[cfg(test)]
mod at_once;
#[cfg(test)]
mod tests;

use atoll_engine::{Attempt, Beside, Engine, EngineError, Options, Tree};
use atoll_store::clock::{Clock, SystemClock};
use atoll_store::watch::Watches;
use atoll_store::{
    Batch, Buffer, ByteRange, Capabilities, Cell, Durability, Expectation, Limits, PartitionPage,
    PartitionQuery, Place, Read, ReadOptions, ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture,
    StoreStream, Timestamp, Waited, WriteOptions, Written, within,
};
pub use convert::refused;
use ending::Ending;
use futures::StreamExt;
pub use keys::{CellKeys, hurt_cells};
use pages::Part;
use requests::Requests;
use std::sync::Arc;
use std::time::Duration;

/// The tree that holds the cells.
const CELLS: &str = "cells";

/// How an embedded store behaves beyond the engine's options.
#[derive(Clone)]
pub struct StoreOptions {
    /// The engine's options.
    pub engine: Options,
    /// The clock for `now` and for the age of request ids.
    pub clock: Arc<dyn Clock>,
    /// For how long a request id is remembered.
    pub request_memory: Duration,
    /// How many request ids are remembered.
    pub request_memory_count: usize,
    /// How many waits may be open at once.
    pub waiters_max: usize,
    /// Whether a store whose log is damaged opens in the last state before the damage, instead of not at all.
    pub salvage: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            engine: Options::default(),
            clock: Arc::new(SystemClock::default()),
            request_memory: Duration::from_secs(600),
            request_memory_count: 100_000,
            waiters_max: 1_000_000,
            salvage: false,
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
    watches: Arc<Watches>,
    ending: Ending,
    /// Held by the one write that waits for room in memory.
    room: Arc<tokio::sync::Mutex<()>>,
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

    /// The store on an open engine; `place` is its name in messages.
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
        let cells = engine.tree(CELLS).map_err(failed)?;
        let requests = if options.engine.read_only {
            None
        } else {
            let memory_ns = u64::try_from(options.request_memory.as_nanos()).unwrap_or(u64::MAX);
            let tree = engine.tree("requests").map_err(failed)?;
            Some(Requests::load(tree, memory_ns, options.request_memory_count).map_err(failed)?)
        };
        let (watches, room) = (Arc::new(Watches::new(options.waiters_max)), Arc::default());
        let ending = Ending::of(&engine, &watches);
        let place = place.to_owned();
        let inner = Inner { engine, cells, requests, watches, ending, room, options, place, is_in_memory };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The engine underneath, for maintenance.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// How many waits are open now.
    #[must_use]
    pub fn waits_open(&self) -> usize {
        self.inner.watches.open()
    }

    /// Runs work that may wait for the disk on a thread for blocking work; without a runtime, on this thread.
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
        let now = match self.inner.cells.try_get(&key).map_err(|error| self.inner.refused("get", error))? {
            Attempt::Ready(value) => Some(value),
            // Its ticket would read the whole leaf and keep it in memory, whatever is evicted for it.
            Attempt::NeedsRead(_) => None,
        };
        let value = match now {
            Some(value) => value,
            None => {
                let get =
                    move |inner: &Inner| inner.cells.get(&key).map_err(|error| inner.refused("get", error));
                self.off_thread("get", get).await?
            }
        };
        let Some(value) = value else { return Ok(None) };
        let (from, to) = range.within(value.len());
        let is_resident = value.is_resident_within(from, to - from);
        let bytes = move |inner: &Inner| {
            value.read(from, to - from).map(Some).map_err(|error| inner.refused("get", error))
        };
        if is_resident { bytes(&self.inner) } else { self.off_thread("get", bytes).await }
    }
}

impl Inner {
    fn refused(&self, what: &'static str, error: EngineError) -> StoreError {
        match error {
            EngineError::Closed { .. } if self.ending.is_abandoned() => self.abandoned(),
            error => refused(what, &self.place, error),
        }
    }

    /// The answer to a read that needs no disk; none for one that does.
    fn read_now(&self, cell: Cell<'_>, range: ByteRange) -> Option<Result<Option<Buffer>, StoreError>> {
        if let Err(error) = LIMITS.check_cell(cell) {
            return Some(Err(error));
        }
        match keys::with_joined(cell, |key| self.cells.try_get(key)) {
            Err(error) => Some(Err(self.refused("get", error))),
            Ok(Attempt::Ready(None)) => Some(Ok(None)),
            Ok(Attempt::Ready(Some(value))) => {
                let (from, to) = range.within(value.len());
                value.is_resident_within(from, to - from).then(|| {
                    value.read(from, to - from).map(Some).map_err(|error| self.refused("get", error))
                })
            }
            Ok(Attempt::NeedsRead(_)) => None,
        }
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
        self.engine.check_answers().map_err(|error| self.refused("look", error))
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
        // A read from memory is answered at once; the future only carries the answer.
        if let Some(answer) = self.inner.read_now(cell, options.range) {
            return Box::pin(std::future::ready(answer));
        }
        Box::pin(async move {
            match options.deadline {
                None => self.read(cell, options.range).await,
                deadline => {
                    let get = ("get", self.inner.place.as_str());
                    within(deadline, get, || false, self.read(cell, options.range)).await
                }
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
                self.wait_for_room(std::iter::once(value.len())).await?;
                self.read_before_put(&key, value.len(), &mut Beside::default()).await?;
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
            let range = expectation.range();
            self.inner.watches.wait(cell, expectation, time_out, || self.read(cell, range)).await
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
            let closed = inner.engine.close_shared().map_err(|error| inner.refused("close", error));
            // A broken store was only abandoned, not properly closed.
            if inner.ending.close_broken() { Err(inner.abandoned()) } else { closed }
        }))
    }
}

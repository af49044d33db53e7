//! The store itself: checks, the lock, and waking waiters.

use crate::map::{Map, part_of};
use crate::options::{Options, OptionsError};
use crate::requests::RequestMemory;
use crate::splits::SplitPart;
use atoll_store::watch::Watches;
use atoll_store::{
    Batch, Buffer, ByteRange, Capabilities, Cell, Durability, Expectation, PartitionPage, PartitionQuery,
    Place, Read, ReadOptions, ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture, StoreStream,
    Timestamp, Waited, WriteOptions, Written,
};
use futures::StreamExt;
use parking_lot::{Mutex, MutexGuard};
use std::future::ready;
use std::time::Duration;

const NAME: &str = "the memory store";

/// A store in the memory of this process.
pub struct MemoryStore {
    options: Options,
    state: Mutex<State>,
    watches: Watches,
}

#[derive(Clone, Default)]
struct State {
    map: Map,
    requests: RequestMemory,
    is_closed: bool,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_state(Options::default(), State::default())
    }
}

impl MemoryStore {
    /// An empty store with the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store.
    ///
    /// # Errors
    /// If the options are not valid.
    pub fn open(options: Options) -> Result<Self, OptionsError> {
        options.validate()?;
        Ok(Self::with_state(options, State::default()))
    }

    /// An independent store with the same content, options and remembered request ids.
    #[must_use]
    pub fn copy(&self) -> Self {
        let state = State { is_closed: false, ..self.state.lock().clone() };
        Self::with_state(self.options.clone(), state)
    }

    /// The number of open waits.
    #[must_use]
    pub fn waits_open(&self) -> usize {
        self.watches.open()
    }

    fn with_state(options: Options, state: State) -> Self {
        let watches = Watches::new(options.waiters_max);
        Self { options, state: Mutex::new(state), watches }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.is_closed { Err(StoreError::closed(NAME)) } else { Ok(state) }
    }

    fn read(&self, cell: Cell<'_>, range: ByteRange) -> Result<Option<Buffer>, StoreError> {
        self.options.limits.check_cell(cell)?;
        Ok(self.lock()?.map.get(cell).map(|value| part_of(value, range)))
    }

    fn apply(&self, batch: &Batch, options: WriteOptions) -> Result<Written, StoreError> {
        self.options.limits.check_batch(batch)?;
        let durability = self.capabilities().durability_for(options.durability)?;
        let now = self.options.clock.now();
        let mut state = self.lock()?;
        let State { map, requests, .. } = &mut *state;
        requests.forget(now, self.options.request_memory, self.options.request_memory_count);
        let repeated = options.request.is_some_and(|id| requests.contains(id));
        if !repeated {
            map.write(batch, &self.options.limits)?;
            if let Some(id) = options.request {
                requests.insert(id, now);
            }
        }
        drop(state);
        if !repeated {
            self.watches.wrote(batch);
        }
        Ok(Written { durability, repeated })
    }

    fn page(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        let after = request.check(&self.options.limits)?;
        Ok(self.lock()?.map.scan(request, after, &self.options.limits))
    }

    fn list(&self, query: &PartitionQuery) -> Result<PartitionPage, StoreError> {
        let after = query.check()?;
        let part = query.split.as_ref().map_or(Ok(SplitPart::ALL), SplitPart::of)?;
        Ok(self.lock()?.map.partition_keys(query, part, after.as_ref(), &self.options.limits))
    }

    fn close_now(&self) {
        self.state.lock().is_closed = true;
        self.watches.close();
    }
}

// Every call but `wait` answers at once, so deadlines are always met.
impl Store for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            limits: self.options.limits,
            durability: vec![Durability::Buffered],
            durability_default: Durability::Buffered,
            cheap_scans_across_large_values: true,
            waiters_max: self.options.waiters_max,
            wait_latency: Duration::from_micros(10),
            parallelism_best: 1,
            round_trip: Duration::from_micros(1),
            request_memory: self.options.request_memory,
            request_memory_count: self.options.request_memory_count,
        }
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move { self.read(cell, options.range) })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let answer = |read: Read| self.read(Cell::new(&read.partition, &read.sort), read.range);
        let answers = reads.into_iter().enumerate().map(move |(at, read)| (at, answer(read)));
        futures::stream::iter(answers).boxed()
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move { self.apply(&batch, options) })
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        Box::pin(async move { self.page(&request) })
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        if let Err(error) = self.options.limits.check_expectation(&expectation) {
            return Box::pin(ready(Err(error)));
        }
        let read = move || ready(self.read(cell, ByteRange::ALL));
        Box::pin(self.watches.wait(cell, expectation, time_out, read))
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        Box::pin(async move { self.list(&query) })
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        Box::pin(async move { self.lock().and_then(|_| SplitPart::deal(readers)) })
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        Box::pin(async move {
            self.options.limits.check_partition(partition)?;
            self.lock().map(|_| Place::Here)
        })
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async move { self.lock().map(|_| self.options.clock.now()) })
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.lock().map(drop) })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.close_now();
            Ok(())
        })
    }
}

//! The machinery of stores with a planted fault: a memory store that poses as a durable one, with a flaw in
//! front.

use crate::memory::Memory;
use crate::subject::{Ending, SharedStore, Subject};
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, Capabilities, Cell, Durability, Expectation, PartitionPage, PartitionQuery, Place, Read,
    ReadOptions, ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture, StoreStream, Timestamp,
    Waited, WriteOptions, Written,
};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The fault of a planted store; each method is correct unless a flaw overrides it.
///
/// Write options come without a durability class, which the memory store behind does not offer.
pub trait Flaw: Default + Send + Sync + 'static {
    /// See [`Store::get`].
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        honest.get(cell, options)
    }

    /// See [`Store::get_many`].
    fn get_many<'a>(&'a self, honest: &'a MemoryStore, reads: Vec<Read>) -> StoreStream<'a, Option<Buffer>> {
        honest.get_many(reads)
    }

    /// See [`Store::write`].
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        honest.write(batch, options)
    }

    /// See [`Store::create`]; none for the general path.
    fn create<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        value: Buffer,
    ) -> Option<StoreFuture<'a, Written>> {
        let _ = (honest, cell, value);
        None
    }

    /// See [`Store::scan`].
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        honest.scan(request)
    }

    /// See [`Store::wait`].
    fn wait<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        honest.wait(cell, expectation, time_out)
    }

    /// See [`Store::partition_keys`].
    fn partition_keys<'a>(
        &'a self,
        honest: &'a MemoryStore,
        query: PartitionQuery,
    ) -> StoreFuture<'a, PartitionPage> {
        honest.partition_keys(query)
    }

    /// See [`Store::close`].
    fn close<'a>(&'a self, honest: &'a MemoryStore) -> StoreFuture<'a, ()> {
        honest.close()
    }

    /// The flaw of the store that is reopened on `left`, the data that this one left behind, which a flaw may
    /// tamper with.
    fn reopened<'a>(&'a self, left: &'a MemoryStore) -> BoxFuture<'a, Self> {
        let _ = left;
        ready(Self::default()).boxed()
    }
}

/// A memory store with a flaw in front, which claims to be durable.
pub struct Planted<F> {
    honest: MemoryStore,
    flaw: F,
}

impl<F: Flaw> Store for Planted<F> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::ALL.to_vec(),
            durability_default: Durability::Flushed,
            ..self.honest.capabilities()
        }
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.flaw.get(&self.honest, cell, options)
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        self.flaw.get_many(&self.honest, reads)
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let durability = options.durability.unwrap_or(Durability::Flushed);
        let written = self.flaw.write(&self.honest, batch, WriteOptions { durability: None, ..options });
        written.map(move |result| result.map(|written| Written { durability, ..written })).boxed()
    }

    fn create<'a>(
        &'a self,
        cell: Cell<'a>,
        value: Buffer,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        if let Some(created) = self.flaw.create(&self.honest, cell, value.clone()) {
            return created;
        }
        let durability = options.durability.unwrap_or(Durability::Flushed);
        let created = self.honest.create(cell, value, WriteOptions { durability: None, ..options });
        created.map(move |result| result.map(|written| Written { durability, ..written })).boxed()
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.flaw.scan(&self.honest, request)
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        self.flaw.wait(&self.honest, cell, expectation, time_out)
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        self.flaw.partition_keys(&self.honest, query)
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        self.honest.splits(readers)
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        self.honest.place(partition)
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.honest.now()
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        self.honest.sync()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.flaw.close(&self.honest)
    }
}

/// Planted stores of one kind, for the suite.
pub struct PlantedSubject<F> {
    name: &'static str,
    memory: Memory,
    /// The suite hands stores back as trait objects; these are the same stores with their types.
    opened: Mutex<Vec<Arc<Planted<F>>>>,
}

impl<F: Flaw> PlantedSubject<F> {
    /// Stores with this flaw.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        Self { name, memory: Memory::default(), opened: Mutex::default() }
    }

    fn keep(&self, honest: MemoryStore, flaw: F) -> SharedStore {
        let store = Arc::new(Planted { honest, flaw });
        self.opened.lock().push(store.clone());
        store
    }

    fn typed(&self, store: &SharedStore) -> Result<Arc<Planted<F>>, StoreError> {
        let address = Arc::as_ptr(store).cast::<()>();
        let opened = self.opened.lock();
        let found = opened.iter().find(|opened| Arc::as_ptr(opened).cast::<()>() == address);
        found.cloned().ok_or(StoreError::NotFound { what: "store", name: "to open again".into() })
    }
}

impl<F: Flaw> Subject for PlantedSubject<F> {
    fn name(&self) -> String {
        self.name.into()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        // Checks run one after another, so stores that only this list still holds are not needed any more.
        self.opened.lock().retain(|store| Arc::strong_count(store) > 1);
        Box::pin(ready(self.memory.store().map(|honest| self.keep(honest, F::default()))))
    }

    fn reopen(
        &self,
        store: SharedStore,
        _ending: Ending,
    ) -> Option<BoxFuture<'_, Result<SharedStore, StoreError>>> {
        Some(Box::pin(async move {
            let former = self.typed(&store)?;
            let left = former.honest.copy();
            former.honest.close().await?;
            let flaw = former.flaw.reopened(&left).await;
            Ok(self.keep(left, flaw))
        }))
    }

    fn pass<'a>(&'a self, _store: &'a SharedStore, duration: Duration) -> BoxFuture<'a, ()> {
        self.memory.advance(duration);
        Box::pin(ready(()))
    }
}

//! A store that counts what is read through it, so that what queries say of their work can be checked.

use atoll_store::{
    Batch, Buffer, Capabilities, Cell, Expectation, PartitionPage, PartitionQuery, Place, Read, ReadOptions,
    ScanPage, ScanRequest, Split, Store, StoreFuture, StoreStream, Timestamp, Waited, WriteOptions, Written,
};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Reads of ranges of objects.
#[derive(Debug, Default)]
pub struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    rounds: AtomicU64,
}

impl Counts {
    /// Requests, their bytes, and how often some were made together, since the last time this was asked.
    pub fn take(&self) -> (u64, u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.requests), take(&self.bytes), take(&self.rounds))
    }
}

/// Another store, counted.
pub struct CountedStore {
    pub inner: Arc<dyn Store>,
    pub counts: Arc<Counts>,
}

impl Store for CountedStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.inner.get(cell, options)
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        // Of the manifest's cells, which have a sort key, a query reads the same whatever it asks.
        let is_objects = reads.iter().any(|read| read.sort.is_empty());
        if is_objects {
            self.counts.rounds.fetch_add(1, Ordering::Relaxed);
            self.counts.requests.fetch_add(reads.len() as u64, Ordering::Relaxed);
        }
        let counted = move |answer: &(usize, Result<Option<Buffer>, _>)| {
            if let (true, Ok(Some(bytes))) = (is_objects, &answer.1) {
                self.counts.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        };
        self.inner.get_many(reads).inspect(counted).boxed()
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        self.inner.write(batch, options)
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.inner.scan(request)
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        self.inner.wait(cell, expectation, time_out)
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        self.inner.partition_keys(query)
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        self.inner.splits(readers)
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        self.inner.place(partition)
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.inner.now()
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        self.inner.sync()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}

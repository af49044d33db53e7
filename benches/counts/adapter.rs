//! A store that counts the requests it gets and otherwise passes them on.
//!
//! Invariant: every read that reaches the store below is counted, whether or not the table counts it
//! itself.

use atoll_conformance::{Relay, Relayed};
use atoll_store::{
    Buffer, Cell, Read, ReadOptions, ScanPage, ScanRequest, Store, StoreError, StoreFuture, StoreStream,
};
use futures::{FutureExt, StreamExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How much was read so far.
#[derive(Debug, Default)]
pub struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    /// Requests and bytes since the last call.
    pub fn take(&self) -> (u64, u64) {
        (self.requests.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }

    fn asked(&self, requests: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
    }

    fn brought(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn brought_value(&self, value: Result<&Option<Buffer>, &StoreError>) {
        if let Ok(Some(value)) = value {
            self.brought(value.len());
        }
    }
}

/// A store that counts requests and passes them on.
pub struct Counting {
    below: Arc<dyn Store>,
    counters: Arc<Counters>,
}

impl Counting {
    /// Counts the requests to `below` from here on.
    pub fn over(below: Arc<dyn Store>) -> (Relayed<Self>, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        (Relayed(Self { below, counters: Arc::clone(&counters) }), counters)
    }
}

impl Relay for Counting {
    fn inner(&self) -> &dyn Store {
        self.below.as_ref()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.counters.asked(1);
        let read = self.below.get(cell, options);
        read.inspect(|value| self.counters.brought_value(value.as_ref())).boxed()
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        self.counters.asked(reads.len());
        let answers = self.below.get_many(reads);
        answers.inspect(|(_, value)| self.counters.brought_value(value.as_ref())).boxed()
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.counters.asked(1);
        let brought = |page: &Result<ScanPage, StoreError>| {
            if let Ok(page) = page {
                self.counters.brought(page.entries.iter().map(|entry| entry.value.len()).sum());
            }
        };
        self.below.scan(request).inspect(brought).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_memory::MemoryStore;
    use atoll_store::WriteOptions;

    #[tokio::test]
    async fn every_read_is_counted_once_with_its_bytes_and_writes_are_not() {
        let (store, counters) = Counting::over(Arc::new(MemoryStore::new()));
        for sort in ["a", "b"] {
            store.put(Cell::new("p", sort), b"12345", WriteOptions::default()).await.unwrap();
        }
        assert_eq!(counters.take(), (0, 0));
        store.get(Cell::new("p", "a"), ReadOptions::default()).await.unwrap();
        assert_eq!(counters.take(), (1, 5));
        let reads = vec![Read::new("p", "a"), Read::new("p", "b"), Read::new("p", "absent")];
        assert_eq!(store.get_many(reads).count().await, 3);
        assert_eq!(counters.take(), (3, 10));
        store.scan(ScanRequest::all("p")).await.unwrap();
        assert_eq!(counters.take(), (1, 10));
    }
}

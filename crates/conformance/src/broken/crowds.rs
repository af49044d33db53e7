//! Flaws that show when several clients use one partition.

use super::planted::Flaw;
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, Cell, ReadOptions, ScanEntry, ScanRequest, Store, StoreError, StoreFuture, WriteOptions,
    Written,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::{Id, try_id, yield_now};

/// Refuses every write that comes while another one is under way, though they do not conflict.
#[derive(Default)]
pub struct RefusesInACrowd {
    under_way: AtomicUsize,
}

impl Flaw for RefusesInACrowd {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            if self.under_way.swap(1, Ordering::SeqCst) > 0 {
                let reason = "another write is under way".into();
                return Err(StoreError::Unavailable { place: "the store".into(), reason, source: None });
            }
            for _ in 0..3 {
                yield_now().await;
            }
            let written = honest.write(batch, options).await;
            self.under_way.store(0, Ordering::SeqCst);
            written
        })
    }
}

/// Answers single reads of a history from a copy in which only the writing task sees the last write.
#[derive(Default)]
pub struct LagsBehindOthers {
    last: Mutex<Option<Last>>,
}

/// The last write: its partition, the task that made it, and the entries before it.
struct Last {
    partition: Vec<u8>,
    writer: Option<Id>,
    before: Vec<ScanEntry>,
}

impl Flaw for LagsBehindOthers {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            let lags = |last: &&Last| last.partition == cell.partition && last.writer != try_id();
            if let Some(last) = self.last.lock().as_ref().filter(lags) {
                let found = last.before.iter().find(|entry| entry.sort == cell.sort);
                return Ok(found.map(|entry| entry.value.clone()));
            }
            honest.get(cell, options).await
        })
    }

    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            if !batch.partition.starts_with(b"history") {
                return honest.write(batch, options).await;
            }
            let partition = batch.partition.clone();
            let before = honest.scan(ScanRequest::all(partition.clone())).await?.entries;
            let written = honest.write(batch, options).await?;
            *self.last.lock() = Some(Last { partition, writer: try_id(), before });
            Ok(written)
        })
    }
}

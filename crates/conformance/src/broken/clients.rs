//! Planted flaws of request ids, leases and closing, one type each.

use super::planted::Flaw;
use atoll_memory::MemoryStore;
use atoll_store::lease::Lease;
use atoll_store::{
    Batch, Buffer, Cell, Durability, ReadOptions, RequestId, Store, StoreFuture, WriteOptions, Written,
};
use futures::future::ready;
use parking_lot::Mutex;
use std::collections::HashSet;
use tokio::task::yield_now;

/// Ignores request ids.
#[derive(Default)]
pub struct RequestAppliedTwice;

impl Flaw for RequestAppliedTwice {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        honest.write(batch, WriteOptions { request: None, ..options })
    }
}

/// Distinguishes requests by their sequence alone.
#[derive(Default)]
pub struct RequestIdCollision;

impl Flaw for RequestIdCollision {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        let request = options.request.map(|id| RequestId { client: 0, ..id });
        honest.write(batch, WriteOptions { request, ..options })
    }
}

const REPEATED: Written = Written { durability: Durability::Buffered, repeated: true };

/// Looks up the request before the write and notes it after, with a gap between.
#[derive(Default)]
pub struct RequestCheckedTooEarly {
    done: Mutex<HashSet<RequestId>>,
}

impl Flaw for RequestCheckedTooEarly {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            if options.request.is_some_and(|id| self.done.lock().contains(&id)) {
                return Ok(REPEATED);
            }
            yield_now().await;
            let written = honest.write(batch, WriteOptions { request: None, ..options }).await?;
            self.done.lock().extend(options.request);
            Ok(written)
        })
    }
}

/// Remembers a request whether it was done or refused.
#[derive(Default)]
pub struct RefusedRequestRemembered {
    seen: Mutex<HashSet<RequestId>>,
}

impl Flaw for RefusedRequestRemembered {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            if options.request.is_some_and(|id| !self.seen.lock().insert(id)) {
                return Ok(REPEATED);
            }
            honest.write(batch, options).await
        })
    }
}

/// Deletes leases that have expired, and their epochs with them.
#[derive(Default)]
pub struct LeaseEpochReused;

impl Flaw for LeaseEpochReused {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            let value = honest.get(cell, options).await?;
            let lease = value.as_deref().and_then(|bytes| Lease::decode(bytes).ok());
            let now = honest.now().await?;
            if cell.partition == b"locks" && lease.is_some_and(|lease| lease.expires <= now) {
                honest.delete(cell, WriteOptions::default()).await?;
                return Ok(None);
            }
            Ok(value)
        })
    }
}

/// Continues to serve after it was closed.
#[derive(Default)]
pub struct ClosedButServing;

impl Flaw for ClosedButServing {
    fn close<'a>(&'a self, _honest: &'a MemoryStore) -> StoreFuture<'a, ()> {
        Box::pin(ready(Ok(())))
    }
}

//! Flaws that show after a store has ended and was opened again.

use super::planted::Flaw;
use atoll_memory::MemoryStore;
use atoll_store::{Batch, Cell, Mutation, RequestId, Store, StoreFuture, WriteOptions, Written};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;

/// No flaw: a store that keeps everything it acknowledged.
#[derive(Default)]
pub struct NoFlaw;

impl Flaw for NoFlaw {}

/// The cell that a batch puts first or last.
type Victim = Mutex<Option<(Vec<u8>, Vec<u8>)>>;

fn sort_of(mutation: &Mutation) -> Option<&Vec<u8>> {
    match mutation {
        Mutation::Put(sort, _) | Mutation::Append(sort, _) => Some(sort),
        Mutation::Delete(_) | Mutation::DeleteRange(_) => None,
    }
}

async fn lose<F: Flaw>(left: &MemoryStore, victim: &Victim) -> F {
    let victim = victim.lock().take();
    if let Some((partition, sort)) = victim {
        // The store was just copied and is open, so this cannot fail.
        left.delete(Cell::new(&partition, &sort), WriteOptions::default()).await.ok();
    }
    F::default()
}

/// Loses the cell that was put last.
#[derive(Default)]
pub struct LostWriteOnReopen {
    last: Victim,
}

impl Flaw for LostWriteOnReopen {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        if let Some(sort) = batch.mutations.iter().find_map(sort_of) {
            *self.last.lock() = Some((batch.partition.clone(), sort.clone()));
        }
        honest.write(batch, options)
    }

    fn reopened<'a>(&'a self, left: &'a MemoryStore) -> BoxFuture<'a, Self> {
        lose(left, &self.last).boxed()
    }
}

/// Loses the last mutation of the last batch that had several.
#[derive(Default)]
pub struct TornBatchOnReopen {
    last: Victim,
}

impl Flaw for TornBatchOnReopen {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        if let (true, Some(sort)) = (batch.mutations.len() > 1, batch.mutations.last().and_then(sort_of)) {
            *self.last.lock() = Some((batch.partition.clone(), sort.clone()));
        }
        honest.write(batch, options)
    }

    fn reopened<'a>(&'a self, left: &'a MemoryStore) -> BoxFuture<'a, Self> {
        lose(left, &self.last).boxed()
    }
}

/// Keeps request ids in memory only.
#[derive(Default)]
pub struct RequestIdsLostOnReopen {
    openings: u128,
}

impl Flaw for RequestIdsLostOnReopen {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        // An id with another client is as good as forgotten.
        let request = options.request.map(|id| RequestId { client: id.client ^ (self.openings << 64), ..id });
        honest.write(batch, WriteOptions { request, ..options })
    }

    fn reopened<'a>(&'a self, _left: &'a MemoryStore) -> BoxFuture<'a, Self> {
        ready(Self { openings: self.openings + 1 }).boxed()
    }
}

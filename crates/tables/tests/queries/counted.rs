//! A store that counts reads, to check what queries report of their work.

use atoll_conformance::Relay;
use atoll_store::{Buffer, Read, Store, StoreStream};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads of ranges of objects.
#[derive(Debug, Default)]
pub struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
    rounds: AtomicU64,
}

impl Counts {
    /// Requests, their bytes, and the number of rounds of requests, since the last call.
    pub fn take(&self) -> (u64, u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.requests), take(&self.bytes), take(&self.rounds))
    }
}

/// A store that counts the reads of another one.
pub struct Counted {
    pub inner: Arc<dyn Store>,
    pub counts: Arc<Counts>,
}

impl Relay for Counted {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        // Reads of the manifest's cells, which have a sort key, are the same for every query.
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
}

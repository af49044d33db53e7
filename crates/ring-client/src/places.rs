//! Places for requests under way, which bound the connections that a program has.
//!
//! A node refuses connections beyond its limit, so the requests to each node are bounded. All requests
//! together are bounded as well, because a program may open only so many sockets. But a request that waits
//! for its answer for long gives its place among all of them to others.
//!
//! Invariant: a node that says nothing holds up requests to other nodes only for a moment, however many wait
//! for it.

use crate::nodes::Address;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Most requests under way to a node at a time, and to all nodes together of those that began just now.
pub(crate) const REQUESTS_MAX: usize = 256;

/// How long a request is one that began just now: longer than nodes usually take.
const PROMPT: Duration = Duration::from_millis(500);

/// The places of a store.
pub(crate) struct Places {
    pub(crate) all: Semaphore,
    of_nodes: Mutex<HashMap<Address, Arc<Semaphore>>>,
}

/// A place for a request to a node. Dropping it frees the place.
pub(crate) struct Place<'a> {
    of_all: Option<SemaphorePermit<'a>>,
    _of_node: Option<OwnedSemaphorePermit>,
}

impl Default for Places {
    fn default() -> Self {
        Self { all: Semaphore::new(REQUESTS_MAX), of_nodes: Mutex::default() }
    }
}

impl Places {
    /// Takes a place for a request to a node, once there is one.
    pub(crate) async fn take(&self, node: &Address) -> Place<'_> {
        let of_node = {
            let mut of_nodes = self.of_nodes.lock();
            let places = || Arc::new(Semaphore::new(REQUESTS_MAX));
            Arc::clone(of_nodes.entry(Arc::clone(node)).or_insert_with(places))
        };
        // Neither is ever closed, so a place comes in the end. Whoever waits for the node takes no place
        // among all.
        let of_node = of_node.acquire_owned().await.ok();
        Place { of_all: self.all.acquire().await.ok(), _of_node: of_node }
    }

    /// Forgets all but these nodes, and those to which requests are under way.
    pub(crate) fn retain(&self, nodes: &BTreeSet<Address>) {
        self.of_nodes.lock().retain(|node, places| nodes.contains(node) || Arc::strong_count(places) > 1);
    }
}

impl Place<'_> {
    /// Runs a request in this place.
    pub(crate) async fn run<T>(mut self, request: impl Future<Output = T>) -> T {
        let mut request = std::pin::pin!(request);
        if let Ok(answer) = tokio::time::timeout(PROMPT, request.as_mut()).await {
            return answer;
        }
        drop(self.of_all.take());
        request.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::{join_all, pending};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn requests_that_wait_for_long_leave_their_places_to_those_for_other_nodes() {
        let (places, [one, other]) = (Places::default(), ["one", "other"].map(Address::from));
        let wait = || async { places.take(&one).await.run(pending::<()>()).await };
        let waiting = join_all((0..2 * REQUESTS_MAX).map(|_| wait()));
        let began = Instant::now();
        tokio::select! {
            _ = waiting => unreachable!("nobody answers"),
            _ = async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(places.take(&other).now_or_never().is_none(), "there are only so many sockets");
                drop(places.take(&other).await);
                assert!(places.take(&one).now_or_never().is_none(), "its own limit counts all the while");
            } => {}
        }
        assert!(began.elapsed() < 2 * PROMPT, "{:?}", began.elapsed());
        places.retain(&[other].into());
        assert_eq!(places.of_nodes.lock().len(), 1, "nothing is under way to the first one any more");
    }
}

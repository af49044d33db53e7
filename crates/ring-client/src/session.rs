//! Names for writes that their callers gave none, so that they can be sent again when a node is lost.
//!
//! Invariant: under a name of ours one write is under way at a time, so a node has one of them to remember.
//! Invariant: to a slot so many are under way at a time, whoever waits, since it remembers so many names for
//! minutes.

use atoll_store::RequestId;
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Writes that are under way at a time to a slot; no more than these requests are sent at a time in any case.
const WRITES_MAX: usize = 256;

/// Names that no write uses now.
#[derive(Default)]
pub(crate) struct Names {
    idle: Mutex<Vec<RequestId>>,
    /// Of each slot that was written to the places: at one that is not served, writes wait for each other and
    /// keep nobody else.
    places: Mutex<HashMap<u16, Arc<Semaphore>>>,
}

/// The name of a write; it goes back when this is dropped, and the next write has the next number.
pub(crate) struct Name<'a> {
    names: &'a Names,
    pub(crate) request: RequestId,
    _place: Option<OwnedSemaphorePermit>,
}

impl Names {
    /// A name for a write to a slot, when there is a place for it. Those that were used last are used first,
    /// so that nodes know few.
    pub(crate) async fn take(&self, slot: u16) -> Name<'_> {
        let places = || Arc::new(Semaphore::new(WRITES_MAX));
        let places = Arc::clone(self.places.lock().entry(slot).or_insert_with(places));
        // It is never closed, so there is a place in the end.
        let place = places.acquire_owned().await.ok();
        let idle = self.idle.lock().pop();
        let request = idle.unwrap_or_else(|| RequestId { client: drawn(), sequence: 1 });
        Name { names: self, request, _place: place }
    }
}

/// A number that nobody else draws, of the system's randomness: what begins at a clock is the same in
/// processes that begin together, and in one that was copied. Of two writes of one name a node does the
/// first, and answers both.
fn drawn() -> u128 {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => u128::from_ne_bytes(bytes),
        // The standard library knows of other ways to it.
        _ => {
            let word = || u128::from(RandomState::new().build_hasher().finish());
            word() << 64 | word()
        }
    }
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        // Also where nobody knows what became of it: a later number makes sure that it does not come true
        // behind that one.
        if let Some(sequence) = self.request.sequence.checked_add(1) {
            self.names.idle.lock().push(RequestId { sequence, ..self.request });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use futures::future::join_all;

    #[tokio::test]
    async fn writes_at_the_same_time_have_different_clients_and_none_has_a_number_twice() {
        let names = Names::default();
        let (one, other) = (names.take(7).await, names.take(7).await);
        assert_ne!(one.request.client, other.request.client);
        let client = one.request.client;
        drop(one);
        let next = names.take(8).await;
        assert_eq!((next.request.client, next.request.sequence), (client, 2));
    }

    #[tokio::test]
    async fn processes_whose_chances_are_the_same_draw_different_clients() {
        let client = async || {
            fastrand::seed(7);
            Names::default().take(7).await.request.client
        };
        assert_ne!(client().await, client().await);
    }

    #[tokio::test]
    async fn a_slot_that_takes_no_more_keeps_no_other() {
        let names = Names::default();
        let mut taken = join_all((0..WRITES_MAX).map(|_| names.take(7))).await;
        // A task that took so much has to rest.
        tokio::task::yield_now().await;
        assert!(names.take(7).now_or_never().is_none());
        assert!(names.take(8).now_or_never().is_some());
        taken.pop();
        assert_eq!(names.take(7).now_or_never().unwrap().request.sequence, 2);
    }
}

//! Names for writes without a request id, so that they can be sent again when a node is lost.
//!
//! Invariant: one write at a time is under way under each of our names, so a node has one of them to
//! remember.
//! Invariant: the number of writes under way to a slot is bounded, however many wait, because the slot
//! remembers each of their names for minutes.

use atoll_store::RequestId;
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most writes under way to a slot at a time. No more requests than this are sent to a node at a time in any
/// case.
const WRITES_MAX: usize = 256;

/// Names that are free.
#[derive(Default)]
pub(crate) struct Names {
    idle: Mutex<Vec<RequestId>>,
    /// The places of each slot that was written to. Writes to a slot that is not served wait for each other,
    /// and hold up no others.
    places: Mutex<HashMap<u16, Arc<Semaphore>>>,
}

/// The name of a write. It is freed on drop, and the next write under it has the next number.
pub(crate) struct Name<'a> {
    names: &'a Names,
    pub(crate) request: RequestId,
    _place: Option<OwnedSemaphorePermit>,
}

impl Names {
    /// Takes a name for a write to a slot, once there is a place for it. The last used names are reused
    /// first, so that nodes see few.
    pub(crate) async fn take(&self, slot: u16) -> Name<'_> {
        let places = || Arc::new(Semaphore::new(WRITES_MAX));
        let places = Arc::clone(self.places.lock().entry(slot).or_insert_with(places));
        // Never closed, so a place comes in the end.
        let place = places.acquire_owned().await.ok();
        let idle = self.idle.lock().pop();
        let request = idle.unwrap_or_else(|| RequestId { client: drawn(), sequence: 1 });
        Name { names: self, request, _place: place }
    }
}

/// Draws a unique number from the system's randomness. A generator seeded by the clock would repeat in
/// processes that begin together, or that are copies of one. Of two writes under one name a node does the
/// first, and answers both with it.
fn drawn() -> u128 {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => u128::from_ne_bytes(bytes),
        // The standard library has other sources.
        _ => {
            let word = || u128::from(RandomState::new().build_hasher().finish());
            word() << 64 | word()
        }
    }
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        // Even if the outcome is unknown: the next number makes sure that this write does not take effect
        // after the next one.
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
        // A task that took this many has to yield.
        tokio::task::yield_now().await;
        assert!(names.take(7).now_or_never().is_none());
        assert!(names.take(8).now_or_never().is_some());
        taken.pop();
        assert_eq!(names.take(7).now_or_never().unwrap().request.sequence, 2);
    }
}

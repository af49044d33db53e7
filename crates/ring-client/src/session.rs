//! Names for writes that their callers gave none, so that they can be sent again when a node is lost.
//!
//! Invariant: under a name of ours one write is under way at a time, so a node has one of them to remember.

use atoll_store::RequestId;
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Names that no write uses now.
#[derive(Default)]
pub(crate) struct Names {
    idle: Mutex<Vec<RequestId>>,
}

/// The name of a write; it goes back when this is dropped, and the next write has the next number.
pub(crate) struct Name<'a> {
    names: &'a Names,
    pub(crate) request: RequestId,
}

impl Names {
    /// A name for a write. Those that were used last are used first, so that nodes know few of them.
    pub(crate) fn take(&self) -> Name<'_> {
        let idle = self.idle.lock().pop();
        let request = idle.unwrap_or_else(|| RequestId { client: drawn(), sequence: 1 });
        Name { names: self, request }
    }
}

/// A number that nobody else draws, of the system's randomness: what begins at a clock is the same in processes that begin together, and
/// in one that was copied. Of two writes of one name a node does the first, and answers both.
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
        // Also where nobody knows what became of it: a later number makes sure that it does not come true behind that one.
        if let Some(sequence) = self.request.sequence.checked_add(1) {
            self.names.idle.lock().push(RequestId { sequence, ..self.request });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_at_the_same_time_have_different_clients_and_none_has_a_number_twice() {
        let names = Names::default();
        let (one, other) = (names.take(), names.take());
        assert_ne!(one.request.client, other.request.client);
        let client = one.request.client;
        drop(one);
        let next = names.take();
        assert_eq!((next.request.client, next.request.sequence), (client, 2));
    }

    #[test]
    fn processes_whose_chances_are_the_same_draw_different_clients() {
        let client = || {
            fastrand::seed(7);
            Names::default().take().request.client
        };
        assert_ne!(client(), client());
    }
}

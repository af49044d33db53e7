//! Requests that wait for the replica, by their tickets.
//!
//! Invariant: waiting requests take bounded memory, whichever slots they are about and whoever sent them.

use crate::watches::Watch;
use atoll_replica::{Slot, Ticket};
use atoll_resp::Protocol;
use std::collections::HashMap;

/// A request that waits.
pub(super) enum Waiting {
    Write {
        slot: Slot,
        protocol: Protocol,
        /// Size of the request.
        bytes: usize,
    },
    Read {
        slot: Slot,
        request: Vec<u8>,
        protocol: Protocol,
    },
    Watch {
        slot: Slot,
        watch: Box<Watch>,
    },
    /// A deletion of expired keys, and the read or watch that waits for it, if any.
    Expiry {
        slot: Slot,
        read: Option<(Ticket, Vec<u64>)>,
    },
}

/// Overhead of a waiting request beside its own bytes, roughly: here, in the copy of its slot and among the
/// pending answers.
const PLACE_BYTES: usize = 256;

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => PLACE_BYTES + *bytes,
            Self::Read { request, .. } => PLACE_BYTES + request.len(),
            Self::Watch { watch, .. } => watch.bytes(),
            Self::Expiry { .. } => 0,
        }
    }
}

/// All requests that wait.
pub(super) struct WaitingList {
    waiting: HashMap<Ticket, Waiting>,
    bytes: usize,
    bytes_max: usize,
}

impl WaitingList {
    pub(super) fn with_room(bytes_max: usize) -> Self {
        Self { waiting: HashMap::new(), bytes: 0, bytes_max }
    }

    /// Whether there is room for a request of this size. The first one always fits.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.bytes_max
    }

    pub(super) fn insert(&mut self, ticket: Ticket, waiting: Waiting) {
        self.bytes += waiting.bytes();
        if let Some(before) = self.waiting.insert(ticket, waiting) {
            self.bytes -= before.bytes();
        }
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.waiting.get(&ticket)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        self.bytes -= waiting.bytes();
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::watches::Waiter;
    use atoll_replica::Moment;
    use atoll_resp::{Expected, WatchRequest};

    #[test]
    fn what_waits_is_bounded_for_all_slots_together_and_one_request_always_fits() {
        let mut list = WaitingList::with_room(1000 + 2 * PLACE_BYTES);
        assert!(list.has_room(5000));
        let write = |slot, bytes| Waiting::Write { slot: Slot(slot), protocol: Protocol::Resp2, bytes };
        list.insert(Ticket(1), write(1, 600));
        assert!(list.has_room(400 + PLACE_BYTES) && !list.has_room(401 + PLACE_BYTES));
        let (request, protocol) = (vec![0; 300], Protocol::Resp2);
        list.insert(Ticket(2), Waiting::Read { slot: Slot(2), request, protocol });
        assert!(!list.has_room(101));
        list.insert(Ticket(1), write(1, 100));
        assert!(list.has_room(600));
        assert!(list.remove(Ticket(1)).is_some() && list.remove(Ticket(1)).is_none());
        assert!(list.remove(Ticket(2)).is_some());
        assert_eq!(list.bytes, 0);
        let waiter = Waiter {
            ticket: Ticket(3),
            connection: 1,
            session: 1,
            users: 0,
            protocol: Protocol::Resp3,
            id: Some(1),
        };
        let value = vec![b'v'; 900];
        let expected = Expected::Equals(Some(&value[..]));
        let request = WatchRequest { id: Some(1), milliseconds: 1, key: b"k", field: Some(b"f"), expected };
        let watch = Box::new(Watch::new(&request, 0, waiter, Now { moment: Moment(1), date_ms: 1 }));
        list.insert(Ticket(3), Waiting::Watch { slot: Slot(1), watch });
        assert!(!list.has_room(100 + 2 * PLACE_BYTES), "what is waited for counts as well");
    }

    #[test]
    fn short_requests_count_as_what_they_take() {
        let mut list = WaitingList::with_room(1 << 20);
        let request = vec![0; 20];
        while list.has_room(request.len()) {
            let ticket = Ticket(list.waiting.len() as u64);
            let (request, protocol) = (request.clone(), Protocol::Resp2);
            list.insert(ticket, Waiting::Read { slot: Slot(2), request, protocol });
        }
        assert!(list.waiting.len() <= 4096, "{} fit into a mebibyte", list.waiting.len());
    }
}

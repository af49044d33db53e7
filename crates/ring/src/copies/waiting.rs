//! Requests that wait for the replica, by their tickets.
//!
//! Invariant: waiting requests take bounded memory, whichever slots they are about and whoever sent them.
//! Invariant: so do the values that waiting writes return once they are applied.

use super::{ANSWER_BYTES_MAX, WriteExtra};
use crate::watches::Watch;
use atoll_replica::{Slot, Ticket};
use atoll_resp::Protocol;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// A request that waits.
pub(super) enum Waiting {
    Write {
        slot: Slot,
        protocol: Protocol,
        /// Size of the request.
        bytes: usize,
        extra: WriteExtra,
    },
    Read {
        slot: Slot,
        request: Vec<u8>,
        protocol: Protocol,
        /// For a listing: the first round of questions that was sent after it came.
        lists_since: Option<u64>,
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

/// Most bytes of values that waiting writes return together.
pub(crate) const RETURNED_BYTES_MAX: usize = 128 << 20;

const _: () = assert!(RETURNED_BYTES_MAX <= ANSWER_BYTES_MAX / 2, "reads have room beside them");

impl Waiting {
    fn bytes(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => PLACE_BYTES + *bytes,
            Self::Read { request, .. } => PLACE_BYTES + request.len(),
            Self::Watch { watch, .. } => watch.bytes(),
            Self::Expiry { .. } => 0,
        }
    }

    /// The bytes of values that it returns.
    fn returned_bytes(&self) -> usize {
        match self {
            Self::Write { extra, .. } => extra.returned,
            Self::Read { .. } | Self::Watch { .. } | Self::Expiry { .. } => 0,
        }
    }

    /// The key whose values it makes longer, if it does, and by how many bytes at most.
    fn appended(&self) -> Option<(AppendedKey, usize)> {
        match self {
            Self::Write { slot, bytes, extra, .. } => extra.appends.map(|key| ((*slot, key), *bytes)),
            Self::Read { .. } | Self::Watch { .. } | Self::Expiry { .. } => None,
        }
    }
}

/// A key by its slot and its hash. Keys that share a hash count as one.
type AppendedKey = (Slot, u64);

/// All requests that wait.
pub(super) struct WaitingList {
    waiting: HashMap<Ticket, Waiting>,
    bytes: usize,
    bytes_max: usize,
    /// The bytes of values that the writes return.
    returned: usize,
    /// Those that they append, for the keys to which any appends.
    appended: HashMap<AppendedKey, usize>,
    pub(super) returned_max: usize,
}

impl WaitingList {
    pub(super) fn with_room(bytes_max: usize) -> Self {
        let returned_max = RETURNED_BYTES_MAX;
        let (waiting, appended) = (HashMap::new(), HashMap::new());
        Self { waiting, bytes: 0, bytes_max, returned: 0, appended, returned_max }
    }

    /// Whether there is room for a request of this size. The first one always fits.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= self.bytes_max
    }

    /// Whether there is room for a write that returns this many bytes of values. The first one always fits.
    pub(super) fn has_room_to_return(&self, bytes: usize) -> bool {
        bytes == 0 || self.returned == 0 || self.returned.saturating_add(bytes) <= self.returned_max
    }

    /// The bytes of values that the waiting writes return.
    pub(super) fn returned_bytes(&self) -> usize {
        self.returned
    }

    /// Most bytes that the waiting writes append to a value of a key.
    pub(super) fn appended_bytes(&self, slot: Slot, key: u64) -> usize {
        self.appended.get(&(slot, key)).copied().unwrap_or_default()
    }

    /// To how many keys any of them appends.
    #[cfg(test)]
    pub(super) fn appended_keys(&self) -> usize {
        self.appended.len()
    }

    pub(super) fn insert(&mut self, ticket: Ticket, waiting: Waiting) {
        self.bytes += waiting.bytes();
        self.returned += waiting.returned_bytes();
        if let Some((key, bytes)) = waiting.appended() {
            *self.appended.entry(key).or_default() += bytes;
        }
        if let Some(before) = self.waiting.insert(ticket, waiting) {
            self.subtract(&before);
        }
    }

    fn subtract(&mut self, gone: &Waiting) {
        self.bytes -= gone.bytes();
        self.returned -= gone.returned_bytes();
        if let Some((key, bytes)) = gone.appended()
            && let Entry::Occupied(mut left) = self.appended.entry(key)
        {
            *left.get_mut() -= bytes;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&Waiting> {
        self.waiting.get(&ticket)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        self.subtract(&waiting);
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

    fn write(slot: u32, bytes: usize, extra: WriteExtra) -> Waiting {
        Waiting::Write { slot: Slot(slot), protocol: Protocol::Resp2, bytes, extra }
    }

    #[test]
    fn what_writes_return_is_bounded_together_and_one_always_fits() {
        let mut list = WaitingList { returned_max: 1000, ..WaitingList::with_room(1 << 20) };
        let extra = |returned, appends| WriteExtra { returned, appends };
        assert!(list.has_room_to_return(5000));
        list.insert(Ticket(1), write(1, 10, extra(600, None)));
        assert!(list.has_room_to_return(400) && !list.has_room_to_return(401) && list.has_room_to_return(0));
        let appended = |list: &WaitingList| {
            [(1, 7), (1, 8), (2, 7)].map(|(slot, key)| list.appended_bytes(Slot(slot), key))
        };
        list.insert(Ticket(2), write(1, 30, extra(0, Some(7))));
        list.insert(Ticket(3), write(2, 50, extra(300, Some(7))));
        assert_eq!((list.returned_bytes(), appended(&list)), (900, [30, 0, 50]));
        list.insert(Ticket(1), write(1, 10, extra(100, Some(7))));
        assert_eq!((list.returned_bytes(), appended(&list)), (400, [40, 0, 50]));
        for ticket in 1..=3 {
            assert!(list.remove(Ticket(ticket)).is_some());
        }
        assert_eq!((list.returned_bytes(), list.appended_keys(), list.bytes), (0, 0, 0));
        assert!(list.has_room_to_return(5000));
    }

    #[test]
    fn what_waits_is_bounded_for_all_slots_together_and_one_request_always_fits() {
        let mut list = WaitingList::with_room(1000 + 2 * PLACE_BYTES);
        assert!(list.has_room(5000));
        let write = |slot, bytes| write(slot, bytes, WriteExtra::default());
        list.insert(Ticket(1), write(1, 600));
        assert!(list.has_room(400 + PLACE_BYTES) && !list.has_room(401 + PLACE_BYTES));
        let (request, protocol) = (vec![0; 300], Protocol::Resp2);
        list.insert(Ticket(2), Waiting::Read { slot: Slot(2), request, protocol, lists_since: None });
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
            list.insert(ticket, Waiting::Read { slot: Slot(2), request, protocol, lists_since: None });
        }
        assert!(list.waiting.len() <= 4096, "{} fit into a mebibyte", list.waiting.len());
    }
}

//! Deletes expired keys through the log of their slot, like any other write, and forgets clients that were
//! silent for long in the same way.
//!
//! Invariant: a read or a watch that waits for a deletion is repeated once the deletion is decided, or
//! refused with it.
//! Invariant: a deletion that a read asks for is short, however many expired keys the read names, and however
//! often: an entry that fits into no frame would never reach another copy.

use super::body::{Body, EXPIRED_KEY_BYTES};
use super::waiting::Waiting;
use super::{Copies, number_of};
use crate::NodeError;
use crate::clock::Now;
use atoll_keyspace::Overdue;
use atoll_replica::{Input, Slot, Ticket};
use std::collections::HashSet;

/// Most bytes of expired keys that are deleted for a read at once.
pub(super) const EXPIRY_BYTES_MAX: usize = 4 << 20;

/// The first of these keys, each once: as many as take no more than `bytes_max` bytes in an entry, and at
/// least one.
pub(super) fn first_of(mut overdue: Vec<Overdue>, bytes_max: usize) -> Vec<Overdue> {
    overdue.sort_unstable();
    overdue.dedup();
    let mut bytes = 0;
    let is_within = |one: &&Overdue| {
        bytes += EXPIRED_KEY_BYTES + one.key.len();
        bytes <= bytes_max
    };
    let count = overdue.iter().take_while(is_within).count();
    overdue.truncate(count.max(1));
    overdue
}

impl Copies {
    /// Deletes expired keys through the log, at once.
    pub(crate) fn expire_now(&mut self, slot: Slot, now: Now, overdue: &[Overdue]) -> Result<(), NodeError> {
        if self.is_full() || self.dates.is_early(now.moment) {
            self.refused_expiries += 1;
            return Ok(());
        }
        self.expire(slot, now, overdue, None);
        match self.inputs.pop_back() {
            Some(input) => self.step(now, input),
            None => Ok(()),
        }
    }

    /// Forgets at most this many clients of a slot that were silent for long, at once.
    pub(crate) fn forget_clients(&mut self, slot: Slot, now: Now, most: u64) -> Result<(), NodeError> {
        if self.is_full() || self.dates.is_early(now.moment) {
            return Ok(());
        }
        let ticket = self.expiry_ticket(slot, None);
        // No read depends on what is remembered of clients, but a write that names no key counts as one of
        // all keys.
        let keys = vec![number_of(&[])];
        let body = Body::of_forgetting(most);
        self.step(now, Input::Write { slot, ticket, time_ms: now.date_ms, body, keys })
    }

    /// Slots in which expired keys are being deleted.
    pub(crate) fn expiring(&self) -> &HashSet<Slot> {
        &self.expiring
    }

    /// How often a deletion of expired keys was refused.
    pub(crate) fn refused_expiries(&self) -> u64 {
        self.refused_expiries
    }

    /// Called when a deletion is applied, or its outcome is unknown. The read that waited for it is repeated.
    pub(super) fn expired(&mut self, slot: Slot, read: Option<(Ticket, Vec<u64>)>) {
        self.expiring.remove(&slot);
        if let Some((ticket, keys)) = read {
            self.inputs.push_back(Input::Read { slot, ticket, keys });
        }
    }

    /// Deletes expired keys through the log and then repeats the read or watch that waits, if one does.
    pub(super) fn expire(
        &mut self,
        slot: Slot,
        now: Now,
        overdue: &[Overdue],
        read: Option<(Ticket, Vec<u64>)>,
    ) {
        let ticket = self.expiry_ticket(slot, read);
        self.inputs.push_back(Input::Write {
            slot,
            ticket,
            time_ms: now.date_ms,
            body: Body::of_expiry(overdue),
            keys: overdue.iter().map(|key| number_of(&key.key)).collect(),
        });
    }

    /// Makes a ticket for a write of this node's own, and for the read or watch that waits for it.
    fn expiry_ticket(&mut self, slot: Slot, read: Option<(Ticket, Vec<u64>)>) -> Ticket {
        self.own_tickets += 1;
        let ticket = Ticket(self.own_tickets);
        self.waiting.insert(ticket, Waiting::Expiry { slot, read });
        self.expiring.insert(slot);
        ticket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overdue(key: &str) -> Overdue {
        Overdue { slot: 1, key: key.into(), deadline_ms: 5 }
    }

    #[test]
    fn a_key_is_deleted_once_and_only_as_many_as_fit_at_a_time() {
        let met: Vec<_> = ["c", "a", "b", "a", "c", "c"].map(overdue).to_vec();
        let of_one = EXPIRED_KEY_BYTES + 1;
        for (bytes_max, count) in [(0, 1), (2 * of_one - 1, 1), (2 * of_one, 2), (9 * of_one, 3)] {
            let first = first_of(met.clone(), bytes_max);
            assert_eq!(first, ["a", "b", "c"].map(overdue)[..count], "{bytes_max}");
            let bytes = Body::of_expiry(&first).len();
            assert!(bytes <= 1 + bytes_max.max(of_one), "{bytes} {bytes_max}");
        }
        assert!(first_of(Vec::new(), 100).is_empty());
    }
}

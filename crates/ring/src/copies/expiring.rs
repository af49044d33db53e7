//! Keys whose time is over are deleted through the log of their slot, as any other write, and clients that
//! were silent for long are forgotten through it.
//!
//! Invariant: what waits for keys to be deleted is read again once that is decided, or refused with it.

use super::body::Body;
use super::waiting::Waiting;
use super::{Copies, number_of};
use crate::NodeError;
use crate::clock::Now;
use atoll_keyspace::Overdue;
use atoll_replica::{Input, Slot, Ticket};
use std::collections::HashSet;

impl Copies {
    /// The same, at once.
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

    /// Has at most so many clients of a slot forgotten who were silent for long, at once.
    pub(crate) fn forget_clients(&mut self, slot: Slot, now: Now, most: u64) -> Result<(), NodeError> {
        if self.is_full() || self.dates.is_early(now.moment) {
            return Ok(());
        }
        let ticket = self.expiry_ticket(slot, None);
        // No read looks at what is remembered of clients, but a write that names no key is one of all of
        // them.
        let keys = vec![number_of(&[])];
        let body = Body::of_forgetting(most);
        self.step(now, Input::Write { slot, ticket, time_ms: now.date_ms, body, keys })
    }

    /// Slots in which keys are being deleted whose time is over.
    pub(crate) fn expiring(&self) -> &HashSet<Slot> {
        &self.expiring
    }

    /// How often it was refused to delete such keys.
    pub(crate) fn refused_expiries(&self) -> u64 {
        self.refused_expiries
    }

    /// Keys of a slot are deleted, or nobody knows; what waited for that is read again.
    pub(super) fn expired(&mut self, slot: Slot, read: Option<(Ticket, Vec<u64>)>) {
        self.expiring.remove(&slot);
        if let Some((ticket, keys)) = read {
            self.inputs.push_back(Input::Read { slot, ticket, keys });
        }
    }

    /// Has keys deleted whose time is over, through the log; and then something read again, if it waits for
    /// that.
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

    /// A ticket for what this node itself has done to a slot because time passed, and for the read that waits
    /// for that.
    fn expiry_ticket(&mut self, slot: Slot, read: Option<(Ticket, Vec<u64>)>) -> Ticket {
        self.own_tickets += 1;
        let ticket = Ticket(self.own_tickets);
        self.waiting.insert(ticket, Waiting::Expiry { slot, read });
        self.expiring.insert(slot);
        ticket
    }
}

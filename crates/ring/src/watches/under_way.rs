//! Watches that clients asked for and that have not begun yet. On a node of several a watch begins as late as
//! a read would be answered.
//!
//! Invariant: a watch that its client ended on its way never begins, and nobody is told of it.
//! Invariant: this takes memory for what is under way, and none for what was ended.

use super::watch::Waiter;
use atoll_replica::Ticket;
use std::collections::{BTreeSet, HashMap};

/// The watches that will be pushed, by connection, each with its id and the ticket that its request had. What
/// is answered in its place cannot be ended by its id.
#[derive(Debug, Default)]
pub(super) struct UnderWay(HashMap<usize, BTreeSet<(u64, Ticket)>>);

impl UnderWay {
    pub(super) fn add(&mut self, waiter: &Waiter) {
        if let Some(id) = waiter.id {
            self.0.entry(waiter.connection).or_default().insert((id, waiter.ticket));
        }
    }

    /// Takes out a watch that has arrived. Returns whether it may begin.
    pub(super) fn take(&mut self, waiter: &Waiter) -> bool {
        let Some(id) = waiter.id else { return true };
        let Some(of_connection) = self.0.get_mut(&waiter.connection) else { return false };
        let is_wanted = of_connection.remove(&(id, waiter.ticket));
        if of_connection.is_empty() {
            self.0.remove(&waiter.connection);
        }
        is_wanted
    }

    /// Ends those of a connection with this id. Returns how many there were.
    pub(super) fn end_id(&mut self, connection: usize, id: u64) -> usize {
        let Some(of_connection) = self.0.get_mut(&connection) else { return 0 };
        let of_id = (id, Ticket(0))..=(id, Ticket(u64::MAX));
        let ended: Vec<_> = of_connection.range(of_id).copied().collect();
        for one in &ended {
            of_connection.remove(one);
        }
        if of_connection.is_empty() {
            self.0.remove(&connection);
        }
        ended.len()
    }

    /// Ends all of a connection.
    pub(super) fn end_all(&mut self, connection: usize) {
        self.0.remove(&connection);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

//! The watches of a loop: how they begin, and when they are checked.
//!
//! Invariant: a watch begins as a read does. An expired key that it meets is deleted first, through the log,
//! so that the watch never takes a key for there that a read would not find.

use super::{Home, Reply, Slots};
use crate::clock::Now;
use crate::table::SlotTable;
use crate::watches::{Touched, Watch, Watches};
use atoll_replica::Slot;
use atoll_resp::Protocol;
use std::time::Duration;

impl Slots {
    /// Begins a watch, or asks whether it may begin if other nodes have copies.
    pub(crate) fn watch(&mut self, slot: Slot, now: Now, watch: Watch) {
        if let Home::Replicated(replicated) = &mut self.home {
            self.watches.await_arrival(&watch);
            return replicated.watch(slot, now, watch);
        }
        let overdue = watch.overdue(self.home.keyspaces().of(slot), now.date_ms);
        if !overdue.is_empty()
            && let Err(error) = self.expire(slot, &overdue, now)
        {
            let mut reply = Vec::new();
            self.fail(&error, &mut Reply { target: &mut reply, protocol: Protocol::Resp2 });
            let why = String::from_utf8_lossy(reply.get(1..).unwrap_or_default());
            return self.watches.refuse(&watch, why.trim_end());
        }
        self.watches.begin(watch);
    }

    /// Answers watches that are met, now that the writes are settled.
    pub(crate) fn look_at_watches(&mut self, now: Now, table: &SlotTable) {
        let (keyspaces, touched) = match &mut self.home {
            Home::Alone(keyspaces) => (&**keyspaces, &mut self.touched),
            Home::Replicated(replicated) => {
                for (watch, refused) in replicated.copies.take_watched() {
                    self.watches.arrive(watch, refused.as_deref());
                }
                let (copies, patience_us) = (&replicated.copies, replicated.copies.read_wait_us());
                if replicated.group_heard(now).silence >= Duration::from_micros(patience_us) {
                    let may_read = |slot, round| copies.may_read_since(slot, round, now);
                    self.watches.end_unread(now.moment, (patience_us, copies.coming_round()), may_read);
                } else {
                    self.watches.forget_unread();
                }
                (&replicated.copies.keyspaces, &mut replicated.copies.touched)
            }
        };
        self.metrics.watches.set(self.watches.len() as u64);
        if self.watches.is_empty() {
            self.watches.rest();
            *touched = Touched::default();
            return;
        }
        self.metrics.failures.add(self.watches.look(now, keyspaces, table, touched));
    }

    pub(crate) fn watches(&mut self) -> &mut Watches {
        &mut self.watches
    }
}

#[cfg(test)]
mod tests;

//! Finding expired keys, so that a node deletes them even if no client asks for them.

use super::{Keyspace, Looked};
use crate::cell::{self, CellName, DEADLINE};
use crate::{KeyspaceError, Overdue, SLOTS};
use atoll_engine::Direction;
use std::ops::{Bound, ControlFlow};

impl Keyspace {
    /// Finds expired keys in all slots for which `held` is true, at most `most`. The next call continues
    /// after the slot at which this one ended, so that many such keys in one slot do not delay the others.
    pub fn expired(&mut self, now_ms: u64, most: usize, held: impl Fn(u16) -> bool) -> Looked<Overdue> {
        self.skipped.let_go(now_ms);
        let (mut found, mut failed, first) = (Vec::new(), None, self.expires_next);
        for slot in (first..SLOTS).chain(0..first) {
            if found.len() >= most {
                break;
            }
            let is_due = self.state(slot).is_ok_and(|state| state.soonest_ms <= now_ms);
            if !is_due || !held(slot) || self.skipped.has(slot) {
                continue;
            }
            if let Err(error) = self.expired_in(slot, now_ms, most, &mut found)
                && self.skipped.put(slot, now_ms)
            {
                failed = Some((slot, error));
            }
            self.expires_next = (slot + 1) % SLOTS;
        }
        Looked { found, failed }
    }

    /// Skips a slot for a while whose expired keys could not be deleted; returns whether no other slot is
    /// skipped.
    pub fn set_aside(&mut self, slot: u16, now_ms: u64) -> bool {
        self.skipped.put(slot, now_ms)
    }

    /// Adds the expired keys of one slot, up to a total of `most`, and records the slot's soonest deadline.
    fn expired_in(
        &mut self,
        slot: u16,
        now_ms: u64,
        most: usize,
        overdue: &mut Vec<Overdue>,
    ) -> Result<(), KeyspaceError> {
        let mut soonest = None;
        let (from, to) = (CellName::kind(slot, DEADLINE), CellName::kind(slot, DEADLINE + 1));
        let range = (Bound::Included(&*from), Bound::Excluded(&*to));
        let mut is_wrong = false;
        self.tree.scan(range, Direction::Forward, |name, _| {
            let Some((deadline_ms, key)) = cell::parts_of_deadline(name) else {
                is_wrong = true;
                return ControlFlow::Break(());
            };
            soonest.get_or_insert(deadline_ms);
            if deadline_ms > now_ms || overdue.len() >= most {
                return ControlFlow::Break(());
            }
            overdue.push(Overdue { slot, key: key.to_vec(), deadline_ms });
            ControlFlow::Continue(())
        })?;
        if is_wrong {
            return Err(KeyspaceError::Corrupt { what: "a deadline" });
        }
        if let Some(state) = self.slots.get_mut(usize::from(slot)) {
            state.soonest_ms = soonest.unwrap_or(u64::MAX);
        }
        Ok(())
    }
}

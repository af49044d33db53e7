//! Keys whose time is over are deleted, some at a time, through the log of their slot.
//!
//! Invariant: a slot in which that is under way is not asked again, and one that refuses it waits for the next tick.

use super::{Home, Slots, next};
use crate::clock::Now;
use crate::keyspaces::slot_at;
use atoll_errors::ErrorKind;
use atoll_keyspace::{KeyspaceError, Overdue};
use atoll_replica::Slot;
use atoll_resp::Protocol;
use std::collections::HashSet;

/// Keys that are deleted at once because their time is over.
const EXPIRED_MAX: usize = 500;

impl Slots {
    /// Deletes some keys of these slots whose time is over; whether there may be more. Where that takes a while, and is under way
    /// for a slot, it is not asked for again.
    pub(crate) fn expire_some(
        &mut self,
        now: Now,
        held: impl Fn(Slot) -> bool,
    ) -> Result<bool, KeyspaceError> {
        let mut has_more = false;
        let under_way = self.expiring();
        let held = |slot| held(slot) && !under_way.contains(&slot);
        for place in (0..=u8::MAX).take(self.home.keyspaces().count()) {
            let Some(keyspace) = self.home.keyspaces_mut().get_mut(place) else { break };
            let overdue =
                keyspace.expired(now.date_ms, EXPIRED_MAX, |number| held(slot_at(place, number)))?;
            let mut is_taken = false;
            for of_slot in overdue.chunk_by(|one, other| one.slot == other.slot) {
                let Some(first) = of_slot.first() else { continue };
                match self.expire(slot_at(place, first.slot), of_slot, now) {
                    Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                    expired => is_taken |= expired?,
                }
            }
            // Where a write is refused that deletes them, as while too few copies or no room are there, they wait for the next tick.
            has_more |= is_taken && overdue.len() >= EXPIRED_MAX;
        }
        Ok(has_more)
    }

    /// Slots in which keys are being deleted whose time is over.
    pub(super) fn expiring(&self) -> HashSet<Slot> {
        match &self.home {
            Home::Alone(_) => HashSet::new(),
            Home::Copied(copied) => copied.copies.expiring().clone(),
        }
    }

    /// Deletes keys of one slot whose time is over; whether that is done or under way.
    pub(super) fn expire(
        &mut self,
        slot: Slot,
        overdue: &[Overdue],
        now: Now,
    ) -> Result<bool, KeyspaceError> {
        let keys: Vec<_> = overdue.iter().map(|key| (key.key.as_slice(), key.deadline_ms)).collect();
        let keyspaces = match &mut self.home {
            Home::Alone(keyspaces) => keyspaces,
            Home::Copied(copied) => {
                let is_taken = copied.expire(slot, now, overdue);
                self.metrics.expired.add(if is_taken { overdue.len() as u64 } else { 0 });
                return Ok(is_taken);
            }
        };
        self.metrics.expired.add(overdue.len() as u64);
        let next = next(keyspaces, slot);
        self.is_unsettled = true;
        self.touched.touch(slot, overdue.iter().map(|key| key.key.as_slice()));
        let mut count = Vec::new();
        let (keyspace, number) = keyspaces.of_mut(slot);
        keyspace.apply_expiry(number, next, now.date_ms, &keys, Protocol::Resp2, &mut count)?;
        Ok(true)
    }
}

//! Deletes expired keys, some at a time, through the log of their slot.
//!
//! Invariant: a slot that cannot be read is reported once, and left alone for a while.
//! Invariant: a slot with a deletion under way is not asked again, and one that refuses it waits for the next
//! tick.

use super::{Home, Slots, next};
use crate::clock::Now;
use crate::keyspaces::slot_at;
use atoll_errors::ErrorKind;
use atoll_keyspace::{KeyspaceError, Looked, Overdue};
use atoll_replica::Slot;
use atoll_resp::Protocol;
use std::collections::HashSet;

/// Most expired keys deleted at once.
const EXPIRED_MAX: usize = 500;

impl Slots {
    /// Deletes some expired keys of these slots. Returns whether there may be more. Slots with a deletion
    /// under way are left out.
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
            let Looked { found: overdue, failed } =
                keyspace.expired(now.date_ms, EXPIRED_MAX, |number| held(slot_at(place, number)));
            if let Some((number, error)) = failed {
                unreadable(slot_at(place, number), &error);
            }
            let mut is_taken = false;
            for of_slot in overdue.chunk_by(|one, other| one.slot == other.slot) {
                let Some(first) = of_slot.first() else { continue };
                let slot = slot_at(place, first.slot);
                match self.expire(slot, of_slot, now) {
                    Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                    // Nothing was changed here, and no other node has a copy that could differ.
                    Err(error) if !error.is_unknown() => self.set_aside(slot, now, &error),
                    expired => is_taken |= expired?,
                }
            }
            // If the deletion is refused, for lack of copies or of room, the keys wait for the next tick.
            has_more |= is_taken && overdue.len() >= EXPIRED_MAX;
        }
        Ok(has_more)
    }

    /// Slots in which expired keys are being deleted.
    pub(super) fn expiring(&self) -> HashSet<Slot> {
        match &self.home {
            Home::Alone(_) => HashSet::new(),
            Home::Replicated(replicated) => replicated.copies.expiring().clone(),
        }
    }

    /// Leaves a slot alone for a while after due work on it failed.
    pub(super) fn set_aside(&mut self, slot: Slot, now: Now, error: &KeyspaceError) {
        let (keyspace, number) = self.home.keyspaces_mut().of_mut(slot);
        if keyspace.set_aside(number, now.date_ms) {
            unreadable(slot, error);
        }
    }

    /// Deletes expired keys of one slot. Returns whether that is done or under way.
    pub(super) fn expire(
        &mut self,
        slot: Slot,
        overdue: &[Overdue],
        now: Now,
    ) -> Result<bool, KeyspaceError> {
        let keys: Vec<_> = overdue.iter().map(|key| (key.key.as_slice(), key.deadline_ms)).collect();
        let keyspaces = match &mut self.home {
            Home::Alone(keyspaces) => keyspaces,
            Home::Replicated(replicated) => {
                let is_taken = replicated.expire(slot, now, overdue);
                self.metrics.expired.add(if is_taken { overdue.len() as u64 } else { 0 });
                return Ok(is_taken);
            }
        };
        self.metrics.expired.add(overdue.len() as u64);
        let next = next(keyspaces, slot);
        self.unsettled.note(keyspaces.class_of(slot));
        self.touched.touch(slot, overdue.iter().map(|key| key.key.as_slice()));
        let mut count = Vec::new();
        let (keyspace, number) = keyspaces.of_mut(slot);
        keyspace.apply_expiry(number, next, now.date_ms, &keys, Protocol::Resp2, &mut count)?;
        Ok(true)
    }
}

/// Logs that a slot cannot be searched.
pub(super) fn unreadable(slot: Slot, error: &KeyspaceError) {
    tracing::error!(
        slot = slot.0,
        %error,
        "a slot cannot be read: expired keys of it, and of others like it, are deleted only once they are requested"
    );
}

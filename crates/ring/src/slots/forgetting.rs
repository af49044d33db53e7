//! Clients that slots remember: finds a place for one more, and forgets those that were silent for long. That
//! happens some at a time, through the log of their slot, because without writes nothing else would do it.
//!
//! Invariant: which clients are forgotten follows from the log entry, including its date, and not from when a
//! node looks.

use super::expiring::unreadable;
use super::{Home, Slots, next};
use crate::clock::Now;
use crate::keyspaces::slot_at;
use crate::shares::{Client, Shares};
use atoll_errors::ErrorKind;
use atoll_keyspace::{KeyspaceError, Looked};
use atoll_replica::{Slot, Ticket};
use atoll_resp::Protocol;

/// Slots of a keyspace that are searched in one tick, and clients of each that are forgotten at once.
/// Together they take a few milliseconds, and a slot that remembers as many as it may is empty after half a
/// minute.
const SLOTS_MAX: usize = 8;
const FORGOTTEN_MAX: u64 = 256;

impl Home {
    fn remembers(&self, (slot, client): Client) -> bool {
        let (keyspace, number) = self.keyspaces().of(slot);
        keyspace.remembers(number, client)
    }
}

impl Slots {
    /// Takes a place in a slot for a named write of this user's client, which has this ticket. A client that
    /// the slot remembers has a place already.
    #[inline]
    pub(crate) fn has_place(&mut self, slot: Slot, client: u128, user: &str, ticket: Ticket) -> bool {
        let (keyspace, number) = self.home.keyspaces().of(slot);
        let remembered = keyspace.sessions_in(number);
        !Shares::are_counted(remembered)
            || keyspace.remembers(number, client)
            || self
                .shares
                .take((slot, client), ticket, user, remembered, |client| self.home.remembers(client))
    }

    /// Reports that a write was answered.
    #[inline]
    pub(super) fn answered(&mut self, ticket: Ticket) {
        self.shares.answered(ticket, |client| self.home.remembers(client));
    }

    /// Checks for some counted places whether their clients are still remembered.
    pub(super) fn look_at_places(&mut self) {
        self.shares.look(|client| self.home.remembers(client));
    }

    /// Forgets some clients of these slots that were silent for long. Slots in which this is under way are
    /// left out; if it is refused, for lack of copies or of room, a later tick tries again.
    pub(crate) fn forget_some(&mut self, now: Now, held: impl Fn(Slot) -> bool) -> Result<(), KeyspaceError> {
        for place in (0..=u8::MAX).take(self.home.keyspaces().count()) {
            let under_way = self.expiring();
            let held = |number| {
                let slot = slot_at(place, number);
                held(slot) && !under_way.contains(&slot)
            };
            let Some(keyspace) = self.home.keyspaces_mut().get_mut(place) else { break };
            let Looked { found, failed } = keyspace.remembering(now.date_ms, SLOTS_MAX, held);
            if let Some((number, error)) = failed {
                unreadable(slot_at(place, number), &error);
            }
            for slot in found.into_iter().map(|number| slot_at(place, number)) {
                match self.forget_clients(slot, now) {
                    Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                    Err(error) if !error.is_unknown() => self.set_aside(slot, now, &error),
                    forgotten => forgotten?,
                }
            }
        }
        Ok(())
    }

    fn forget_clients(&mut self, slot: Slot, now: Now) -> Result<(), KeyspaceError> {
        let keyspaces = match &mut self.home {
            Home::Alone(keyspaces) => keyspaces,
            Home::Replicated(replicated) => {
                replicated.forget_clients(slot, now, FORGOTTEN_MAX);
                return Ok(());
            }
        };
        let (next, mut count) = (next(keyspaces, slot), Vec::new());
        self.unsettled.note(keyspaces.class_of(slot));
        let (keyspace, number) = keyspaces.of_mut(slot);
        keyspace.apply_forgetting(number, next, now.date_ms, FORGOTTEN_MAX, Protocol::Resp2, &mut count)
    }
}

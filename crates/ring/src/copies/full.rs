//! A copy whose disk is full: it logs and applies nothing, shows this by not answering, and tries again.
//!
//! To the other nodes it looks like a copy with a slow disk, so the configuration group may dismiss it. It
//! goes on reading, promising and sending what it has, because moving slots elsewhere is what helps.
//!
//! Invariant: what was decided is done in order once there is room, or in the next incarnation. Nothing is
//! left out.
//! Invariant: a slot is not read while an entry that it should hold is not applied.
//! Invariant: meanwhile nothing new is accepted, from clients or from other nodes. Only what was under way
//! waits.

use super::{Copies, Waiting};
use crate::NodeError;
use crate::clock::Now;
use atoll_errors::ErrorKind;
use atoll_keyspace::{Applied, MovedCells};
use atoll_replica::{Entry, Input, Message, Moment, Position, Slot, SlotMessage, Ticket, Version};
use std::collections::{BTreeMap, VecDeque};

/// What waits for room on the disk.
#[derive(Default)]
pub(super) struct Full {
    tried_at: Option<Moment>,
    /// Entries to be applied, in order.
    applies: BTreeMap<Slot, VecDeque<(Entry, Option<Ticket>)>>,
    /// A slot that arrived whole. The slot's entries are out of the log already.
    pub(super) arrived: Option<Arrived>,
}

/// The cells of a slot.
pub(super) struct Arrived {
    pub(super) slot: Slot,
    /// The branch of the slot that they belong to.
    pub(super) branch: Version,
    pub(super) position: Position,
    pub(super) time_ms: u64,
    pub(super) cells: MovedCells,
}

/// How often writing is retried, in microseconds.
const TRY_EACH_US: u64 = 200_000;

impl Full {
    /// Whether the cells of a slot lack entries that they should hold.
    pub(super) fn lacks_applied(&self, slot: Slot) -> bool {
        self.applies.contains_key(&slot)
    }

    /// Queues an entry to be applied later.
    pub(super) fn put_off(&mut self, slot: Slot, entry: &Entry, ticket: Option<Ticket>) {
        self.applies.entry(slot).or_default().push_back((entry.clone(), ticket));
    }

    /// Forgets slots of which this node has no copy any more. Returns the tickets that wait for their
    /// entries.
    pub(super) fn forget(&mut self, slots: &[Slot]) -> Vec<Ticket> {
        self.arrived.take_if(|arrived| slots.contains(&arrived.slot));
        let gone = slots.iter().filter_map(|slot| self.applies.remove(slot)).flatten();
        gone.filter_map(|(_, ticket)| ticket).collect()
    }
}

impl Copies {
    /// Whether the last write found the disk full.
    pub(crate) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether a read would find less than its slot should hold.
    pub(super) fn waits_for_room(&self, ticket: Ticket) -> bool {
        match self.waiting.get(ticket) {
            Some(Waiting::Read { slot, .. } | Waiting::Watch { slot, .. }) => self.lacks_cells(*slot),
            _ => false,
        }
    }

    /// Passes on errors other than a full disk. Returns false if the disk is full, and the work has to be
    /// retried.
    pub(super) fn unless_full(&mut self, done: Result<(), NodeError>) -> Result<bool, NodeError> {
        match done {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                tracing::error!(%error, "the disk is full: copies on this node accept nothing until there is room");
                self.full.get_or_insert_default();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a message carries entries that cannot be logged. It is dropped as if lost: a copy that
    /// answered questions about its log would be taken for one that follows, and waited for.
    pub(super) fn is_beyond_room(&self, message: &Message) -> bool {
        let is_entries = matches!(message, Message::Slot { about: SlotMessage::Append { .. }, .. });
        is_entries && self.is_full()
    }

    /// Retries what could not be done, if it is time.
    pub(crate) fn try_again(&mut self, now: Now) -> Result<(), NodeError> {
        let is_due = |full: &mut Full| match full.tried_at {
            Some(at) if now.moment < at.after(TRY_EACH_US) => false,
            _ => full.tried_at.replace(now.moment).is_some(),
        };
        if !self.full.as_mut().is_some_and(is_due) {
            return Ok(());
        }
        let Some(mut full) = self.full.take() else { return Ok(()) };
        if let Some(arrived) = full.arrived.take() {
            return self.try_to_install(now, full, arrived);
        }
        let done = self.write_what_waits().and_then(|()| self.apply_what_waits(&mut full));
        match done {
            Ok(()) => tracing::info!("the disk has room again, and copies on this node accept writes"),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => self.full = Some(full),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Puts a slot that arrived whole in place and tells the replica at once: nothing may happen to the slot
    /// between the two. Other waiting work is left for the next try.
    fn try_to_install(&mut self, now: Now, full: Full, arrived: Arrived) -> Result<(), NodeError> {
        let Arrived { slot, branch, position, time_ms, .. } = arrived;
        // The slot may have gone on in another way meanwhile.
        let is_of_this_branch = self.replica.table().slot(slot).branch == branch;
        let is_wanted = is_of_this_branch && self.replica.would_install(slot, position);
        let mut done = self.write_what_waits();
        if done.is_ok() && is_wanted {
            done = self.install(&arrived);
        }
        let full = self.full.insert(full);
        match done {
            Ok(()) if is_wanted => self.step(now, Input::Installed { slot, position, time_ms }),
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                full.arrived = Some(arrived);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn write_what_waits(&mut self) -> Result<(), NodeError> {
        if let Some(log) = &mut self.log {
            log.write()?;
        }
        self.clear_forgotten()
    }

    fn apply_what_waits(&mut self, full: &mut Full) -> Result<(), NodeError> {
        while let Some(mut of_slot) = full.applies.first_entry() {
            let slot = *of_slot.key();
            let Some((entry, ticket)) = of_slot.get_mut().front().cloned() else {
                of_slot.remove();
                continue;
            };
            self.apply(slot, &entry, ticket)?;
            if let Some(waiting) = full.applies.get_mut(&slot) {
                waiting.pop_front();
            }
        }
        Ok(())
    }

    /// Replaces what a slot holds with these cells.
    pub(super) fn install(&mut self, arrived: &Arrived) -> Result<(), NodeError> {
        let Arrived { slot, position, time_ms, ref cells, .. } = *arrived;
        let applied = Applied { epoch: position.epoch.0, sequence: position.sequence.0 };
        let (keyspace, number) = self.keyspaces.of_mut(slot);
        keyspace.install(number, applied, time_ms, cells)?;
        if self.log.is_some() {
            // The primary learns that the slot is here once it is as durable as entries are.
            self.handed.push((slot, position, self.replica.log_run(slot)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_replica::{Epoch, Sequence};

    #[test]
    fn who_waits_for_what_goes_with_its_slot_is_named_to_be_answered() {
        let mut full = Full::default();
        let at = |sequence| Position { epoch: Epoch(1), sequence: Sequence(sequence) };
        let entry = |sequence| Entry { position: at(sequence), time_ms: 5, body: [1, 2].into() };
        full.put_off(Slot(3), &entry(1), Some(Ticket(7)));
        full.put_off(Slot(3), &entry(2), None);
        full.put_off(Slot(3), &entry(3), Some(Ticket(8)));
        full.put_off(Slot(4), &entry(1), Some(Ticket(9)));
        let (branch, position, cells) = (Version(1), at(1), Vec::new());
        full.arrived = Some(Arrived { slot: Slot(3), branch, position, time_ms: 5, cells });
        assert_eq!(full.forget(&[Slot(3), Slot(5)]), [Ticket(7), Ticket(8)]);
        assert!(full.arrived.is_none() && !full.lacks_applied(Slot(3)) && full.lacks_applied(Slot(4)));
    }
}

//! What a copy does whose disk is full: it logs and applies nothing more, says so by its silence, and tries again.
//!
//! To the others it is a copy whose disk is slow, so that the configuration group may dismiss it. It goes on to read, to
//! promise and to send what it has: to move slots elsewhere is what helps.
//!
//! Invariant: what was decided is done in its order once there is room, or with the next life: nothing is left out.
//! Invariant: a slot is not read while something that it should hold is not applied.
//! Invariant: nothing is taken meanwhile, neither of clients nor of other nodes: what waits is what was under way.

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
    /// Entries to be applied, in their order.
    applies: BTreeMap<Slot, VecDeque<(Entry, Option<Ticket>)>>,
    /// Cells that came whole; their slot's entries are out of the log already.
    pub(super) arrived: Option<Arrived>,
    /// Cells that are in place by now, which the copy does not know yet.
    installed: Option<(Slot, Position, u64)>,
}

/// The cells of a slot.
pub(super) struct Arrived {
    pub(super) slot: Slot,
    /// Of which branch of the slot they are.
    pub(super) branch: Version,
    pub(super) position: Position,
    pub(super) time_ms: u64,
    pub(super) cells: MovedCells,
}

/// How often it is tried whether there is room again.
const TRY_EACH_US: u64 = 200_000;

impl Full {
    /// Whether the cells of a slot lack what they should hold.
    pub(super) fn lacks_applied(&self, slot: Slot) -> bool {
        self.applies.contains_key(&slot)
    }

    /// An entry is applied later.
    pub(super) fn put_off(&mut self, slot: Slot, entry: &Entry, ticket: Option<Ticket>) {
        self.applies.entry(slot).or_default().push_back((entry.clone(), ticket));
    }

    /// This node has no copy of these slots any more.
    pub(super) fn forget(&mut self, slots: &[Slot]) {
        slots.iter().for_each(|slot| drop(self.applies.remove(slot)));
        self.arrived.take_if(|arrived| slots.contains(&arrived.slot));
    }
}

impl Copies {
    /// Whether the disk was full when something was written last.
    pub(crate) fn is_full(&self) -> bool {
        self.full.is_some()
    }

    /// Whether a read would find less than its slot should hold.
    pub(super) fn waits_for_room(&self, ticket: Ticket) -> bool {
        let Some(full) = &self.full else { return false };
        match self.waiting.get(ticket) {
            Some(Waiting::Read { slot, .. } | Waiting::Watch { slot, .. }) => full.lacks_applied(*slot),
            _ => false,
        }
    }

    /// Whether something was done; if only the disk is full, it has to be tried again.
    pub(super) fn unless_full(&mut self, done: Result<(), NodeError>) -> Result<bool, NodeError> {
        match done {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                tracing::error!(%error, "the disk is full: copies of this node take nothing until there is room");
                self.full.get_or_insert_default();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a message is about what cannot be logged: it is lost, as one that never came. Who answered a question about its log
    /// would be taken for one that follows, and waited for.
    pub(super) fn is_beyond_room(&self, message: &Message) -> bool {
        let is_entries = matches!(message, Message::Slot { about: SlotMessage::Append { .. }, .. });
        is_entries && self.is_full()
    }

    /// Tries to do what could not be done, if it is time.
    pub(crate) fn try_again(&mut self, now: Now) -> Result<(), NodeError> {
        let is_due = |full: &mut Full| match full.tried_at {
            Some(at) if now.moment < at.after(TRY_EACH_US) => false,
            _ => full.tried_at.replace(now.moment).is_some(),
        };
        if !self.full.as_mut().is_some_and(is_due) {
            return Ok(());
        }
        let Some(mut full) = self.full.take() else { return Ok(()) };
        match self.do_what_waits(&mut full) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                self.full = Some(full);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        tracing::info!("the disk has room again, and copies of this node take what comes");
        match full.installed {
            Some((slot, position, time_ms)) => self.step(now, Input::Installed { slot, position, time_ms }),
            None => Ok(()),
        }
    }

    fn do_what_waits(&mut self, full: &mut Full) -> Result<(), NodeError> {
        if let Some(log) = &mut self.log {
            log.write()?;
        }
        self.clear_forgotten()?;
        if let Some(arrived) = &full.arrived {
            let Arrived { slot, branch, position, time_ms, .. } = *arrived;
            // The slot may have gone on otherwise meanwhile.
            let is_of_this_branch = self.replica.table().slot(slot).branch == branch;
            if is_of_this_branch && self.replica.would_install(slot, position) {
                self.install(arrived)?;
                full.installed = Some((slot, position, time_ms));
            }
            full.arrived = None;
        }
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

    /// Puts cells in place of what a slot holds.
    pub(super) fn install(&mut self, arrived: &Arrived) -> Result<(), NodeError> {
        let Arrived { slot, position, time_ms, ref cells, .. } = *arrived;
        let applied = Applied { epoch: position.epoch.0, sequence: position.sequence.0 };
        let (keyspace, number) = self.keyspaces.of_mut(slot);
        keyspace.install(number, applied, time_ms, cells)?;
        if self.log.is_some() {
            // The primary is told that all of this is here once it is as durable as entries are.
            self.handed.push((slot, position));
        }
        Ok(())
    }
}

//! A slot that is too long to be gathered: its old cells are deleted first, and the new ones are written
//! piece by piece where they stay.
//!
//! Meanwhile the copy has nothing, and says so. Nobody may count on it: it is not in sync, and given the
//! reason for which its primary sends cells, it never claimed in this epoch to have what they hold
//! (docs/decisions/0029-handing-over.md).
//!
//! Invariant: the slot's log is deleted before its cells, so that after a crash no entry is found behind
//! cells that are gone.
//! Invariant: while some cells of a slot are in place, nothing is done with it except adding more. Anything
//! else drops those cells first.
//! Invariant: a slot that was begun and abandoned is emptied, also when the keyspace is opened again.

use super::Copies;
use super::arrivals::bytes_of;
use crate::NodeError;
use crate::clock::Now;
use crate::log::SlotLog;
use crate::room;
use atoll_keyspace::{Applied, MovedCells};
use atoll_replica::{Effect, Input, NodeId, Position, Slot};

/// Most gathered cells that are written in one batch, and most bytes of a batch, unless one cell is longer.
const BATCH_CELLS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 1 << 20;

impl Copies {
    /// Writes cells of a slot behind those in place. The first call replaces everything that was there. No
    /// abandoned cells of the slot may be left to be emptied.
    pub(super) fn put_in_place(
        &mut self,
        (now, from): (Now, NodeId),
        (slot, position, time_ms): (Slot, Position, u64),
        cells: &MovedCells,
        is_last: bool,
    ) -> Result<(), NodeError> {
        let is_begun = self.moves.arrivals.is_in_place(slot);
        // The primary may have changed since the first piece.
        let is_wanted = || self.is_wanted(from, slot, position) && self.replica.would_import(slot, position);
        if !is_begun && !is_wanted() {
            self.moves.arrivals.drop(slot);
            return Ok(());
        }
        if !self.has_room_to_copy(cells) {
            // Give up before the disk is full: all copies of this node would suffer for this one.
            self.moves.arrivals.give_up(slot, now.moment);
            self.clear_unfinished()?;
            if is_begun {
                // The next attempt may find room where these cells, and those before them, were.
                self.keyspaces.engine().ask_for_checkpoint();
            }
            return Ok(());
        }
        if !is_begun {
            let done = self.empty(slot);
            let done = self.unless_full(done)?;
            if !done {
                self.moves.arrivals.give_up(slot, now.moment);
            }
            // Also if emptying failed, which then comes next: its log is gone either way.
            self.step(now, Input::Emptied { slot })?;
            if !self.moves.arrivals.is_in_place(slot) {
                return Ok(());
            }
        }
        let done = self.write_cells(slot, position, time_ms, cells, is_last);
        if !self.unless_full(done)? {
            self.moves.arrivals.give_up(slot, now.moment);
            return Ok(());
        }
        if !is_last {
            return Ok(());
        }
        self.moves.arrivals.finish(slot);
        if self.log.is_some() {
            // As for a slot that came whole.
            self.handed.push((slot, position, self.replica.log_run(slot)));
        }
        self.step(now, Input::Installed { slot, position, time_ms })
    }

    /// Whether the disk has room for cells of another node, beside what is kept free.
    pub(super) fn has_room_to_copy(&self, cells: &MovedCells) -> bool {
        room::has_room_to_copy(self.keyspaces.engine(), bytes_of(cells) as u64)
    }

    fn empty(&mut self, slot: Slot) -> Result<(), NodeError> {
        self.moves.arrivals.begin_in_place(slot);
        self.moves.outgoing.forget(&[slot]);
        self.handed.retain(|(handed, ..)| *handed != slot);
        if let Some(log) = &mut self.log {
            log.forget(&[slot]);
        }
        self.log.as_mut().map_or(Ok(()), SlotLog::write)?;
        let (keyspace, number) = self.keyspaces.of_mut(slot);
        Ok(keyspace.begin_import(number)?)
    }

    fn write_cells(
        &mut self,
        slot: Slot,
        position: Position,
        time_ms: u64,
        cells: &MovedCells,
        is_last: bool,
    ) -> Result<(), NodeError> {
        let (keyspace, number) = self.keyspaces.of_mut(slot);
        let mut rest = &cells[..];
        while !rest.is_empty() {
            let (together, behind) = rest.split_at(count_together(rest));
            keyspace.import(number, together)?;
            rest = behind;
        }
        if is_last {
            let applied = Applied { epoch: position.epoch.0, sequence: position.sequence.0 };
            keyspace.end_import(number, applied, time_ms)?;
        }
        Ok(())
    }

    /// Drops cells in place that are not wanted any more, before the cause of that has other effects.
    pub(super) fn end_overtaken(&mut self) -> Result<(), NodeError> {
        let Self { moves, replica, .. } = self;
        moves.arrivals.retain_in_place(|from, slot, (branch, position)| {
            let configuration = replica.table().slot(slot);
            configuration.primary == Some(from)
                && configuration.branch == branch
                && replica.would_import(slot, position)
        });
        self.clear_unfinished()
    }

    /// Drops cells in place before a late entry is logged or applied. Such an entry starts the slot from
    /// nothing, and must not follow some cells of a later moment.
    pub(super) fn end_before(&mut self, effect: &Effect) -> Result<(), NodeError> {
        let (Effect::Log { slot, .. } | Effect::Apply { slot, .. }) = effect else { return Ok(()) };
        if !self.moves.arrivals.is_in_place(*slot) {
            return Ok(());
        }
        self.moves.arrivals.drop(*slot);
        self.clear_unfinished()
    }

    /// Empties abandoned slots that have some cells in place.
    pub(super) fn clear_unfinished(&mut self) -> Result<(), NodeError> {
        let slots = self.moves.arrivals.take_unfinished();
        if slots.is_empty() {
            return Ok(());
        }
        self.moves.uncleared.extend(slots);
        if !self.is_full() {
            let done = self.clear_forgotten();
            self.unless_full(done)?;
        }
        Ok(())
    }

    /// Whether the cells of a slot differ from what it should hold: an entry is not applied, or cells are not
    /// emptied yet, because the disk is full, or cells are still coming in place.
    pub(super) fn lacks_cells(&self, slot: Slot) -> bool {
        self.full.as_ref().is_some_and(|full| full.lacks_applied(slot))
            || self.moves.uncleared.contains(&slot)
            || self.moves.arrivals.is_in_place(slot)
    }

    /// How many slots that came were too long to be gathered.
    pub(crate) fn long_arrivals(&self) -> u64 {
        self.moves.arrivals.long()
    }
}

/// How many of the first cells go into one batch: at least one.
fn count_together(cells: &[(Vec<u8>, Vec<u8>)]) -> usize {
    let mut bytes = 0;
    let is_within = |(name, value): &&(Vec<u8>, Vec<u8>)| {
        bytes += name.len() + value.len();
        bytes <= BATCH_BYTES_MAX
    };
    cells.iter().take(BATCH_CELLS_MAX).take_while(is_within).count().max(1).min(cells.len())
}

#[cfg(test)]
mod tests;

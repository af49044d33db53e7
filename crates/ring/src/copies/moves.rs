//! Transfers of slots: cells that go to nodes that have to catch up, and cells that come from their
//! primaries.
//!
//! An outgoing slot is sent as of one moment, in pieces, as fast as the connection takes them. An incoming
//! slot is gathered and replaces the old one in one step if it is not too large; a long slot comes
//! [in place](super::in_place).
//!
//! Invariant: a slot that cannot be read here is not sent for a while; the node goes on.
//! Invariant: a slot holds the cells of one moment, never a mixture of two.
//! Invariant: what is under way takes bounded memory, at both ends.

use super::Copies;
use super::arrivals::{Arrivals, GatheringRoom, PieceOutcome};
use super::full::Arrived;
use super::queue::{Begun, Outgoing, Queue};
use super::refusals;
use crate::NodeError;
use crate::clock::Now;
use crate::keyspaces::{keyspace_of, number_of_slot};
use crate::log::SlotLog;
use crate::options::Persistence;
use crate::peer::Piece;
use atoll_keyspace::is_moved;
use atoll_replica::{Input, Message, NodeId, Position, Replica, Slot, SlotMessage, Version};
use std::collections::BTreeMap;

/// Slots under way.
pub(super) struct Moves {
    /// A transfer that is asked for again while it is under way ends first; a node that still lacks something
    /// asks again.
    pub(super) outgoing: Queue,
    pub(super) arrivals: Arrivals,
    /// Slots of which this node has no copy any more, and those of them whose cells are still there.
    pub(super) forgotten: Vec<Slot>,
    pub(super) uncleared: Vec<Slot>,
    /// The branches that copies are of from now on, still to be recorded.
    pub(super) branches: BTreeMap<Slot, Version>,
}

/// Size of a piece, in bytes, unless one cell is longer.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of the pieces made in one round of the loop. Clients wait meanwhile.
const ROUND_BYTES: usize = 256 << 10;

/// Cost of a piece by itself, in bytes: a round makes at most 64 pieces.
const PIECE_COST_BYTES: usize = 4 << 10;

/// No more pieces are made for a node while more than this waits to be sent to it.
const WAITING_BYTES_MAX: usize = 4 << 20;

impl Moves {
    pub(super) fn with_room(room: GatheringRoom) -> Self {
        Self {
            outgoing: Queue::default(),
            arrivals: Arrivals::with_room(room),
            forgotten: Vec::new(),
            uncleared: Vec::new(),
            branches: BTreeMap::new(),
        }
    }
}

impl Copies {
    /// Sends as many pieces as the connections and the budget of a round allow. Returns whether more could be
    /// made at once.
    pub(crate) fn send_pieces(&mut self, now: Now) -> Result<bool, NodeError> {
        let outgoing = self.moves.outgoing.take();
        let (mut began, mut ended, mut left, mut room) = (Vec::new(), Vec::new(), Vec::new(), ROUND_BYTES);
        for mut one in outgoing {
            let waited = one.begun.is_none();
            let is_over = self.send_some(now, &mut one, &mut room);
            if let Some(begun) = one.begun.as_ref().filter(|_| waited) {
                began.push(Input::TransferBegan { slot: one.slot, to: one.to, position: begun.position });
            }
            if is_over {
                ended.push((one.slot, one.to));
            } else {
                left.push(one);
            }
        }
        let has_more = room == 0 && !left.is_empty();
        self.moves.outgoing.put_back(left, &ended);
        for input in began {
            self.step(now, input)?;
        }
        for (slot, to) in ended {
            self.step(now, Input::TransferEnded { slot, to })?;
        }
        Ok(has_more)
    }

    /// Sends some pieces. Returns whether the transfer is over: all is sent, or the node is unreachable or
    /// does not need it any more.
    fn send_some(&mut self, now: Now, outgoing: &mut Outgoing, room: &mut usize) -> bool {
        loop {
            match self.peers.waiting_bytes(outgoing.to) {
                None => return true,
                Some(waiting) if waiting > WAITING_BYTES_MAX || *room == 0 => return false,
                Some(_) => {}
            }
            let (slot, to) = (outgoing.slot, outgoing.to);
            let branch = self.replica.table().slot(slot).branch;
            let is_given_up = outgoing.begun.as_ref().is_some_and(|begun| begun.branch != branch);
            if is_given_up || !self.replica.needs_cells(slot, to) {
                return true;
            }
            if outgoing.begun.is_none() && self.lacks_cells(slot) {
                // The cells hold less than their position says.
                return false;
            }
            let Some(piece) = self.next_piece(now, outgoing) else { return true };
            let bytes: usize = piece.cells.iter().map(|(name, value)| name.len() + value.len()).sum();
            *room = room.saturating_sub(PIECE_COST_BYTES + bytes);
            if !self.peers.send_piece(to, &piece) || piece.is_last {
                return true;
            }
        }
    }

    /// The next piece of a slot; none if the slot cannot be read, and then it is not tried again for a while.
    pub(super) fn next_piece(&mut self, now: Now, outgoing: &mut Outgoing) -> Option<Piece> {
        let Outgoing { slot, ref mut begun, .. } = *outgoing;
        let begun = begun.get_or_insert_with(|| {
            let (keyspace, number) = self.keyspaces.of(slot);
            let position = super::applied_position(&self.keyspaces, slot);
            let branch = self.replica.table().slot(slot).branch;
            let (time_ms, cells) = (keyspace.time_ms(number), keyspace.exporter(number));
            Begun { branch, position, time_ms, number: 0, cells }
        });
        let (cells, is_last) = match begun.cells.next(PIECE_BYTES) {
            Ok(next) => next,
            Err(error) => {
                self.moves.outgoing.rest(slot, now.moment);
                tracing::warn!(slot = slot.0, %error, "a slot cannot be copied to another node while it cannot be read here; the copy is tried again");
                return None;
            }
        };
        let Begun { branch, position, time_ms, number, .. } = *begun;
        begun.number += 1;
        Some(Piece { slot, branch, position, time_ms, number, is_last, cells })
    }

    /// Takes a piece of a slot. The last piece completes the slot.
    pub(super) fn take_piece(&mut self, now: Now, from: NodeId, piece: Piece) -> Result<(), NodeError> {
        let taken = self.take_some(now, from, piece);
        taken.and_then(|()| self.clear_unfinished())
    }

    fn take_some(&mut self, now: Now, from: NodeId, piece: Piece) -> Result<(), NodeError> {
        let Piece { slot, position, time_ms, number, .. } = piece;
        if self.is_full() {
            self.moves.arrivals.give_up(slot, now.moment);
            return Ok(());
        }
        // Cells of a branch that was given up must not replace those of the current one.
        let branch = self.replica.table().slot(slot).branch;
        if piece.branch != branch {
            // The piece was made before a loss was accepted, or after one that this node does not know of
            // yet. In the second case the slot is asked for again.
            if self.moves.arrivals.is_from(slot, from) {
                self.moves.arrivals.drop(slot);
            }
            return Ok(());
        }
        if number == 0 {
            let is_wanted =
                self.is_wanted(from, slot, position) && !self.moves.arrivals.rests(slot, now.moment);
            match is_wanted {
                true => self.moves.arrivals.begin(slot, from, (branch, position)),
                // The sender starts over, so the earlier pieces will not be continued.
                false if self.moves.arrivals.is_from(slot, from) => self.moves.arrivals.drop(slot),
                false => {}
            }
            if !is_wanted {
                return Ok(());
            }
            // Abandoned cells are emptied first, and not together with the ones that come.
            self.clear_unfinished()?;
            if self.is_full() || !self.has_room_to_copy(&piece.cells) {
                self.moves.arrivals.give_up(slot, now.moment);
                return Ok(());
            }
        }
        if !piece.cells.iter().all(|(name, _)| is_moved(name)) {
            tracing::warn!(%from, slot = slot.0, "invalid cells of a node were not accepted");
            self.moves.arrivals.drop(slot);
            return Ok(());
        }
        if !self.moves.arrivals.has_room(slot, &piece.cells) {
            self.drop_overtaken();
        }
        let cells = match self.moves.arrivals.take(from, branch, piece) {
            PieceOutcome::Nothing => return Ok(()),
            PieceOutcome::Part { cells, is_last } => {
                return self.put_in_place((now, from), (slot, position, time_ms), &cells, is_last);
            }
            PieceOutcome::Whole(cells) => cells,
        };
        if !self.replica.would_install(slot, position) {
            return Ok(());
        }
        if let Some(log) = &mut self.log {
            log.forget(&[slot]);
        }
        let arrived = Arrived { slot, branch, position, time_ms, cells };
        let done = self.log.as_mut().map_or(Ok(()), SlotLog::write);
        let done = done.map_err(NodeError::from).and_then(|()| self.install(&arrived));
        if self.unless_full(done)? {
            return self.step(now, Input::Installed { slot, position, time_ms });
        }
        if let Some(full) = &mut self.full {
            full.arrived = Some(arrived);
        }
        Ok(())
    }

    /// Drops slots that will not be continued, or that this node has by other means.
    fn drop_overtaken(&mut self) {
        let Self { moves, replica, .. } = self;
        moves.arrivals.retain(|from, slot, (_, position)| is_wanted(replica, from, slot, position));
    }

    /// Whether a node may send the cells of a slot: only the primary may, and only to a copy that lacks them.
    pub(super) fn is_wanted(&self, from: NodeId, slot: Slot, position: Position) -> bool {
        is_wanted(&self.replica, from, slot, position)
    }

    /// How often a slot was given up because the disk had no room for it.
    pub(crate) fn given_up(&self) -> u64 {
        self.moves.arrivals.given_up()
    }

    /// Forgets slots of which this node has no copy any more. All slots that a table takes away are forgotten
    /// together: one by one, clients would wait for as many commits.
    pub(super) fn forget(&mut self) -> Result<(), NodeError> {
        let slots = std::mem::take(&mut self.moves.forgotten);
        if slots.is_empty() {
            return Ok(());
        }
        slots.iter().for_each(|&slot| self.moves.arrivals.forget(slot));
        self.moves.outgoing.forget(&slots);
        // A later copy of the same slot must not be told that these entries are logged.
        self.handed.retain(|(slot, ..)| !slots.contains(slot));
        let unanswered = self.full.as_mut().map(|full| full.forget(&slots)).unwrap_or_default();
        unanswered.into_iter().for_each(|ticket| self.answer(ticket, refusals::unknown));
        if let Some(log) = &mut self.log {
            log.forget(&slots);
        }
        self.moves.uncleared.extend(slots);
        let unfinished = self.moves.arrivals.take_unfinished();
        self.moves.uncleared.extend(unfinished);
        if !self.is_full() {
            let done = self.log.as_mut().map_or(Ok(()), SlotLog::write);
            let done = done.map_err(NodeError::from).and_then(|()| self.clear_forgotten());
            self.unless_full(done)?;
        }
        Ok(())
    }

    /// Records the branches of copies with the next write of the log, behind the commit that emptied what was
    /// of a former one: together with it, or while cells wait for room on the disk, a node that ends could
    /// find them again and take them for cells of the current branch.
    pub(super) fn record_branches(&mut self) {
        let Moves { forgotten, uncleared, branches, .. } = &mut self.moves;
        if branches.is_empty() || !forgotten.is_empty() || !uncleared.is_empty() {
            return;
        }
        for (slot, branch) in std::mem::take(branches) {
            if let Some(log) = &mut self.log {
                log.record_branch(slot, branch);
            }
        }
    }

    /// Sends a message. What a copy says of a slot that is to be forgotten is true once the slot is empty:
    /// until then, as while the disk is full, it counts as lost.
    pub(super) fn say(&mut self, to: NodeId, message: &Message) -> Result<(), NodeError> {
        let of_copy = match message {
            Message::Slot { slot, about, .. } => match about {
                SlotMessage::Appended { .. } | SlotMessage::Rejected { .. } => Some(slot),
                SlotMessage::Append { .. } => None,
            },
            _ => None,
        };
        if of_copy.is_some_and(|slot| self.moves.forgotten.contains(slot)) {
            self.forget()?;
        }
        if of_copy.is_none_or(|slot| !self.moves.uncleared.contains(slot)) {
            self.peers.say(to, message);
        }
        Ok(())
    }

    /// Empties the cells of slots that are out of the log already.
    ///
    /// This outlives the process before anything else is said, and where a node is relied on after a loss of
    /// power it is synced: an empty copy may come in sync without an entry, and must not have its former
    /// entries again.
    pub(super) fn clear_forgotten(&mut self) -> Result<(), NodeError> {
        let slots = &self.moves.uncleared;
        let is_relied_on = slots.iter().any(|&slot| self.keyspaces.class_of(slot) == Persistence::Always);
        for together in slots.chunk_by(|one, other| keyspace_of(*one) == keyspace_of(*other)) {
            let keyspace = together.first().and_then(|&slot| self.keyspaces.get_mut(keyspace_of(slot)));
            if let Some(keyspace) = keyspace {
                keyspace.clear(together.iter().copied().map(number_of_slot))?;
            }
        }
        self.moves.uncleared.clear();
        match &self.log {
            Some(log) if is_relied_on => Ok(log.sync()?),
            _ => Ok(()),
        }
    }
}

fn is_wanted(replica: &Replica, from: NodeId, slot: Slot, position: Position) -> bool {
    replica.table().slot(slot).primary == Some(from) && replica.would_install(slot, position)
}

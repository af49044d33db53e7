//! Cells of slots on their way to nodes that have to catch up, and from those that have them.
//!
//! What goes out is the state of one moment, in pieces, as fast as the connection takes them. What comes in is put together
//! and takes the place of what was there in one step.
//!
//! Invariant: a slot holds the cells of one moment, never some of one and some of another.
//! Invariant: what is on its way takes bounded memory, here and there.

use super::Copies;
use super::full::Arrived;
use super::queue::{Begun, Outgoing, Queue};
use crate::NodeError;
use crate::clock::Now;
use crate::keyspaces::{keyspace_of, number_of_slot};
use crate::log::SlotLog;
use crate::peer::Piece;
use atoll_keyspace::is_moved;
use atoll_replica::{Input, NodeId, Position, Slot, Version};
use std::collections::BTreeMap;

/// Slots on their way.
#[derive(Default)]
pub(super) struct Moves {
    /// What is asked for while some of it is on its way ends first, and whoever still lacks something asks again.
    pub(super) outgoing: Queue,
    incoming: BTreeMap<Slot, Incoming>,
    incoming_bytes: usize,
    /// Slots of which this node has no copy any more, and those of them whose cells are still there.
    pub(super) forgotten: Vec<Slot>,
    uncleared: Vec<Slot>,
}

struct Incoming {
    from: NodeId,
    /// Of which branch of the slot they are: what was given up meanwhile is not put in place of what goes on.
    branch: Version,
    position: Position,
    next: u32,
    cells: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

/// Bytes of a piece, if no cell is longer.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes of the pieces that are made in one round of the loop: clients wait meanwhile.
const ROUND_BYTES: usize = 256 << 10;

/// What a piece costs by itself, as bytes: a round makes no more than 64 of them.
const PIECE_COST_BYTES: usize = 4 << 10;

/// Pieces are made while no more than this waits to be sent.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// Cells that wait for the rest of their slots may take so much memory; a piece beyond it is not taken.
const INCOMING_BYTES_MAX: usize = 1 << 30;

impl Copies {
    /// Sends as many pieces as connections take, and as a round may make; whether more could be made at once.
    pub(crate) fn send_pieces(&mut self, now: Now) -> Result<bool, NodeError> {
        let outgoing = self.moves.outgoing.take();
        let (mut began, mut ended, mut left, mut room) = (Vec::new(), Vec::new(), Vec::new(), ROUND_BYTES);
        for mut one in outgoing {
            let waited = one.begun.is_none();
            let is_over = self.send_some(&mut one, &mut room)?;
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

    /// Whether this is over, all sent or nobody there.
    fn send_some(&mut self, outgoing: &mut Outgoing, room: &mut usize) -> Result<bool, NodeError> {
        loop {
            match self.peers.waiting_bytes(outgoing.to) {
                None => return Ok(true),
                Some(waiting) if waiting > WAITING_BYTES_MAX || *room == 0 => return Ok(false),
                Some(_) => {}
            }
            let Outgoing { slot, to, ref mut begun } = *outgoing;
            if begun.is_none() && self.full.as_ref().is_some_and(|full| full.lacks_applied(slot)) {
                // What it holds is less than what it is taken for.
                return Ok(false);
            }
            let begun = begun.get_or_insert_with(|| {
                let (keyspace, number) = self.keyspaces.of(slot);
                let position = super::applied_position(&self.keyspaces, slot);
                let (time_ms, cells) = (keyspace.time_ms(number), keyspace.exporter(number));
                Begun { position, time_ms, number: 0, cells }
            });
            let (cells, is_last) = begun.cells.next(PIECE_BYTES)?;
            let bytes: usize = cells.iter().map(|(name, value)| name.len() + value.len()).sum();
            *room = room.saturating_sub(PIECE_COST_BYTES + bytes);
            let Begun { position, time_ms, number, .. } = *begun;
            let piece = Piece { slot, position, time_ms, number, is_last, cells };
            begun.number += 1;
            if !self.peers.send_piece(to, &piece) || is_last {
                return Ok(true);
            }
        }
    }

    /// Takes a piece of a slot; with the last one the slot is what came.
    pub(super) fn take_piece(&mut self, now: Now, from: NodeId, piece: Piece) -> Result<(), NodeError> {
        let Piece { slot, position, time_ms, number, is_last, cells } = piece;
        if self.is_full() {
            self.drop_incoming(slot);
            return Ok(());
        }
        if number == 0 {
            if !self.is_wanted(from, slot, position) {
                return Ok(());
            }
            self.drop_incoming(slot);
            let branch = self.replica.table().slot(slot).branch;
            let incoming = Incoming { from, branch, position, next: 0, cells: Vec::new(), bytes: 0 };
            self.moves.incoming.insert(slot, incoming);
        }
        let Some(incoming) = self.moves.incoming.get_mut(&slot) else { return Ok(()) };
        let follows = (incoming.from, incoming.position, incoming.next) == (from, position, number);
        let bytes: usize = cells.iter().map(|(name, value)| name.len() + value.len() + CELL_BYTES).sum();
        let is_sound = cells.iter().all(|(name, _)| is_moved(name));
        if !is_sound {
            tracing::warn!(%from, slot = slot.0, "cells of a node that are none were not taken");
        }
        if !follows || !is_sound || self.moves.incoming_bytes + bytes > INCOMING_BYTES_MAX {
            self.drop_incoming(slot);
            return Ok(());
        }
        incoming.next += 1;
        incoming.bytes += bytes;
        incoming.cells.extend(cells);
        self.moves.incoming_bytes += bytes;
        if !is_last {
            return Ok(());
        }
        let (cells, branch) = (std::mem::take(&mut incoming.cells), incoming.branch);
        self.drop_incoming(slot);
        let is_of_this_branch = self.replica.table().slot(slot).branch == branch;
        if !is_of_this_branch || !self.replica.would_install(slot, position) {
            return Ok(());
        }
        if let Some(log) = &mut self.log {
            log.forget(&[slot]);
        }
        let arrived = Arrived { slot, position, time_ms, cells };
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

    /// Whether a slot's cells may come from there: only its primary sends them, and only to a copy that lacks them.
    fn is_wanted(&self, from: NodeId, slot: Slot, position: Position) -> bool {
        let leads = self.replica.table().slot(slot).primary == Some(from);
        leads && self.replica.would_install(slot, position)
    }

    fn drop_incoming(&mut self, slot: Slot) {
        if let Some(incoming) = self.moves.incoming.remove(&slot) {
            self.moves.incoming_bytes -= incoming.bytes;
        }
    }

    /// This node has no copy of these slots any more. A table that takes many from it has all of them forgotten at once: one
    /// after the other kept clients waiting for as long as that many commits take.
    pub(super) fn forget(&mut self) -> Result<(), NodeError> {
        let slots = std::mem::take(&mut self.moves.forgotten);
        if slots.is_empty() {
            return Ok(());
        }
        slots.iter().for_each(|&slot| self.drop_incoming(slot));
        self.moves.outgoing.forget(&slots);
        if let Some(full) = &mut self.full {
            full.forget(&slots);
        }
        if let Some(log) = &mut self.log {
            log.forget(&slots);
        }
        self.moves.uncleared.extend(slots);
        if !self.is_full() {
            let done = self.log.as_mut().map_or(Ok(()), SlotLog::write);
            let done = done.map_err(NodeError::from).and_then(|()| self.clear_forgotten());
            self.unless_full(done)?;
        }
        Ok(())
    }

    /// Empties the cells of slots that are out of the log already.
    pub(super) fn clear_forgotten(&mut self) -> Result<(), NodeError> {
        let slots = &self.moves.uncleared;
        for together in slots.chunk_by(|one, other| keyspace_of(*one) == keyspace_of(*other)) {
            let keyspace = together.first().and_then(|&slot| self.keyspaces.get_mut(keyspace_of(slot)));
            if let Some(keyspace) = keyspace {
                keyspace.clear(together.iter().copied().map(number_of_slot))?;
            }
        }
        self.moves.uncleared.clear();
        Ok(())
    }
}

/// What a cell takes beside its bytes, about.
const CELL_BYTES: usize = 48;

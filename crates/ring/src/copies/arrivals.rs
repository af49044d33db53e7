//! Cells of slots that come from other nodes in pieces, until all of a slot are there.
//!
//! Invariant: what is kept is the beginning of what one node sends of one moment.
//! Invariant: all of them together take bounded memory; a slot that is longer is not kept, and that is said.

use crate::peer::Piece;
use atoll_keyspace::MovedCells;
use atoll_replica::{NodeId, Position, Slot, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Slots of which some cells came.
pub(super) struct Arrivals {
    slots: BTreeMap<Slot, Arrival>,
    bytes: usize,
    bytes_max: usize,
    /// Slots of which it was said that they are too long.
    too_long: BTreeSet<Slot>,
    given_up: u64,
}

struct Arrival {
    from: NodeId,
    /// Of which branch of the slot its cells are.
    branch: Version,
    position: Position,
    next: u32,
    cells: MovedCells,
    bytes: usize,
}

/// Cells that wait for the rest of their slots may take so much memory; a piece beyond it is not taken.
const BYTES_MAX: usize = 1 << 30;

/// What a cell takes beside its bytes, about.
const CELL_BYTES: usize = 48;

impl Default for Arrivals {
    fn default() -> Self {
        Self::with_room(BYTES_MAX)
    }
}

impl Arrivals {
    fn with_room(bytes_max: usize) -> Self {
        let (slots, bytes, too_long, given_up) = Default::default();
        Self { slots, bytes, bytes_max, too_long, given_up }
    }

    /// Whether what came of a slot so far came from there.
    pub(super) fn is_from(&self, slot: Slot, from: NodeId) -> bool {
        self.slots.get(&slot).is_some_and(|arrival| arrival.from == from)
    }

    /// The first piece of a slot is to be taken; what came before is let go of.
    pub(super) fn begin(&mut self, slot: Slot, from: NodeId, (branch, position): (Version, Position)) {
        self.drop(slot);
        self.slots.insert(slot, Arrival { from, branch, position, next: 0, cells: Vec::new(), bytes: 0 });
    }

    /// Lets go of what came of a slot.
    pub(super) fn drop(&mut self, slot: Slot) {
        if let Some(arrival) = self.slots.remove(&slot) {
            self.bytes -= arrival.bytes;
        }
    }

    /// This node has no copy of a slot any more.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.drop(slot);
        self.too_long.remove(&slot);
    }

    /// Lets go of what is not wanted any more, by whom it is from.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(NodeId, Slot, Position) -> bool) {
        let is_over =
            |(slot, one): (&Slot, &Arrival)| (!is_wanted(one.from, *slot, one.position)).then_some(*slot);
        let over: Vec<_> = self.slots.iter().filter_map(is_over).collect();
        over.into_iter().for_each(|slot| self.drop(slot));
    }

    /// Whether there is room for the cells of a piece.
    pub(super) fn has_room(&self, cells: &MovedCells) -> bool {
        self.bytes + bytes_of(cells) <= self.bytes_max
    }

    /// Takes a piece that may follow those before, where the slot is of the same branch still; all cells of the slot if it was the
    /// last one.
    pub(super) fn take(&mut self, from: NodeId, branch: Version, piece: Piece) -> Option<MovedCells> {
        let Piece { slot, position, number, is_last, cells, .. } = piece;
        let has_room = self.has_room(&cells);
        let arrival = self.slots.get_mut(&slot)?;
        let follows = (arrival.from, arrival.position, arrival.next) == (from, position, number)
            && arrival.branch == branch;
        if !follows || !has_room {
            if follows {
                self.give_up(slot, from);
            }
            self.drop(slot);
            return None;
        }
        let bytes = bytes_of(&cells);
        arrival.next += 1;
        arrival.bytes += bytes;
        arrival.cells.extend(cells);
        self.bytes += bytes;
        if !is_last {
            return None;
        }
        let cells = std::mem::take(&mut arrival.cells);
        self.forget(slot);
        Some(cells)
    }

    /// How often a slot was given up because too much was on its way.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    fn give_up(&mut self, slot: Slot, from: NodeId) {
        self.given_up += 1;
        // It is asked for again without end.
        if self.too_long.insert(slot) {
            let (bytes, bytes_max) = (self.slots.get(&slot).map_or(0, |one| one.bytes), self.bytes_max);
            tracing::warn!(%from, slot = slot.0, bytes, bytes_max, "a slot cannot be copied to this node: more of it came than may wait; spread its keys over more slots");
        }
    }
}

fn bytes_of(cells: &MovedCells) -> usize {
    cells.iter().map(|(name, value)| name.len() + value.len() + CELL_BYTES).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_replica::{Epoch, Sequence};

    const BRANCH: Version = Version(4);
    const AT: Position = Position { epoch: Epoch(1), sequence: Sequence(7) };

    fn piece(slot: u32, number: u32, is_last: bool) -> Piece {
        Piece { slot: Slot(slot), position: AT, time_ms: 3, number, is_last, cells: cells(1) }
    }

    /// Each takes 200 bytes.
    fn cells(count: usize) -> MovedCells {
        vec![(vec![1; 52], vec![2; 100]); count]
    }

    #[test]
    fn a_slot_that_is_too_long_is_given_up_and_counted_and_leaves_the_room_to_others() {
        let mut arrivals = Arrivals::with_room(1000);
        for round in 1..=2 {
            arrivals.begin(Slot(1), NodeId(1), (BRANCH, AT));
            for number in 0..6 {
                assert!(arrivals.take(NodeId(1), BRANCH, piece(1, number, false)).is_none());
            }
            assert_eq!(arrivals.given_up(), round);
            assert_eq!(arrivals.bytes, 0);
        }
        arrivals.begin(Slot(2), NodeId(1), (BRANCH, AT));
        (0..4)
            .for_each(|number| assert!(arrivals.take(NodeId(1), BRANCH, piece(2, number, false)).is_none()));
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(2, 4, true)).map(|cells| cells.len()), Some(5));
        assert_eq!((arrivals.bytes, arrivals.slots.len()), (0, 0));
    }

    #[test]
    fn what_nobody_goes_on_with_leaves_its_room() {
        let mut arrivals = Arrivals::with_room(1000);
        for slot in 1..=2 {
            arrivals.begin(Slot(slot), NodeId(slot), (BRANCH, AT));
            (0..2).for_each(|number| drop(arrivals.take(NodeId(slot), BRANCH, piece(slot, number, false))));
        }
        assert!(!arrivals.has_room(&cells(2)));
        assert!(arrivals.is_from(Slot(2), NodeId(2)) && !arrivals.is_from(Slot(2), NodeId(1)));
        arrivals.retain(|from, _, _| from == NodeId(1));
        assert_eq!(arrivals.bytes, 400);
        assert!(arrivals.has_room(&cells(3)));
        // A piece that does not follow ends it, and is not a slot that is too long.
        assert!(arrivals.take(NodeId(1), BRANCH, piece(1, 5, false)).is_none());
        assert_eq!((arrivals.bytes, arrivals.given_up()), (0, 0));
    }

    #[test]
    fn pieces_of_a_slot_that_went_on_otherwise_since_its_first_one_are_not_taken() {
        let mut arrivals = Arrivals::with_room(1000);
        arrivals.begin(Slot(1), NodeId(1), (BRANCH, AT));
        assert!(arrivals.take(NodeId(1), BRANCH, piece(1, 0, false)).is_none());
        assert!(arrivals.take(NodeId(1), Version(5), piece(1, 1, true)).is_none());
        assert_eq!((arrivals.bytes, arrivals.given_up()), (0, 0));
    }
}

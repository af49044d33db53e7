//! Cells of slots that arrive from other nodes in pieces: gathered until a slot is complete, or passed on
//! early if they are too many.
//!
//! Invariant: what has been taken of a slot is a prefix of what one node sends, as of one moment.
//! Invariant: gathered cells take bounded memory, for each slot and in total.
//! Invariant: a slot with some cells in place stays `begun` until it is complete, or is reported once as
//! unfinished, so that it is emptied.

use crate::peer::Piece;
use atoll_keyspace::MovedCells;
use atoll_replica::{Moment, NodeId, Position, Slot, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Slots of which some pieces have arrived.
pub(super) struct Arrivals {
    slots: BTreeMap<Slot, Arrival>,
    /// Those of them with cells in place.
    begun: BTreeSet<Slot>,
    /// Those that had cells in place and are abandoned.
    unfinished: Vec<Slot>,
    /// Bytes gathered.
    bytes: usize,
    room: GatheringRoom,
    /// Slots that were given up for lack of room and have not come whole since, and until when they are not
    /// started again.
    without_room: BTreeMap<Slot, Moment>,
    given_up: u64,
    long: u64,
}

struct Arrival {
    from: NodeId,
    /// The branch of the slot that its cells belong to.
    branch: Version,
    position: Position,
    next: u32,
    cells: MovedCells,
    bytes: usize,
}

/// Limits for cells that wait in memory for the rest of their slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatheringRoom {
    pub(crate) slot_bytes_max: usize,
    pub(crate) bytes_max: usize,
}

/// What to do after a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PieceOutcome {
    /// Nothing: it waits for the rest, or was not taken.
    Nothing,
    /// All cells of the slot are here.
    Whole(MovedCells),
    /// These cells cannot wait: they go behind those in place, if any are.
    Part { cells: MovedCells, is_last: bool },
}

/// Overhead of a cell beside its bytes, roughly.
const CELL_BYTES: usize = 48;

/// How long a slot is not started again for which the disk had no room.
const REST_US: u64 = 60_000_000;

impl Default for GatheringRoom {
    fn default() -> Self {
        Self { slot_bytes_max: 64 << 20, bytes_max: 256 << 20 }
    }
}

impl Arrivals {
    pub(super) fn with_room(room: GatheringRoom) -> Self {
        Self {
            slots: BTreeMap::new(),
            begun: BTreeSet::new(),
            unfinished: Vec::new(),
            bytes: 0,
            room,
            without_room: BTreeMap::new(),
            given_up: 0,
            long: 0,
        }
    }

    /// Whether the pieces of a slot so far came from this node.
    pub(super) fn is_from(&self, slot: Slot, from: NodeId) -> bool {
        self.slots.get(&slot).is_some_and(|arrival| arrival.from == from)
    }

    /// Starts to take pieces of a slot. Earlier pieces are dropped.
    pub(super) fn begin(&mut self, slot: Slot, from: NodeId, (branch, position): (Version, Position)) {
        self.drop(slot);
        self.slots.insert(slot, Arrival { from, branch, position, next: 0, cells: Vec::new(), bytes: 0 });
    }

    /// Drops the pieces of a slot.
    pub(super) fn drop(&mut self, slot: Slot) {
        if let Some(arrival) = self.slots.remove(&slot) {
            self.bytes -= arrival.bytes;
        }
        if self.begun.remove(&slot) {
            self.unfinished.push(slot);
        }
    }

    /// Drops the pieces of a slot for which the disk has no room. It is sent again and again, and is refused
    /// for a while.
    pub(super) fn give_up(&mut self, slot: Slot, now: Moment) {
        let Some(from) = self.slots.get(&slot).map(|arrival| arrival.from) else { return };
        self.given_up += 1;
        if self.without_room.insert(slot, now.after(REST_US)).is_none() {
            tracing::warn!(%from, slot = slot.0, "a slot cannot be copied to this node while its disk has no room for it; the copy is tried again");
        }
        self.drop(slot);
    }

    /// Whether a slot was given up a short while ago.
    pub(super) fn rests(&self, slot: Slot, now: Moment) -> bool {
        self.without_room.get(&slot).is_some_and(|until| now < *until)
    }

    /// Forgets a slot of which this node has no copy any more.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.drop(slot);
        self.without_room.remove(&slot);
    }

    /// Drops the slots that are not wanted any more; the predicate gets the sender.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(NodeId, Slot, (Version, Position)) -> bool) {
        let is_over = |(slot, one): (&Slot, &Arrival)| {
            (!is_wanted(one.from, *slot, (one.branch, one.position))).then_some(*slot)
        };
        let over: Vec<_> = self.slots.iter().filter_map(is_over).collect();
        over.into_iter().for_each(|slot| self.drop(slot));
    }

    /// The same, only for slots with cells in place: called at every step, which is cheap because there are
    /// few.
    pub(super) fn retain_in_place(&mut self, is_wanted: impl Fn(NodeId, Slot, (Version, Position)) -> bool) {
        if self.begun.is_empty() {
            return;
        }
        let of = |slot: &Slot| self.slots.get(slot).map(|one| (one.from, *slot, (one.branch, one.position)));
        let is_over = |(from, slot, of_moment)| (!is_wanted(from, slot, of_moment)).then_some(slot);
        let over: Vec<_> = self.begun.iter().filter_map(of).filter_map(is_over).collect();
        over.into_iter().for_each(|slot| self.drop(slot));
    }

    /// Whether the cells of a piece may wait for the rest of their slot.
    pub(super) fn has_room(&self, slot: Slot, cells: &MovedCells) -> bool {
        let of_slot = self.slots.get(&slot).map_or(0, |arrival| arrival.bytes);
        let more = bytes_of(cells);
        of_slot + more <= self.room.slot_bytes_max && self.bytes + more <= self.room.bytes_max
    }

    /// Takes a piece if it follows the earlier ones and the slot is still on the same branch.
    pub(super) fn take(&mut self, from: NodeId, branch: Version, piece: Piece) -> PieceOutcome {
        let Piece { slot, position, number, is_last, cells, .. } = piece;
        let (has_room, is_begun) = (self.has_room(slot, &cells), self.begun.contains(&slot));
        let Some(arrival) = self.slots.get_mut(&slot) else { return PieceOutcome::Nothing };
        let follows = (arrival.from, arrival.position, arrival.next) == (from, position, number)
            && arrival.branch == branch;
        if !follows {
            self.drop(slot);
            return PieceOutcome::Nothing;
        }
        arrival.next += 1;
        if is_begun {
            return PieceOutcome::Part { cells, is_last };
        }
        if is_last || !has_room {
            self.bytes -= std::mem::take(&mut arrival.bytes);
            let mut gathered = std::mem::take(&mut arrival.cells);
            gathered.extend(cells);
            if has_room {
                self.finish(slot);
                return PieceOutcome::Whole(gathered);
            }
            return PieceOutcome::Part { cells: gathered, is_last };
        }
        let bytes = bytes_of(&cells);
        arrival.bytes += bytes;
        arrival.cells.extend(cells);
        self.bytes += bytes;
        PieceOutcome::Nothing
    }

    /// Marks that some cells of a slot are about to be put in place.
    pub(super) fn begin_in_place(&mut self, slot: Slot) {
        if self.begun.insert(slot) {
            self.long += 1;
        }
    }

    /// Whether some, but not all, cells of a slot are in place.
    pub(super) fn is_in_place(&self, slot: Slot) -> bool {
        self.begun.contains(&slot)
    }

    /// Marks that all cells of a slot are in place.
    pub(super) fn finish(&mut self, slot: Slot) {
        self.begun.remove(&slot);
        self.forget(slot);
    }

    /// Returns, each once, the abandoned slots that have some cells in place.
    pub(super) fn take_unfinished(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.unfinished)
    }

    /// How often a slot was given up because the disk had no room for it.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// How often a slot was too long to be gathered.
    pub(super) fn long(&self) -> u64 {
        self.long
    }
}

/// The memory that cells take, roughly.
pub(super) fn bytes_of(cells: &MovedCells) -> usize {
    cells.iter().map(|(name, value)| name.len() + value.len() + CELL_BYTES).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_replica::{Epoch, Sequence};

    const BRANCH: Version = Version(4);
    const AT: Position = Position { epoch: Epoch(1), sequence: Sequence(7) };

    fn with_room(slot_bytes_max: usize, bytes_max: usize) -> Arrivals {
        Arrivals::with_room(GatheringRoom { slot_bytes_max, bytes_max })
    }

    fn piece(slot: u32, number: u32, is_last: bool) -> Piece {
        let (slot, branch) = (Slot(slot), Version(1));
        Piece { slot, branch, position: AT, time_ms: 3, number, is_last, cells: cells(1) }
    }

    /// Each takes 200 bytes.
    fn cells(count: usize) -> MovedCells {
        vec![(vec![1; 52], vec![2; 100]); count]
    }

    #[test]
    fn a_slot_that_is_long_is_handed_on_and_leaves_the_room_to_others() {
        let mut arrivals = with_room(1000, 1000);
        arrivals.begin(Slot(1), NodeId(1), (BRANCH, AT));
        for number in 0..5 {
            assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(1, number, false)), PieceOutcome::Nothing);
        }
        let part = |count, is_last| PieceOutcome::Part { cells: cells(count), is_last };
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(1, 5, false)), part(6, false));
        arrivals.begin_in_place(Slot(1));
        assert_eq!((arrivals.bytes, arrivals.long()), (0, 1));
        arrivals.begin(Slot(2), NodeId(1), (BRANCH, AT));
        for number in 0..4 {
            assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(2, number, false)), PieceOutcome::Nothing);
        }
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(1, 6, false)), part(1, false));
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(2, 4, true)), PieceOutcome::Whole(cells(5)));
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(1, 7, true)), part(1, true));
        arrivals.finish(Slot(1));
        assert_eq!((arrivals.bytes, arrivals.slots.len(), arrivals.take_unfinished().len()), (0, 0, 0));
    }

    #[test]
    fn what_nobody_goes_on_with_leaves_its_room() {
        let mut arrivals = with_room(1000, 1000);
        for slot in 1..=2 {
            arrivals.begin(Slot(slot), NodeId(slot), (BRANCH, AT));
            (0..2).for_each(|number| drop(arrivals.take(NodeId(slot), BRANCH, piece(slot, number, false))));
        }
        assert!(!arrivals.has_room(Slot(1), &cells(2)), "together they are too many");
        assert!(arrivals.is_from(Slot(2), NodeId(2)) && !arrivals.is_from(Slot(2), NodeId(1)));
        arrivals.retain(|from, _, _| from == NodeId(1));
        assert_eq!(arrivals.bytes, 400);
        assert!(arrivals.has_room(Slot(1), &cells(3)));
        // A piece that does not follow ends the transfer.
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(1, 5, false)), PieceOutcome::Nothing);
        assert_eq!((arrivals.bytes, arrivals.slots.len()), (0, 0));
    }

    #[test]
    fn pieces_of_a_slot_that_went_on_otherwise_since_its_first_one_are_not_taken() {
        let mut arrivals = with_room(1000, 1000);
        arrivals.begin(Slot(1), NodeId(1), (BRANCH, AT));
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(1, 0, false)), PieceOutcome::Nothing);
        assert_eq!(arrivals.take(NodeId(1), Version(5), piece(1, 1, true)), PieceOutcome::Nothing);
        assert_eq!((arrivals.bytes, arrivals.slots.len()), (0, 0));
    }

    #[test]
    fn cells_in_place_that_nobody_goes_on_with_are_named_once() {
        let mut arrivals = with_room(100, 100);
        let begin = |arrivals: &mut Arrivals, slot| {
            arrivals.begin(Slot(slot), NodeId(1), (BRANCH, AT));
            assert!(matches!(
                arrivals.take(NodeId(1), BRANCH, piece(slot, 0, false)),
                PieceOutcome::Part { is_last: false, .. }
            ));
            arrivals.begin_in_place(Slot(slot));
        };
        (1..=4).for_each(|slot| begin(&mut arrivals, slot));
        // Another transfer begins, a piece is missing, the node has no copy any more, the disk is full.
        arrivals.begin(Slot(1), NodeId(2), (BRANCH, AT));
        assert_eq!(arrivals.take(NodeId(1), BRANCH, piece(2, 2, true)), PieceOutcome::Nothing);
        arrivals.forget(Slot(3));
        arrivals.give_up(Slot(4), Moment(1));
        arrivals.give_up(Slot(4), Moment(1));
        assert_eq!(arrivals.take_unfinished(), [Slot(1), Slot(2), Slot(3), Slot(4)]);
        assert_eq!((arrivals.take_unfinished().len(), arrivals.given_up()), (0, 1));
        assert!(arrivals.begun.is_empty());
    }

    #[test]
    fn only_slots_of_which_cells_are_in_place_are_looked_at_with_every_step() {
        let mut arrivals = with_room(500, 1000);
        let is_asked = std::cell::RefCell::new(Vec::new());
        let is_wanted = |_, slot, _| {
            is_asked.borrow_mut().push(slot);
            slot == Slot(2)
        };
        for slot in 1..=4 {
            arrivals.begin(Slot(slot), NodeId(1), (BRANCH, AT));
        }
        arrivals.retain_in_place(is_wanted);
        arrivals.begin_in_place(Slot(2));
        arrivals.begin_in_place(Slot(3));
        arrivals.retain_in_place(is_wanted);
        assert_eq!(*is_asked.borrow(), [Slot(2), Slot(3)]);
        assert_eq!((arrivals.take_unfinished(), arrivals.slots.len()), (vec![Slot(3)], 3));
    }
}

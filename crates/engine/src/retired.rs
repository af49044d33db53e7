//! Retired items: space on disk that left the current trees and becomes free once nothing needs it.
//!
//! Invariant: an item leaves the current tree once, so its space is retired once.
//! Invariant: retired space is freed only by a checkpoint after its death, when no pin and no named snapshot
//! lies in its life.

use crate::delta::Delta;
use crate::meter::{Kind, Meter, Weight};
use crate::node::{Node, PageRef};
use crate::planted::{self, Bug};
use crate::value::{Chain, PIECE_BYTES, Piece};
use std::sync::Arc;

/// Bytes on disk that belonged to something alive in epochs `birth..death`. In a log segment, one entry may
/// stand for several values. Its length is then their sum, counted from the offset of the first, so that it
/// may overlap values that are alive and reach beyond the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retired {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) birth: u64,
    pub(crate) death: u64,
}

impl Retired {
    /// The same, alive for one more epoch if it was to die with the commit of `epoch`, which failed.
    pub(crate) fn outliving(self, epoch: u64) -> Self {
        Self { death: self.death + u64::from(self.death == epoch), ..self }
    }
}

/// Retired space, and items to which a running checkpoint may still give a home.
#[derive(Default)]
pub(crate) struct RetiredList {
    space: Vec<Retired>,
    /// Bytes that were added, without those that were put back.
    added_bytes: u64,
    /// Bytes that were taken since a checkpoint last succeeded. Those that failed put them back.
    taken_bytes: u64,
    undecided: Vec<(UndecidedItem, u64)>,
    weight: Weight,
}

/// Nodes that left the trees before a checkpoint had written them.
pub(crate) struct UnwrittenNodes(Vec<(UndecidedItem, u64)>);

impl UnwrittenNodes {
    /// Drops them, which may take a while, and returns their space on disk. The checkpoint that may have
    /// written them has ended.
    pub(crate) fn decided(self) -> Vec<Retired> {
        RetiredList { undecided: self.0, ..RetiredList::default() }.decided()
    }
}

enum UndecidedItem {
    Node(Node),
    Delta(Arc<Delta>, DeltaPart),
    Piece(Piece),
}

/// The part of a delta that left the trees.
#[derive(Clone, Copy)]
enum DeltaPart {
    /// The second page, because there are records above it.
    Records,
    /// The page at the bottom, with everything on it.
    Bottom,
    /// Both.
    All,
}

impl RetiredList {
    /// A list whose entries count as what a checkpoint empties.
    pub(crate) fn counted_in(meter: &Arc<Meter>) -> Self {
        Self { weight: Weight::of(meter, Kind::Waiting, 0), ..Self::default() }
    }

    fn weigh(&mut self) {
        let places = self.undecided.capacity() * size_of::<(UndecidedItem, u64)>()
            + self.space.capacity() * size_of::<Retired>();
        // Nodes count themselves; of pieces, this list may hold the only reference.
        self.weight.set((places + self.undecided.len() * PIECE_BYTES) as u64);
    }

    pub(crate) fn page(&mut self, home: PageRef, death: u64) {
        let len = u64::from(home.len);
        self.space(Retired { offset: home.offset, len, birth: home.birth, death });
    }

    pub(crate) fn space(&mut self, retired: Retired) {
        self.added_bytes = self.added_bytes.saturating_add(retired.len);
        if self.space.len() == self.space.capacity() {
            // In small steps: doubling at once could take a good part of the budget.
            self.space.reserve_exact((self.space.len() / 8).max(64));
        }
        self.space.push(retired);
        self.weigh();
    }

    /// Bytes that left the trees since a checkpoint last took the list.
    pub(crate) fn added_bytes(&self) -> u64 {
        self.added_bytes
    }

    /// Bytes that left the trees since a checkpoint last succeeded.
    pub(crate) fn unfreed_bytes(&self) -> u64 {
        self.taken_bytes.saturating_add(self.added_bytes)
    }

    /// Notes that a checkpoint succeeded, which freed what was taken, or keeps it for a reader.
    pub(crate) fn note_success(&mut self) {
        self.taken_bytes = 0;
    }

    /// Notes that a shared node was replaced.
    pub(crate) fn shared_node(&mut self, node: Node, epoch: u64) {
        match node.home() {
            Some(home) => self.page(home, epoch + 1),
            None if node.birth() < epoch => {
                self.undecided.push((UndecidedItem::Node(node), epoch + 1));
                self.weigh();
            }
            None => {}
        }
    }

    /// Notes that a delta is part of the current trees only as the base of another one.
    pub(crate) fn superseded(&mut self, delta: &Arc<Delta>, epoch: u64) {
        self.part_of_delta(delta, DeltaPart::Records, epoch);
        if planted::is(Bug::PageBelowFreed) {
            self.part_of_delta(delta, DeltaPart::Bottom, epoch);
        }
    }

    /// Notes that a delta, and everything it lies on, left the current trees.
    pub(crate) fn delta(&mut self, delta: &Arc<Delta>, epoch: u64) {
        match delta.below() {
            // No checkpoint knows this delta, so it will have no home.
            Some(below) if delta.birth == epoch => self.part_of_delta(&below, DeltaPart::Bottom, epoch),
            None if delta.birth == epoch => self.decided_part(delta, DeltaPart::All, epoch + 1),
            _ => self.part_of_delta(delta, DeltaPart::All, epoch),
        }
    }

    fn part_of_delta(&mut self, delta: &Arc<Delta>, part: DeltaPart, epoch: u64) {
        if delta.home().is_some() {
            self.decided_part(delta, part, epoch + 1);
        } else {
            self.undecided.push((UndecidedItem::Delta(Arc::clone(delta), part), epoch + 1));
            self.weigh();
        }
    }

    /// Retires a part of a delta to which no checkpoint is about to give a home.
    fn decided_part(&mut self, delta: &Delta, part: DeltaPart, death: u64) {
        if let (DeltaPart::Records | DeltaPart::All, Some(page)) =
            (part, delta.home().and_then(|home| home.delta))
        {
            self.page(page, death);
        }
        if let DeltaPart::Bottom | DeltaPart::All = part {
            self.page(delta.page(), death);
        }
    }

    /// Notes that a piece is no longer part of any value of the current trees.
    pub(crate) fn piece(&mut self, piece: &Piece, epoch: u64) {
        match piece.home() {
            Some(offset) => self.space(Retired {
                offset,
                len: u64::from(piece.len()),
                birth: piece.birth(),
                death: epoch + 1,
            }),
            None if piece.may_settle(epoch) => {
                self.undecided.push((UndecidedItem::Piece(piece.clone()), epoch + 1));
                self.weigh();
            }
            None => {}
        }
    }

    /// Retires all pieces of `old` that `new` does not share.
    pub(crate) fn chain(&mut self, old: &Chain, new: Option<&Chain>, epoch: u64) {
        for piece in old.pieces() {
            if !new.is_some_and(|new| new.pieces().iter().any(|kept| kept.same(piece))) {
                self.piece(piece, epoch);
            }
        }
    }

    /// Decides about every item whose home may have been set meanwhile. No checkpoint may be running.
    fn decide(&mut self) {
        for (item, death) in std::mem::take(&mut self.undecided) {
            match item {
                UndecidedItem::Node(node) => {
                    if let Some(home) = node.home() {
                        self.page(home, death);
                    }
                }
                UndecidedItem::Delta(delta, part) => self.decided_part(&delta, part, death),
                UndecidedItem::Piece(piece) => {
                    if let Some(offset) = piece.home() {
                        let len = u64::from(piece.len());
                        self.space.push(Retired { offset, len, birth: piece.birth(), death });
                    }
                }
            }
        }
    }

    /// Takes everything out in constant time; the caller goes through it while writers go on.
    pub(crate) fn take(&mut self) -> Self {
        let (weight, taken_bytes) = (self.weight.empty_beside(), self.unfreed_bytes());
        std::mem::replace(self, Self { weight, taken_bytes, ..Self::default() })
    }

    /// Takes out the nodes whose homes were not known; see [`UnwrittenNodes::decided`].
    pub(crate) fn take_nodes(&mut self) -> UnwrittenNodes {
        let is_node = |(item, _): &mut (UndecidedItem, u64)| !matches!(item, UndecidedItem::Piece(_));
        UnwrittenNodes(self.undecided.extract_if(.., is_node).collect())
    }

    /// Puts back what was taken and is still needed.
    pub(crate) fn put_back(&mut self, retired: impl IntoIterator<Item = Retired>) {
        self.space.extend(retired);
        self.weigh();
    }

    /// As [`RetiredList::decided`], counted as a buffer for as long as the returned weight lives.
    pub(crate) fn decided_and_counted(mut self) -> (Vec<Retired>, Weight) {
        let weight = std::mem::take(&mut self.weight).turned_into(Kind::Buffer);
        (self.decided(), weight)
    }

    /// Everything that was taken, with each item decided; see [`RetiredList::decide`].
    pub(crate) fn decided(mut self) -> Vec<Retired> {
        self.decide();
        self.space
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Retired> {
        self.space.iter()
    }

    /// The places of the pieces that left the trees, each with its length. The log must have been flushed.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        let pieces = self.undecided.iter().filter_map(|(item, _)| match item {
            UndecidedItem::Piece(piece) => Some((piece.home()?, u64::from(piece.len()))),
            UndecidedItem::Node(_) | UndecidedItem::Delta(..) => None,
        });
        self.space.iter().map(|retired| (retired.offset, retired.len)).chain(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_checkpoints_took_counts_until_one_succeeds() {
        let mut list = RetiredList::default();
        let space = |len| Retired { offset: 1 << 20, len, birth: 1, death: 2 };
        list.space(space(100));
        let taken = list.take();
        assert_eq!((list.added_bytes(), list.unfreed_bytes()), (0, 100));
        list.put_back(taken.decided());
        list.space(space(20));
        assert_eq!((list.added_bytes(), list.unfreed_bytes()), (20, 120));
        let taken = list.take();
        list.space(space(3));
        list.put_back(taken.decided());
        assert_eq!((list.added_bytes(), list.unfreed_bytes()), (3, 123));
        // The next checkpoint takes all of it. What is added while it runs is not its business.
        let taken = list.take();
        list.space(space(4));
        assert_eq!(taken.decided().len(), 3);
        list.note_success();
        assert_eq!((list.added_bytes(), list.unfreed_bytes()), (4, 4));
    }
}

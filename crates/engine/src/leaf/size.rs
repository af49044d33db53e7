//! How much a leaf takes: what it counts for in memory, and how much of it is in use.

use super::{CLASSES, Leaf, SLOT_BYTES};
use crate::meter::Meter;
use crate::node::PageRef;
use crate::value::{Chain, PIECE_BYTES};
use std::sync::Arc;

/// A leaf with at least so many records is none for long keys.
const SHORT_RECORDS: usize = 16;

/// About what a chain takes beside the leaf: as much as one piece, for most have one. More of them count as
/// nothing, whether they are many or not.
pub(super) fn chain_bytes(_chain: &Chain) -> usize {
    PIECE_BYTES
}

impl Leaf {
    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self)
    }

    /// Counts its memory from now on.
    pub(crate) fn count_in(&mut self, meter: &Arc<Meter>) {
        self.count_in_as(meter, self.home.get().is_none());
    }

    /// As [`Leaf::count_in`], as one that only a checkpoint can let go of or not.
    pub(crate) fn count_in_as(&mut self, meter: &Arc<Meter>, is_unwritten: bool) {
        let bytes = self.memory_bytes() + self.chains().map(chain_bytes).sum::<usize>();
        self.counted.begin(meter, bytes, is_unwritten);
    }

    /// Gives it the home that it was written to.
    pub(crate) fn settle(&self, home: PageRef) {
        self.home.settle(home);
        self.counted.settle();
    }

    /// Takes its home, for it is about to change.
    pub(crate) fn take_home(&mut self) -> Option<PageRef> {
        self.counted.set_unwritten(true);
        self.home.take()
    }

    /// Bytes that its records take now.
    pub(crate) fn live_bytes(&self) -> usize {
        self.bytes().len() - self.heap_start as usize - self.garbage as usize + self.len() * SLOT_BYTES
    }

    /// Whether it has more than a regular leaf would, or will with `added` bytes, and not because its records
    /// are long.
    ///
    /// The larger sizes are for long keys. Filled with short records, such a leaf would take three quarters
    /// more than what is in it, and so would both halves of it.
    pub(crate) fn is_overgrown(&self, added: usize) -> bool {
        let used = self.bytes().len() - self.heap_start as usize + self.len() * SLOT_BYTES + added;
        self.words.len() > CLASSES[0] && self.len() >= SHORT_RECORDS && used > CLASSES[0] * 8
    }

    /// Whether so little is left that it should join a neighbour.
    pub(crate) fn is_sparse(&self) -> bool {
        self.is_sparse_without(0)
    }

    /// The same with so many bytes of records less.
    pub(super) fn is_sparse_without(&self, bytes: usize) -> bool {
        self.live_bytes().saturating_sub(bytes) < CLASSES[0] * 8 / 4
    }

    /// Whether it and `other` fit well into one regular leaf, whose prefix has this length. What their own
    /// prefixes save is then written out for each record.
    pub(crate) fn joins_well(&self, other: &Self, prefix_len: usize) -> bool {
        let joined =
            |leaf: &Self| leaf.live_bytes() + leaf.len() * leaf.prefix().len().saturating_sub(prefix_len);
        joined(self) + joined(other) < CLASSES[0] * 8 * 2 / 3
    }
}

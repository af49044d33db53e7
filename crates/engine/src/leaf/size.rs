//! The size of a leaf: what it counts for in memory, and how much of it is in use.

use super::{CLASSES, Leaf, SLOT_BYTES};
use crate::meter::Meter;
use crate::node::PageRef;
use crate::value::{Chain, PIECE_BYTES};
use std::sync::Arc;

/// A leaf with at least this many records does not count as one for long keys.
const SHORT_RECORDS: usize = 16;

/// Approximate bytes of a chain outside of the leaf: those of one piece, since most chains have one. Further
/// pieces are not counted, however many there are.
pub(super) fn chain_bytes(_chain: &Chain) -> usize {
    PIECE_BYTES
}

impl Leaf {
    /// Bytes of memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self)
    }

    /// Starts counting its memory.
    pub(crate) fn count_in(&mut self, meter: &Arc<Meter>) {
        self.count_in_as(meter, self.home.get().is_none());
    }

    /// As [`Leaf::count_in`]; `is_unwritten` says whether only a checkpoint can release it.
    pub(crate) fn count_in_as(&mut self, meter: &Arc<Meter>, is_unwritten: bool) {
        let bytes = self.memory_bytes() + self.chains().map(chain_bytes).sum::<usize>();
        self.counted.begin(meter, bytes, is_unwritten);
    }

    /// Gives it the home that it was written to.
    pub(crate) fn settle(&self, home: PageRef) {
        self.home.settle(home);
        self.counted.settle();
    }

    /// Takes its home, because it is about to change.
    pub(crate) fn take_home(&mut self) -> Option<PageRef> {
        self.counted.set_unwritten(true);
        self.home.take()
    }

    /// Bytes that its present records take.
    pub(crate) fn live_bytes(&self) -> usize {
        self.bytes().len() - self.heap_start as usize - self.garbage as usize + self.len() * SLOT_BYTES
    }

    /// Whether it holds, or would hold with `added` bytes, more than a regular leaf can, although its records
    /// are not long.
    ///
    /// The larger sizes are for long keys. Filled with short records, such a leaf would take three quarters
    /// more memory than its contents, and so would both of its halves.
    pub(crate) fn is_overgrown(&self, added: usize) -> bool {
        let used = self.bytes().len() - self.heap_start as usize + self.len() * SLOT_BYTES + added;
        self.words.len() > CLASSES[0] && self.len() >= SHORT_RECORDS && used > CLASSES[0] * 8
    }

    /// Whether so little is left in it that it should join a neighbour.
    pub(crate) fn is_sparse(&self) -> bool {
        self.is_sparse_without(0)
    }

    /// The same with `bytes` bytes of records less.
    pub(super) fn is_sparse_without(&self, bytes: usize) -> bool {
        self.live_bytes().saturating_sub(bytes) < CLASSES[0] * 8 / 4
    }

    /// Whether it and `other` fit well into one regular leaf whose prefix has this length. Every record then
    /// stores the bytes that their own prefixes save.
    pub(crate) fn joins_well(&self, other: &Self, prefix_len: usize) -> bool {
        let joined =
            |leaf: &Self| leaf.live_bytes() + leaf.len() * leaf.prefix().len().saturating_sub(prefix_len);
        joined(self) + joined(other) < CLASSES[0] * 8 * 2 / 3
    }
}

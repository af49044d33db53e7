//! Writing into a leaf of the current trees while others look at its neighbours.
//!
//! Invariant: while somebody places ([`crate::gate`]), a leaf of the current trees that nobody shares is
//! looked at or written only by whoever has its latch.
#![allow(unsafe_code)]

use super::{Leaf, SharedLeaf};
use crate::gate::{Hold, Latches, Placing};
use crate::shared::Writer;

/// A leaf of the current trees for whoever has its latch, and places.
pub(crate) struct Latched<'a> {
    leaf: &'a SharedLeaf,
    _latch: Hold<'a>,
    _placing: &'a Placing<'a, Writer>,
}

impl SharedLeaf {
    /// Waits for the latch. The leaf is one of the current trees of the store that `latches` and `placing`
    /// belong to.
    pub(crate) fn latched<'a>(
        &'a self,
        latches: &'a Latches,
        placing: &'a Placing<'a, Writer>,
    ) -> Latched<'a> {
        Latched { leaf: self, _latch: latches.of(self.address()).hold(), _placing: placing }
    }
}

impl Latched<'_> {
    /// The leaf, to be changed, unless it is shared.
    pub(crate) fn get_mut(&mut self) -> Option<&mut Leaf> {
        if self.leaf.is_shared() {
            return None;
        }
        // SAFETY: the one owner is the slot that `leaf` borrows, so whoever else gets at the leaf gets there
        // through the current trees. Who is alone in the gate or wants stillness is not inside while this
        // places; all others look at a leaf only with its latch, and this has it for itself, as long as the
        // answer is borrowed. Nobody becomes an owner meanwhile: clones are made by those who are alone or
        // still. The load above saw the last of what former owners did.
        Some(unsafe { &mut *self.leaf.whole() })
    }
}

//! Writing into a leaf of the current trees while other threads use its neighbours.
//!
//! Invariant: while a thread is placing ([`crate::gate`]), an unshared leaf of the current trees is read or
//! written only under its latch.
#![allow(unsafe_code)]

use super::{Leaf, SharedLeaf};
use crate::gate::{Hold, Latches, Placing};
use crate::shared::Writer;

/// Exclusive access to a leaf of the current trees, for a placing write that holds its latch.
pub(crate) struct Latched<'a> {
    leaf: &'a SharedLeaf,
    _latch: Hold<'a>,
    _placing: &'a Placing<'a, Writer>,
}

impl SharedLeaf {
    /// Waits for the latch. The leaf must be one of the current trees of the store that `latches` and
    /// `placing` belong to.
    pub(crate) fn latched<'a>(
        &'a self,
        latches: &'a Latches,
        placing: &'a Placing<'a, Writer>,
    ) -> Latched<'a> {
        Latched { leaf: self, _latch: latches.of(self.address()).hold(), _placing: placing }
    }
}

impl Latched<'_> {
    /// The leaf, mutably, unless it is shared.
    pub(crate) fn get_mut(&mut self) -> Option<&mut Leaf> {
        if self.leaf.is_shared() {
            return None;
        }
        // SAFETY: the one owner is the slot that `leaf` borrows, so any other access to the leaf goes through
        // the current trees. Holders of the gate's *alone* and *still* are excluded while this places; all
        // others access a leaf only under its latch, which this holds exclusively for as long as the returned
        // borrow lives. No new owner appears meanwhile: clones are made only under *alone* or *still*. The
        // load above saw the last writes of former owners.
        Some(unsafe { &mut *self.leaf.whole() })
    }
}

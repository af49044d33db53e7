//! Cells that go from node to node: who needs them, and which may be put in place.

use super::Replica;
use crate::{NodeId, Position, Slot, Table};

impl Replica {
    /// Whether cells up to this entry, which came from another node, are newer than what is here: only then
    /// may they be put in place, and [`Input::Installed`](crate::Input::Installed) be given.
    #[must_use]
    pub fn would_install(&self, slot: Slot, position: Position) -> bool {
        self.slots.get(slot).is_some_and(|copy| copy.would_install(position))
    }

    /// The same for cells that come in pieces, each of which is put in place by itself: from the first one on
    /// the copy has nothing, until the last one is there. So it must be one that nobody counts on, by no
    /// table that this node knows.
    #[must_use]
    pub fn would_import(&self, slot: Slot, position: Position) -> bool {
        let counts = |table: &Table| table.slot(slot).in_sync.contains(self.me);
        let is_counted = counts(&self.table) || self.pending.as_deref().is_some_and(counts);
        !is_counted && self.would_install(slot, position)
    }

    /// Whether a node's copy lacks what only cells can bring, as far as this one knows who leads the slot:
    /// what is still to be sent of them is worth sending only then.
    #[must_use]
    pub fn needs_cells(&self, slot: Slot, node: NodeId) -> bool {
        self.slots.get(slot).is_some_and(|copy| copy.needs_cells(node))
    }
}

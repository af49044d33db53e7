//! Cells on their way between nodes: who needs them, and which may be installed.

use super::Replica;
use crate::{NodeId, Position, Slot, Table};

impl Replica {
    /// Whether cells up to this entry, received from another node, are newer than what is here. Only then may
    /// they be installed, and [`Input::Installed`](crate::Input::Installed) be given.
    #[must_use]
    pub fn would_install(&self, slot: Slot, position: Position) -> bool {
        self.slots.get(slot).is_some_and(|copy| copy.would_install(position))
    }

    /// The same for cells that arrive in pieces and are installed piece by piece. From the first piece to the
    /// last the copy has nothing, so it must not be in sync by any table that this node knows.
    #[must_use]
    pub fn would_import(&self, slot: Slot, position: Position) -> bool {
        let counts = |table: &Table| table.slot(slot).in_sync.contains(self.me);
        let is_counted = counts(&self.table) || self.pending.as_deref().is_some_and(counts);
        !is_counted && self.would_install(slot, position)
    }

    /// Whether a node's copy lacks entries that only cells can bring, as far as this node knows as primary.
    /// The rest of a transfer is worth sending only then.
    #[must_use]
    pub fn needs_cells(&self, slot: Slot, node: NodeId) -> bool {
        self.slots.get(slot).is_some_and(|copy| copy.needs_cells(node))
    }
}

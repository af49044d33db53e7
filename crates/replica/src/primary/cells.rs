//! Copies that lack what is no longer in the log are sent cells.
//!
//! Invariant: nothing that a copy said before the last cells came to it has others sent, unless a while
//! passed since.

use super::Peer;
use crate::copy::{Around, Replicated};
use crate::{Effect, NodeId, Sequence};

impl Replicated {
    /// What it needs is no longer in the log.
    pub(super) fn begin_transfer(&self, peer: &mut Peer, around: &mut Around<'_>) {
        peer.takes_entries = false;
        if peer.no_cells_before.is_none_or(|before| around.now >= before) {
            peer.no_cells_before = Some(around.now.after(10 * around.options.suspect_us));
            around.effects.push(Effect::Transfer { slot: self.slot, to: peer.node });
        }
    }

    /// Whether a copy lacks what is no longer in the log, as far as this primary knows.
    pub(crate) fn needs_cells(&self, node: NodeId) -> bool {
        let mut peers = self.primary.iter().flat_map(|primary| &primary.peers);
        peers.any(|peer| peer.node == node && !peer.takes_entries)
    }

    /// Cells up to a place are on their way: a copy that gets them, and then finds that what came meanwhile
    /// is gone, would need others, and where much is written for ever. Those that were sent before may be
    /// there, and not said to be so yet.
    pub(crate) fn transfer_began(&mut self, to: NodeId, position: Sequence) {
        let peers = self.primary.iter_mut().flat_map(|primary| primary.peers.iter_mut());
        for peer in peers.filter(|peer| peer.node == to) {
            peer.held_from = Some(peer.held_from.map_or(position, |from| from.min(position)));
        }
    }

    /// All that was to be sent is on its way, or lost. Which of them is so the copy says; what it said before
    /// the last cells came would begin another transfer, so there is none for a while.
    pub(crate) fn transfer_ended(&mut self, to: NodeId, around: &Around<'_>) {
        let before = around.now.after(around.options.suspect_us);
        let peers = self.primary.iter_mut().flat_map(|primary| primary.peers.iter_mut());
        for peer in peers.filter(|peer| peer.node == to) {
            peer.no_cells_before = peer.no_cells_before.map(|_| before);
        }
    }
}

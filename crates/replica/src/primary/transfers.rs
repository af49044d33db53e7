//! Copies that lack entries that the log has dropped are sent cells.
//!
//! Invariant: nothing that a copy said before its last cells arrived triggers another transfer, unless some
//! time has passed since.

use super::Peer;
use crate::copy::{Replicated, StepContext};
use crate::{Effect, NodeId, Sequence};

impl Replicated {
    /// Has cells sent to a copy whose next entries the log has dropped, unless some are on their way.
    pub(super) fn begin_transfer(&self, peer: &mut Peer, context: &mut StepContext<'_>) {
        peer.takes_entries = false;
        if peer.no_cells_before.is_none_or(|before| context.now >= before) {
            peer.no_cells_before = Some(context.now.after(10 * context.options.suspect_us));
            context.effects.push(Effect::Transfer { slot: self.slot, to: peer.node });
        }
    }

    /// Whether a copy lacks entries that the log has dropped, as far as this primary knows.
    pub(crate) fn needs_cells(&self, node: NodeId) -> bool {
        let mut peers = self.primary.iter().flat_map(|primary| &primary.peers);
        peers.any(|peer| peer.node == node && !peer.takes_entries)
    }

    /// Cells up to `position` are on their way to a copy. The entries after it are kept: a copy that installs
    /// cells, and then finds the entries since dropped, would need cells again, and under steady writes for
    /// ever. Cells sent earlier may have arrived without this primary knowing, so the lowest position counts.
    pub(crate) fn transfer_began(&mut self, to: NodeId, position: Sequence) {
        let peers = self.primary.iter_mut().flat_map(|primary| primary.peers.iter_mut());
        for peer in peers.filter(|peer| peer.node == to) {
            peer.held_from = Some(peer.held_from.map_or(position, |from| from.min(position)));
        }
    }

    /// A transfer has ended; the copy's answers will tell whether it arrived. What the copy said before the
    /// cells arrived would start another transfer, so there is none for a while.
    pub(crate) fn transfer_ended(&mut self, to: NodeId, context: &StepContext<'_>) {
        let before = context.now.after(context.options.suspect_us);
        let peers = self.primary.iter_mut().flat_map(|primary| primary.peers.iter_mut());
        for peer in peers.filter(|peer| peer.node == to) {
            peer.no_cells_before = peer.no_cells_before.map(|_| before);
        }
    }
}

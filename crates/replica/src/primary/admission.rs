//! Which copies count as in sync: what a primary asks the configuration group for.
//!
//! Invariant: once a copy was proposed for admission, the primary goes on only with it, until the epoch
//! changes.

use super::{Candidate, NodeView, Peer, Primary};
use crate::copy::{Replicated, StepContext};
use crate::planted::{self, Bug};
use crate::{Effect, Proposal};

impl Replicated {
    /// Admits copies. A copy that has nearly caught up becomes the candidate, and is waited for from then on;
    /// once it has everything, the group is asked to admit it. A copy that needs cells is not near, however
    /// few entries the slot has, because nobody knows when they arrive. Nor is one that only said what it
    /// lacks, even where there is nothing to lack: it may be unable to take anything, as with a full disk. A
    /// copy that was dismissed repeatedly rests first, as long as enough others are in sync.
    pub(super) fn count_in(&self, primary: &mut Primary, view: &NodeView<'_>, context: &mut StepContext<'_>) {
        let last = self.log.last().sequence;
        let is_spared = self.configuration.in_sync.len() >= context.in_sync_min;
        let dismissals = &primary.dismissals;
        let is_near = |peer: &&Peer| {
            let member = view.table.members.get(&peer.node);
            self.configuration.joining.contains(peer.node)
                && peer.matched.0 + context.options.nearly_caught_up >= last.0
                && peer.lacks_entries_only(&self.log)
                && peer.owes_since.is_none_or(|since| context.now < since.after(context.options.suspect_us))
                && peer.has_appended
                && !(is_spared
                    && dismissals.rests((peer.node, peer.incarnation), context.now, context.options))
                && member.is_some_and(|member| member.is_up && member.incarnation == peer.incarnation)
        };
        if primary.candidate.is_none() {
            primary.candidate = primary.peers.iter().find(is_near).map(|peer| Candidate {
                node: peer.node,
                incarnation: peer.incarnation,
                since: context.now,
                proposed_at: None,
            });
        }
        let Some(candidate) = &mut primary.candidate else { return };
        let Some(peer) = primary.peers.iter().find(|peer| peer.node == candidate.node) else { return };
        // Entries from before this epoch may have been acknowledged, even where they are not committed again
        // yet.
        let needs = self.committed.max(primary.serves_behind);
        let is_there = peer.has_appended && (peer.matched >= needs || planted::is(Bug::AdmittedEarly));
        let is_due =
            candidate.proposed_at.is_none_or(|at| context.now >= at.after(context.options.resend_us));
        let (slot, epoch) = (self.slot, self.configuration.epoch);
        let Candidate { node, incarnation, since, proposed_at } = *candidate;
        let is_same_life = peer.incarnation == incarnation;
        if is_there && is_due && is_same_life {
            candidate.proposed_at = Some(context.now);
            context.effects.push(Effect::Propose(Proposal::Admit { slot, epoch, node, incarnation }));
        } else if proposed_at.is_none() && context.now >= since.after(context.options.suspect_us) {
            // The group was not asked yet, so the candidate can be dropped.
            primary.candidate = None;
        }
    }

    /// Proposes to dismiss a copy that has owed an answer for too long: one that is in sync, or a candidate
    /// that the group may have admitted.
    pub(super) fn report(&self, primary: &mut Primary, view: &NodeView<'_>, context: &mut StepContext<'_>) {
        let patience = context.options.suspect_us;
        let is_due = primary.dismissed_at.is_none_or(|at| context.now >= at.after(patience / 2));
        if !is_due {
            return;
        }
        let waits = !primary.reads.is_empty();
        let is_silent = |peer: &&Peer| {
            let owes = peer.owes_since.is_some_and(|since| context.now >= since.after(patience));
            let granted_at = view.leases.heard_at(peer.node).unwrap_or_default().max(peer.heard_at);
            let owes_lease = waits && context.now >= granted_at.after(2 * patience);
            self.must_have(primary, peer, context) && (owes || owes_lease)
        };
        let found = primary.peers.iter().find(is_silent).map(|peer| (peer.node, peer.incarnation));
        let Some((node, incarnation)) = found else { return };
        primary.dismissed_at = Some(context.now);
        let (slot, epoch) = (self.slot, self.configuration.epoch);
        primary.dismissals.note((node, incarnation), epoch, context.now, context.options);
        context.effects.push(Effect::Propose(Proposal::Dismiss { slot, epoch, node }));
    }
}

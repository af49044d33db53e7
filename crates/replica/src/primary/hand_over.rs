//! Handing a slot over: the primary accepts nothing new, waits until nothing is under way, and proposes its
//! successor to the group.
//!
//! Source: the pause at the end of a slot's migration in Valkey 9, with the group's decision in place of the
//! target's.
//!
//! Invariant: requests that arrive meanwhile have not happened: they are refused with the name of the next
//! primary, or accepted if there is none.
//! Invariant: a proposal counts only for the slot as it was in one table. Once the primary knows a newer one,
//! it may go on.

use super::{NodeView, Peer, Primary};
use crate::copy::{Replicated, StepContext};
use crate::held_requests::Request;
use crate::planted::{self, Bug};
use crate::{Effect, Moment, NodeId, Proposal, Refusal, Version};

/// A handover under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandingOver {
    /// The table in which the slot came to be as it is.
    since: Version,
    began_at: Moment,
    proposed_at: Option<Moment>,
}

impl Refusal {
    /// The refusal for requests that belong to the current primary.
    pub(crate) fn of(leads: Option<NodeId>) -> Self {
        leads.map_or(Self::NoPrimary, |to| Self::Moved { to })
    }
}

impl Replicated {
    /// Whether the slot is to be handed over, or requests are held back because it was.
    pub(crate) fn hands_over(&self) -> bool {
        let holds = |primary: &Primary| primary.handing.is_some() || !primary.held.is_empty();
        self.primary.as_ref().is_some_and(|primary| self.configuration.successor.is_some() || holds(primary))
    }

    /// Whether new requests wait until the slot is handed over.
    pub(super) fn holds_back(&self) -> bool {
        let handing = self.primary.as_ref().and_then(|primary| primary.handing);
        handing.is_some_and(|handing| handing.proposed_at.is_none() || !planted::is(Bug::TakenBehindHandOver))
    }

    /// Whether any request is held back.
    pub(crate) fn holds_any(&self) -> bool {
        self.primary.as_ref().is_some_and(|primary| !primary.held.is_empty())
    }

    /// The length of the longest write that is held back.
    pub(crate) fn longest_held(&self) -> usize {
        self.primary.as_ref().map_or(0, |primary| primary.held.longest())
    }

    /// Whether a read has to wait behind writes that are held back.
    pub(super) fn is_behind_held(&self, keys: &[u64]) -> bool {
        self.primary.as_ref().is_some_and(|primary| primary.held.writes_any(keys))
    }

    pub(super) fn hold_back(&mut self, request: Request, context: &mut StepContext<'_>) {
        if let Some(primary) = self.primary.as_mut() {
            primary.held.push(request, context.now, context.options, context.effects);
        }
    }

    /// Takes the next step of a handover.
    pub(super) fn hand_over(&mut self, view: &NodeView<'_>, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        if !view.keeps {
            primary.held.refuse(Refusal::of(view.leads), context.effects);
        } else if let Some(to) = self.configuration.successor {
            self.drain(&mut primary, to, view, context);
        } else {
            primary.handing = None;
        }
        let goes_on = view.keeps && primary.handing.is_none() && self.may_commit(context);
        let released = goes_on.then(|| primary.held.take());
        self.primary = Some(primary);
        for request in released.into_iter().flatten() {
            match request {
                Request::Write(write) => self.client_writes(write, context),
                Request::Read { ticket, keys } => self.client_reads(ticket, &keys, view, context),
            }
        }
    }

    fn drain(&self, primary: &mut Primary, to: NodeId, view: &NodeView<'_>, context: &mut StepContext<'_>) {
        let (now, since) = (context.now, self.configuration.since);
        let mut handing = match primary.handing {
            Some(handing) if handing.since == since => handing,
            // Other copies, or another epoch: an earlier proposal counts for nothing.
            Some(handing) => HandingOver { since, proposed_at: None, ..handing },
            None if now >= primary.rests_until && self.is_ready(primary, to, view, context) => {
                HandingOver { since, began_at: now, proposed_at: None }
            }
            None => return,
        };
        let patience_us = context.options.suspect_us;
        primary.handing = None;
        if now >= handing.began_at.after(patience_us) {
            // Should the group decide for the handover all the same, writes under way then end as unknown;
            // nothing is lost.
            primary.rests_until = now.after(2 * patience_us);
            return;
        }
        let is_done = self.committed == self.log.last().sequence || planted::is(Bug::HandedOverEarly);
        let is_due = handing.proposed_at.is_none_or(|at| now >= at.after(context.options.resend_us));
        if is_done && is_due {
            let is_late = handing.proposed_at.is_some() && now >= handing.began_at.after(patience_us / 2);
            handing.proposed_at = Some(now);
            self.tell_committed(primary, context);
            let (slot, epoch) = (self.slot, self.configuration.epoch);
            context.effects.push(Effect::Propose(match is_late {
                true => Proposal::Keep { slot, epoch, since },
                false => Proposal::HandOver { slot, epoch, since, node: to },
            }));
            if is_late {
                primary.rests_until = now.after(2 * patience_us);
            }
        }
        primary.handing = Some(handing);
    }

    /// Whether the slot can be handed over soon: the group hears this node, and the successor keeps up and
    /// knows the table that names it. Otherwise the successor would send clients back to this node, which
    /// sends them on as soon as the successor leads.
    fn is_ready(
        &self,
        primary: &Primary,
        to: NodeId,
        view: &NodeView<'_>,
        context: &StepContext<'_>,
    ) -> bool {
        let answers = |peer: &Peer| {
            let member = view.table.members.get(&peer.node);
            peer.is_known
                && peer.owes_since.is_none_or(|since| context.now < since.after(context.options.resend_us))
                && member.is_some_and(|member| member.is_up && member.incarnation == peer.incarnation)
        };
        let is_next = |peer: &Peer| {
            let near = context.options.nearly_caught_up;
            peer.node == to && peer.matched.0 + near >= self.committed.0
        };
        let is_in_sync = |peer: &&Peer| self.configuration.in_sync.contains(peer.node);
        let knows_it = view.leases.goes_by(to, self.configuration.since);
        view.group_hears
            && knows_it
            && self.committed >= primary.serves_behind
            && primary.peers.iter().any(is_next)
            && primary.peers.iter().filter(is_in_sync).all(answers)
    }

    /// Tells the copies what is committed, so that the next primary can serve at once.
    fn tell_committed(&self, primary: &mut Primary, context: &mut StepContext<'_>) {
        for at in 0..primary.peers.len() {
            let told = primary.peers.get(at).map(|peer| peer.committed_told);
            if told.is_some_and(|told| told < self.committed) {
                self.send_entries(primary, at, true, context);
            }
        }
    }
}

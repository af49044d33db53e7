//! Sending entries to copies: those after the last one sent, starting from where the copy says it stands.
//!
//! Invariant: a copy that is not known to follow is sent probes only.

use super::{Candidate, Peer, Primary};
use crate::copy::{Replicated, StepContext};
use crate::planted::{self, Bug};
use crate::{Contradiction, Effect, Entry, NodeId, Position, Sequence, SlotMessage};

impl Replicated {
    /// Sends new entries to every copy that is known to follow.
    pub(super) fn spread(&mut self, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        for at in 0..primary.peers.len() {
            self.send_entries(&mut primary, at, false, context);
        }
        self.primary = Some(primary);
    }

    /// Sends a copy the entries after the last one sent, as one message; with `probes`, even if there are
    /// none.
    pub(super) fn send_entries(
        &self,
        primary: &mut Primary,
        at: usize,
        probes: bool,
        context: &mut StepContext<'_>,
    ) {
        let Some(peer) = primary.peers.get_mut(at) else { return };
        if !probes && !peer.is_known {
            return;
        }
        let Some(previous) = self.log.position(peer.sent) else {
            return self.begin_transfer(peer, context);
        };
        let entries = self.log.behind_place(peer.sent, context.options.message_bytes_max);
        if entries.is_empty() && !probes {
            return;
        }
        self.say(peer, previous, entries, context);
    }

    /// Asks a copy whether it has the entry after which it would be sent more, without sending any.
    fn probe(&self, peer: &mut Peer, context: &mut StepContext<'_>) {
        match self.log.position(peer.sent) {
            Some(previous) => self.say(peer, previous, Vec::new(), context),
            None => self.begin_transfer(peer, context),
        }
    }

    fn say(&self, peer: &mut Peer, previous: Position, entries: Vec<Entry>, context: &mut StepContext<'_>) {
        peer.sent = Sequence(peer.sent.0 + entries.len() as u64);
        peer.sent_at = context.now;
        peer.owes_since.get_or_insert(context.now);
        peer.committed_told = self.committed;
        self.send(peer.node, SlotMessage::Append { previous, entries, committed: self.committed }, context);
    }

    /// A copy has this epoch's log up to `matched`.
    pub(crate) fn appended(&mut self, from: NodeId, matched: Sequence, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        if let Some(at) = primary.peers.iter().position(|peer| peer.node == from) {
            match matched > self.log.last().sequence {
                true => self.disbelieve(&mut primary, at, context),
                false => self.believe(&mut primary, at, matched, context),
            }
        }
        self.primary = Some(primary);
        self.advance(context);
    }

    /// A copy says that it has more of this epoch's log than there is. A log only grows within an epoch, so
    /// this copy has another history: nothing that it said counts. It is asked again, and owes an answer
    /// until it gives one that can be right.
    fn disbelieve(&self, primary: &mut Primary, at: usize, context: &mut StepContext<'_>) {
        let Some(peer) = primary.peers.get_mut(at) else { return };
        (peer.is_known, peer.has_appended, peer.takes_entries) = (false, false, false);
        peer.matched = Sequence(0);
        peer.owes_since.get_or_insert(context.now);
        let contradiction = Contradiction::Beyond;
        context.effects.push(Effect::NotTaken { slot: self.slot, from: peer.node, contradiction });
    }

    fn believe(&self, primary: &mut Primary, at: usize, matched: Sequence, context: &mut StepContext<'_>) {
        let Some(peer) = primary.peers.get_mut(at) else { return };
        let has_more = matched > peer.matched;
        peer.matched = matched.max(peer.matched);
        // What was sent before the first confirmation was a guess: entries go on behind what is certain.
        peer.sent = if peer.has_appended { peer.sent.max(peer.matched) } else { peer.matched };
        (peer.is_known, peer.has_appended) = (true, true);
        peer.held_from = peer.held_from.map(|from| from.max(peer.matched));
        (peer.heard_at, peer.is_resting) = (context.now, false);
        peer.owes_since = match peer.matched < peer.sent {
            true if has_more => Some(context.now),
            true => peer.owes_since,
            false => None,
        };
        peer.no_cells_before = None;
        // Its hint alone does not prove that: the entry there may be of another epoch.
        peer.takes_entries |= self.log.position(peer.hint.max(peer.matched)).is_some();
        self.send_entries(primary, at, false, context);
    }

    /// A copy does not have the entry before those of the last message.
    pub(crate) fn rejected(&mut self, from: NodeId, hint: Sequence, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        let mut is_given_up = false;
        // A copy proposed for admission has everything that is committed: no cells can be newer than what it
        // has.
        let is_proposed = |candidate: &Candidate| candidate.node == from && candidate.proposed_at.is_some();
        let may_have_lost = !self.configuration.in_sync.contains(from)
            && !primary.candidate.as_ref().is_some_and(is_proposed);
        if let Some(at) = primary.peers.iter().position(|peer| peer.node == from)
            && let Some(peer) = primary.peers.get_mut(at)
        {
            (peer.heard_at, peer.is_resting) = (context.now, false);
            if hint == Sequence(0) && may_have_lost && !planted::is(Bug::EmptiedUnheard) {
                // It has dropped its cells, to receive new ones in pieces. If this message is old, that costs
                // one more question.
                (peer.matched, peer.has_appended) = (Sequence(0), false);
                is_given_up = primary.candidate.take_if(|candidate| candidate.node == from).is_some();
            }
            if hint < peer.matched {
                // Either the message is old, or the copy lacks what it claimed to have. Asked again at once,
                // it would answer the same, without end.
                self.primary = Some(primary);
                return;
            }
            peer.owes_since = None;
            // A place that the copy confirmed is certain, and what lies behind it here replaces what the copy
            // has there. If every hint were tried, several on their way would be rejected by turns, for ever.
            let is_certain = peer.has_appended && self.log.position(peer.matched).is_some();
            // The position tried before was wrong, and this is one step back: entries are sent once a
            // position is right.
            let is_guess = peer.is_known && hint < peer.hint && !is_certain;
            peer.is_known = true;
            if hint > peer.hint {
                // It has advanced since it was last sent cells: another transfer may begin at once.
                peer.no_cells_before = None;
            }
            peer.hint = hint;
            let may_have = if is_certain { peer.matched } else { hint.max(peer.matched) };
            peer.sent = may_have.min(self.log.last().sequence);
            if self.log.position(peer.sent).is_some() {
                peer.no_cells_before = None;
            }
            match is_guess {
                true => self.probe(peer, context),
                false => self.send_entries(&mut primary, at, true, context),
            }
        }
        self.primary = Some(primary);
        if is_given_up {
            // Writes that waited for this candidate alone may commit.
            self.advance(context);
        }
    }

    pub(super) fn remind(&self, primary: &mut Primary, at: usize, context: &mut StepContext<'_>) {
        let Some(peer) = primary.peers.get_mut(at) else { return };
        peer.is_resting = peer.is_down && peer.is_silent_for_long(context);
        let is_silent = context.now >= peer.sent_at.after(context.options.resend_us);
        let owes = !peer.is_known || peer.owes_since.is_some();
        let lacks = owes || peer.matched < self.log.last().sequence;
        if lacks && is_silent {
            // If the copy's last known position is not in the log, ask again from the end.
            let is_here = peer.is_known && self.log.position(peer.matched).is_some();
            peer.sent = if is_here { peer.matched } else { self.log.last().sequence };
            self.send_entries(primary, at, true, context);
        } else if peer.committed_told < self.committed && peer.matched >= self.committed {
            self.send_entries(primary, at, true, context);
        }
    }
}

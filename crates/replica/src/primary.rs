//! The primary of a slot: what it knows of the other copies, and which requests wait.
//!
//! Invariant: an entry is committed only when every in-sync copy has it, and also the candidate, once there
//! is one.

mod admission;
mod alone;
mod dismissals;
mod hand_over;
mod reads;
mod sending;
mod transfers;

use crate::copy::{Replicated, StepContext};
use crate::held_requests::{HeldRequests, Request, Write};
use crate::lease::Leases;
use crate::log::{Log, Needed};
use crate::planted::{self, Bug};
use crate::{
    Configuration, Effect, Entry, Incarnation, Moment, NodeId, Position, Refusal, Sequence, Slot, Table,
    Ticket, Version,
};
use dismissals::Dismissals;
use hand_over::HandingOver;
use std::collections::{BTreeMap, VecDeque};

/// What the primary knows of another copy.
#[derive(Debug)]
struct Peer {
    node: NodeId,
    incarnation: Incarnation,
    /// Whether the group does not hear it.
    is_down: bool,
    /// Whether it has also been silent here for long: no tick has to look after it until it is back.
    is_resting: bool,
    /// Whether it has answered in this epoch; before that its position is unknown.
    is_known: bool,
    /// Whether it has confirmed a place of this log, in this epoch and this life of its node, since it last
    /// said that it has nothing.
    has_appended: bool,
    matched: Sequence,
    /// The entries after this one are sent next.
    sent: Sequence,
    committed_told: Sequence,
    /// Where its log may agree with this one, as it last said.
    hint: Sequence,
    heard_at: Moment,
    sent_at: Moment,
    /// Since when it owes an answer.
    owes_since: Option<Moment>,
    /// No transfer of cells begins before this moment: one is on its way, or was until just now.
    no_cells_before: Option<Moment>,
    /// Whether it has accepted entries of this log since it was last found to need cells. Until it does, it
    /// may still need them.
    takes_entries: bool,
    /// It was sent cells up to this entry, or has since advanced to it: the entries after it are kept until
    /// the copy is in sync.
    held_from: Option<Sequence>,
}

impl Peer {
    fn is_silent_for_long(&self, context: &StepContext<'_>) -> bool {
        let patience_us = 10 * context.options.suspect_us;
        context.now >= self.heard_at.after(patience_us)
    }

    /// The entry after which all are kept for this copy; none for one that has been silent for long.
    fn held_behind(&self, context: &StepContext<'_>) -> Option<Sequence> {
        self.held_from.filter(|_| !self.is_silent_for_long(context))
    }

    /// Whether the log has everything that the copy lacks, and the copy follows. A copy that received cells
    /// reports their end as its position once they are durable.
    fn lacks_entries_only(&self, log: &Log) -> bool {
        let follows = self.takes_entries && self.matched >= self.hint;
        follows || log.position(self.matched).is_some()
    }
}

/// A copy that is about to be admitted.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    node: NodeId,
    incarnation: Incarnation,
    since: Moment,
    proposed_at: Option<Moment>,
}

#[derive(Debug)]
struct WaitingRead {
    ticket: Ticket,
    behind: Sequence,
    round: u64,
    since: Moment,
}

/// The state of a slot's primary.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    peers: Vec<Peer>,
    candidate: Option<Candidate>,
    dismissed_at: Option<Moment>,
    dismissals: Dismissals,
    /// Nothing is read before this entry is committed: the last one in the log when the epoch began.
    serves_behind: Sequence,
    tickets: VecDeque<(Sequence, Ticket)>,
    /// The last write under way of each key.
    dirty: BTreeMap<u64, Sequence>,
    /// The last write that may change any key.
    changes_all: Sequence,
    under_way: VecDeque<(Sequence, Vec<u64>, usize)>,
    under_way_bytes: usize,
    reads: VecDeque<WaitingRead>,
    /// The handover under way. Meanwhile nothing new is accepted, and requests wait in `held`.
    handing: Option<HandingOver>,
    held: HeldRequests,
    /// Since when writes are under way that cannot be committed, because the group does not hear this node.
    unheard_since: Option<Moment>,
    /// No handover begins before this moment, because the group did not decide on the last one in time.
    rests_until: Moment,
}

/// What the node knows when a primary takes a step.
pub(crate) struct NodeView<'a> {
    pub(crate) table: &'a Table,
    pub(crate) leases: &'a Leases,
    /// The version of the newest table that this node knows.
    pub(crate) known: Version,
    /// Whether that table leaves the slot to this node.
    pub(crate) keeps: bool,
    /// The primary of the slot by that table.
    pub(crate) leads: Option<NodeId>,
    /// Whether the configuration group hears this node, so that it may serve alone.
    pub(crate) group_hears: bool,
}

impl<'a> NodeView<'a> {
    /// The knowledge of a node that goes by one table, and may have a newer one pending.
    pub(crate) fn of(
        (table, pending): (&'a Table, Option<&'a Table>),
        leases: &'a Leases,
        (me, slot): (NodeId, Slot),
        group_hears: bool,
    ) -> Self {
        // A lookup in a table costs something, and mostly none is pending.
        let leads = pending.map_or(Some(me), |pending| pending.slot(slot).primary);
        let known = pending.unwrap_or(table).version;
        Self { table, leases, known, keeps: leads == Some(me), leads, group_hears }
    }
}

impl Primary {
    /// Begins an epoch of this node, whether it led before or not: the positions of the other copies are
    /// unknown.
    pub(crate) fn of(copy: &Replicated, before: Option<Box<Self>>, _context: &StepContext<'_>) -> Box<Self> {
        let mut primary = before.unwrap_or_default();
        if !planted::is(Bug::MatchedKept) {
            primary.peers.clear();
        }
        primary.candidate = None;
        primary.dismissed_at = None;
        primary.handing = None;
        primary.unheard_since = None;
        primary.serves_behind = copy.log.last().sequence;
        primary
    }

    /// Another node leads: the outcome of writes under way is unknown, and held requests never happened.
    pub(crate) fn end(mut self, leads: Option<NodeId>, context: &mut StepContext<'_>) {
        let refusal = Refusal::of(leads);
        for (_, ticket) in self.tickets {
            context.effects.push(match planted::is(Bug::UnderWayRefused) {
                true => Effect::Refuse { ticket, refusal },
                false => Effect::Unknown { ticket },
            });
        }
        for read in self.reads {
            context.effects.push(Effect::Refuse { ticket: read.ticket, refusal });
        }
        self.held.refuse(refusal, context.effects);
    }

    pub(crate) fn ticket_of(&mut self, sequence: Sequence) -> Option<Ticket> {
        while self.under_way.front().is_some_and(|(first, ..)| *first <= sequence) {
            let Some((first, keys, bytes)) = self.under_way.pop_front() else { break };
            self.under_way_bytes = self.under_way_bytes.saturating_sub(bytes);
            for key in keys {
                if self.dirty.get(&key) == Some(&first) {
                    self.dirty.remove(&key);
                }
            }
        }
        let (first, ticket) = *self.tickets.front()?;
        (first == sequence).then(|| {
            self.tickets.pop_front();
            ticket
        })
    }

    fn is_idle(&self, configuration: &Configuration, committed: Sequence, last: Sequence) -> bool {
        let has_all = |peer: &Peer| {
            peer.is_known
                && peer.owes_since.is_none()
                && peer.committed_told >= committed
                && peer.matched == last
        };
        committed == last
            && self.reads.is_empty()
            && self.candidate.is_none()
            && self.peers.iter().all(|peer| match configuration.joining.contains(peer.node) {
                // It may be down for days.
                true => peer.is_resting,
                false => has_all(peer),
            })
    }
}

impl Replicated {
    /// How many entries each other copy lacks, as far as this primary knows; all of them where its position
    /// is unknown.
    pub(crate) fn behind(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let last = self.log.last().sequence.0;
        let peers = self.primary.iter().flat_map(|primary| &primary.peers);
        peers.map(move |peer| (peer.node, last.saturating_sub(peer.matched.0)))
    }

    /// Bytes of the writes that this primary took and that are not committed yet.
    pub(crate) fn under_way_bytes(&self) -> usize {
        self.primary.as_ref().map_or(0, |primary| primary.under_way_bytes)
    }

    /// Whether a tick has nothing to do here.
    pub(crate) fn is_idle(&self) -> bool {
        let Some(primary) = &self.primary else { return true };
        primary.is_idle(&self.configuration, self.committed, self.log.last().sequence) && !self.hands_over()
    }

    /// Asks copies that are new in this configuration where they stand.
    pub(crate) fn meet_copies(&mut self, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        let configuration = self.configuration;
        primary.peers.retain(|peer| configuration.has(peer.node));
        // A candidate that has no copy any more would be waited for as soon as it has one again.
        primary.candidate = primary.candidate.filter(|candidate| configuration.has(candidate.node));
        let copies = configuration.in_sync.iter().chain(configuration.joining.iter());
        for node in copies.filter(|&node| node != context.me) {
            if primary.peers.iter().any(|peer| peer.node == node) {
                continue;
            }
            let last = self.log.last().sequence;
            primary.peers.push(Peer {
                node,
                incarnation: Incarnation::default(),
                is_down: false,
                is_resting: false,
                is_known: false,
                has_appended: false,
                matched: Sequence(0),
                sent: last,
                committed_told: Sequence(0),
                hint: Sequence(0),
                heard_at: context.now,
                sent_at: context.now,
                owes_since: Some(context.now),
                no_cells_before: None,
                takes_entries: false,
                held_from: None,
            });
        }
        for at in 0..primary.peers.len() {
            self.send_entries(&mut primary, at, true, context);
        }
        self.primary = Some(primary);
        self.advance(context);
    }

    /// Notes which of the other copies are down, and which have begun a new life: what the earlier one said
    /// of its log does not count for it.
    pub(crate) fn notice_lives(&mut self, table: &Table, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        let last = self.log.last().sequence;
        for at in 0..primary.peers.len() {
            let Some(peer) = primary.peers.get_mut(at) else { break };
            peer.is_down = table.members.get(&peer.node).is_some_and(|member| !member.is_up);
            peer.is_resting &= peer.is_down;
            let incarnation = table.incarnation(peer.node).unwrap_or_default();
            if peer.incarnation == incarnation {
                continue;
            }
            let is_met = peer.incarnation != Incarnation::default();
            peer.incarnation = incarnation;
            if is_met {
                (peer.matched, peer.sent, peer.committed_told) = (Sequence(0), last, Sequence(0));
                (peer.is_known, peer.no_cells_before, peer.held_from) = (false, None, None);
                (peer.takes_entries, peer.has_appended) = (false, false);
                // The group refuses for good what was proposed for the earlier life.
                primary.candidate = primary.candidate.filter(|candidate| candidate.node != peer.node);
                self.send_entries(&mut primary, at, true, context);
            }
        }
        self.primary = Some(primary);
    }

    /// Takes a client's write.
    pub(crate) fn client_writes(&mut self, write: Write, context: &mut StepContext<'_>) {
        if self.holds_back() {
            return self.hold_back(Request::Write(write), context);
        }
        let Write { ticket, time_ms, body, keys } = write;
        let last = self.log.last().sequence;
        let under_way = last.0 - self.committed.0;
        let Some(primary) = self.primary.as_ref() else { return };
        let options = context.options;
        let (have, need) = (self.configuration.in_sync.len(), context.in_sync_min);
        let refusal = if have < need {
            Some(Refusal::TooFewCopies { have, need })
        } else if under_way >= options.under_way_max as u64
            || primary.under_way_bytes >= options.under_way_bytes_max
        {
            Some(Refusal::Busy)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return context.effects.push(Effect::Refuse { ticket, refusal });
        }
        if !self.may_commit(context) || self.holds_any() {
            return self.hold_back(Request::Write(Write { ticket, time_ms, body, keys }), context);
        }
        let Some(primary) = self.primary.as_mut() else { return };
        let position = Position { epoch: self.configuration.epoch, sequence: last.next() };
        primary.tickets.push_back((position.sequence, ticket));
        if keys.is_empty() {
            primary.changes_all = position.sequence;
        }
        for &key in &keys {
            primary.dirty.insert(key, position.sequence);
        }
        primary.under_way_bytes += body.len();
        primary.under_way.push_back((position.sequence, keys, body.len()));
        let entry = Entry { position, time_ms: time_ms.max(self.time_ms), body };
        let after = self.log.last();
        self.push(entry.clone());
        self.write(after, vec![entry], context);
        self.spread(context);
        self.advance(context);
    }

    /// Commits what every copy that counts has.
    pub(crate) fn advance(&mut self, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        let counts_itself = planted::is(Bug::CountedBeforeLogged);
        let mut had: Vec<Sequence> = vec![if counts_itself { self.log.last().sequence } else { self.logged }];
        let counted = primary.peers.iter().filter(|peer| self.must_have(&primary, peer, context));
        had.extend(counted.map(|peer| peer.matched));
        had.sort_unstable();
        let skipped = usize::from(planted::is(Bug::CommittedWithoutOne) && had.len() > 2);
        if let Some(&through) = had.get(skipped).filter(|_| self.may_commit(context)) {
            self.commit(through, Some(&mut primary), context);
        }
        let behind = primary.peers.iter().map(|peer| peer.matched).min().unwrap_or(self.committed);
        let held_behind = primary.peers.iter().filter_map(|peer| peer.held_behind(context)).min();
        let needed = Needed { behind, held_behind, bytes_max: context.kept_bytes_max };
        self.primary = Some(primary);
        self.trim(needed, context.options);
    }

    fn must_have(&self, primary: &Primary, peer: &Peer, context: &StepContext<'_>) -> bool {
        if planted::is(Bug::DismissedAlone) && context.now > peer.heard_at.after(context.options.suspect_us) {
            return false;
        }
        self.configuration.in_sync.contains(peer.node)
            || (primary.candidate.is_some_and(|candidate| candidate.node == peer.node)
                && !planted::is(Bug::AdmittedAlone))
    }

    /// Handles a tick: resends, announces what is committed, admits copies, reports silent ones.
    pub(crate) fn tick(&mut self, view: &NodeView<'_>, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        for at in 0..primary.peers.len() {
            self.remind(&mut primary, at, context);
        }
        self.count_in(&mut primary, view, context);
        self.report(&mut primary, view, context);
        self.give_up_unheard(&mut primary, context);
        self.primary = Some(primary);
        self.advance(context);
        self.look(view, context);
    }

    /// Handles a change: reads may be answered, and the slot may be handed over.
    pub(crate) fn look(&mut self, view: &NodeView<'_>, context: &mut StepContext<'_>) {
        if self.hands_over() {
            self.hand_over(view, context);
        }
        self.answer_reads(view, context);
    }

    /// Whether a read waits, or the slot is to be handed over.
    pub(crate) fn has_to_look(&self) -> bool {
        self.has_reads() || self.hands_over()
    }
}

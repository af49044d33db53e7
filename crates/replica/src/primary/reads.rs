//! Which reads a primary answers from its cells, and when.
//!
//! Invariant: a read is answered only after everything from earlier epochs is committed, and after those
//! writes of its keys that were under way.

use super::{NodeView, Primary, WaitingRead};
use crate::copy::{Replicated, StepContext};
use crate::held_requests::Request;
use crate::lease::Need;
use crate::planted::{self, Bug};
use crate::{Effect, Moment, Refusal, Ticket};

impl Replicated {
    /// Takes a client's read.
    pub(crate) fn client_reads(
        &mut self,
        ticket: Ticket,
        keys: &[u64],
        view: &NodeView<'_>,
        context: &mut StepContext<'_>,
    ) {
        if self.is_behind_held(keys) {
            return self.hold_back(Request::Read { ticket, keys: keys.to_vec() }, context);
        }
        let Some(primary) = self.primary.as_mut() else { return };
        let of_keys = keys.iter().filter_map(|key| primary.dirty.get(key)).max().copied();
        let behind = primary.changes_all.max(of_keys.unwrap_or_default());
        if primary.reads.len() >= context.options.under_way_max {
            return context.effects.push(Effect::Refuse { ticket, refusal: Refusal::Busy });
        }
        let round = view.leases.coming_round();
        let read = WaitingRead { ticket, behind, round, since: context.now };
        if self.is_to_be_answered(&read, view, context) {
            return context.effects.push(Effect::Read { ticket });
        }
        // Reads that already wait are checked when something changes, and not for each new one.
        if let Some(primary) = self.primary.as_mut() {
            primary.reads.push_back(read);
        }
    }

    fn is_to_be_answered(&self, read: &WaitingRead, view: &NodeView<'_>, context: &StepContext<'_>) -> bool {
        let serves = |primary| self.serves(primary, read.round, view, context);
        read.behind <= self.committed && self.primary.as_deref().is_some_and(serves)
    }

    /// Answers the reads that need not wait any more. Whether enough copies promised is the same for all
    /// reads of one round of questions; and if it fails for the first read, whose round is the oldest, it
    /// fails for all.
    pub(crate) fn answer_reads(&mut self, view: &NodeView<'_>, context: &mut StepContext<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        let Some(first) = primary.reads.front() else { return self.primary = Some(primary) };
        let mut served = (first.round, self.serves(&primary, first.round, view, context));
        let is_over = |read: &WaitingRead, now: Moment| now > read.since.after(context.options.read_wait_us);
        if !served.1 {
            while primary.reads.front().is_some_and(|read| is_over(read, context.now))
                && let Some(read) = primary.reads.pop_front()
            {
                context.effects.push(Effect::Refuse { ticket: read.ticket, refusal: Refusal::NoLease });
            }
            return self.primary = Some(primary);
        }
        let waiting = std::mem::take(&mut primary.reads);
        for read in waiting {
            if read.round != served.0 {
                served = (read.round, self.serves(&primary, read.round, view, context));
            }
            if read.behind <= self.committed && served.1 {
                context.effects.push(Effect::Read { ticket: read.ticket });
            } else if is_over(&read, context.now) {
                context.effects.push(Effect::Refuse { ticket: read.ticket, refusal: Refusal::NoLease });
            } else {
                primary.reads.push_back(read);
            }
        }
        self.primary = Some(primary);
    }

    /// Whether the cells may be read at this moment, without asking other nodes, by what came before this
    /// round of questions.
    pub(crate) fn may_read(&self, round: u64, view: &NodeView<'_>, context: &StepContext<'_>) -> bool {
        self.primary.as_ref().is_some_and(|primary| self.serves(primary, round, view, context))
    }

    /// Whether a read that came before this round of questions may be answered from the cells as they are.
    fn serves(&self, primary: &Primary, round: u64, view: &NodeView<'_>, context: &StepContext<'_>) -> bool {
        #[cfg(test)]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        let is_ready = self.committed >= primary.serves_behind || planted::is(Bug::ReadBeforeRecommit);
        let keeps = view.keeps || planted::is(Bug::ReadAfterRenouncing);
        is_ready && keeps && self.has_leases(primary, round, view, context)
    }

    fn has_leases(
        &self,
        primary: &Primary,
        round: u64,
        view: &NodeView<'_>,
        context: &StepContext<'_>,
    ) -> bool {
        // An in-sync copy must have promised after it knew of this epoch; a candidate, after it knew of its
        // own copy.
        let need = |node| {
            let is_in_sync = self.configuration.in_sync.contains(node);
            let since = if is_in_sync { self.epoch_since } else { self.configuration.since };
            Need { since, known: view.known, round }
        };
        let mut counted = primary.peers.iter().filter(|peer| self.must_have(primary, peer, context));
        self.has_right(context)
            && counted
                .all(|peer| view.leases.is_held(peer.node, need(peer.node), context.now, context.options))
    }

    /// Whether any read waits.
    pub(crate) fn has_reads(&self) -> bool {
        self.primary.as_ref().is_some_and(|primary| !primary.reads.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Change, Effect, Group, GroupOptions, Incarnation, Input, Moment, NodeId, Options, PlacementHints,
        Replica,
    };
    use crate::{Slot, Survived, Ticket};
    use std::cell::Cell;

    thread_local! {
        /// How often the code asked whether enough copies promised.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn what_many_reads_wait_for_is_not_looked_at_for_each_pair_of_them() {
        let mut group = Group::new(GroupOptions { slots: 1, copies: 2 });
        for node in [1, 2].map(NodeId) {
            let (address, survived) = (String::new(), Survived::Nothing);
            group.apply(Change::Register {
                node,
                nonce: 1,
                address,
                hints: PlacementHints::default(),
                survived,
            });
        }
        for change in group.plan(&[]) {
            group.apply(change);
        }
        let (table, mut effects) = (group.table(), Vec::new());
        let mut replica = Replica::new(table.slot(Slot(0)).primary.unwrap(), Options::default());
        replica.begin(Moment(1), Incarnation(1), Vec::new());
        replica.step(Moment(1), Input::Table(table), &mut effects);
        let looked_before = LOOKS.get();
        for number in 0..4_000 {
            let (ticket, keys) = (Ticket(number), vec![number]);
            replica.step(Moment(2), Input::Read { slot: Slot(0), ticket, keys }, &mut effects);
        }
        (0..10).for_each(|_| replica.step(Moment(3), Input::Tick, &mut effects));
        assert!(LOOKS.get() - looked_before <= 4_100, "{}", LOOKS.get() - looked_before);
        effects.clear();
        replica.step(Moment(3).after(Options::default().read_wait_us), Input::Tick, &mut effects);
        let is_refused = |effect: &&Effect| matches!(effect, Effect::Refuse { .. });
        assert_eq!(effects.iter().filter(is_refused).count(), 4_000, "nobody waits for ever");
    }
}

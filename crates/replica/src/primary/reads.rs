//! What a primary answers from its cells, and when.
//!
//! Invariant: a read is answered behind all that was committed in epochs before, and behind writes of its keys that are under way.

use super::{Knowing, Primary, WaitingRead};
use crate::copy::{Around, Replicated};
use crate::held::Request;
use crate::lease::Need;
use crate::planted::{self, Bug};
use crate::{Effect, Refusal, Ticket};

impl Replicated {
    /// A client reads.
    pub(crate) fn client_reads(
        &mut self,
        ticket: Ticket,
        keys: &[u64],
        knowing: &Knowing<'_>,
        around: &mut Around<'_>,
    ) {
        if self.is_behind_held(keys) {
            return self.hold_back(Request::Read { ticket, keys: keys.to_vec() }, around);
        }
        let Some(primary) = self.primary.as_mut() else { return };
        let of_keys = keys.iter().filter_map(|key| primary.dirty.get(key)).max().copied();
        let behind = primary.changes_all.max(of_keys.unwrap_or_default());
        if primary.reads.len() >= around.options.under_way_max {
            return around.effects.push(Effect::Refuse { ticket, refusal: Refusal::Busy });
        }
        let round = knowing.leases.coming_round();
        primary.reads.push_back(WaitingRead { ticket, behind, round, since: around.now });
        self.answer_reads(knowing, around);
    }

    /// Answers reads that wait for nothing any more.
    pub(crate) fn answer_reads(&mut self, knowing: &Knowing<'_>, around: &mut Around<'_>) {
        let Some(mut primary) = self.primary.take() else { return };
        let waiting = std::mem::take(&mut primary.reads);
        for read in waiting {
            if read.behind <= self.committed && self.serves(&primary, read.round, knowing, around) {
                around.effects.push(Effect::Read { ticket: read.ticket });
            } else if around.now > read.since.after(around.options.read_wait_us) {
                around.effects.push(Effect::Refuse { ticket: read.ticket, refusal: Refusal::NoLease });
            } else {
                primary.reads.push_back(read);
            }
        }
        self.primary = Some(primary);
    }

    /// Whether the cells may be read now without a question.
    pub(crate) fn may_read(&self, knowing: &Knowing<'_>, around: &Around<'_>) -> bool {
        let round = knowing.leases.coming_round();
        self.primary.as_ref().is_some_and(|primary| self.serves(primary, round, knowing, around))
    }

    /// Whether whoever came before this round of questions is answered from the cells as they are.
    fn serves(&self, primary: &Primary, round: u64, knowing: &Knowing<'_>, around: &Around<'_>) -> bool {
        let is_ready = self.committed >= primary.serves_behind || planted::is(Bug::ReadBeforeRecommit);
        let keeps = knowing.keeps || planted::is(Bug::ReadAfterRenouncing);
        is_ready && keeps && self.has_leases(primary, round, knowing, around)
    }

    fn has_leases(&self, primary: &Primary, round: u64, knowing: &Knowing<'_>, around: &Around<'_>) -> bool {
        // Who counts in this epoch promised once it knew of the epoch; who does not yet, once it knew of its copy.
        let need = |node| {
            let is_in_sync = self.configuration.in_sync.contains(node);
            let since = if is_in_sync { self.epoch_since } else { self.configuration.since };
            Need { since, known: knowing.known, round }
        };
        let mut counted = primary.peers.iter().filter(|peer| self.must_have(primary, peer, around));
        self.has_right(around)
            && counted
                .all(|peer| knowing.leases.is_held(peer.node, need(peer.node), around.now, around.options))
    }

    /// Whether somebody waits to read.
    pub(crate) fn has_reads(&self) -> bool {
        self.primary.as_ref().is_some_and(|primary| !primary.reads.is_empty())
    }
}

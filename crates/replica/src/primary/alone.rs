//! A primary whose slot has no other copy in sync: only the configuration group can confirm that it still
//! leads.
//!
//! Invariant: while the group does not hear it, or a newer table gives the slot to another node, it
//! acknowledges nothing. An accepted loss puts another primary in its place, which asks no copy and waits
//! only until the group has not heard this one for long enough.

use super::Primary;
use crate::copy::{Around, Replicated};
use crate::planted::{self, Bug};
use crate::{Effect, Moment, Refusal};

impl Replicated {
    /// Whether this primary may go on, as far as other in-sync copies do not decide that.
    pub(super) fn has_right(&self, around: &Around<'_>) -> bool {
        self.configuration.in_sync.len() > 1 || around.goes_alone
    }

    /// The same for writes: only then are they accepted and committed.
    pub(super) fn may_commit(&self, around: &Around<'_>) -> bool {
        self.has_right(around) || planted::is(Bug::CommittedUnheard)
    }

    /// Ends the wait of writes for the group to hear this node. Those that are held back are refused, and
    /// have not happened; those that are logged end as unknown.
    pub(super) fn give_up_unheard(&self, primary: &mut Primary, around: &mut Around<'_>) {
        if self.may_commit(around) {
            primary.unheard_since = None;
            return;
        }
        let (now, patience_us) = (around.now, around.options.read_wait_us);
        let before = Moment(now.0.saturating_sub(patience_us));
        primary.held.refuse_older(before, Refusal::NoLease, around.effects);
        if primary.tickets.is_empty() {
            primary.unheard_since = None;
        } else if now > primary.unheard_since.get_or_insert(now).after(patience_us) {
            let tickets = primary.tickets.drain(..);
            around.effects.extend(tickets.map(|(_, ticket)| Effect::Unknown { ticket }));
        }
    }
}

//! A primary whose slot has no other copy in sync: only the configuration group can confirm that it still
//! leads.
//!
//! Invariant: while the group does not hear it, or a newer table gives the slot to another node, it
//! acknowledges nothing. An accepted loss puts another primary in its place, which asks no copy and waits
//! only until the group has not heard this one for long enough.

use super::Primary;
use crate::copy::{Replicated, StepContext};
use crate::planted::{self, Bug};
use crate::{Effect, Moment, Refusal};

impl Replicated {
    /// Whether this primary may go on, as far as other in-sync copies do not decide that.
    pub(super) fn has_right(&self, context: &StepContext<'_>) -> bool {
        self.configuration.in_sync.len() > 1 || context.goes_alone
    }

    /// The same for writes: only then are they accepted and committed.
    pub(super) fn may_commit(&self, context: &StepContext<'_>) -> bool {
        self.has_right(context) || planted::is(Bug::CommittedUnheard)
    }

    /// Ends the wait of writes for the group to hear this node. Those that are held back are refused, and
    /// have not happened; those that are logged end as unknown.
    pub(super) fn give_up_unheard(&self, primary: &mut Primary, context: &mut StepContext<'_>) {
        if self.may_commit(context) {
            primary.unheard_since = None;
            return;
        }
        let (now, patience_us) = (context.now, context.options.read_wait_us);
        let before = Moment(now.0.saturating_sub(patience_us));
        primary.held.refuse_older(before, Refusal::NoLease, context.effects);
        if primary.tickets.is_empty() {
            primary.unheard_since = None;
        } else if now > primary.unheard_since.get_or_insert(now).after(patience_us) {
            let tickets = primary.tickets.drain(..);
            context.effects.extend(tickets.map(|(_, ticket)| Effect::Unknown { ticket }));
        }
    }
}

//! A primary of a slot of which no other copy is in sync: nobody but the configuration group can say that it
//! still leads.
//!
//! Invariant: while the group does not hear it, or a newer table leaves the slot to somebody else, nothing is
//! acknowledged. An accepted loss puts another one in its place, which asks no copy and waits only until the
//! group has not heard this one for long enough.

use super::Primary;
use crate::copy::{Around, Replicated};
use crate::planted::{self, Bug};
use crate::{Effect, Moment, Refusal};

impl Replicated {
    /// Whether this primary may go on, as far as that does not follow from what other copies in sync say.
    pub(super) fn has_right(&self, around: &Around<'_>) -> bool {
        self.configuration.in_sync.len() > 1 || around.goes_alone
    }

    /// The same for writes, which are taken and committed only then.
    pub(super) fn may_commit(&self, around: &Around<'_>) -> bool {
        self.has_right(around) || planted::is(Bug::CommittedUnheard)
    }

    /// Writes that wait for the group to hear this node do not wait for ever: those that were not taken have
    /// not happened.
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

//! Copies that were dismissed again and again rest before they are counted in once more.
//!
//! A copy whose disk takes longer for a sync than the others wait is dismissed, answers at once that it
//! follows, and would be counted in again, without end: each turn makes writes wait, and adds two changes to
//! the log of the group.

use crate::{Epoch, Incarnation, Moment, NodeId, Options};

/// A copy that behaved for so many times the patience, beyond its last rest twice over, begins anew.
const FORGIVEN_AFTER: u64 = 60;

/// The longest rest is the patience times two to this power: 512 s by default.
const REST_SHIFT_MAX: u32 = 9;

#[derive(Debug)]
struct Dismissed {
    node: NodeId,
    incarnation: Incarnation,
    /// In which epoch this primary asked for it, last.
    epoch: Epoch,
    at: Moment,
    /// How many times, one soon after the other.
    times: u32,
}

impl Dismissed {
    /// Once may be a network that failed; each time beyond rests twice as long as the one before.
    fn rest_us(&self, options: &Options) -> u64 {
        match self.times {
            0 | 1 => 0,
            times => options.suspect_us << (times - 1).min(REST_SHIFT_MAX),
        }
    }

    fn is_forgiven(&self, now: Moment, options: &Options) -> bool {
        now >= self.at.after(2 * self.rest_us(options) + FORGIVEN_AFTER * options.suspect_us)
    }
}

/// Copies that this primary asked the group to dismiss, over all its epochs.
#[derive(Debug, Default)]
pub(super) struct Dismissals(Vec<Dismissed>);

impl Dismissals {
    /// The group is asked to dismiss a copy. Within an epoch it is asked again, which counts once.
    pub(super) fn note(
        &mut self,
        (node, incarnation): (NodeId, Incarnation),
        epoch: Epoch,
        now: Moment,
        options: &Options,
    ) {
        let before = self.0.iter().position(|before| before.node == node).map(|at| self.0.swap_remove(at));
        let before = before.filter(|before| before.incarnation == incarnation);
        let times = match before {
            Some(before) if before.epoch == epoch => return self.0.push(before),
            Some(before) if !before.is_forgiven(now, options) => before.times.saturating_add(1),
            _ => 1,
        };
        self.0.push(Dismissed { node, incarnation, epoch, at: now, times });
    }

    /// Whether a copy is not counted in yet, as it was dismissed more than once of late in this life.
    pub(super) fn rests(
        &self,
        (node, incarnation): (NodeId, Incarnation),
        now: Moment,
        options: &Options,
    ) -> bool {
        let is_it = |before: &&Dismissed| before.node == node && before.incarnation == incarnation;
        self.0.iter().find(is_it).is_some_and(|before| now < before.at.after(before.rest_us(options)))
    }
}

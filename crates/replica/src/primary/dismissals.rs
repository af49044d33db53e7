//! Back-off for copies that are dismissed repeatedly: they rest before they are admitted again.
//!
//! A copy whose syncs take longer than the others are willing to wait is dismissed, then answers at once that
//! it follows, and would be admitted again, without end. Each round makes writes wait, and adds two changes
//! to the group's log.

use crate::{Epoch, Incarnation, Moment, NodeId, Options};

/// A copy is forgiven after this many times the patience, on top of twice its last rest.
const FORGIVEN_AFTER: u64 = 60;

/// The longest rest is the patience times two to this power: 512 s by default.
const REST_SHIFT_MAX: u32 = 9;

#[derive(Debug)]
struct Dismissed {
    node: NodeId,
    incarnation: Incarnation,
    /// The epoch in which this primary last asked for the dismissal.
    epoch: Epoch,
    at: Moment,
    /// How many dismissals followed each other closely.
    times: u32,
}

impl Dismissed {
    /// A single dismissal may be a network failure; each further one doubles the rest.
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

/// The copies that this primary asked the group to dismiss, over all its epochs.
#[derive(Debug, Default)]
pub(super) struct Dismissals(Vec<Dismissed>);

impl Dismissals {
    /// Records that the group is asked to dismiss a copy. Asking again within an epoch counts once.
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
            // It was admitted in the middle of its rest, because too few others were in sync. That it is too
            // slow again does not show that it needs a longer rest.
            Some(before) if now < before.at.after(before.rest_us(options)) => before.times,
            Some(before) if !before.is_forgiven(now, options) => before.times.saturating_add(1),
            _ => 1,
        };
        self.0.push(Dismissed { node, incarnation, epoch, at: now, times });
    }

    /// Whether a copy must rest, because it was dismissed more than once recently in this life.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_grows_only_after_it_was_taken() {
        let options = Options { suspect_us: 1_000, ..Options::default() };
        let copy = (NodeId(3), Incarnation(1));
        let mut dismissals = Dismissals::default();
        // When it is dismissed, and until when it rests then.
        let all = [
            (100_000, 100_000),
            (101_000, 103_000),
            (102_000, 104_000),
            (103_000, 105_000),
            (105_000, 109_000),
        ];
        for (epoch, (at, until)) in (1..).zip(all) {
            dismissals.note(copy, Epoch(epoch), Moment(at), &options);
            let rests = |at: u64| dismissals.rests(copy, Moment(at), &options);
            assert_eq!((until == at || rests(until - 1), rests(until)), (true, false), "{at}");
        }
    }
}

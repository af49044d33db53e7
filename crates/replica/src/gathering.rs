//! When requests that have time are executed: together with others, and before their time is over.
//!
//! Whoever has a latency class is a member. What members ask for is not begun: it waits until
//! - it makes up a batch,
//! - or everybody who asked lately waits, so that nobody is left to wait for,
//! - or nobody came for a hundredth of the class's time,
//! - or half of the time of the first one is over; the other half is for doing it.
//!
//! Source: Li, "ZHT+", chapter 5 of the thesis on ZHT: collective handling and buffering by the latency that
//! a request tolerates.
//!
//! Invariant: a member that waits is handed out once, no later than the first look behind half of its time.
//! Invariant: what is kept is one number for each member, whatever the members ask for.

use crate::Moment;
use std::collections::HashSet;

/// Members that are handed out as soon as they wait, however much time they have.
const BATCH: usize = 256;

/// The part of its time that a request may wait, and the part for which it waits for somebody else to come.
const WAIT_PART: u64 = 2;
const QUIET_PART: u64 = 100;

/// Requests that wait for each other.
#[derive(Debug, Default)]
pub struct Gathering {
    /// In the order in which they came.
    waiting: Vec<u64>,
    held: HashSet<u64>,
    /// When the first of them has waited long enough.
    due: Option<Moment>,
    /// When nobody else is expected any more.
    quiet_at: Option<Moment>,
    /// Who asked in this period of a class's time, and in the one before.
    recent: HashSet<u64>,
    before: HashSet<u64>,
    period_ends: Moment,
}

impl Gathering {
    /// Something came from a member, who can take an answer within `slack_us`.
    pub fn hold(&mut self, now: Moment, member: u64, slack_us: u64) {
        self.turn_period(now, slack_us);
        self.before.remove(&member);
        self.recent.insert(member);
        if self.held.insert(member) {
            self.waiting.push(member);
        }
        let due = now.after(slack_us / WAIT_PART);
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
        self.quiet_at = Some(now.after(slack_us / QUIET_PART).min(due));
    }

    /// A member is gone; whether something of it waited.
    pub fn forget(&mut self, member: u64) -> bool {
        self.recent.remove(&member);
        self.before.remove(&member);
        let is_held = self.held.remove(&member);
        if is_held {
            self.waiting.retain(|other| *other != member);
        }
        is_held
    }

    /// Who is to be executed now, in the order in which they came.
    pub fn take_due(&mut self, now: Moment) -> Vec<u64> {
        if !self.is_due(now) {
            return Vec::new();
        }
        (self.due, self.quiet_at) = (None, None);
        self.held.clear();
        std::mem::take(&mut self.waiting)
    }

    /// By when to look again, if nobody comes.
    #[must_use]
    pub fn due_at(&self) -> Option<Moment> {
        let due = self.due?;
        Some(self.quiet_at.map_or(due, |quiet_at| quiet_at.min(due)))
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn is_due(&self, now: Moment) -> bool {
        let regulars = self.recent.len() + self.before.len();
        let is_time = self.due_at().is_some_and(|at| now >= at);
        !self.is_empty() && (self.len() >= BATCH.min(regulars) || is_time)
    }

    /// Who asked for nothing in a whole period is not waited for any more.
    fn turn_period(&mut self, now: Moment, slack_us: u64) {
        if now < self.period_ends {
            return;
        }
        let is_long_over = now >= self.period_ends.after(slack_us);
        self.before = std::mem::take(&mut self.recent);
        if is_long_over {
            self.before.clear();
        }
        // Who waits now is of both.
        self.before.retain(|member| !self.held.contains(member));
        self.recent.extend(&self.held);
        self.period_ends = now.after(slack_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK_US: u64 = 500_000;

    /// Has members ask again and again until all of them are known.
    fn known(members: u64) -> Gathering {
        let mut gathering = Gathering::default();
        (0..members).for_each(|member| gathering.hold(Moment(0), member, SLACK_US));
        assert_eq!(gathering.take_due(Moment(0)).len() as u64, members);
        gathering
    }

    #[test]
    fn a_member_that_is_alone_waits_for_nobody() {
        let mut gathering = known(1);
        for at in 1..100 {
            gathering.hold(Moment(at * 10), 0, SLACK_US);
            assert_eq!(gathering.take_due(Moment(at * 10)), [0]);
        }
    }

    #[test]
    fn members_that_ask_again_and_again_are_executed_together_once_all_wait() {
        let mut gathering = known(3);
        gathering.hold(Moment(10), 2, SLACK_US);
        gathering.hold(Moment(20), 0, SLACK_US);
        assert!(gathering.take_due(Moment(20)).is_empty() && gathering.len() == 2);
        gathering.hold(Moment(30), 1, SLACK_US);
        assert_eq!(gathering.take_due(Moment(30)), [2, 0, 1]);
        assert!(gathering.is_empty() && gathering.due_at().is_none());
    }

    #[test]
    fn who_stays_away_is_waited_for_as_long_as_others_come_and_no_longer_than_half_of_the_time() {
        let mut gathering = known(100);
        gathering.hold(Moment(10), 0, SLACK_US);
        assert_eq!(gathering.due_at(), Some(Moment(10 + SLACK_US / QUIET_PART)));
        assert_eq!(gathering.take_due(Moment(10 + SLACK_US / QUIET_PART)), [0], "nobody came");
        let mut now = Moment(100_000);
        let first = now;
        while gathering.take_due(now).is_empty() {
            assert!(now < first.after(SLACK_US), "nobody is handed out in all its time");
            gathering.hold(now, now.0 / 4_000 % 90, SLACK_US);
            now = now.after(4_000);
        }
        assert!(now <= first.after(SLACK_US / WAIT_PART + 4_000), "{now:?}");
    }

    #[test]
    fn the_shorter_time_of_two_holds_for_both() {
        let mut gathering = known(3);
        gathering.hold(Moment(10), 0, SLACK_US);
        gathering.hold(Moment(20), 1, SLACK_US / 10);
        assert!(gathering.take_due(Moment(20 + SLACK_US / 1000 - 1)).is_empty());
        assert_eq!(gathering.take_due(Moment(20 + SLACK_US / 1000)), [0, 1]);
    }

    #[test]
    fn a_batch_waits_for_nobody_and_whoever_is_gone_is_neither_waited_for_nor_handed_out() {
        let mut gathering = known(2 * BATCH as u64);
        (1..BATCH as u64).for_each(|member| gathering.hold(Moment(10), member, SLACK_US));
        assert!(gathering.take_due(Moment(10)).is_empty());
        gathering.hold(Moment(10), 0, SLACK_US);
        assert_eq!(gathering.take_due(Moment(10)).len(), BATCH);
        let mut gathering = known(3);
        gathering.hold(Moment(10), 0, SLACK_US);
        gathering.hold(Moment(10), 1, SLACK_US);
        assert!(gathering.forget(1) && !gathering.forget(2));
        assert_eq!(gathering.take_due(Moment(10)), [0]);
    }

    #[test]
    fn who_asked_for_nothing_for_long_is_not_waited_for() {
        let mut gathering = known(50);
        let now = Moment(3 * SLACK_US);
        gathering.hold(now, 7, SLACK_US);
        assert_eq!(gathering.take_due(now), [7]);
    }
}

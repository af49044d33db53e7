//! Batching of requests that may wait: they are executed together, before their time runs out.
//!
//! A member is a connection with a latency class. Requests of members wait until
//! - they make up a batch,
//! - or every member that asked recently is waiting, so that no other is expected,
//! - or no request came for a hundredth of the class's time,
//! - or half of the first request's time has passed; the other half is left for executing it.
//!
//! Source: Li, "ZHT+", chapter 5 of the thesis on ZHT: collective handling and buffering by the latency that
//! a request tolerates.
//!
//! Invariant: a waiting member is handed out once, no later than the first look after half of its time.
//! Invariant: the memory for each member is one number, whatever it asks for.

use crate::Moment;
use std::collections::HashSet;

/// This many waiting members are handed out at once, however much time they have.
const BATCH_MEMBERS: usize = 256;

/// The fraction of its time that a request may wait, and the fraction for which it waits for another one to
/// come.
const WAIT_DIVISOR: u64 = 2;
const QUIET_DIVISOR: u64 = 100;

/// Members whose requests wait for each other.
#[derive(Debug, Default)]
pub struct Gathering {
    /// In the order of arrival.
    waiting: Vec<u64>,
    held: HashSet<u64>,
    /// When the first of them has waited long enough.
    due: Option<Moment>,
    /// When no other request is expected any more.
    quiet_at: Option<Moment>,
    /// The members that asked in the current period of a class's time, and in the one before.
    recent: HashSet<u64>,
    before: HashSet<u64>,
    period_ends: Moment,
}

impl Gathering {
    /// A member asked for something, and can wait `slack_us` for the answer.
    pub fn hold(&mut self, now: Moment, member: u64, slack_us: u64) {
        self.turn_period(now, slack_us);
        self.before.remove(&member);
        self.recent.insert(member);
        if self.held.insert(member) {
            self.waiting.push(member);
        }
        let due = now.after(slack_us / WAIT_DIVISOR);
        self.due = Some(self.due.map_or(due, |first| first.min(due)));
        self.quiet_at = Some(now.after(slack_us / QUIET_DIVISOR).min(due));
    }

    /// Removes a member; returns whether it was waiting.
    pub fn forget(&mut self, member: u64) -> bool {
        self.recent.remove(&member);
        self.before.remove(&member);
        let is_held = self.held.remove(&member);
        if is_held {
            self.waiting.retain(|other| *other != member);
        }
        is_held
    }

    /// Takes the members that are to be executed now, in the order of arrival.
    pub fn take_due(&mut self, now: Moment) -> Vec<u64> {
        if !self.is_due(now) {
            return Vec::new();
        }
        (self.due, self.quiet_at) = (None, None);
        self.held.clear();
        std::mem::take(&mut self.waiting)
    }

    /// When to look again, if no request comes before.
    #[must_use]
    pub fn due_at(&self) -> Option<Moment> {
        let due = self.due?;
        Some(self.quiet_at.map_or(due, |quiet_at| quiet_at.min(due)))
    }

    /// How many members wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no member waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn is_due(&self, now: Moment) -> bool {
        let regulars = self.recent.len() + self.before.len();
        let is_time = self.due_at().is_some_and(|at| now >= at);
        !self.is_empty() && (self.len() >= BATCH_MEMBERS.min(regulars) || is_time)
    }

    /// Starts a new period when the last one is over. A member that asked for nothing in a whole period is
    /// not waited for any more.
    fn turn_period(&mut self, now: Moment, slack_us: u64) {
        if now < self.period_ends {
            return;
        }
        let is_long_over = now >= self.period_ends.after(slack_us);
        self.before = std::mem::take(&mut self.recent);
        if is_long_over {
            self.before.clear();
        }
        // Members that wait belong to both periods: they count in the new one.
        self.before.retain(|member| !self.held.contains(member));
        self.recent.extend(&self.held);
        self.period_ends = now.after(slack_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK_US: u64 = 500_000;

    /// A gathering that knows these members, because each of them asked once.
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
        assert_eq!(gathering.due_at(), Some(Moment(10 + SLACK_US / QUIET_DIVISOR)));
        assert_eq!(gathering.take_due(Moment(10 + SLACK_US / QUIET_DIVISOR)), [0], "nobody came");
        let mut now = Moment(100_000);
        let first = now;
        while gathering.take_due(now).is_empty() {
            assert!(now < first.after(SLACK_US), "nobody is handed out in all its time");
            gathering.hold(now, now.0 / 4_000 % 90, SLACK_US);
            now = now.after(4_000);
        }
        assert!(now <= first.after(SLACK_US / WAIT_DIVISOR + 4_000), "{now:?}");
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
        let mut gathering = known(2 * BATCH_MEMBERS as u64);
        (1..BATCH_MEMBERS as u64).for_each(|member| gathering.hold(Moment(10), member, SLACK_US));
        assert!(gathering.take_due(Moment(10)).is_empty());
        gathering.hold(Moment(10), 0, SLACK_US);
        assert_eq!(gathering.take_due(Moment(10)).len(), BATCH_MEMBERS);
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

//! The date that a node uses: that of its own clock, unless most clocks of the ring disagree with it.
//!
//! The time of a slot never falls. So one entry dated by a clock that is a year ahead would set the slot's
//! time for a year: keys would expire at once, and later ones would not expire. Nodes tell each other what
//! their clocks say; nothing is agreed on.
//!
//! Invariant: a node reports its own clock, not the date that it uses, so that a wrong clock is never passed
//! on as a right one.
//! Invariant: of two clocks that differ either may be wrong, so both are believed.

use crate::clock::Now;
use atoll_keyspace::DATES_APART_MS_MAX;
use atoll_replica::{Entry, Moment, NodeId, Table};
use std::collections::BTreeMap;

/// How far a clock may be from the median to be believed.
const DEVIATION_MS_MAX: u64 = 60_000;

const _: () =
    assert!(2 * DEVIATION_MS_MAX <= DATES_APART_MS_MAX, "clients are remembered as long as is said");

/// A changed offset of a clock is taken over from this difference on; less is the delay of a message.
const STEP_MS: u64 = 1_000;

/// How long a node that starts serves no clients while it has not heard the clocks of two others, if there
/// are two. A machine that starts is the one whose clock is likely wrong, and its first write would already
/// do harm.
const EARLY_US: u64 = 3_000_000;

/// How many clocks it takes to find a wrong one.
const CLOCKS_MIN: usize = 3;

/// How often entries with dates far ahead are warned of.
const WARN_EVERY_US: u64 = 60_000_000;

/// The clocks of a ring, as one of its nodes knows them. Each is kept as the offset, in milliseconds, from
/// this node's monotonic moments to its date: a report stays valid until that clock is set.
#[derive(Debug, Default)]
pub(crate) struct Dates {
    own: i64,
    others: BTreeMap<NodeId, i64>,
    /// The median offset of all clocks.
    middle: i64,
    /// Whether more than half of all clocks are far from this node's, on the same side.
    is_doubted: bool,
    is_far: bool,
    begun_at: Option<Moment>,
    /// Nodes that are up, this one included.
    up: usize,
    /// Entries of other nodes with dates far ahead.
    ahead: u64,
    warned_at: Option<Moment>,
}

/// What is reported about a node's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockSeen {
    /// How far it is ahead of the median of all clocks, in milliseconds.
    pub(crate) off_ms: i64,
    /// Whether the node uses the median instead.
    pub(crate) is_doubted: bool,
}

fn offset(date_ms: u64, moment: Moment) -> i64 {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    signed(date_ms).saturating_sub(signed(moment.0 / 1_000))
}

fn date(offset: i64, moment: Moment) -> u64 {
    (moment.0 / 1_000).saturating_add_signed(offset)
}

impl Dates {
    /// Returns the time to use for this reading of the clock.
    pub(crate) fn adjusted(&mut self, clock: Now) -> Now {
        let own = offset(clock.date_ms, clock.moment);
        if own.abs_diff(self.own) >= STEP_MS {
            self.own = own;
            self.decide();
        }
        self.readjusted(clock)
    }

    /// Dates the same moment again, by what other nodes have reported since.
    pub(crate) fn readjusted(&self, now: Now) -> Now {
        match self.is_doubted {
            true => Now { date_ms: date(self.middle, now.moment), ..now },
            false => now,
        }
    }

    /// What this node reports its own clock to say, to a second.
    pub(crate) fn own_date_ms(&self, moment: Moment) -> u64 {
        date(self.own, moment)
    }

    /// Takes another node's report of its clock.
    pub(crate) fn take_report(&mut self, from: NodeId, date_ms: u64, moment: Moment) {
        let told = offset(date_ms, moment);
        if self.others.get(&from).is_none_or(|known| known.abs_diff(told) >= STEP_MS) {
            self.others.insert(from, told);
            self.decide();
        }
    }

    /// An incarnation of this node has begun.
    pub(crate) fn begin(&mut self, moment: Moment) {
        self.begun_at = Some(moment);
    }

    /// Follows a table: nodes that have left do not count.
    pub(crate) fn follow(&mut self, table: &Table) {
        self.up = table.members.values().filter(|member| member.is_up).count();
        let before = self.others.len();
        self.others.retain(|&node, _| table.members.get(&node).is_some());
        if self.others.len() != before {
            self.decide();
        }
    }

    /// Whether too few other clocks are known yet for this node to trust its own.
    pub(crate) fn is_early(&self, moment: Moment) -> bool {
        let is_new = self.begun_at.is_some_and(|begun_at| moment < begun_at.after(EARLY_US));
        is_new && self.up >= CLOCKS_MIN && self.others.len() + 1 < CLOCKS_MIN
    }

    /// Counts entries of another node whose dates are far ahead of the date that this node uses. Their slot
    /// keeps that time.
    pub(crate) fn count_ahead(&mut self, entries: &[Entry], from: NodeId, now: Now) {
        let most = now.date_ms.saturating_add(DEVIATION_MS_MAX);
        let ahead = entries.iter().filter(|entry| entry.time_ms > most).count() as u64;
        self.ahead += ahead;
        if ahead > 0 && self.warned_at.is_none_or(|at| now.moment >= at.after(WARN_EVERY_US)) {
            self.warned_at = Some(now.moment);
            let seconds = entries.iter().map(|entry| entry.time_ms).max().unwrap_or(0);
            let seconds = seconds.saturating_sub(now.date_ms) / 1_000;
            tracing::warn!(%from, seconds, "a node sends writes dated far ahead, and their slots keep that time");
        }
    }

    /// How many such entries there were.
    pub(crate) fn ahead(&self) -> u64 {
        self.ahead
    }

    pub(crate) fn seen(&self) -> ClockSeen {
        ClockSeen { off_ms: self.own.saturating_sub(self.middle), is_doubted: self.is_doubted }
    }

    fn decide(&mut self) {
        let mut all: Vec<i64> = self.others.values().copied().chain([self.own]).collect();
        all.sort_unstable();
        self.middle = all.get((all.len() - 1) / 2).copied().unwrap_or(self.own);
        let is_far = |other: &&i64| other.abs_diff(self.own) > DEVIATION_MS_MAX;
        let behind = all.iter().filter(|other| **other < self.own).filter(is_far).count();
        let ahead = all.iter().filter(|other| **other > self.own).filter(is_far).count();
        self.is_doubted = 2 * behind.max(ahead) > all.len();
        let is_far = self.middle.abs_diff(self.own) > DEVIATION_MS_MAX;
        if std::mem::replace(&mut self.is_far, is_far) != is_far {
            let (seconds, is_doubted) = (self.seen().off_ms / 1_000, self.is_doubted);
            if is_far {
                tracing::warn!(seconds, is_doubted, "the clock of this node is far from those of the others");
            } else {
                tracing::info!("the clock of this node is near those of the others again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_replica::{Change, Epoch, Group, GroupOptions, PlacementHints, Position, Sequence, Survived};

    const YEAR: u64 = 365 * 86_400_000;
    const TODAY: u64 = 1_800_000_000_000;

    fn at(seconds: u64, date_ms: u64) -> Now {
        Now { moment: Moment(seconds * 1_000_000), date_ms }
    }

    /// A node that has heard these clocks, each as it was one second after the start.
    fn hearing(clocks: &[u64]) -> Dates {
        let mut dates = Dates::default();
        dates.adjusted(at(0, TODAY));
        for (node, &clock) in (2..).zip(clocks) {
            dates.take_report(NodeId(node), clock + 1_000, Moment(1_000_000));
        }
        dates
    }

    #[test]
    fn one_wrong_clock_among_three_does_no_harm_whether_it_is_this_nodes_or_anothers() {
        let mut dates = hearing(&[TODAY, TODAY + 300]);
        assert_eq!(dates.adjusted(at(7, TODAY + 7_000)).date_ms, TODAY + 7_000);
        for wrong in [TODAY + YEAR, TODAY - YEAR] {
            let by = dates.adjusted(at(8, wrong)).date_ms;
            assert!(by.abs_diff(TODAY + 8_000) < 1_000, "{by}");
            assert!(dates.seen().is_doubted && dates.own_date_ms(at(8, 0).moment).abs_diff(wrong) < 1_000);
            // The others report nothing more, and time goes on.
            let by = dates.adjusted(at(1_000, wrong + 992_000)).date_ms;
            assert!(by.abs_diff(TODAY + 1_000_000) < 1_000, "{by}");
            assert_eq!(dates.adjusted(at(1_001, TODAY + 1_001_000)).date_ms, TODAY + 1_001_000);
            assert!(!dates.seen().is_doubted);
            let mut other = hearing(&[TODAY, wrong]);
            assert_eq!(other.adjusted(at(7, TODAY + 7_000)).date_ms, TODAY + 7_000);
        }
    }

    #[test]
    fn clocks_of_which_nobody_knows_who_is_right_are_believed() {
        for clocks in
            [&[TODAY - YEAR][..], &[TODAY - YEAR, TODAY + YEAR], &[TODAY, TODAY - YEAR, TODAY - YEAR]]
        {
            let mut dates = hearing(clocks);
            assert_eq!(dates.adjusted(at(7, TODAY + 7_000)).date_ms, TODAY + 7_000, "{clocks:?}");
        }
        assert_eq!(hearing(&[TODAY - YEAR]).seen().off_ms, YEAR as i64, "but it is told");
        assert_eq!(hearing(&[TODAY - 59_000; 2]).seen(), ClockSeen { off_ms: 59_000, is_doubted: false });
    }

    #[test]
    fn a_node_that_begins_waits_until_it_heard_of_two_other_clocks_if_these_are_there() {
        let mut group = Group::new(GroupOptions { slots: 1, copies: 1 });
        let mut table = |node: u32| {
            let (address, survived) = (String::new(), Survived::Nothing);
            group.apply(Change::Register {
                node: NodeId(node),
                nonce: 1,
                address,
                hints: PlacementHints::default(),
                survived,
            });
            group.table()
        };
        let mut dates = Dates::default();
        dates.begin(Moment(5));
        dates.follow(&table(1));
        assert!(!dates.is_early(Moment(6)));
        dates.follow(&table(2));
        assert!(!dates.is_early(Moment(6)), "of two nobody knows who is right");
        let three = table(3);
        dates.follow(&three);
        dates.take_report(NodeId(2), TODAY, Moment(6));
        assert!(dates.is_early(Moment(6)) && !dates.is_early(Moment(EARLY_US + 5)), "nor for ever");
        dates.take_report(NodeId(3), TODAY, Moment(6));
        assert!(!dates.is_early(Moment(6)));
        dates.take_report(NodeId(4), TODAY, Moment(6));
        dates.follow(&three);
        assert_eq!(dates.others.len(), 2, "one that is of the ring no more is not asked what time it is");
    }

    #[test]
    fn entries_with_dates_far_ahead_are_counted() {
        let position = Position { epoch: Epoch(1), sequence: Sequence(1) };
        let entry = |time_ms| Entry { position, time_ms, body: [].into() };
        let mut dates = Dates::default();
        let entries = [TODAY - YEAR, TODAY + 60_000, TODAY + 60_001, TODAY + YEAR].map(entry);
        dates.count_ahead(&entries, NodeId(2), at(0, TODAY));
        assert_eq!(dates.ahead(), 2);
    }
}

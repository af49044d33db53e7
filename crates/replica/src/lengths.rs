//! How long the writes of a slot are that are on their way to its cells, for a primary that is asked so for
//! each request.
//!
//! Invariant: asking takes the same time however many writes are on their way.

use crate::log::Log;
use crate::{Entry, Epoch, Sequence};
use std::collections::VecDeque;

/// The longest of some lengths, which come in order and leave in that order.
///
/// Source: the minimum of a moving window in constant time, as in "Streaming maximum-minimum filter using no
/// more than three comparisons per element" (Lemire 2006).
#[derive(Debug, Default)]
pub(crate) struct Longest {
    /// Those behind which nothing as long has come, by their places. So each is longer than the next one.
    rest: VecDeque<(u64, usize)>,
}

impl Longest {
    /// Adds a length at a place behind all others.
    pub(crate) fn push(&mut self, place: u64, length: usize) {
        while self.rest.back().is_some_and(|(_, shorter)| *shorter <= length) {
            self.rest.pop_back();
        }
        self.rest.push_back((place, length));
    }

    /// Removes those up to a place.
    pub(crate) fn remove_through(&mut self, place: u64) {
        while self.rest.front().is_some_and(|(first, _)| *first <= place) {
            self.rest.pop_front();
        }
    }

    /// The longest one, 0 if there is none.
    pub(crate) fn length(&self) -> usize {
        self.rest.front().map_or(0, |(_, longest)| *longest)
    }
}

/// The lengths of the entries of a slot that are logged and not committed.
#[derive(Debug, Default)]
pub(crate) struct Uncommitted {
    longest: Longest,
    inherited: usize,
}

impl Uncommitted {
    /// Those of a log in an epoch.
    pub(crate) fn of(log: &Log, committed: Sequence, epoch: Epoch) -> Self {
        let mut found = Self::default();
        log.iter_behind(committed).for_each(|entry| found.push(entry, epoch));
        found
    }

    /// An entry comes at the end of the log.
    pub(crate) fn push(&mut self, entry: &Entry, epoch: Epoch) {
        self.longest.push(entry.position.sequence.0, entry.body.len());
        if entry.position.epoch < epoch {
            self.inherited += entry.body.len();
        }
    }

    /// The first entry is committed, in the epoch in which it was pushed or the lengths were taken.
    pub(crate) fn commit(&mut self, entry: &Entry, epoch: Epoch) {
        self.longest.remove_through(entry.position.sequence.0);
        if entry.position.epoch < epoch {
            self.inherited = self.inherited.saturating_sub(entry.body.len());
        }
    }

    /// The length of the longest entry.
    pub(crate) fn longest(&self) -> usize {
        self.longest.length()
    }

    /// The sum of the lengths of those of earlier epochs.
    pub(crate) fn inherited(&self) -> usize {
        self.inherited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_that_of_those_that_are_there_whatever_came_and_left() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..200 {
            let (mut longest, mut there, mut next) = (Longest::default(), VecDeque::new(), 0);
            for _ in 0..200 {
                if random.bool() || there.is_empty() {
                    let length = random.usize(..10);
                    longest.push(next, length);
                    there.push_back((next, length));
                    next += 1;
                } else {
                    let last = there[random.usize(..there.len().min(3))].0;
                    longest.remove_through(last);
                    there.retain(|(place, _)| *place > last);
                }
                let expected = there.iter().map(|(_, length)| *length).max().unwrap_or(0);
                assert_eq!(longest.length(), expected, "round {round}: {there:?}");
            }
        }
    }

    #[test]
    fn those_of_equal_length_take_one_place() {
        let mut longest = Longest::default();
        (0..1000).for_each(|place| longest.push(place, 100));
        assert_eq!((longest.rest.len(), longest.length()), (1, 100));
        longest.remove_through(998);
        assert_eq!(longest.length(), 100);
        longest.remove_through(999);
        assert_eq!(longest.length(), 0);
    }
}

//! The part of a slot's log that is kept in memory: all entries that are not applied yet, and some applied
//! ones.
//!
//! Invariant: entries follow `base` without gaps, and positions only grow.

use crate::{Entry, Position, Sequence};
use std::collections::VecDeque;

/// The entries that follow a base position.
#[derive(Debug, Default)]
pub(crate) struct Log {
    base: Position,
    entries: VecDeque<Entry>,
    /// How many of the first entries are known to be applied, and the bytes of their bodies.
    applied: usize,
    applied_bytes: usize,
}

/// Which applied entries a log must keep for other copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    /// The copy that is furthest behind lacks the entries after this one.
    pub(crate) behind: Sequence,
    /// Some copy is catching up from here to the end of the log. More is kept for it, because it cannot be
    /// sent cells again each time.
    pub(crate) held_behind: Option<Sequence>,
    /// How many bytes of applied entries to keep, except for those behind `held_behind`. Where all slots
    /// together keep much, this is less than one slot alone may keep.
    pub(crate) bytes_max: usize,
}

impl Log {
    /// An empty log that begins after `base`: entries up to there are applied and dropped.
    pub(crate) fn behind(base: Position) -> Self {
        Self { base, entries: VecDeque::new(), applied: 0, applied_bytes: 0 }
    }

    pub(crate) fn base(&self) -> Position {
        self.base
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Position {
        self.entries.back().map_or(self.base, |entry| entry.position)
    }

    pub(crate) fn get(&self, sequence: Sequence) -> Option<&Entry> {
        let behind = sequence.0.checked_sub(self.base.sequence.0 + 1)?;
        self.entries.get(usize::try_from(behind).ok()?)
    }

    /// The position of the entry at a place; also answers for the base.
    pub(crate) fn position(&self, sequence: Sequence) -> Option<Position> {
        if sequence == self.base.sequence {
            return Some(self.base);
        }
        self.get(sequence).map(|entry| entry.position)
    }

    /// Appends an entry.
    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert_eq!(entry.position.sequence, self.last().sequence.next(), "a gap in the log");
        debug_assert!(entry.position.epoch >= self.last().epoch, "an epoch that fell");
        self.entries.push_back(entry);
    }

    /// Drops all entries after a place; returns whether there were any.
    pub(crate) fn truncate_behind(&mut self, sequence: Sequence) -> bool {
        let keep = sequence.0.saturating_sub(self.base.sequence.0);
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        let is_longer = self.entries.len() > keep;
        self.entries.truncate(keep);
        if self.applied > keep {
            self.applied = self.entries.len();
            self.applied_bytes = self.entries.iter().map(|entry| entry.body.len()).sum();
        }
        is_longer
    }

    /// Roughly how much memory the applied entries take that are kept for other copies.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.applied_bytes + self.applied * KEPT_ENTRY_BYTES
    }

    /// All entries after a place.
    pub(crate) fn iter_behind(&self, sequence: Sequence) -> impl Iterator<Item = &Entry> {
        let skipped = usize::try_from(sequence.0.saturating_sub(self.base.sequence.0)).unwrap_or(usize::MAX);
        self.entries.range(skipped.min(self.entries.len())..)
    }

    /// Entries after a place, up to `bytes_max` bytes; at least one if there is any.
    pub(crate) fn behind_place(&self, sequence: Sequence, bytes_max: usize) -> Vec<Entry> {
        let skipped = usize::try_from(sequence.0.saturating_sub(self.base.sequence.0)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let mut found = Vec::new();
        for entry in self.entries.iter().skip(skipped) {
            bytes += entry.body.len() + ENTRY_BYTES;
            if bytes > bytes_max && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        found
    }

    /// Drops applied entries that no copy needs. Keeps at most the newest `kept` of them, within the limits
    /// on bytes, and those held for a copy that is catching up. A copy that lacks dropped entries is sent
    /// cells.
    pub(crate) fn trim(&mut self, applied: Sequence, needed: Needed, kept: usize) {
        let newly = self.entries.iter().skip(self.applied);
        for entry in newly.take_while(|entry| entry.position.sequence <= applied) {
            self.applied += 1;
            self.applied_bytes += entry.body.len();
        }
        while let Some(first) = self.entries.front() {
            let sequence = first.position.sequence;
            let behind_applied = applied.0.saturating_sub(sequence.0);
            let is_needed = sequence > needed.behind
                && behind_applied < kept as u64
                && self.applied_bytes <= KEPT_BYTES_MAX
                && self.kept_bytes() <= needed.bytes_max;
            let is_held = needed.held_behind.is_some_and(|from| sequence > from)
                && behind_applied < HELD_MAX
                && self.applied_bytes <= HELD_BYTES_MAX;
            if sequence > applied || is_needed || is_held {
                break;
            }
            self.base = first.position;
            self.applied -= 1;
            self.applied_bytes -= first.body.len();
            self.entries.pop_front();
        }
    }
}

/// Most bytes of applied entries that one slot keeps.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Once the slots of a node together keep more bytes of applied entries than this, each slot that it leads
/// keeps no more than its share.
pub(crate) const KEPT_OF_ALL_BYTES_MAX: usize = 256 << 20;

/// What an entry takes in memory besides its body, roughly.
const KEPT_ENTRY_BYTES: usize = 64;

/// The limits in bytes and in entries where a copy is catching up: about the writes of a few seconds.
const HELD_BYTES_MAX: usize = 64 << 20;
const HELD_MAX: u64 = 1 << 18;

/// What an entry takes in a message besides its body, roughly.
const ENTRY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    fn position(epoch: u64, sequence: u64) -> Position {
        Position { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    fn needed(behind: u64) -> Needed {
        Needed { behind: Sequence(behind), held_behind: None, bytes_max: usize::MAX }
    }

    fn log(base: u64, last: u64) -> Log {
        let mut log = Log::behind(position(1, base));
        for sequence in base + 1..=last {
            log.push(Entry { position: position(2, sequence), time_ms: 0, body: [7; 100].into() });
        }
        log
    }

    #[test]
    fn places_are_found_from_the_base_on() {
        let log = log(10, 13);
        assert_eq!(log.position(Sequence(9)), None);
        assert_eq!(log.position(Sequence(10)), Some(position(1, 10)));
        assert_eq!(log.position(Sequence(13)), Some(position(2, 13)));
        assert_eq!(log.position(Sequence(14)), None);
    }

    #[test]
    fn what_lies_behind_a_place_is_all_that_comes_after_it() {
        let log = log(4, 9);
        let behind = |sequence| -> Vec<u64> {
            log.iter_behind(Sequence(sequence)).map(|entry| entry.position.sequence.0).collect()
        };
        assert_eq!(behind(7), [8, 9]);
        assert_eq!(behind(4), behind(0), "what came before is gone");
        assert_eq!((behind(4).len(), behind(9).len(), behind(u64::MAX).len()), (5, 0, 0));
    }

    #[test]
    fn messages_hold_what_fits_and_one_at_least() {
        let log = log(0, 5);
        assert_eq!(log.behind_place(Sequence(1), 300).len(), 2);
        assert_eq!(log.behind_place(Sequence(4), 1).len(), 1);
        assert!(log.behind_place(Sequence(5), 1000).is_empty());
    }

    #[test]
    fn what_is_applied_goes_but_for_what_somebody_needs() {
        let mut long = log(0, 10);
        long.trim(Sequence(8), needed(6), 100);
        assert_eq!(long.base().sequence, Sequence(6), "behind 6 somebody needs them");
        long.trim(Sequence(8), needed(0), 1);
        assert_eq!(long.base().sequence, Sequence(7), "one applied entry is kept");
        assert!(long.truncate_behind(Sequence(9)) && !long.truncate_behind(Sequence(9)));
        assert_eq!(long.last().sequence, Sequence(9));
    }

    #[test]
    fn what_is_held_for_a_copy_on_its_way_stays_as_long_as_it_is_not_too_much() {
        let held = Needed { held_behind: Some(Sequence(20)), ..needed(0) };
        let mut long = log(0, 100);
        long.trim(Sequence(90), held, 1);
        assert_eq!(long.base().sequence, Sequence(20));
        long.trim(Sequence(90), needed(0), 1);
        assert_eq!(long.base().sequence, Sequence(89), "nobody is on its way any more");
        let mut long = Log::behind(position(1, 0));
        let body: std::sync::Arc<[u8]> = vec![7; HELD_BYTES_MAX / 4].into();
        for sequence in 1..=9 {
            long.push(Entry { position: position(2, sequence), time_ms: 0, body: body.clone() });
        }
        long.trim(Sequence(9), Needed { held_behind: Some(Sequence(1)), ..needed(0) }, 100);
        assert_eq!(long.base().sequence, Sequence(5));
    }

    #[test]
    fn long_entries_are_not_kept_for_anybody_once_they_are_applied() {
        let mut long = Log::behind(position(1, 0));
        let half: std::sync::Arc<[u8]> = vec![7; KEPT_BYTES_MAX / 2].into();
        for sequence in 1..=5 {
            long.push(Entry { position: position(2, sequence), time_ms: 0, body: half.clone() });
        }
        long.trim(Sequence(2), needed(0), 100);
        assert_eq!(long.base().sequence, Sequence(0), "those that are not applied do not count");
        long.trim(Sequence(4), needed(0), 100);
        assert_eq!(long.base().sequence, Sequence(2), "two fit");
        long.truncate_behind(Sequence(3));
        long.push(Entry { position: position(3, 4), time_ms: 0, body: half });
        long.trim(Sequence(4), needed(0), 100);
        assert_eq!(long.base().sequence, Sequence(2), "what was cut off does not count");
    }
}

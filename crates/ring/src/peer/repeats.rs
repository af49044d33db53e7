//! Which entries wait to be sent on a connection. A repeat of entries that still wait is replaced by a short
//! message.
//!
//! The primary sends again what a copy has not acknowledged, even if all of it still waits here. On a slow
//! link the entries would be queued behind themselves again and again, and everything else behind them.
//!
//! Invariant: what counts as a repeat waits here, or was begun and will be completed, unless the connection
//! ends.

use atoll_replica::{Epoch, Message, Position, Sequence, Slot, SlotMessage};
use std::collections::{BTreeMap, VecDeque};

/// Consecutive entries of a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    slot: Slot,
    epoch: Epoch,
    /// The sequence before the first.
    behind: Sequence,
    last: Position,
    committed: Sequence,
}

impl Run {
    /// The entries of a message, if it has any.
    pub(super) fn of(message: &Message) -> Option<Self> {
        let Message::Slot { slot, epoch, about: SlotMessage::Append { previous, entries, committed } } =
            message
        else {
            return None;
        };
        let (behind, last) = (previous.sequence, entries.last()?.position);
        Some(Self { slot: *slot, epoch: *epoch, behind, last, committed: *committed })
    }

    /// The message that replaces a repeat, behind all that waits: it asks whether the entries came, and
    /// carries the commit index.
    pub(super) fn asked_for(&self) -> Message {
        let Self { slot, epoch, last, committed, .. } = *self;
        let about = SlotMessage::Append { previous: last, entries: Vec::new(), committed };
        Message::Slot { slot, epoch, about }
    }
}

/// Waiting entries of one slot, in consecutive messages.
struct Waiting {
    epoch: Epoch,
    /// Where each message ends, counted in bytes ever sent, and the sequence before its first entry.
    messages: VecDeque<(u64, Sequence)>,
    last: Sequence,
}

/// The entries that wait on one connection.
#[derive(Default)]
pub(super) struct Repeats {
    slots: BTreeMap<Slot, Waiting>,
    /// The same messages of all slots, in order.
    ends: VecDeque<(u64, Slot)>,
}

impl Repeats {
    /// Whether all entries of the run wait.
    pub(super) fn has(&self, run: &Run) -> bool {
        self.slots.get(&run.slot).is_some_and(|waiting| {
            let first = waiting.messages.front();
            waiting.epoch == run.epoch
                && first.is_some_and(|(_, behind)| *behind <= run.behind)
                && run.last.sequence <= waiting.last
        })
    }

    /// Records entries that wait in a message ending at `end`.
    pub(super) fn add(&mut self, run: &Run, end: u64) {
        let Run { slot, epoch, behind, last: Position { sequence: last, .. }, .. } = *run;
        let new = || Waiting { epoch, messages: VecDeque::new(), last };
        let waiting = self.slots.entry(slot).or_insert_with(new);
        if waiting.epoch != epoch || waiting.last != behind {
            // Entries in between were dropped, or the new ones replace those that wait.
            *waiting = new();
        }
        waiting.messages.push_back((end, behind));
        waiting.last = last;
        self.ends.push_back((end, slot));
    }

    /// Records that everything up to this byte is sent.
    pub(super) fn sent_through(&mut self, place: u64) {
        while let Some((_, slot)) = self.ends.pop_front_if(|(end, _)| *end <= place) {
            let Some(waiting) = self.slots.get_mut(&slot) else { continue };
            while waiting.messages.pop_front_if(|(end, _)| *end <= place).is_some() {}
            if waiting.messages.is_empty() {
                self.slots.remove(&slot);
            }
        }
        if self.ends.is_empty() {
            self.ends.shrink_to(KEPT);
        }
    }
}

/// Messages for which there is room when none wait.
const KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(epoch: u64, behind: u64, last: u64) -> Run {
        let (epoch, committed) = (Epoch(epoch), Sequence(behind));
        let last = Position { epoch, sequence: Sequence(last) };
        Run { slot: Slot(5), epoch, behind: Sequence(behind), last, committed }
    }

    #[test]
    fn only_what_waits_as_a_whole_is_a_repeat() {
        let mut repeats = Repeats::default();
        assert!(!repeats.has(&run(1, 4, 5)));
        repeats.add(&run(1, 4, 6), 100);
        repeats.add(&run(1, 6, 9), 200);
        for (behind, last) in [(4, 5), (4, 9), (5, 7), (8, 9)] {
            assert!(repeats.has(&run(1, behind, last)), "{behind} to {last}");
        }
        assert!(!repeats.has(&run(1, 3, 5)) && !repeats.has(&run(1, 8, 10)), "some of it does not wait");
        assert!(!repeats.has(&run(2, 4, 6)), "in another epoch they may be others");
        assert!(!repeats.has(&Run { slot: Slot(6), ..run(1, 4, 6) }));
        repeats.sent_through(199);
        assert!(!repeats.has(&run(1, 4, 6)) && repeats.has(&run(1, 6, 9)), "the first message is gone");
        repeats.sent_through(200);
        assert!(!repeats.has(&run(1, 6, 9)));
        assert!(repeats.slots.is_empty() && repeats.ends.is_empty());
    }

    #[test]
    fn what_does_not_follow_what_waits_begins_anew() {
        let mut repeats = Repeats::default();
        repeats.add(&run(1, 4, 6), 100);
        repeats.add(&run(1, 8, 9), 200);
        assert!(!repeats.has(&run(1, 4, 9)), "7 and 8 were given up");
        assert!(repeats.has(&run(1, 8, 9)));
        repeats.sent_through(100);
        assert!(repeats.has(&run(1, 8, 9)));
        repeats.add(&run(2, 9, 10), 300);
        assert!(!repeats.has(&run(1, 8, 9)) && repeats.has(&run(2, 9, 10)));
        repeats.sent_through(300);
        assert!(repeats.slots.is_empty() && repeats.ends.is_empty());
    }
}

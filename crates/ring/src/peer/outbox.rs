//! What waits to be sent on one connection: whole frames, in order, with counts of those sent and lost.
//!
//! Invariant: a frame that was begun is completed before anything else is sent.
//! Invariant: frames that overtake others are few, also in memory, and never precede what a connection begins
//! with.
//! Invariant: however many words there are, what they overtake gets as much of the connection as they do.

use super::UNCONNECTED_BYTES_MAX;
use super::lane::{KeptMemory, Lane};
use super::repeats::{Repeats, Run};

/// Frames on their way to one node.
#[derive(Default)]
pub(super) struct Outbox {
    /// What the connection begins with, followed by promises.
    first: Lane,
    /// How many of those frames are what it begins with, which are no messages.
    opening: u64,
    /// Messages about entries, which overtake those that wait.
    words: Lane,
    waiting: Lane,
    /// How many more bytes of words than of waiting messages were sent, while those waited.
    lead: usize,
    /// Whether that is so much that words wait until the others have had as much.
    do_words_wait: bool,
    /// Bytes sent from the ordinary lane, ever.
    passed: u64,
    repeats: Repeats,
    counts: Counts,
}

/// Most bytes of waiting promises, and of waiting words.
const PROMISES_BYTES_MAX: usize = 256 << 10;
const WORDS_BYTES_MAX: usize = 1 << 20;

/// What waits is long from here on; less is sent before a delay would matter.
const LONG_BYTES: usize = 256 << 10;

const KEPT_AHEAD: KeptMemory = KeptMemory { empty_bytes: 64 << 10, sent_bytes: LONG_BYTES };
const KEPT: KeptMemory = KeptMemory { empty_bytes: UNCONNECTED_BYTES_MAX, sent_bytes: UNCONNECTED_BYTES_MAX };

/// Kinds of messages that overtake entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Worthless if late.
    Promise,
    /// Sent again if it is missed.
    Word,
}

/// Numbers of messages since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Those that a connection accepted.
    pub(super) sent: u64,
    /// Those that were lost with a connection, or before there was one.
    pub(super) lost: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, Self { sent, lost }: Self) {
        self.sent += sent;
        self.lost += lost;
    }
}

/// The lane whose frames are sent next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Words,
    Waiting,
}

impl Outbox {
    /// Bytes of messages in the ordinary lane.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.waiting_bytes()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next().is_empty()
    }

    /// Appends a message.
    pub(super) fn add(&mut self, body: &[u8]) {
        self.waiting.add(body);
    }

    /// Queues a message before all waiting ones, except one that was begun, and behind others of its kind.
    /// Returns whether there was room.
    pub(super) fn add_ahead(&mut self, body: &[u8], kind: Ahead) -> bool {
        let (lane, most) = match kind {
            Ahead::Promise => (&mut self.first, PROMISES_BYTES_MAX),
            Ahead::Word => (&mut self.words, WORDS_BYTES_MAX),
        };
        let has_room = lane.waiting_bytes() < most;
        if has_room {
            lane.add(body);
        }
        has_room
    }

    /// Whether all of these entries wait.
    pub(super) fn has(&self, run: &Run) -> bool {
        self.repeats.has(run)
    }

    /// Records that the last message added has these entries.
    pub(super) fn has_added(&mut self, run: &Run) {
        // What is sent at once cannot be a repeat, and that is nearly everything.
        if self.is_long() {
            self.repeats.add(run, self.passed + self.waiting_bytes() as u64);
        }
    }

    /// Whether so much waits that urgent messages would be late.
    pub(super) fn is_long(&self) -> bool {
        self.waiting_bytes() > LONG_BYTES
    }

    /// Queues a frame that the connection begins with. Nothing that waits has been sent yet.
    pub(super) fn open_with(&mut self, body: &[u8]) {
        self.first.add(body);
        self.opening += 1;
    }

    fn turn(&self) -> Turn {
        let lanes = [(Turn::First, &self.first), (Turn::Words, &self.words), (Turn::Waiting, &self.waiting)];
        if let Some((turn, _)) = lanes.iter().find(|(_, lane)| lane.begun_bytes() > 0) {
            return *turn;
        }
        match self.first.is_empty() {
            false => Turn::First,
            true if self.words.is_empty() || self.do_words_wait => Turn::Waiting,
            true => Turn::Words,
        }
    }

    /// The bytes to send next.
    pub(super) fn next(&self) -> &[u8] {
        let turn = self.turn();
        let (lane, most) = match turn {
            Turn::First => (&self.first, usize::MAX),
            Turn::Words if self.waiting.is_empty() => (&self.words, usize::MAX),
            Turn::Words => (&self.words, LONG_BYTES.saturating_sub(self.lead)),
            Turn::Waiting if self.words.is_empty() => (&self.waiting, usize::MAX),
            Turn::Waiting if self.do_words_wait => (&self.waiting, self.lead),
            Turn::Waiting => (&self.waiting, 0),
        };
        let is_overtaken = turn != Turn::First && !self.first.is_empty();
        let most = lane.begun_bytes().max(if is_overtaken { 0 } else { most });
        lane.waiting().get(..most).unwrap_or(lane.waiting())
    }

    /// Marks this many of those bytes as sent.
    pub(super) fn took(&mut self, count: usize) {
        match self.turn() {
            Turn::First => {
                let ended = self.first.took(count);
                let opening = ended.min(self.opening);
                self.opening -= opening;
                self.counts.sent += ended - opening;
            }
            Turn::Words => {
                self.counts.sent += self.words.took(count);
                self.lead += count;
            }
            Turn::Waiting => {
                self.counts.sent += self.waiting.took(count);
                self.passed += count as u64;
                self.lead = self.lead.saturating_sub(count);
            }
        }
        if self.waiting.is_empty() {
            self.lead = 0;
        }
        self.do_words_wait = self.lead >= LONG_BYTES || (self.do_words_wait && self.lead > 0);
    }

    /// Frees the memory of what was sent.
    pub(super) fn tidy(&mut self) {
        self.repeats.sent_through(self.passed);
        self.first.tidy(KEPT_AHEAD);
        self.words.tidy(KEPT_AHEAD);
        self.waiting.tidy(KEPT);
    }

    /// Drops everything that waits, because the connection is over.
    pub(super) fn clear(&mut self) {
        let Counts { sent, lost } = self.counts;
        let left: u64 = [&self.first, &self.words, &self.waiting].map(Lane::count).iter().sum();
        let counts = Counts { sent, lost: lost + left - self.opening };
        *self = Self { counts, ..Self::default() };
    }

    pub(super) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::LIMITS;
    use atoll_wire::Decoder;

    /// Lets the connection take up to this much; returns how much of the ordinary lane that was.
    fn send(outbox: &mut Outbox, most: usize) -> (Vec<u8>, usize) {
        let before = outbox.waiting_bytes();
        let next = outbox.next();
        let taken = next[..next.len().min(most)].to_vec();
        outbox.took(taken.len());
        let of_waiting = before - outbox.waiting_bytes();
        outbox.tidy();
        (taken, of_waiting)
    }

    #[test]
    fn words_that_come_as_fast_as_they_leave_take_little_memory_and_half_of_the_connection() {
        let (mut outbox, mut sent, mut of_waiting) = (Outbox::default(), 0, 0);
        let mut longest = 0;
        for _ in 0..10_000 {
            while outbox.waiting_bytes() < 1 << 20 {
                outbox.add(&[7; 10_000]);
            }
            // Twice as many as the connection can take.
            outbox.add_ahead(&[1; 1_000], Ahead::Word);
            outbox.add_ahead(&[1; 1_000], Ahead::Word);
            let (taken, waited) = send(&mut outbox, 1_021);
            (sent, of_waiting) = (sent + taken.len(), of_waiting + waited);
            longest = longest.max(outbox.words.capacity());
        }
        assert!(longest <= 3 << 20, "{longest} bytes of memory");
        let share = of_waiting as f64 / sent as f64;
        assert!((0.45..0.55).contains(&share), "{share} of {sent} bytes");
        // Afterwards little of that memory is kept.
        while !outbox.is_empty() {
            send(&mut outbox, 1 << 20);
        }
        let kept = outbox.words.capacity();
        assert!(kept <= KEPT_AHEAD.empty_bytes, "{kept} bytes are kept");
    }

    #[test]
    fn a_few_words_go_before_all_that_waits_and_promises_before_all_words() {
        let mut outbox = Outbox::default();
        (0..200).for_each(|_| outbox.add(&[3; 10_000]));
        send(&mut outbox, 5_000);
        (0..100).for_each(|_| assert!(outbox.add_ahead(&[2; 1_000], Ahead::Word)));
        assert!(outbox.add_ahead(&[1], Ahead::Promise));
        let began = outbox.waiting_bytes();
        // The frame that was begun is completed first, then those that overtake.
        while !outbox.words.is_empty() {
            send(&mut outbox, 1_500);
            assert!(outbox.first.is_empty() || outbox.words.count() == 100, "a word went first");
        }
        assert!(began - outbox.waiting_bytes() < 10_000, "others went first");
    }

    #[test]
    fn there_is_room_for_promises_where_there_is_none_for_words() {
        let mut outbox = Outbox::default();
        outbox.add(&[3; 1 << 20]);
        while outbox.add_ahead(&[2; 100], Ahead::Word) {}
        assert!(outbox.add_ahead(&[1; 100], Ahead::Promise));
        while outbox.add_ahead(&[1; 100], Ahead::Promise) {}
        assert!(outbox.first.waiting_bytes() < PROMISES_BYTES_MAX + 200);
    }

    #[test]
    fn whatever_is_taken_at_a_time_frames_are_whole_and_those_of_a_kind_in_their_order() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut outbox, mut decoder) = (Outbox::default(), Decoder::new(LIMITS));
            outbox.open_with(&[9]);
            let (mut added, mut heard) = ([0_u32; 3], [0_u32; 3]);
            let mut is_greeted = false;
            for _ in 0..2_000 {
                let kind = random.usize(..3);
                let mut body = vec![kind as u8];
                body.extend(added[kind].to_le_bytes());
                let longest = if random.u8(..50) == 0 { 400_000 } else { 2_000 };
                body.resize(5 + random.usize(..longest), 0);
                match kind {
                    0 => outbox.add(&body),
                    1 => _ = outbox.add_ahead(&body, Ahead::Word),
                    _ => _ = outbox.add_ahead(&body, Ahead::Promise),
                }
                added[kind] += 1;
                for _ in 0..random.usize(..4) {
                    decoder.feed(&send(&mut outbox, 1 + random.usize(..30_000)).0);
                }
                while let Some(frame) = decoder.next_frame().unwrap() {
                    if !std::mem::replace(&mut is_greeted, true) {
                        assert_eq!(frame.body[..], [9]);
                        continue;
                    }
                    let kind = usize::from(frame.body[0]);
                    let number = u32::from_le_bytes(frame.body[1..5].try_into().unwrap());
                    // Frames for which there was no room are missing.
                    assert!(number >= heard[kind], "{kind}: {number} behind {}", heard[kind]);
                    heard[kind] = number + 1;
                }
            }
            assert!(heard.iter().all(|heard| *heard > 100), "{heard:?}");
        }
    }

    #[test]
    fn words_that_left_are_not_lost_with_those_that_did_not() {
        let mut outbox = Outbox::default();
        outbox.open_with(&[9; 50]);
        outbox.add(&[3; 1 << 20]);
        (0..10).for_each(|_| assert!(outbox.add_ahead(&[2; 1_000], Ahead::Word)));
        send(&mut outbox, usize::MAX);
        assert_eq!(outbox.take_counts(), Counts::default(), "what it begins with is no message");
        send(&mut outbox, 3_500);
        assert_eq!(outbox.take_counts(), Counts { sent: 3, lost: 0 });
        outbox.clear();
        assert_eq!(outbox.take_counts(), Counts { sent: 0, lost: 8 });
        outbox.open_with(&[9; 50]);
        outbox.clear();
        assert_eq!(outbox.take_counts(), Counts::default());
    }
}

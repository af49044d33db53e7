//! What waits to be sent on one connection: whole frames, in their order, and how many of them were sent or lost.
//!
//! Invariant: a frame that was begun is ended before anything else is sent.
//! Invariant: what goes ahead of others is little, and never goes before what a connection begins with.

use super::UNCONNECTED_BYTES_MAX;
use super::repeats::{Repeats, Run};
use atoll_wire::{Flags, Kind, encode_frame};
use std::collections::VecDeque;

/// Frames on their way to one node.
#[derive(Default)]
pub(super) struct Outbox {
    /// What goes before the next frame of those that wait.
    ahead: Vec<u8>,
    ahead_sent: usize,
    /// How many messages that is.
    ahead_messages: u64,
    bytes: Vec<u8>,
    sent: usize,
    /// How long each frame is that waits, also the one that was begun.
    lengths: VecDeque<usize>,
    /// How much is sent of the first of them.
    begun: usize,
    /// What was ever sent of those that wait behind each other, in bytes.
    passed: u64,
    repeats: Repeats,
    counts: Counts,
}

/// How much may go ahead of what waits.
const AHEAD_BYTES_MAX: usize = 1 << 20;

/// What waits is long from here on: less is sent before anybody would notice.
const LONG_BYTES: usize = 256 << 10;

/// Frames that there is room for when none wait.
const LENGTHS_KEPT: usize = 4096;

/// Messages, since they were asked for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Those that a connection took.
    pub(super) sent: u64,
    /// Those that were given up with a connection, or before there was one.
    pub(super) lost: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, Self { sent, lost }: Self) {
        self.sent += sent;
        self.lost += lost;
    }
}

impl Outbox {
    /// Bytes of messages that wait.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next().is_empty()
    }

    /// Puts a message behind all others.
    pub(super) fn add(&mut self, body: &[u8]) {
        let before = self.bytes.len();
        frame(body, &mut self.bytes);
        self.lengths.push_back(self.bytes.len() - before);
    }

    /// Puts a message before all others but the one that was begun, and those that are there already; whether there was room.
    pub(super) fn add_ahead(&mut self, body: &[u8]) -> bool {
        if self.ahead.len() - self.ahead_sent >= AHEAD_BYTES_MAX {
            return false;
        }
        frame(body, &mut self.ahead);
        self.ahead_messages += 1;
        true
    }

    /// Whether all of these entries wait.
    pub(super) fn has(&self, run: &Run) -> bool {
        self.repeats.has(run)
    }

    /// What was added last has these entries.
    pub(super) fn has_added(&mut self, run: &Run) {
        // What goes at once is no repeat of anything, and that is nearly all there is.
        if self.is_long() {
            self.repeats.add(run, self.passed + self.waiting_bytes() as u64);
        }
    }

    /// Whether so much waits that what others wait for would come late.
    pub(super) fn is_long(&self) -> bool {
        self.waiting_bytes() > LONG_BYTES
    }

    /// A connection begins with this; nothing was sent of what waits.
    pub(super) fn open_with(&mut self, body: &[u8]) {
        frame(body, &mut self.ahead);
    }

    /// What is to be sent next.
    pub(super) fn next(&self) -> &[u8] {
        let ahead = self.ahead.get(self.ahead_sent..).unwrap_or_default();
        let waiting = self.bytes.get(self.sent..).unwrap_or_default();
        match self.lengths.front() {
            _ if ahead.is_empty() => waiting,
            Some(first) if self.begun > 0 => waiting.get(..first - self.begun).unwrap_or_default(),
            _ => ahead,
        }
    }

    /// So much of that was sent.
    pub(super) fn took(&mut self, count: usize) {
        if self.begun == 0 && self.ahead_sent < self.ahead.len() {
            self.ahead_sent += count;
            if self.ahead_sent == self.ahead.len() {
                self.ahead.clear();
                self.ahead_sent = 0;
                self.counts.sent += std::mem::take(&mut self.ahead_messages);
            }
            return;
        }
        self.sent += count;
        self.passed += count as u64;
        self.begun += count;
        while let Some(&first) = self.lengths.front().filter(|first| **first <= self.begun) {
            self.lengths.pop_front();
            self.begun -= first;
            self.counts.sent += 1;
        }
    }

    /// Lets go of what was sent.
    pub(super) fn tidy(&mut self) {
        self.repeats.sent_through(self.passed);
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.bytes.shrink_to(UNCONNECTED_BYTES_MAX);
            self.lengths.shrink_to(LENGTHS_KEPT);
            self.sent = 0;
        } else if self.sent > UNCONNECTED_BYTES_MAX {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// The connection is over, and with it whatever waits.
    pub(super) fn clear(&mut self) {
        let Counts { sent, lost } = self.counts;
        let counts = Counts { sent, lost: lost + self.lengths.len() as u64 + self.ahead_messages };
        *self = Self { counts, ..Self::default() };
    }

    pub(super) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }
}

fn frame(body: &[u8], out: &mut Vec<u8>) {
    encode_frame(out, Kind::Request, Flags { more: false, last: true }, 0, body);
}

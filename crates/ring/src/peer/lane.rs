//! A queue of whole frames to be sent.

use atoll_wire::{Flags, Kind, encode_frame};
use std::collections::VecDeque;

/// Frames in the order in which they are sent.
#[derive(Default)]
pub(super) struct Lane {
    bytes: Vec<u8>,
    sent: usize,
    /// The length of each waiting frame, including a partly sent one.
    lengths: VecDeque<usize>,
    /// How much of the first one is sent.
    begun: usize,
    /// Bytes ever moved within the buffer.
    #[cfg(test)]
    moved_bytes: usize,
}

/// How much memory a lane keeps.
#[derive(Clone, Copy)]
pub(super) struct KeptMemory {
    /// If nothing waits.
    pub(super) empty_bytes: usize,
    /// Bytes already sent, if others wait behind them; more if that is half of what waits.
    pub(super) sent_bytes: usize,
}

/// Frames for which there is room when none wait.
const LENGTHS_KEPT: usize = 4096;

impl Lane {
    /// Appends a frame.
    pub(super) fn add(&mut self, body: &[u8]) {
        let before = self.bytes.len();
        encode_frame(&mut self.bytes, Kind::Request, Flags { more: false, last: true }, 0, body);
        self.lengths.push_back(self.bytes.len() - before);
    }

    /// The bytes that wait.
    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// How many frames wait, including a partly sent one.
    pub(super) fn count(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// How much is left of a partly sent frame; 0 if there is none.
    pub(super) fn begun_bytes(&self) -> usize {
        self.lengths.front().filter(|_| self.begun > 0).map_or(0, |first| first - self.begun)
    }

    /// Marks this many bytes as sent. Returns how many frames that completed.
    pub(super) fn took(&mut self, count: usize) -> u64 {
        let before = self.count();
        self.sent += count;
        self.begun += count;
        while let Some(&first) = self.lengths.front().filter(|first| **first <= self.begun) {
            self.lengths.pop_front();
            self.begun -= first;
        }
        before - self.count()
    }

    /// Frees the memory of what was sent.
    pub(super) fn tidy(&mut self, kept: KeptMemory) {
        if self.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(kept.empty_bytes);
            self.lengths.shrink_to(LENGTHS_KEPT);
            self.sent = 0;
        } else if self.sent > kept.sent_bytes.max(self.waiting_bytes() / 2) {
            // Moves what waits to the front: each byte about twice in its time, however much waits.
            #[cfg(test)]
            {
                self.moved_bytes += self.waiting_bytes();
            }
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Memory of its bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_in_a_long_lane_is_moved_twice_at_most() {
        const FRAMES: usize = 64;
        let kept = KeptMemory { empty_bytes: 1 << 20, sent_bytes: 1 << 20 };
        let (mut lane, body) = (Lane::default(), vec![7; 1 << 20]);
        (0..FRAMES).for_each(|_| lane.add(&body));
        let all = lane.waiting_bytes();
        while !lane.is_empty() {
            let taken = lane.waiting_bytes().min(1_100_000);
            lane.took(taken);
            lane.tidy(kept);
        }
        assert!(lane.moved_bytes <= 2 * all, "{} bytes moved for {all}", lane.moved_bytes);
        // The same if as much is added as is sent.
        let (mut lane, mut sent) = (Lane::default(), 0);
        (0..FRAMES).for_each(|_| lane.add(&body));
        let mut longest = 0;
        while sent < 4 * all {
            lane.add(&body);
            let taken = body.len();
            lane.took(taken);
            sent += taken;
            lane.tidy(kept);
            longest = longest.max(lane.bytes.len());
        }
        assert!(lane.moved_bytes <= 2 * sent + all, "{} bytes moved for {sent}", lane.moved_bytes);
        assert!(longest <= 2 * all, "{longest} bytes for {all}");
    }
}

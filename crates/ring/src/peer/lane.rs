//! Whole frames that wait to be sent, in their order.

use atoll_wire::{Flags, Kind, encode_frame};
use std::collections::VecDeque;

/// Frames behind each other.
#[derive(Default)]
pub(super) struct Lane {
    bytes: Vec<u8>,
    sent: usize,
    /// How long each frame is that waits, also the one that was begun.
    lengths: VecDeque<usize>,
    /// How much is sent of the first of them.
    begun: usize,
    /// How much was moved in memory, ever.
    #[cfg(test)]
    moved_bytes: usize,
}

/// How much memory is kept.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    /// Where nothing waits.
    pub(super) empty_bytes: usize,
    /// Of what was sent, where something waits behind it; more where that is half of what waits.
    pub(super) sent_bytes: usize,
}

/// Frames that there is room for when none wait.
const LENGTHS_KEPT: usize = 4096;

impl Lane {
    /// Puts a frame behind all others.
    pub(super) fn add(&mut self, body: &[u8]) {
        let before = self.bytes.len();
        encode_frame(&mut self.bytes, Kind::Request, Flags { more: false, last: true }, 0, body);
        self.lengths.push_back(self.bytes.len() - before);
    }

    /// What waits.
    pub(super) fn waiting(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// How many frames wait, also the one that was begun.
    pub(super) fn count(&self) -> u64 {
        self.lengths.len() as u64
    }

    /// How much is left of the frame that was begun; nothing where none was.
    pub(super) fn begun_bytes(&self) -> usize {
        self.lengths.front().filter(|_| self.begun > 0).map_or(0, |first| first - self.begun)
    }

    /// So much was sent; how many frames ended with it.
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

    /// Lets go of what was sent.
    pub(super) fn tidy(&mut self, kept: Kept) {
        if self.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(kept.empty_bytes);
            self.lengths.shrink_to(LENGTHS_KEPT);
            self.sent = 0;
        } else if self.sent > kept.sent_bytes.max(self.waiting_bytes() / 2) {
            // What waits is moved to the front: about twice in its time, however much there is.
            #[cfg(test)]
            {
                self.moved_bytes += self.waiting_bytes();
            }
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// How much memory its bytes take.
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
        let kept = Kept { empty_bytes: 1 << 20, sent_bytes: 1 << 20 };
        let (mut lane, body) = (Lane::default(), vec![7; 1 << 20]);
        (0..FRAMES).for_each(|_| lane.add(&body));
        let all = lane.waiting_bytes();
        while !lane.is_empty() {
            let taken = lane.waiting_bytes().min(1_100_000);
            lane.took(taken);
            lane.tidy(kept);
        }
        assert!(lane.moved_bytes <= 2 * all, "{} bytes moved for {all}", lane.moved_bytes);
        // As well where as much comes as leaves.
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

//! Received bytes of a connection that are not parsed yet.
//!
//! Invariant: memory grows with what arrived, never with an announced length.

use std::io::{self, Read};

/// Received bytes. They are received into a buffer that the loop lends; only the rest of an incomplete
/// request is kept between turns.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// Writable as a whole; the first `filled` bytes are received.
    room: Vec<u8>,
    filled: usize,
    /// How many of them are parsed.
    used: usize,
}

/// Size of the buffers that a loop lends, in bytes.
pub(crate) const ROOM_BYTES: usize = 64 << 10;

/// Most such buffers that a loop keeps.
const SPARES_MAX: usize = 16;

/// Largest rest of a request that is copied into a lent buffer, in bytes.
const MOVED_BYTES_MAX: usize = ROOM_BYTES / 4;

impl Inbox {
    /// Received bytes that are not parsed yet.
    pub(crate) fn unread(&self) -> &[u8] {
        self.room.get(self.used..self.filled).unwrap_or_default()
    }

    /// Marks this many bytes as parsed.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.filled);
    }

    /// Heap bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.room.capacity()
    }

    /// Takes a buffer from the loop unless much is kept already; [`give_back`](Self::give_back) returns it.
    pub(crate) fn borrow(&mut self, spare: &mut Vec<Vec<u8>>) {
        if self.filled > MOVED_BYTES_MAX || self.room.len() == ROOM_BYTES {
            return;
        }
        let mut room = spare.pop().unwrap_or_else(|| vec![0; ROOM_BYTES]);
        if let Some(front) = room.get_mut(..self.filled) {
            front.copy_from_slice(&self.room[..self.filled]);
            self.room = room;
        }
    }

    /// Receives once; 0 is the end of the stream. `wanted` is how many unread bytes there will be at least
    /// when one more request is complete.
    pub(crate) fn receive(&mut self, socket: &mut impl Read, wanted: usize) -> io::Result<usize> {
        self.make_room(wanted);
        let room = self.room.get_mut(self.filled..).unwrap_or_default();
        let count = socket.read(room)?;
        self.filled += count;
        Ok(count)
    }

    /// Whether the last read filled the buffer, so that more may have arrived.
    pub(crate) fn is_full(&self) -> bool {
        self.filled == self.room.len()
    }

    fn make_room(&mut self, wanted: usize) {
        if self.used > 0 {
            self.room.copy_within(self.used..self.filled, 0);
            (self.filled, self.used) = (self.filled - self.used, 0);
        }
        if self.is_full() {
            // At most twice what arrived.
            let len = wanted.clamp(self.filled + ROOM_BYTES, (2 * self.filled).max(self.filled + ROOM_BYTES));
            self.room.reserve_exact(len - self.filled);
            self.room.resize(len, 0);
        }
    }

    /// Keeps the unread bytes, and no memory beyond them.
    pub(crate) fn give_back(&mut self, spare: &mut Vec<Vec<u8>>) {
        let left = self.filled - self.used;
        if self.room.len() == ROOM_BYTES && spare.len() < SPARES_MAX {
            let rest = self.unread().to_vec();
            spare.push(std::mem::replace(&mut self.room, rest));
            (self.filled, self.used) = (left, 0);
        } else if left == 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_pieces_all_bytes_come_once_and_in_order() {
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..30 {
            let sent: Vec<u8> = (0..random.usize(1..300_000)).map(|_| random.u8(..)).collect();
            let (mut inbox, mut spare) = (Inbox::default(), Vec::new());
            let (mut at, mut seen) = (0, Vec::new());
            while seen.len() < sent.len() {
                inbox.borrow(&mut spare);
                for _ in 0..random.usize(1..3) {
                    let piece = (at + random.usize(..100_000)).min(sent.len());
                    let wanted = random.usize(..1 << 30);
                    at += inbox.receive(&mut &sent[at..piece], wanted).unwrap();
                    assert!(inbox.memory_bytes() <= 2 * (at - seen.len()) + 2 * ROOM_BYTES, "round {round}");
                    let used = random.usize(..=inbox.unread().len());
                    seen.extend_from_slice(&inbox.unread()[..used]);
                    inbox.advance(used);
                }
                inbox.give_back(&mut spare);
                if inbox.unread().is_empty() {
                    assert_eq!(inbox.memory_bytes(), 0, "round {round}");
                }
            }
            assert!(seen == sent, "round {round}");
            assert!(spare.len() == 1 && spare[0].len() == ROOM_BYTES);
        }
    }
}

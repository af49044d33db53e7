//! What a connection sent and is not understood yet.
//!
//! Invariant: memory grows with what arrived, never with what was announced.

use std::io::{self, Read};

/// Bytes that arrived. They are received into memory of the loop; what is left of a request that is not whole
/// is kept.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// All of it may be written to; what arrived are the first `filled`.
    room: Vec<u8>,
    filled: usize,
    /// How much was understood.
    used: usize,
}

/// Bytes that are received at once into memory of the loop.
pub(crate) const ROOM_BYTES: usize = 64 << 10;

/// How much of such memory a loop keeps.
const SPARES_MAX: usize = 16;

/// What is kept of a request moves into the loop's memory if there are no more bytes than this.
const MOVED_BYTES_MAX: usize = ROOM_BYTES / 4;

impl Inbox {
    /// What is not understood yet.
    pub(crate) fn unread(&self) -> &[u8] {
        self.room.get(self.used..self.filled).unwrap_or_default()
    }

    /// So many bytes are understood.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.used = (self.used + bytes).min(self.filled);
    }

    /// Memory that this takes beside itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.room.capacity()
    }

    /// Receives into memory of the loop if little is here; it comes back with [`give_back`](Self::give_back).
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

    /// Receives once; 0 at the end. `wanted` is how many unread bytes there will be at least before one more
    /// request is whole.
    pub(crate) fn receive(&mut self, socket: &mut impl Read, wanted: usize) -> io::Result<usize> {
        self.make_room(wanted);
        let room = self.room.get_mut(self.filled..).unwrap_or_default();
        let count = socket.read(room)?;
        self.filled += count;
        Ok(count)
    }

    /// Whether the last call filled all there was, so that more may have arrived.
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

    /// Keeps what is unread and no memory beyond that.
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

//! The log, which makes a commit durable before it becomes visible.
//!
//! The log is a sequence of segments; a segment is a header and then groups, one for each commit.
//!
//! ```text
//! segment header, 64 B: magic 8 | store 8 | number 8 | first position 8 | chain 8 | zero 16 | checksum 8
//! group, 40 B + payload: magic 4 | payload length 4 | sequence 8 | synced 8 | chain 8 | checksum 8 | payload
//! ```
//!
//! Integers are little-endian; groups start on multiples of 8 bytes. A *position* counts bytes over all
//! segments and never repeats. `chain` is the checksum of the group before; `synced` is the position up to
//! which the log had been synced when the group was written; the checksum covers header and payload and is
//! seeded with store and position, so that bytes of another place or store do not pass.
//!
//! Each opening of the store draws a *life*, a random number that its first group and its jumps carry. So
//! whatever a former life left behind the end of the log is never chained to what follows, even where both
//! wrote the same bytes.
//!
//! Invariant: a record is acknowledged as synced only after the sync that covers it returned.
//! Invariant: replay ends at the first bad group past the synced position; a bad group before it is
//! corruption, an error.
//! Invariant: a jump leads to the segment with the next number, whose positions go on where the jump ends.

mod contents;
mod replay;
mod signpost;
mod writer;

pub(crate) use contents::{Passage, SegmentValue, values_in};
pub(crate) use replay::{Group, LogEnd, Replay};
pub(crate) use signpost::{FoundSignpost, Signpost};
pub(crate) use writer::{Chores, Log, SignpostPlace};

use crate::checksum::checksum;
use crate::codec::{Decoder, Encode, Malformed, WORD_END};
use crate::space::Extent;

pub(crate) const SEGMENT_HEADER: u64 = 64;
pub(crate) const GROUP_HEADER: usize = 40;
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"ATOLLLOG");
pub(crate) const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"grp1");
pub(crate) const JUMP_MAGIC: u32 = u32::from_le_bytes(*b"jmp1");

/// Bytes of a jump: the group that names the next segment.
pub(crate) const JUMP_BYTES: u64 = (GROUP_HEADER + 48) as u64;

/// Bytes that every segment keeps for its end: the jump behind the last group, and its copy in the last
/// bytes of the segment, so that one damaged jump cannot hide the segments behind it.
pub(crate) const END_BYTES: u64 = 2 * JUMP_BYTES;

/// A place in the log: where the next group starts, and what it must be chained to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogPoint {
    pub(crate) segment: Extent,
    pub(crate) number: u64,
    /// Position of the segment's first byte.
    pub(crate) start: u64,
    /// Position of the next group.
    pub(crate) position: u64,
    pub(crate) chain: u64,
    /// Sequence of the last group.
    pub(crate) sequence: u64,
}

impl LogPoint {
    /// Offset in the file of `position`, which lies in this segment.
    pub(crate) fn offset_of(&self, position: u64) -> u64 {
        self.segment.offset + (position - self.start)
    }

    /// Bytes left in the segment.
    pub(crate) fn room(&self) -> u64 {
        self.segment.len.saturating_sub(self.position - self.start)
    }

    /// The point behind a jump from here to `segment`, and the payload of that jump.
    fn jump_to(&self, segment: Extent, life: u64) -> (Self, Vec<u8>) {
        let start = self.position + JUMP_BYTES;
        let mut payload = Vec::new();
        for word in [segment.offset, segment.len, self.number + 1, start, life] {
            payload.put_u64(word);
        }
        let chain = checksum(self.chain, &payload);
        payload.put_u64(chain);
        let (number, position) = (self.number + 1, start + SEGMENT_HEADER);
        (Self { segment, number, start, position, chain, sequence: self.sequence }, payload)
    }

    /// Whether a jump from here leads to `next`, as those of [`LogPoint::jump_to`] do. A forged one may lead
    /// to where the log has been, and replay would never end.
    fn leads_to(&self, next: &Self) -> bool {
        next.number == self.number + 1
            && next.start == self.position + JUMP_BYTES
            && next.segment.len >= SEGMENT_HEADER + END_BYTES
    }

    /// The point that the jump with this payload leads to.
    fn from_jump(payload: &[u8], sequence: u64) -> Result<Self, Malformed> {
        let mut fields = Decoder::new(payload);
        let segment = Extent { offset: fields.u64()?, len: fields.u64()? };
        let (number, start, _life, chain) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
        if [segment.offset, segment.len, number, start].iter().any(|&word| word >= WORD_END) {
            return Err(Malformed);
        }
        let position = start + SEGMENT_HEADER;
        Ok(Self { segment, number, start, position, chain, sequence })
    }
}

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupHeader {
    magic: u32,
    payload: u32,
    sequence: u64,
    synced: u64,
    chain: u64,
    checksum: u64,
}

impl GroupHeader {
    fn encode(&self) -> [u8; GROUP_HEADER] {
        let mut bytes = [0; GROUP_HEADER];
        bytes[..4].copy_from_slice(&self.magic.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.synced.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.chain.to_le_bytes());
        bytes[32..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Decoder::new(bytes);
        let header = Self {
            magic: fields.u32()?,
            payload: fields.u32()?,
            sequence: fields.u64()?,
            synced: fields.u64()?,
            chain: fields.u64()?,
            checksum: fields.u64()?,
        };
        if header.magic == GROUP_MAGIC || header.magic == JUMP_MAGIC { Ok(header) } else { Err(Malformed) }
    }

    /// Whether the log that goes on from `at` may have a group or a jump with this header at `position`, as
    /// far as the header tells. Values may be full of what looks like headers, and reading all that they
    /// claim to be followed by takes minutes.
    ///
    /// Each group before this one took a header at least, and counts one. No sync reached further than the
    /// log did when this was written.
    ///
    /// This stops no header that a group there could have: one that is next in the sequence, says that
    /// nothing was synced and claims a long payload is still hashed with all of it.
    fn may_follow(&self, at: &LogPoint, position: u64) -> bool {
        let groups_most = position.saturating_sub(at.position) / GROUP_HEADER as u64 + 1;
        let suits = if self.magic == JUMP_MAGIC {
            u64::from(self.payload) == JUMP_BYTES - GROUP_HEADER as u64
        } else {
            let later = self.sequence.checked_sub(at.sequence);
            later.is_some_and(|groups| (1..=groups_most).contains(&groups))
        };
        suits && self.synced <= position
    }

    /// Bytes from this group to the next.
    fn stride(&self) -> u64 {
        (GROUP_HEADER as u64 + u64::from(self.payload)).next_multiple_of(8)
    }
}

/// Checksum of a group: its header without the checksum itself, and its payload.
fn group_checksum(store_id: u64, position: u64, header: &[u8], payload: &[u8]) -> u64 {
    let head = checksum(store_id ^ position.wrapping_mul(0x9E37_79B9_7F4A_7C15), header);
    checksum(head, payload)
}

/// The bytes of a group at `point`, with its checksum.
pub(crate) fn group_bytes(
    store_id: u64,
    point: &LogPoint,
    magic: u32,
    synced: u64,
    payload: &[u8],
) -> Vec<u8> {
    let mut header = GroupHeader {
        magic,
        payload: payload.len() as u32,
        sequence: point.sequence,
        synced,
        chain: point.chain,
        checksum: 0,
    };
    let head = header.encode();
    header.checksum = group_checksum(store_id, point.position, &head[..32], payload);
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes.resize(header.stride() as usize, 0);
    bytes
}

/// The header of a segment.
fn segment_header(store_id: u64, point: &LogPoint) -> [u8; SEGMENT_HEADER as usize] {
    let mut bytes = [0; SEGMENT_HEADER as usize];
    for (index, word) in
        [SEGMENT_MAGIC, store_id, point.number, point.start, point.chain].into_iter().enumerate()
    {
        bytes[index * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
    let sum = checksum(store_id ^ point.start, &bytes[..56]);
    bytes[56..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_may_follow_where_the_shortest_groups_lead_to_it_and_no_sooner() {
        let segment = Extent { offset: 0, len: 1 << 20 };
        let at = LogPoint { segment, number: 1, start: 0, position: 1000, chain: 0, sequence: 5 };
        for before in 0..100 {
            let position = at.position + before * GROUP_HEADER as u64;
            let header = |magic, payload, sequence, synced| {
                GroupHeader { magic, payload, sequence, synced, chain: 0, checksum: 0 }
                    .may_follow(&at, position)
            };
            let last = at.sequence + before + 1;
            assert!(header(GROUP_MAGIC, 1 << 30, last, position), "all groups before it were empty");
            assert!(header(GROUP_MAGIC, 0, at.sequence + 1, 0), "one long group less");
            assert!(!header(GROUP_MAGIC, 0, last + 1, 0));
            assert!(!header(GROUP_MAGIC, 0, at.sequence, 0));
            assert!(!header(GROUP_MAGIC, 0, last, position + 1));
            assert!(header(JUMP_MAGIC, 48, at.sequence, position), "a jump is no group");
            assert!(!header(JUMP_MAGIC, 49, at.sequence, 0));
        }
    }
}

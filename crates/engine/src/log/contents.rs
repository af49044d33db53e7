//! The contents of a log segment that the log has left: the values that lie in it, and their keys.
//!
//! A segment that is read whole has its groups verified. One that is too long for that is read record by
//! record, because a group may be as long as the segment. A value that is read from stale bytes that way has
//! no key that refers to it.

use super::{GROUP_HEADER, GROUP_MAGIC, GroupHeader, SEGMENT_HEADER, SEGMENT_MAGIC, group_checksum};
use crate::backing::Backing;
use crate::codec::Decoder;
use crate::record::{self, Logged, Record};
use crate::space::SegmentUse;
use crate::value::INLINE_BELOW;
use std::ops::Range;

/// A value that was written into a segment; whether its key still has it is for the tree to say. The ranges
/// refer to the segment's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentValue {
    pub(crate) tree: u32,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The values in the bytes of a segment, up to the first group that does not verify.
pub(crate) fn values_in(segment: &SegmentUse, bytes: &[u8], backing: &Backing) -> Vec<SegmentValue> {
    let mut found = Vec::new();
    let Some(start) = start_of(segment, bytes, backing) else { return found };
    let mut at = SEGMENT_HEADER as usize;
    while let Some(Ok(header)) = bytes.get(at..at + GROUP_HEADER).map(GroupHeader::decode) {
        let body = at + GROUP_HEADER;
        let Some(payload) = bytes.get(body..body + header.payload as usize) else { break };
        let sum =
            group_checksum(backing.store_id(), start.wrapping_add(at as u64), &bytes[at..at + 32], payload);
        if header.magic != GROUP_MAGIC || sum != header.checksum {
            break;
        }
        add_values(payload, body, &mut found);
        at += header.stride() as usize;
    }
    found
}

/// A pass through a log segment that is too long to be read at once.
#[derive(Default)]
pub(crate) struct Passage {
    has_begun: bool,
    /// Bytes that remain of the group's records, and of the padding behind them.
    left: usize,
    gap: usize,
}

impl Passage {
    /// The values in the next bytes of the segment, which begin where the pass had come to, and the number of
    /// bytes the pass is done with: the last record may be cut off. Both are empty at the end, and where the
    /// bytes make no sense.
    pub(crate) fn pass(
        &mut self,
        segment: &SegmentUse,
        bytes: &[u8],
        backing: &Backing,
    ) -> (Vec<SegmentValue>, usize) {
        let (mut found, mut at) = (Vec::new(), 0);
        if !self.has_begun {
            if start_of(segment, bytes, backing).is_none() {
                return (found, 0);
            }
            (self.has_begun, at) = (true, SEGMENT_HEADER as usize);
        }
        loop {
            if self.left == 0 {
                at += std::mem::take(&mut self.gap);
                let Some(Ok(header)) = bytes.get(at..at + GROUP_HEADER).map(GroupHeader::decode) else {
                    break;
                };
                if header.magic != GROUP_MAGIC {
                    break;
                }
                at += GROUP_HEADER;
                self.left = header.payload as usize;
                self.gap = header.stride() as usize - GROUP_HEADER - self.left;
            }
            let end = bytes.len().min(at + self.left);
            let whole = add_values(&bytes[at..end], at, &mut found);
            (at, self.left) = (at + whole, self.left - whole);
            if self.left > 0 {
                break;
            }
        }
        (found, at)
    }
}

/// Position of the segment's first byte.
fn start_of(segment: &SegmentUse, bytes: &[u8], backing: &Backing) -> Option<u64> {
    let mut header = Decoder::new(bytes.get(..SEGMENT_HEADER as usize)?);
    let (magic, store, number, start) =
        (header.u64().ok()?, header.u64().ok()?, header.u64().ok()?, header.u64().ok()?);
    match (magic, store, number) {
        (SEGMENT_MAGIC, store, number) if store == backing.store_id() && number == segment.number => {
            Some(start)
        }
        // The first segment of a store has no header.
        (0, 0, 0) if segment.number == 1 => Some(0),
        _ => None,
    }
}

/// Adds the values of records. Returns how many bytes these take, up to the first incomplete record.
fn add_values(payload: &[u8], body: usize, found: &mut Vec<SegmentValue>) -> usize {
    let (mut records, mut whole) = (Decoder::new(payload), 0);
    while !records.is_at_end() {
        let Ok(record) = record::decode(&mut records) else { break };
        whole = records.position();
        let (Record::Put { tree, key, value } | Record::Append { tree, key, value }) = record else {
            continue;
        };
        // The key lies right before the bytes of the value.
        if let Logged::Bytes { bytes, at } = value
            && bytes.len() >= INLINE_BELOW
        {
            let value = body + at;
            found.push(SegmentValue {
                tree,
                key: value - key.len()..value,
                value: value..value + bytes.len(),
            });
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{LogPoint, group_bytes, segment_header};
    use crate::space::Extent;

    #[test]
    fn a_segment_that_is_gone_through_in_parts_has_the_same_values() {
        let backing = Backing::new(None, 42, 0);
        let extent = Extent { offset: 8192, len: 1 << 20 };
        let (start, position) = (5000, 5000 + SEGMENT_HEADER);
        let mut point = LogPoint { segment: extent, number: 3, start, position, chain: 7, sequence: 1 };
        let mut bytes = segment_header(42, &point).to_vec();
        for tree in 0..6 {
            let mut payload = Vec::new();
            for number in 0..tree * 9 {
                let value = Logged::Bytes { bytes: &vec![7; 100 + 41 * number as usize], at: 0 };
                Record::Put { tree, key: format!("key {number}").as_bytes(), value }.encode(&mut payload);
                Record::Delete { tree, key: b"gone" }.encode(&mut payload);
            }
            let group = group_bytes(42, &point, GROUP_MAGIC, 0, &payload);
            point.position += group.len() as u64;
            bytes.extend_from_slice(&group);
        }
        bytes.resize(bytes.len() + 5000, 0);
        let segment = SegmentUse { extent, number: 3, live: 1 };
        let whole = values_in(&segment, &bytes, &backing);
        assert_eq!(whole.len(), (1..6).map(|tree| tree * 9 - 4).sum::<usize>());
        for part in [2500, 2501, 4096, 10_007, bytes.len()] {
            let (mut passage, mut at, mut found) = (Passage::default(), 0, Vec::new());
            loop {
                let next = &bytes[at..(at + part).min(bytes.len())];
                let (values, passed) = passage.pass(&segment, next, &backing);
                found.extend(values.into_iter().map(|SegmentValue { tree, key, value }| {
                    let moved = |range: Range<usize>| range.start + at..range.end + at;
                    SegmentValue { tree, key: moved(key), value: moved(value) }
                }));
                if passed == 0 {
                    break;
                }
                at += passed;
            }
            assert_eq!(found, whole, "parts of {part} bytes");
        }
        bytes[70] ^= 1;
        assert!(Passage::default().pass(&SegmentUse { number: 4, ..segment }, &bytes, &backing).0.is_empty());
    }
}

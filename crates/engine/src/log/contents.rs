//! What a log segment that the log has left holds: the values that lie in it, and whose they are.

use super::{GROUP_HEADER, GROUP_MAGIC, GroupHeader, SEGMENT_HEADER, SEGMENT_MAGIC, group_checksum};
use crate::backing::Backing;
use crate::codec::Decoder;
use crate::record::{self, Logged, Record};
use crate::space::SegmentUse;
use crate::value::INLINE_BELOW;
use std::ops::Range;

/// A value that was written into a segment; whether its key still has it is for the tree to say. The ranges are those
/// of the segment's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) tree: u32,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The values in the bytes of a segment, up to the first group that does not verify.
pub(crate) fn values_in(segment: &SegmentUse, bytes: &[u8], backing: &Backing) -> Vec<Written> {
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

fn add_values(payload: &[u8], body: usize, found: &mut Vec<Written>) {
    let mut records = Decoder::new(payload);
    while !records.is_at_end() {
        let Ok(record) = record::decode(&mut records) else { break };
        let (Record::Put { tree, key, value } | Record::Append { tree, key, value }) = record else {
            continue;
        };
        // The key lies right before the bytes of the value.
        if let Logged::Bytes { bytes, at } = value
            && bytes.len() >= INLINE_BELOW
        {
            let value = body + at;
            found.push(Written { tree, key: value - key.len()..value, value: value..value + bytes.len() });
        }
    }
}

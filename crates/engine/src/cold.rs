//! Cold segments: values that outlived the log segment they were written to, gathered by cleaning.
//!
//! ```text
//! header, 64 B: magic 8 | store 8 | values 8 | length of all 8 | zero 24 | checksum 8
//! value:        tree | key length | value length | key | value
//! ```
//! The numbers of a value are varints. With the key, cleaning finds out whether the value is alive; the value
//! itself is verified by its referrer.
//!
//! Invariant: in the table a cold segment is a log segment with number 0, which the log never uses.

use crate::backing::Backing;
use crate::checksum::checksum;
use crate::codec::{Decoder, Encode};
use crate::log::SegmentValue;
use crate::run_bytes::RunBytes;

/// Number of a cold segment in the table.
pub(crate) const COLD_NUMBER: u64 = 0;

const HEADER: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLCLD");

/// Most bytes that a value takes beyond its key and its bytes.
pub(crate) const VALUE_OVERHEAD_MAX: usize = 15;

/// A cold segment being filled.
pub(crate) struct ColdSegment {
    bytes: RunBytes,
    values: u64,
}

impl ColdSegment {
    /// An empty segment with room for `room` bytes.
    pub(crate) fn new(room: usize) -> Self {
        let mut bytes = RunBytes::with_room(room);
        bytes.put(&[0; HEADER], 1);
        Self { bytes, values: 0 }
    }

    /// Begins another segment in the same memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.put(&[0; HEADER], 1);
        self.values = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() as usize
    }

    /// Adds a value, and returns the offset of its bytes in the segment.
    pub(crate) fn add(&mut self, tree: u32, key: &[u8], value: &[u8]) -> u64 {
        let end = self.bytes.end();
        end.put_varint(u64::from(tree));
        end.put_varint(key.len() as u64);
        end.put_varint(value.len() as u64);
        end.extend_from_slice(key);
        let at = self.bytes.len();
        self.bytes.end().extend_from_slice(value);
        self.values += 1;
        at
    }

    /// All bytes, with the header filled in and zeros up to the end of the last block.
    pub(crate) fn finish(&mut self, store_id: u64) -> &[u8] {
        let mut header = Vec::with_capacity(HEADER);
        for word in [MAGIC, store_id, self.values, self.bytes.len(), 0, 0, 0] {
            header.put_u64(word);
        }
        let sum = checksum(store_id, &header);
        header.put_u64(sum);
        self.bytes.set_front(&header);
        self.bytes.whole_blocks()
    }
}

/// The values in the bytes of a cold segment; as many as can be recognized, if it is damaged.
pub(crate) fn values_in(bytes: &[u8], backing: &Backing) -> Vec<SegmentValue> {
    Passage::default().pass(bytes, backing).0
}

/// A pass through a cold segment that is too long to be read at once.
#[derive(Default)]
pub(crate) struct Passage {
    /// Values still to come; none before the header was read.
    left: Option<u64>,
}

impl Passage {
    /// The values in the next bytes of the segment, which begin where the pass had come to, and the number of
    /// bytes the pass is done with: the last value may be cut off. Both are empty at the end, and where the
    /// bytes make no sense.
    pub(crate) fn pass(&mut self, bytes: &[u8], backing: &Backing) -> (Vec<SegmentValue>, usize) {
        let (mut found, mut at) = (Vec::new(), 0);
        let mut left = match self.left {
            Some(left) => left,
            None => {
                let Some(all) = values_of(bytes, backing) else { return (found, 0) };
                at = HEADER;
                all
            }
        };
        while left > 0 {
            let Some(value) = value_at(bytes, at) else { break };
            at = value.value.end;
            left -= 1;
            found.push(value);
        }
        self.left = Some(left);
        (found, at)
    }
}

/// The number of values that the header states.
fn values_of(bytes: &[u8], backing: &Backing) -> Option<u64> {
    let (head, sum) = bytes.get(..HEADER)?.split_last_chunk::<8>()?;
    let mut words = Decoder::new(head);
    let (magic, store) = (words.u64().ok()?, words.u64().ok()?);
    let intact = checksum(backing.store_id(), head) == u64::from_le_bytes(*sum);
    (intact && magic == MAGIC && store == backing.store_id()).then(|| words.u64().ok())?
}

fn value_at(bytes: &[u8], at: usize) -> Option<SegmentValue> {
    let mut fields = Decoder::new(bytes.get(at..)?);
    let tree = u32::try_from(fields.varint().ok()?).ok()?;
    let (key, value) = (fields.varint().ok()? as usize, fields.varint().ok()? as usize);
    let start = at + fields.position();
    let middle = start.checked_add(key)?;
    let end = middle.checked_add(value).filter(|&end| end <= bytes.len())?;
    Some(SegmentValue { tree, key: start..middle, value: middle..end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_with_their_keys_and_no_header_that_is_damaged_passes() {
        let backing = Backing::new(None, 42, 0);
        let mut segment = ColdSegment::new(4096);
        segment.add(7, b"atoll", &[9; 3000]);
        segment.clear();
        let places = [segment.add(0, b"reef", &[7; 300]), segment.add(9, b"", &[1; 500])];
        let bytes = segment.finish(42);
        let found = values_in(bytes, &backing);
        assert_eq!(found.iter().map(|value| value.value.start as u64).collect::<Vec<_>>(), places);
        assert_eq!((&bytes[found[0].key.clone()], found[1].tree), (b"reef".as_slice(), 9));
        assert_eq!(&bytes[found[1].value.clone()], &[1; 500]);
        let (mut passage, mut at, mut in_parts) = (Passage::default(), 0, Vec::new());
        loop {
            let (values, passed) = passage.pass(&bytes[at..(at + 520).min(bytes.len())], &backing);
            in_parts.extend(values.iter().map(|value| at + value.value.start));
            at += passed;
            if passed == 0 {
                break;
            }
        }
        assert_eq!(in_parts, found.iter().map(|value| value.value.start).collect::<Vec<_>>());
        for bit in 0..HEADER * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(values_in(&damaged, &backing).is_empty(), "bit {bit}");
        }
        assert!(values_in(&bytes[..400], &backing).len() < 2);
        assert!(values_in(&[], &backing).is_empty());
    }
}

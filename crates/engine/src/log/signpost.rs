//! The signpost: the segment that the log entered last, recorded apart from the log itself.
//!
//! One segment leads to the next by a jump that lies in its own bytes, twice. A misdirected write may be long
//! enough to cover both copies, and everything before them that was not part of a checkpoint. The log would
//! then seem to end where the checkpoint left it, with no sign that it had not. The signpost lies in a block
//! of its own, so that one such write cannot hit both.
//!
//! ```text
//! magic 8 | store 8 | number 8 | segment offset 8, length 8 | first position 8 | zero 8 | checksum 8
//! ```
//!
//! It decides nothing: where the log ends is decided by its groups. It only says where else to look.

use super::LogPoint;
use crate::codec::{Decoder, Encode, WORD_END};
use crate::space::Extent;
use atoll_disk::{Disk, DiskError};

/// Bytes of the signpost, at the front of a block that holds nothing else.
const SIGNPOST_BYTES: usize = 64;

const MAGIC: u64 = u64::from_le_bytes(*b"ATOLLSGN");

/// The newest segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signpost {
    pub(crate) number: u64,
    pub(crate) segment: Extent,
    /// Position of the segment's first byte.
    pub(crate) start: u64,
}

/// The state of the signpost on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundSignpost {
    /// Stores older than signposts have none.
    None,
    Intact(Signpost),
    Damaged,
}

impl Signpost {
    pub(crate) fn of(point: &LogPoint) -> Self {
        Self { number: point.number, segment: point.segment, start: point.start }
    }

    pub(crate) fn encode(&self, store_id: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SIGNPOST_BYTES);
        for word in [MAGIC, store_id, self.number, self.segment.offset, self.segment.len, self.start, 0] {
            bytes.put_u64(word);
        }
        let sum = crate::checksum::checksum(store_id, &bytes);
        bytes.put_u64(sum);
        bytes
    }

    fn decode(bytes: &[u8], store_id: u64) -> Option<Self> {
        let (body, sum) = bytes.split_last_chunk::<8>()?;
        let mut fields = Decoder::new(body);
        let mut word = || fields.u64().ok();
        let is_ours = word()? == MAGIC
            && word()? == store_id
            && crate::checksum::checksum(store_id, body) == u64::from_le_bytes(*sum);
        let number = word()?;
        let segment = Extent { offset: word()?, len: word()? };
        let start = word()?;
        let is_sane = [number, segment.offset, segment.len, start].iter().all(|&word| word < WORD_END);
        (is_ours && is_sane).then_some(Self { number, segment, start })
    }

    /// Reads the signpost at `offset`; 0 for a store that has none.
    pub(crate) fn read(disk: &dyn Disk, offset: u64, store_id: u64) -> Result<FoundSignpost, DiskError> {
        if offset == 0 {
            return Ok(FoundSignpost::None);
        }
        let mut bytes = [0; SIGNPOST_BYTES];
        if disk.len()? < offset.saturating_add(SIGNPOST_BYTES as u64) {
            return Ok(FoundSignpost::Damaged);
        }
        // It decides nothing, so failing to read it is no reason to give up.
        let is_read = disk.read_at(offset, &mut bytes).is_ok();
        let found = if is_read { Self::decode(&bytes, store_id) } else { None };
        Ok(found.map_or(FoundSignpost::Damaged, FoundSignpost::Intact))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_written_and_no_flipped_bit_passes() {
        let signpost = Signpost { number: 3, segment: Extent { offset: 8192, len: 4096 }, start: 777 };
        let bytes = signpost.encode(42);
        assert_eq!(bytes.len(), SIGNPOST_BYTES);
        assert_eq!(Signpost::decode(&bytes, 42), Some(signpost));
        assert_eq!(Signpost::decode(&bytes, 43), None, "another store's");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Signpost::decode(&flipped, 42), None, "bit {bit}");
        }
    }
}

//! What the columns of the table hold: the head of a piece, its bytes, and the head of a partition.
//!
//! A cell is one piece or several, one row each. The head of a piece says how long it is and whether its bytes
//! lie in the same row or in chunks. Both columns of a piece begin with the checksum of its bytes.
//!
//! Invariant: of two racing pieces with the same timestamp the database keeps the larger value of each column by
//! itself; because both columns begin with the same checksum, both come from the same piece.

use twox_hash::XxHash3_64;

/// Rows that are cells.
pub(crate) const KIND_CELL: i8 = 0;
/// The row that all conditional writes of a partition go through.
pub(crate) const KIND_HEAD: i8 = 1;
/// Rows that tell which attempt made which version.
pub(crate) const KIND_WINNER: i8 = 2;
/// Rows that tell which request ids were seen.
pub(crate) const KIND_REQUEST: i8 = 3;

/// The name of chunks: random, so that no two writes share any.
pub(crate) type ChunkId = [u8; 16];

const CHECKSUM_BYTES: usize = 8;

/// The checksum of everything that is kept.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// `bytes` with their checksum in front.
pub(crate) fn sealed(checksum: u64, bytes: &[u8]) -> Vec<u8> {
    [&checksum.to_be_bytes()[..], bytes].concat()
}

/// The bytes after a checksum; none if it does not match them.
pub(crate) fn unsealed(sealed: &[u8]) -> Option<&[u8]> {
    let (sum, bytes) = sealed.split_first_chunk::<CHECKSUM_BYTES>()?;
    (u64::from_be_bytes(*sum) == checksum(bytes)).then_some(bytes)
}

/// Where the bytes of a piece lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// In the same row.
    Inline,
    /// In chunks of this name and length, of which the last may be shorter.
    Chunks(ChunkId, u32),
}

/// What a piece says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceHead {
    /// Checksum of all its bytes.
    pub(crate) checksum: u64,
    /// How many there are.
    pub(crate) bytes: u64,
    /// Where they lie.
    pub(crate) body: Body,
}

impl PieceHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut encoded = self.checksum.to_be_bytes().to_vec();
        encoded.extend_from_slice(&self.bytes.to_be_bytes());
        if let Body::Chunks(id, chunk_bytes) = self.body {
            encoded.extend_from_slice(&chunk_bytes.to_be_bytes());
            encoded.extend_from_slice(&id);
        }
        encoded
    }

    pub(crate) fn decode(encoded: &[u8]) -> Option<Self> {
        let (checksum, rest) = encoded.split_first_chunk::<CHECKSUM_BYTES>()?;
        let (bytes, rest) = rest.split_first_chunk::<8>()?;
        let body = match rest.split_first_chunk::<4>() {
            None if rest.is_empty() => Body::Inline,
            Some((chunk_bytes, id)) => {
                let chunk_bytes = u32::from_be_bytes(*chunk_bytes);
                Body::Chunks(id.try_into().ok().filter(|_| chunk_bytes > 0)?, chunk_bytes)
            }
            None => return None,
        };
        Some(Self { checksum: u64::from_be_bytes(*checksum), bytes: u64::from_be_bytes(*bytes), body })
    }

    /// The chunks that belong to it: their name, and how many there are.
    pub(crate) fn chunks(&self) -> Option<(ChunkId, u64)> {
        match self.body {
            Body::Inline => None,
            Body::Chunks(id, chunk_bytes) => Some((id, self.bytes.div_ceil(u64::from(chunk_bytes)))),
        }
    }
}

/// Some cell of the partition was written conditionally in more than one piece or with chunks.
pub(crate) const FLAG_COMPOUND: u8 = 1;

/// The head of a partition: every conditional write is conditional on it, and changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionHead {
    /// Counts the conditional writes of the partition.
    pub(crate) version: u64,
    /// The attempt that made this version; random.
    pub(crate) attempt: u64,
    /// What else holds for the partition.
    pub(crate) flags: u8,
}

impl PartitionHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.version.to_be_bytes()[..], &self.attempt.to_be_bytes(), &[self.flags]].concat()
    }

    pub(crate) fn decode(encoded: &[u8]) -> Option<Self> {
        let (version, rest) = encoded.split_first_chunk::<8>()?;
        let (attempt, rest) = rest.split_first_chunk::<8>()?;
        let [flags] = *rest else { return None };
        Some(Self { version: u64::from_be_bytes(*version), attempt: u64::from_be_bytes(*attempt), flags })
    }
}

/// The row that tells who made `version`. There are 256 of them, written over and over, so that they leave
/// no tombstones.
pub(crate) fn winner_slot(version: u64) -> [u8; 1] {
    [version.to_be_bytes()[7]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_back_as_they_were_written() {
        for body in [Body::Inline, Body::Chunks([7; 16], 1 << 18)] {
            let head = PieceHead { checksum: 3, bytes: 1 << 40, body };
            assert_eq!(PieceHead::decode(&head.encode()), Some(head));
            assert!(head.encode().starts_with(&sealed(3, b"")));
        }
        let head = PartitionHead { version: u64::MAX, attempt: 5, flags: FLAG_COMPOUND };
        assert_eq!(PartitionHead::decode(&head.encode()), Some(head));
    }

    #[test]
    fn anything_else_is_no_head() {
        for len in (0..16).chain(17..36).chain([37, 100]) {
            assert_eq!(PieceHead::decode(&vec![1; len]), None, "{len} bytes");
        }
        let no_chunk = PieceHead { checksum: 1, bytes: 9, body: Body::Chunks([1; 16], 0) };
        assert_eq!(PieceHead::decode(&no_chunk.encode()), None);
        for len in [0, 8, 16, 18] {
            assert_eq!(PartitionHead::decode(&vec![1; len]), None, "{len} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed() {
        let mut bytes = sealed(checksum(b"value"), b"value");
        assert_eq!(unsealed(&bytes), Some(&b"value"[..]));
        bytes[10] ^= 1;
        assert_eq!(unsealed(&bytes), None);
        assert_eq!(unsealed(b"short"), None);
    }
}

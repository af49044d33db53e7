//! The contents of the table's columns: the head of a piece, its bytes, and the head of a partition.
//!
//! A cell is one or more pieces, one row each. The head of a piece states how long the piece is and whether
//! its bytes lie in the same row or in chunks. Both columns of a piece begin with the checksum of its bytes.
//!
//! Invariant: of two racing pieces with the same timestamp the database keeps the larger value of each column
//! separately; because both columns begin with the same checksum, both come from the same piece.

use atoll_store::Limits;
use std::ops::RangeInclusive;
use twox_hash::XxHash3_64;

/// Rows that are pieces of cells.
pub(crate) const KIND_CELL: i8 = 0;
/// The row on which all conditional writes of a partition are conditional.
pub(crate) const KIND_HEAD: i8 = 1;
/// Rows that record which attempt made which version.
pub(crate) const KIND_WINNER: i8 = 2;
/// Rows that record which request ids were seen.
pub(crate) const KIND_REQUEST: i8 = 3;

/// The name of a value's chunks, which no two values share.
pub(crate) type ChunkId = [u8; 16];

const CHECKSUM_BYTES: usize = 8;

/// The longest piece, which is the longest value.
const PIECE_BYTES_MAX: u64 = Limits::CONTRACT.value_bytes;

/// The permitted lengths of chunks.
const CHUNK_BYTES: RangeInclusive<u32> = 4 << 10..=1 << 20;

/// The checksum of everything that is stored.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// `bytes` with their checksum in front.
pub(crate) fn sealed(checksum: u64, bytes: &[u8]) -> Vec<u8> {
    [&checksum.to_be_bytes()[..], bytes].concat()
}

/// The bytes after their checksum; none if the two do not match.
pub(crate) fn unsealed(sealed: &[u8]) -> Option<&[u8]> {
    let (sum, bytes) = sealed.split_first_chunk::<CHECKSUM_BYTES>()?;
    (u64::from_be_bytes(*sum) == checksum(bytes)).then_some(bytes)
}

/// The checksum of a chunk. It covers the chunk's name and number, so that no other chunk passes for it.
pub(crate) fn chunk_checksum(id: &ChunkId, number: i32, bytes: &[u8]) -> u64 {
    let name = [&id[..], &number.to_be_bytes()].concat();
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&name), bytes)
}

/// The bytes of a chunk after their checksum; none if the two do not match.
pub(crate) fn unsealed_chunk<'s>(id: &ChunkId, number: i32, sealed: &'s [u8]) -> Option<&'s [u8]> {
    let (sum, bytes) = sealed.split_first_chunk::<CHECKSUM_BYTES>()?;
    (u64::from_be_bytes(*sum) == chunk_checksum(id, number, bytes)).then_some(bytes)
}

/// Where the bytes of a piece lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// In the same row.
    Inline,
    /// In chunks with this name and of this length; the last may be shorter.
    Chunks(ChunkId, u32),
}

/// The head of a piece: its length, its checksum, and where its bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceHead {
    /// Checksum of all bytes of the piece.
    pub(crate) checksum: u64,
    /// Length of the piece.
    pub(crate) bytes: u64,
    /// Where the bytes lie.
    pub(crate) body: Body,
    /// Whether `create` wrote the piece, bypassing the head of its partition, so that perhaps only a minority
    /// of replicas has it.
    pub(crate) is_created: bool,
}

const FLAG_CREATED: u8 = 1;

impl PieceHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut encoded = self.checksum.to_be_bytes().to_vec();
        encoded.extend_from_slice(&self.bytes.to_be_bytes());
        encoded.push(if self.is_created { FLAG_CREATED } else { 0 });
        if let Body::Chunks(id, chunk_bytes) = self.body {
            encoded.extend_from_slice(&chunk_bytes.to_be_bytes());
            encoded.extend_from_slice(&id);
        }
        encoded
    }

    /// Decodes a head; none unless [`encode`](Self::encode) could have written these bytes, so that no length
    /// in them causes more work than the longest value does.
    pub(crate) fn decode(encoded: &[u8]) -> Option<Self> {
        let (checksum, rest) = encoded.split_first_chunk::<CHECKSUM_BYTES>()?;
        let (bytes, rest) = rest.split_first_chunk::<8>()?;
        let (&flags, rest) = rest.split_first()?;
        let body = match rest.split_first_chunk::<4>() {
            None if rest.is_empty() => Body::Inline,
            Some((chunk_bytes, id)) => {
                let chunk_bytes = u32::from_be_bytes(*chunk_bytes);
                Body::Chunks(id.try_into().ok().filter(|_| CHUNK_BYTES.contains(&chunk_bytes))?, chunk_bytes)
            }
            None => return None,
        };
        let (checksum, bytes) = (u64::from_be_bytes(*checksum), u64::from_be_bytes(*bytes));
        let is_right = bytes <= PIECE_BYTES_MAX && flags & !FLAG_CREATED == 0;
        is_right.then_some(Self { checksum, bytes, body, is_created: flags == FLAG_CREATED })
    }

    /// The chunks that belong to the piece: their name and their number.
    pub(crate) fn chunks(&self) -> Option<(ChunkId, u64)> {
        match self.body {
            Body::Inline => None,
            Body::Chunks(id, chunk_bytes) => Some((id, self.bytes.div_ceil(u64::from(chunk_bytes)))),
        }
    }
}

/// Set once some cell of the partition was written conditionally in more than one piece or with chunks.
pub(crate) const FLAG_COMPOUND: u8 = 1;

/// The head of a partition: every conditional write is conditional on it, and replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PartitionHead {
    /// The number of conditional writes to the partition.
    pub(crate) version: u64,
    /// The random number of the attempt that made this version.
    pub(crate) attempt: u128,
    /// The flags of the partition; see [`FLAG_COMPOUND`].
    pub(crate) flags: u8,
}

impl PartitionHead {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.version.to_be_bytes()[..], &self.attempt.to_be_bytes(), &[self.flags]].concat()
    }

    pub(crate) fn decode(encoded: &[u8]) -> Option<Self> {
        let (version, rest) = encoded.split_first_chunk::<8>()?;
        let (attempt, rest) = rest.split_first_chunk::<16>()?;
        let [flags] = *rest else { return None };
        // There must be room for one more version.
        let version = u64::from_be_bytes(*version).checked_add(1)? - 1;
        Some(Self { version, attempt: u128::from_be_bytes(*attempt), flags })
    }
}

/// The key of the row that records which attempt made `version`. There are 256 such rows, overwritten in
/// turn, so that they leave no tombstones.
pub(crate) fn winner_slot(version: u64) -> [u8; 1] {
    [version.to_be_bytes()[7]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(bytes: u64, body: Body) -> PieceHead {
        PieceHead { checksum: 3, bytes, body, is_created: false }
    }

    #[test]
    fn heads_are_read_back_as_they_were_written() {
        for (body, is_created) in [(Body::Inline, false), (Body::Chunks([7; 16], 1 << 18), true)] {
            let head = PieceHead { is_created, ..head(64 << 20, body) };
            assert_eq!(PieceHead::decode(&head.encode()), Some(head));
            assert!(head.encode().starts_with(&sealed(3, b"")));
        }
        let head = PartitionHead { version: u64::MAX - 1, attempt: u128::MAX - 5, flags: FLAG_COMPOUND };
        assert_eq!(PartitionHead::decode(&head.encode()), Some(head));
    }

    #[test]
    fn anything_else_is_no_head() {
        for len in (0..17).chain(18..37).chain([38, 100]) {
            assert_eq!(PieceHead::decode(&vec![0; len]), None, "{len} bytes");
        }
        for len in [0, 8, 17, 24, 26] {
            assert_eq!(PartitionHead::decode(&vec![1; len]), None, "{len} bytes");
        }
        let last = PartitionHead { version: u64::MAX, attempt: 0, flags: 0 };
        assert_eq!(PartitionHead::decode(&last.encode()), None);
    }

    #[test]
    fn no_head_makes_more_work_than_the_longest_value() {
        let of_chunks = |bytes, chunk_bytes| head(bytes, Body::Chunks([1; 16], chunk_bytes));
        let hostile = [
            head((64 << 20) + 1, Body::Inline),
            of_chunks(1 << 60, 1 << 17),
            of_chunks(9, 0),
            of_chunks(9, 1),
            of_chunks(9, (4 << 10) - 1),
            of_chunks(9, (1 << 20) + 1),
        ];
        for head in hostile {
            assert_eq!(PieceHead::decode(&head.encode()), None, "{head:?}");
        }
        let mut flagged = head(9, Body::Inline).encode();
        flagged[16] = 2;
        assert_eq!(PieceHead::decode(&flagged), None);
    }

    #[test]
    fn no_chunk_passes_for_another_one() {
        let sealed = sealed(chunk_checksum(&[1; 16], 7, b"bytes"), b"bytes");
        assert_eq!(unsealed_chunk(&[1; 16], 7, &sealed), Some(&b"bytes"[..]));
        assert_eq!(unsealed_chunk(&[1; 16], 8, &sealed), None);
        assert_eq!(unsealed_chunk(&[2; 16], 7, &sealed), None);
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

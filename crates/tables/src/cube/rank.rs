//! Ranks: the ends of extents, encoded as words of a directory.
//!
//! Invariant: an extent is decoded as it was encoded; any words decode to some extent.

use crate::lattice::{Extent, Kind, Scalar};
use arrow_schema::DataType;
use std::cmp::Ordering;

const HAS_RANGE: u64 = 1;
const HAS_INCOMPARABLE: u64 = 2;
const SIGN: u64 = 1 << 63;

/// Encodes the ends of the extents of one index column as words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    kind: Kind,
    is_single: bool,
}

impl Rank {
    pub(super) fn of(data_type: &DataType) -> Self {
        let is_single = matches!(data_type, DataType::Float32 | DataType::Float16);
        // Axes exist only for numbers and times.
        Self { kind: Kind::of(data_type).unwrap_or(Kind::Unsigned), is_single }
    }

    /// Which kinds of values an extent contains, as bits.
    pub(super) fn flags(self, extent: &Extent) -> u64 {
        let range = if extent.range().is_some() { HAS_RANGE } else { 0 };
        range | if extent.has_incomparable() { HAS_INCOMPARABLE } else { 0 }
    }

    /// The ends of an extent; zeros if it has no values.
    pub(super) fn ends(self, extent: &Extent) -> (u64, u64) {
        extent.range().map_or((0, 0), |(least, greatest)| (self.word(least), self.word(greatest)))
    }

    /// The extent with these flags and ends. Words that no writer would produce decode to an extent that
    /// prunes nothing it should not.
    pub(super) fn extent(self, [flags, least, greatest]: [u64; 3]) -> Extent {
        let ends = (self.scalar(least), self.scalar(greatest));
        let ends = match ends.0.partial_cmp(&ends.1) {
            Some(Ordering::Less | Ordering::Equal) => ends,
            Some(Ordering::Greater) => (ends.1, ends.0),
            None => (Scalar::Float(f64::NEG_INFINITY), Scalar::Float(f64::INFINITY)),
        };
        Extent::new((flags & HAS_RANGE != 0).then_some(ends), flags & HAS_INCOMPARABLE != 0)
    }

    fn word(self, scalar: Scalar) -> u64 {
        match scalar {
            Scalar::Signed(value) => value as u64 ^ SIGN,
            Scalar::Unsigned(value) => value,
            // Exact, since a column of this type holds no other values.
            Scalar::Float(value) if self.is_single => u64::from((value as f32).to_bits()),
            Scalar::Float(value) => value.to_bits(),
        }
    }

    fn scalar(self, word: u64) -> Scalar {
        match self.kind {
            Kind::Signed => Scalar::Signed((word ^ SIGN) as i64),
            Kind::Unsigned => Scalar::Unsigned(word),
            Kind::Float if self.is_single => Scalar::Float(f32::from_bits(word as u32).into()),
            Kind::Float => Scalar::Float(f64::from_bits(word)),
        }
    }
}

//! Columns of a band: numbers are packed, everything else is stored as blocks store it. This module reads
//! them; [`super::source`] writes them.
//!
//! ```text
//! numbers: tag 1 | (bitmap of nulls) | words       other: tag 1 | the slice of a block
//! ```
//!
//! Numbers are first ranked, that is, mapped to unsigned integers of the same order. Values that lie near
//! each other, floats included, then differ in their low bits only.
//!
//! Invariant: values come back bit by bit, including the sign of a zero and the payload of a NaN. The bytes
//! below a null are not kept.

use super::groups::{Number, Word};
use super::words::{Packing, SLACK_BYTES};
use crate::block::{BlockError, damaged, slice};
use crate::lattice::Kind;
use arrow_array::{ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayDataBuilder;
use arrow_schema::DataType;
use std::ops::Range;

pub(super) const TAG_OTHER: u8 = 0;
pub(super) const TAG_NUMBERS: u8 = 1;
pub(super) const TAG_NUMBERS_AND_NULLS: u8 = 2;

/// The memory layout of a type of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numeric {
    pub(super) kind: Kind,
    pub(super) width: usize,
    /// Numbers in each row.
    pub(super) per_row: usize,
}

impl Numeric {
    pub(super) fn of(data_type: &DataType) -> Option<Self> {
        let (scalar, per_row) = match data_type {
            DataType::FixedSizeList(item, len) => (item.data_type(), *len as usize),
            other => (other, 1),
        };
        let width = scalar.primitive_width().filter(|width| matches!(width, 1 | 2 | 4 | 8))?;
        Some(Self { kind: Kind::of(scalar)?, width, per_row })
    }
}

/// Decodes the rows `wanted` of a column of `rows` rows from its bytes and [`SLACK_BYTES`] more.
pub(super) fn decode(
    data_type: &DataType,
    rows: usize,
    wanted: Range<usize>,
    bytes: &[u8],
) -> Result<ArrayRef, BlockError> {
    if let Some((&TAG_OTHER, bytes)) = bytes.split_first() {
        let end = bytes.len().checked_sub(SLACK_BYTES).ok_or_else(|| damaged("a column is cut off"))?;
        return Ok(slice::decode(data_type, rows, &bytes[..end])?.slice(wanted.start, wanted.len()));
    }
    let numeric =
        Numeric::of(data_type).ok_or_else(|| damaged("a column that holds no numbers is packed"))?;
    let packed = Packed::read(numeric, rows, bytes)?;
    macro_rules! buffer {
        ($number:ty) => {{
            let mut values: Vec<$number> = Vec::new();
            packed.unpack(wanted.clone(), &mut values)?;
            Buffer::from_vec(values)
        }};
    }
    let buffer = match numeric.width {
        1 => buffer!(u8),
        2 => buffer!(u16),
        4 => buffer!(u32),
        _ => buffer!(u64),
    };
    build(data_type, numeric, wanted.len(), buffer, packed.nulls(wanted))
}

/// A column of packed numbers, not unpacked yet.
pub(super) struct Packed<'b> {
    numeric: Numeric,
    rows: usize,
    /// The bitmap of nulls, if there are nulls.
    bits: Option<&'b [u8]>,
    packing: Packing,
    bytes: &'b [u8],
}

impl<'b> Packed<'b> {
    // Inlined, since a result returned through memory stalls the caller.
    #[inline(always)]
    pub(super) fn read(numeric: Numeric, rows: usize, bytes: &'b [u8]) -> Result<Self, BlockError> {
        let cut_off = || damaged("a column is cut off");
        let (&tag, bytes) = bytes.split_first().ok_or_else(cut_off)?;
        let (bits, bytes) = match tag {
            TAG_NUMBERS => (None, bytes),
            TAG_NUMBERS_AND_NULLS => {
                let (bits, rest) = bytes.split_at_checked(rows.div_ceil(8)).ok_or_else(cut_off)?;
                (Some(bits), rest)
            }
            _ => return Err(damaged("a column is packed in an unknown way")),
        };
        let (packing, bytes) = Packing::read(bytes)?;
        Ok(Self { numeric, rows, bits, packing, bytes })
    }

    /// The nulls among some rows; `None` if the column has no nulls.
    pub(super) fn nulls(&self, wanted: Range<usize>) -> Option<NullBuffer> {
        let bits = Buffer::from(self.bits?);
        Some(NullBuffer::new(BooleanBuffer::new(bits, wanted.start, wanted.len())))
    }

    /// Appends the numbers of some rows, whose type must have the width of the column.
    #[inline(always)]
    pub(super) fn unpack<N: Number>(
        &self,
        wanted: Range<usize>,
        values: &mut Vec<N>,
    ) -> Result<(), BlockError> {
        let Numeric { kind, width, per_row } = self.numeric;
        let count = self.rows.checked_mul(per_row).ok_or_else(|| damaged("a column is too long"))?;
        let numbers = wanted.start * per_row..wanted.end * per_row;
        let sign = N::Word::of(1_u64 << (width * 8 - 1));
        let (packing, bytes) = (self.packing, self.bytes);
        // One loop for each kind; a single loop would test the kind for every number.
        match kind {
            Kind::Unsigned => packing.unpack_to(bytes, count, numbers, values, |rank| rank),
            Kind::Signed => packing.unpack_to(bytes, count, numbers, values, |rank| rank ^ sign),
            Kind::Float => packing.unpack_to(bytes, count, numbers, values, |rank| {
                if rank & sign == N::Word::default() { !rank } else { rank ^ sign }
            }),
        }
    }
}

pub(super) fn build(
    data_type: &DataType,
    numeric: Numeric,
    rows: usize,
    buffer: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, BlockError> {
    let builder = ArrayDataBuilder::new(data_type.clone()).len(rows).nulls(nulls);
    let builder = match data_type {
        DataType::FixedSizeList(item, _) => {
            let child = ArrayDataBuilder::new(item.data_type().clone()).len(rows * numeric.per_row);
            builder.add_child_data(child.add_buffer(buffer).build()?)
        }
        _ => builder.add_buffer(buffer),
    };
    Ok(make_array(builder.build()?))
}

//! Columns of a band as bytes: numbers packed, everything else as blocks keep it.
//!
//! ```text
//! numbers: tag 1 | (bitmap of nulls) | words       other: tag 1 | the slice of a block
//! ```
//!
//! Numbers are ranked first, that is, mapped to unsigned integers of the same order, so that values which lie
//! near each other, floats too, differ in their low bits only.
//!
//! Invariant: values come back bit by bit, the sign of a zero and the payload of a NaN included; what lies below
//! a null does not.

use super::words::{Packing, SLACK_BYTES, put_words};
use crate::block::{BlockError, slice};
use crate::lattice::Kind;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::DataType;
use std::ops::Range;

const OTHER: u8 = 0;
const NUMBERS: u8 = 1;
const NUMBERS_AND_NULLS: u8 = 2;

/// How a type of numbers lies in memory.
#[derive(Clone, Copy)]
struct Numeric {
    kind: Kind,
    width: usize,
    /// How many numbers a row has.
    per_row: usize,
}

impl Numeric {
    fn of(data_type: &DataType) -> Option<Self> {
        let (scalar, per_row) = match data_type {
            DataType::FixedSizeList(item, len) => (item.data_type(), *len as usize),
            other => (other, 1),
        };
        let width = scalar.primitive_width().filter(|width| matches!(width, 1 | 2 | 4 | 8))?;
        Some(Self { kind: Kind::of(scalar)?, width, per_row })
    }
}

/// Appends a column, which may be a part of a longer one. [`SLACK_BYTES`] must follow before it can be read.
pub(super) fn encode(column: &ArrayRef, bytes: &mut Vec<u8>) -> Result<(), BlockError> {
    let data = column.to_data();
    let numbers = Numeric::of(data.data_type()).and_then(|numeric| Some((numeric, values(&data, numeric)?)));
    let Some((numeric, values)) = numbers else {
        bytes.push(OTHER);
        return slice::encode(column, bytes);
    };
    let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0);
    match nulls {
        None => bytes.push(NUMBERS),
        Some(nulls) => {
            bytes.push(NUMBERS_AND_NULLS);
            bytes.extend_from_slice(&slice::bits_of(nulls.inner(), data.len()));
        }
    }
    put_numbers(values, numeric, nulls, bytes);
    Ok(())
}

/// The bytes of a column's numbers; none where it has nulls that are not those of single numbers.
fn values(data: &ArrayData, numeric: Numeric) -> Option<&[u8]> {
    let (rows, offset) = (data.len() * numeric.per_row, data.offset() * numeric.per_row);
    let (buffer, offset) = match data.data_type() {
        DataType::FixedSizeList(..) => {
            let child = data.child_data().first()?;
            if data.null_count() > 0 || child.null_count() > 0 {
                return None;
            }
            (child.buffers().first()?, child.offset() + offset)
        }
        _ => (data.buffers().first()?, offset),
    };
    buffer.as_slice().get(offset * numeric.width..(offset + rows) * numeric.width)
}

fn put_numbers(values: &[u8], numeric: Numeric, nulls: Option<&NullBuffer>, bytes: &mut Vec<u8>) {
    let of_value = |value| rank(load(value), numeric);
    let mut ranks: Vec<u64> = values.chunks_exact(numeric.width).map(of_value).collect();
    if let Some(nulls) = nulls {
        // Nothing that is seen lies below a null, so it takes no room.
        let least = nulls.valid_indices().map(|row| ranks[row]).min().unwrap_or_default();
        let pairs = ranks.iter_mut().zip(nulls.iter());
        pairs.filter(|(_, is_valid)| !is_valid).for_each(|(rank, _)| *rank = least);
    }
    put_words(&ranks, bytes);
}

/// The rows `wanted` of a column of `rows` rows, from its bytes and [`SLACK_BYTES`] more.
pub(super) fn decode(
    data_type: &DataType,
    rows: usize,
    wanted: Range<usize>,
    bytes: &[u8],
) -> Result<ArrayRef, BlockError> {
    let damaged = |problem: &str| BlockError::Damaged { problem: problem.to_owned() };
    let (&tag, bytes) = bytes.split_first().ok_or_else(|| damaged("a column is cut off"))?;
    if tag == OTHER {
        let end = bytes.len().checked_sub(SLACK_BYTES).ok_or_else(|| damaged("a column is cut off"))?;
        return Ok(slice::decode(data_type, rows, &bytes[..end])?.slice(wanted.start, wanted.len()));
    }
    let numeric = Numeric::of(data_type).ok_or_else(|| damaged("a column of no numbers is packed"))?;
    let (nulls, bytes) = match tag {
        NUMBERS => (None, bytes),
        NUMBERS_AND_NULLS => {
            let bits = bytes.split_at_checked(rows.div_ceil(8));
            let (bits, rest) = bits.ok_or_else(|| damaged("a column is cut off"))?;
            let bits = BooleanBuffer::new(Buffer::from(bits), wanted.start, wanted.len());
            (Some(NullBuffer::new(bits)), rest)
        }
        _ => return Err(damaged("a column is packed in no known way")),
    };
    let numbers = wanted.start * numeric.per_row..wanted.end * numeric.per_row;
    let buffer = read_numbers(numeric, rows * numeric.per_row, numbers, bytes)?;
    build(data_type, numeric, wanted.len(), buffer, nulls)
}

fn build(
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

fn read_numbers(
    numeric: Numeric,
    count: usize,
    numbers: Range<usize>,
    bytes: &[u8],
) -> Result<Buffer, BlockError> {
    let (packing, rest) = Packing::read(bytes)?;
    macro_rules! read {
        ($number:ty) => {{
            let mut values: Vec<$number> = Vec::with_capacity(numbers.len());
            packing.unpack(rest, count, numbers, |word| values.push(value(word, numeric) as $number))?;
            Buffer::from_vec(values)
        }};
    }
    Ok(match numeric.width {
        1 => read!(u8),
        2 => read!(u16),
        4 => read!(u32),
        _ => read!(u64),
    })
}

fn load(value: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..value.len()].copy_from_slice(value);
    u64::from_le_bytes(word)
}

/// An unsigned integer of the same width that is ordered as the value is.
fn rank(bits: u64, numeric: Numeric) -> u64 {
    let sign = 1 << (numeric.width * 8 - 1);
    let all = sign | (sign - 1);
    match numeric.kind {
        Kind::Unsigned => bits,
        Kind::Signed => bits ^ sign,
        Kind::Float if bits & sign == 0 => bits | sign,
        Kind::Float => !bits & all,
    }
}

/// What [`rank`] ranked.
#[inline]
fn value(rank: u64, numeric: Numeric) -> u64 {
    let sign = 1 << (numeric.width * 8 - 1);
    match numeric.kind {
        Kind::Unsigned => rank,
        Kind::Signed => rank ^ sign,
        Kind::Float if rank & sign != 0 => rank & !sign,
        Kind::Float => !rank,
    }
}

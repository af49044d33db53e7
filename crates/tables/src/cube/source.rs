//! Sources: the columns from which bands are written.
//!
//! The numbers of a band are packed from where they lie, through scratch memory that is reused for the next
//! band. No array is made for a band, since that would cost more than the hundred numbers in it.
//!
//! Invariant: the bytes written for some rows depend on their values alone, not on the rest of the column.

use super::column::{Numeric, TAG_NUMBERS, TAG_NUMBERS_AND_NULLS, TAG_OTHER};
use super::words::{Packable, put_words};
use super::write::seal;
use crate::block::{BlockError, slice};
use crate::lattice::{Extent, Kind};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use std::ops::{BitXor, Range, Shl};

/// A column of the rows of a tree.
#[derive(Debug)]
pub(super) struct Source {
    column: ArrayRef,
    /// Its numbers, if the column holds nothing else.
    numbers: Option<Numbers>,
}

#[derive(Debug)]
struct Numbers {
    numeric: Numeric,
    values: Buffer,
    /// Which rows are not null, if any row is null.
    nulls: Option<NullBuffer>,
}

/// Scratch memory for the numbers of a band.
#[derive(Debug, Default)]
pub(super) struct Room {
    narrow: Vec<u32>,
    wide: Vec<u64>,
}

impl Source {
    pub(super) fn of(column: &ArrayRef) -> Self {
        Self { column: column.clone(), numbers: Numbers::of(column) }
    }

    /// Appends some rows and a seal. Returns the length of both.
    pub(super) fn put(
        &self,
        rows: Range<usize>,
        room: &mut Room,
        bytes: &mut Vec<u8>,
    ) -> Result<u64, BlockError> {
        let start = bytes.len();
        self.encode(rows, room, bytes)?;
        let seal = seal(&bytes[start..], start as u64);
        bytes.extend_from_slice(&seal.to_le_bytes());
        Ok((bytes.len() - start) as u64)
    }

    /// Appends some rows.
    pub(super) fn encode(
        &self,
        rows: Range<usize>,
        room: &mut Room,
        bytes: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        if let Some(numbers) = &self.numbers {
            numbers.encode(rows, room, bytes);
            return Ok(());
        }
        let some = self.column.slice(rows.start, rows.len());
        match Numbers::of(&some) {
            // Elements are missing in vectors of other rows only, so these rows can still be packed.
            Some(numbers) => {
                numbers.encode(0..rows.len(), room, bytes);
                Ok(())
            }
            None => {
                bytes.push(TAG_OTHER);
                slice::encode(&some, bytes)
            }
        }
    }

    /// The extent of some rows, if this is an index column.
    pub(super) fn extent(&self, rows: Range<usize>) -> Result<Extent, BlockError> {
        let plain =
            self.numbers.as_ref().filter(|numbers| numbers.nulls.is_none() && numbers.numeric.per_row == 1);
        let extent =
            plain.and_then(|plain| Extent::of_bytes(self.column.data_type(), plain.bytes(rows.clone())));
        match extent {
            Some(extent) => Ok(extent),
            None => Ok(Extent::of(&self.column.slice(rows.start, rows.len()))?),
        }
    }

    /// The column.
    pub(super) const fn column(&self) -> &ArrayRef {
        &self.column
    }
}

impl Numbers {
    /// The numbers of a column; `None` if a vector that is not null has a null element.
    fn of(column: &ArrayRef) -> Option<Self> {
        let numeric = Numeric::of(column.data_type())?;
        let data = column.to_data();
        let (count, offset) = (data.len() * numeric.per_row, data.offset() * numeric.per_row);
        let (buffer, offset) = match data.data_type() {
            DataType::FixedSizeList(..) => {
                let child: &ArrayData = data.child_data().first()?;
                if !are_whole(&data, child, numeric.per_row) {
                    return None;
                }
                (child.buffers().first()?, child.offset() + offset)
            }
            _ => (data.buffers().first()?, offset),
        };
        let (from, bytes) = (offset * numeric.width, count * numeric.width);
        if buffer.len() < from + bytes {
            return None;
        }
        let nulls = data.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        Some(Self { numeric, values: buffer.slice_with_length(from, bytes), nulls })
    }

    /// The bytes of the numbers in some rows.
    fn bytes(&self, rows: Range<usize>) -> &[u8] {
        let of_row = self.numeric.width * self.numeric.per_row;
        &self.values[rows.start * of_row..rows.end * of_row]
    }

    fn encode(&self, rows: Range<usize>, room: &mut Room, bytes: &mut Vec<u8>) {
        let Room { narrow, wide } = room;
        let nulls = self.put_nulls(rows.clone(), bytes);
        let (raw, kind) = (self.bytes(rows), self.numeric.kind);
        match self.numeric.width {
            1 => ranks(raw, kind, |[byte]: [u8; 1]| byte.into(), narrow),
            2 => ranks(raw, kind, |value: [u8; 2]| u16::from_le_bytes(value).into(), narrow),
            4 => ranks(raw, kind, u32::from_le_bytes, narrow),
            _ => {
                ranks(raw, kind, u64::from_le_bytes, wide);
                return put(wide, nulls.as_deref(), self.numeric.per_row, bytes);
            }
        }
        put(narrow, nulls.as_deref(), self.numeric.per_row, bytes);
    }

    /// Appends the tag and, if some of the rows are null, the bitmap. Returns then which rows are not null.
    fn put_nulls(&self, rows: Range<usize>, bytes: &mut Vec<u8>) -> Option<Vec<bool>> {
        let is_valid =
            |nulls: &NullBuffer| -> Vec<bool> { rows.clone().map(|row| nulls.is_valid(row)).collect() };
        let valid = self.nulls.as_ref().map(is_valid).filter(|valid| valid.contains(&false));
        let Some(valid) = valid else {
            bytes.push(TAG_NUMBERS);
            return None;
        };
        bytes.push(TAG_NUMBERS_AND_NULLS);
        let byte = |bits: &[bool]| bits.iter().rev().fold(0_u8, |byte, &bit| byte << 1 | u8::from(bit));
        bytes.extend(valid.chunks(8).map(byte));
        Some(valid)
    }
}

/// Maps values to unsigned integers of the same width and order. [`super::column::Packed::unpack`] is the
/// inverse.
fn ranks<const WIDTH: usize, N>(raw: &[u8], kind: Kind, word: impl Fn([u8; WIDTH]) -> N, ranks: &mut Vec<N>)
where
    N: Packable + Shl<u32, Output = N> + BitXor<Output = N> + From<bool>,
{
    let sign = N::from(true) << (u8::BITS * WIDTH as u32 - 1);
    // All bits of the width, made without a shift by the width of the word.
    let all = sign | (sign - N::from(true));
    let words = raw.as_chunks::<WIDTH>().0.iter().map(|value| word(*value));
    ranks.clear();
    // One loop for each kind; a single loop would test the kind for every number.
    match kind {
        Kind::Unsigned => ranks.extend(words),
        Kind::Signed => ranks.extend(words.map(|word| word ^ sign)),
        Kind::Float => ranks.extend(words.map(|word| if word < sign { word | sign } else { word ^ all })),
    }
}

/// Whether all vectors that are not null have all their elements. Whatever lies below a null vector is
/// ignored.
fn are_whole(vectors: &ArrayData, elements: &ArrayData, per_row: usize) -> bool {
    let Some(missing) = elements.nulls().filter(|missing| missing.null_count() > 0) else { return true };
    let first = vectors.offset() * per_row;
    let is_there = |row: &usize| vectors.nulls().is_none_or(|nulls| nulls.is_valid(*row));
    (0..vectors.len())
        .filter(is_there)
        .all(|row| missing.slice(first + row * per_row, per_row).null_count() == 0)
}

/// Appends the numbers of rows, `per_row` in each; `valid` says which rows are not null.
fn put<N: Packable>(ranks: &mut [N], valid: Option<&[bool]>, per_row: usize, bytes: &mut Vec<u8>) {
    if let Some(valid) = valid {
        // Nothing below a null is ever seen, so it is written as the number that takes the least room.
        let rows = ranks.chunks_exact(per_row).zip(valid);
        let least = rows.filter(|(_, is_valid)| **is_valid).flat_map(|(row, _)| row).min().copied();
        let rows = ranks.chunks_exact_mut(per_row).zip(valid).filter(|(_, is_valid)| !**is_valid);
        rows.for_each(|(row, _)| row.fill(least.unwrap_or_default()));
    }
    put_words(ranks, bytes);
}

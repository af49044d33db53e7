//! Sources: columns of which bands are written.
//!
//! The numbers of a band are packed from where they lie, by way of room that is used again for the next: no
//! array is made for a band, since that costs more than the hundred numbers in it.
//!
//! Invariant: what is written of some rows depends on their values alone, not on the column around them.

use super::column::{NUMBERS, NUMBERS_AND_NULLS, Numeric, OTHER};
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
    /// Its numbers, if it has nothing else.
    numbers: Option<Numbers>,
}

#[derive(Debug)]
struct Numbers {
    numeric: Numeric,
    values: Buffer,
    /// Which rows are not null, if any is null.
    nulls: Option<NullBuffer>,
}

/// Room for the numbers of a band.
#[derive(Debug, Default)]
pub(super) struct Room {
    narrow: Vec<u32>,
    wide: Vec<u64>,
}

impl Source {
    pub(super) fn of(column: &ArrayRef) -> Self {
        Self { column: column.clone(), numbers: Numbers::of(column) }
    }

    /// Appends some rows and a seal; how long that is.
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
            // Vectors of which others lack an element.
            Some(numbers) => {
                numbers.encode(0..rows.len(), room, bytes);
                Ok(())
            }
            None => {
                bytes.push(OTHER);
                slice::encode(&some, bytes)
            }
        }
    }

    /// What some rows span, if this is an index column.
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
    /// The numbers of a column; none where a vector that is there has an element that is not.
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

    /// The numbers of some rows, one behind the other.
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

    /// Puts the tag and, if some of the rows are null, which; whether each has a value then.
    fn put_nulls(&self, rows: Range<usize>, bytes: &mut Vec<u8>) -> Option<Vec<bool>> {
        let is_valid =
            |nulls: &NullBuffer| -> Vec<bool> { rows.clone().map(|row| nulls.is_valid(row)).collect() };
        let valid = self.nulls.as_ref().map(is_valid).filter(|valid| valid.contains(&false));
        let Some(valid) = valid else {
            bytes.push(NUMBERS);
            return None;
        };
        bytes.push(NUMBERS_AND_NULLS);
        let byte = |bits: &[bool]| bits.iter().rev().fold(0_u8, |byte, &bit| byte << 1 | u8::from(bit));
        bytes.extend(valid.chunks(8).map(byte));
        Some(valid)
    }
}

/// Unsigned integers of the same width that are ordered as the values are; [`super::column::Packed::unpack`]
/// has the way back.
fn ranks<const WIDTH: usize, N>(raw: &[u8], kind: Kind, word: impl Fn([u8; WIDTH]) -> N, ranks: &mut Vec<N>)
where
    N: Packable + Shl<u32, Output = N> + BitXor<Output = N> + From<bool>,
{
    let sign = N::from(true) << (u8::BITS * WIDTH as u32 - 1);
    // All bits of the width, made without a shift that is as long as the word.
    let all = sign | (sign - N::from(true));
    let words = raw.as_chunks::<WIDTH>().0.iter().map(|value| word(*value));
    ranks.clear();
    // A loop for each kind, since what kind it is would be asked for each number otherwise.
    match kind {
        Kind::Unsigned => ranks.extend(words),
        Kind::Signed => ranks.extend(words.map(|word| word ^ sign)),
        Kind::Float => ranks.extend(words.map(|word| if word < sign { word | sign } else { word ^ all })),
    }
}

/// Whether all vectors that are there have all of their elements; what lies below one that is null is
/// nothing.
fn are_whole(vectors: &ArrayData, elements: &ArrayData, per_row: usize) -> bool {
    let Some(missing) = elements.nulls().filter(|missing| missing.null_count() > 0) else { return true };
    let first = vectors.offset() * per_row;
    let is_there = |row: &usize| vectors.nulls().is_none_or(|nulls| nulls.is_valid(*row));
    (0..vectors.len())
        .filter(is_there)
        .all(|row| missing.slice(first + row * per_row, per_row).null_count() == 0)
}

/// Puts the numbers of rows that have so many each, of which some rows may be null.
fn put<N: Packable>(ranks: &mut [N], valid: Option<&[bool]>, per_row: usize, bytes: &mut Vec<u8>) {
    if let Some(valid) = valid {
        // Nothing that is seen lies below a null, so it takes no room.
        let rows = ranks.chunks_exact(per_row).zip(valid);
        let least = rows.filter(|(_, is_valid)| **is_valid).flat_map(|(row, _)| row).min().copied();
        let rows = ranks.chunks_exact_mut(per_row).zip(valid).filter(|(_, is_valid)| !**is_valid);
        rows.for_each(|(row, _)| row.fill(least.unwrap_or_default()));
    }
    put_words(ranks, bytes);
}

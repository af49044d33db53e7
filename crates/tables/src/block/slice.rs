//! Slices: one column of one band, stored as the buffers of an Arrow array one after the other.
//!
//! ```text
//! parts 4 | nulls 4 | length of each part 8 … | parts, each on a multiple of 8
//! ```
//!
//! If all rows hold the same number, that number is the only part, and [`ALIKE_FLAG`] is set in the word
//! `nulls`.
//!
//! The parts are the validity bitmap, if there are nulls, and then the buffers of the type; for vectors, the
//! parts of their elements. Every buffer starts at row 0 and is exactly as long as the rows need, so a slice
//! depends on its rows alone.

use super::{ALIGNMENT, BlockError, damaged};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::DataType;

/// Flag in the word `nulls`: the only part is a single value that all rows have.
pub(super) const ALIKE_FLAG: u32 = 1 << 31;

/// Appends the slice of `column`, whose buffers must start at its first row. Arrays that were just taken or
/// built do.
pub(crate) fn encode(column: &ArrayRef, bytes: &mut Vec<u8>) -> Result<(), BlockError> {
    let start = bytes.len();
    let mut parts = Vec::new();
    let nulls = collect_parts(&column.to_data(), &mut parts)?;
    bytes.extend_from_slice(&(parts.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&nulls.to_le_bytes());
    parts.iter().for_each(|part| bytes.extend_from_slice(&(part.len() as u64).to_le_bytes()));
    for part in parts {
        bytes.extend_from_slice(&part);
        let padded = start + (bytes.len() - start).next_multiple_of(8);
        bytes.resize(padded, 0);
    }
    Ok(())
}

/// Collects the parts of an array. Returns whether it and its elements have nulls, one bit for each level.
fn collect_parts(data: &ArrayData, parts: &mut Vec<Vec<u8>>) -> Result<u32, BlockError> {
    let rows = data.len();
    let has_nulls = data.null_count() > 0;
    if let Some(nulls) = data.nulls().filter(|_| has_nulls) {
        parts.push(bits_of(nulls.inner(), rows));
    }
    let own = u32::from(has_nulls);
    match data.data_type() {
        DataType::Boolean => {
            let bits = BooleanBuffer::new(data.buffers()[0].clone(), data.offset(), rows);
            parts.push(bits_of(&bits, rows));
        }
        DataType::Utf8 | DataType::Binary => {
            let offsets = &data.buffer::<i32>(0)[..=rows];
            let first = offsets[0];
            parts.push(offsets.iter().flat_map(|offset| (offset - first).to_le_bytes()).collect());
            parts.push(data.buffers()[1].as_slice()[first as usize..offsets[rows] as usize].to_vec());
        }
        DataType::FixedSizeList(_, len) => {
            let len = *len as usize;
            let elements = data.child_data()[0].slice(data.offset() * len, rows * len);
            return Ok(own | collect_parts(&elements, parts)? << 1);
        }
        other => {
            let width =
                other.primitive_width().ok_or_else(|| BlockError::Type { data_type: other.clone() })?;
            let values = data.buffers()[0].as_slice();
            parts.push(values[data.offset() * width..][..rows * width].to_vec());
        }
    }
    Ok(own)
}

/// At most how many bytes the slices of a column take that is cut into bands of these lengths, whichever rows
/// each band has, if each slice is padded to [`ALIGNMENT`].
pub(super) fn bytes_at_most(column: &ArrayRef, bands: &[usize]) -> usize {
    let data = column.to_data();
    let texts = ends_of(&data).and_then(|ends| Some(ends.last()?.abs_diff(*ends.first()?)));
    // Only the order of the rows decides which texts a band has, and so how its slice is padded.
    let padding = if texts.is_some() { 8 + ALIGNMENT } else { 0 };
    let of_band = |rows: &usize| (8 + parts_bytes(&data, *rows)).next_multiple_of(ALIGNMENT) + padding;
    bands.iter().map(of_band).sum::<usize>() + texts.map_or(0, |bytes| bytes as usize)
}

/// Bytes of the longest text of a column; 0 for a column of another type.
pub(super) fn longest_text(column: &ArrayRef) -> usize {
    let data = column.to_data();
    let lengths = ends_of(&data).unwrap_or_default().windows(2).map(|pair| pair[1].abs_diff(pair[0]));
    lengths.max().unwrap_or(0) as usize
}

/// Where the texts of an array begin, and where the last one ends; none for an array of another type.
fn ends_of(data: &ArrayData) -> Option<&[i32]> {
    let has_texts = matches!(data.data_type(), DataType::Utf8 | DataType::Binary);
    // An array without rows may have no ends at all.
    has_texts.then(|| data.buffer::<i32>(0).get(..=data.len()).unwrap_or_default())
}

/// At most how many bytes the parts of `rows` rows of an array take, with their lengths in front of them, and
/// without texts.
fn parts_bytes(data: &ArrayData, rows: usize) -> usize {
    let part = |bytes: usize| 8 + bytes.next_multiple_of(8);
    let has_nulls = data.null_count() > 0;
    let own = if has_nulls { part(rows.div_ceil(8)) } else { 0 };
    own + match data.data_type() {
        DataType::Boolean => part(rows.div_ceil(8)),
        DataType::Utf8 | DataType::Binary => part((rows + 1) * size_of::<i32>()) + part(0),
        DataType::FixedSizeList(_, len) => data.child_data().first().map_or(0, |elements| {
            let count = rows * *len as usize;
            // The elements of vectors that are missing may be missing once the rows are in order.
            let become_nulls = has_nulls && elements.null_count() == 0;
            parts_bytes(elements, count) + if become_nulls { part(count.div_ceil(8)) } else { 0 }
        }),
        other => part(rows * other.primitive_width().unwrap_or(0)),
    }
}

/// The first `rows` bits as bytes, starting at the first bit of the first byte; bits after the last row are
/// zero.
pub(crate) fn bits_of(bits: &BooleanBuffer, rows: usize) -> Vec<u8> {
    let mut bytes = bits.sliced().as_slice()[..rows.div_ceil(8)].to_vec();
    if let (Some(last), over @ 1..) = (bytes.last_mut(), rows % 8) {
        *last &= (1 << over) - 1;
    }
    bytes
}

/// The values of a slice that holds only numbers without nulls, and whether one value stands for all rows.
/// `None` for any other slice.
pub(crate) fn plain(bytes: &[u8]) -> Option<(bool, &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    let (nulls, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let nulls = u32::from_le_bytes(*nulls);
    let is_plain = u32::from_le_bytes(*count) == 1 && matches!(nulls, 0 | ALIKE_FLAG);
    let length = usize::try_from(u64::from_le_bytes(*length)).ok().filter(|_| is_plain)?;
    Some((nulls == ALIKE_FLAG, rest.get(..length)?))
}

/// Decodes a slice into a column of `rows` rows.
pub(crate) fn decode(data_type: &DataType, rows: usize, bytes: &[u8]) -> Result<ArrayRef, BlockError> {
    let cut_off = || damaged("a slice is cut off");
    let (&count, rest) = bytes.split_first_chunk::<4>().ok_or_else(cut_off)?;
    let (&nulls, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
    let (count, nulls) = (u32::from_le_bytes(count) as usize, u32::from_le_bytes(nulls));
    let lengths = rest.get(..count.saturating_mul(8)).ok_or_else(cut_off)?;
    let mut at = 8 + lengths.len();
    let mut parts = Vec::with_capacity(count);
    for length in lengths.chunks_exact(8) {
        let length = u64::from_le_bytes(*length.first_chunk().ok_or_else(cut_off)?);
        let length = usize::try_from(length).map_err(|_| cut_off())?;
        let end = at.checked_add(length).ok_or_else(cut_off)?;
        parts.push(Buffer::from(bytes.get(at..end).ok_or_else(cut_off)?));
        at = end.next_multiple_of(8);
    }
    if nulls == ALIKE_FLAG {
        parts = vec![repeated(data_type, rows, &parts)?];
    }
    let mut parts = parts.into_iter();
    let data = build(data_type, rows, nulls & !ALIKE_FLAG, &mut parts)?;
    if parts.next().is_some() {
        return Err(damaged("a slice has parts that its type does not have"));
    }
    Ok(make_array(data))
}

/// Repeats the single value of a slice for all rows.
fn repeated(data_type: &DataType, rows: usize, parts: &[Buffer]) -> Result<Buffer, BlockError> {
    let width = data_type.primitive_width().ok_or_else(|| damaged("only numbers can be all alike"))?;
    match parts {
        [value] if value.len() == width => Ok(Buffer::from(value.as_slice().repeat(rows))),
        _ => Err(damaged("a value shared by all rows has the wrong length")),
    }
}

fn build(
    data_type: &DataType,
    rows: usize,
    nulls: u32,
    parts: &mut impl Iterator<Item = Buffer>,
) -> Result<ArrayData, BlockError> {
    let mut next = || parts.next().ok_or_else(|| damaged("a slice lacks a part"));
    // The builder reads `rows` bits without checking that they are there.
    let bitmap = |bits: Buffer| {
        if bits.len() == rows.div_ceil(8) { Ok(bits) } else { Err(damaged("a bitmap has the wrong length")) }
    };
    let mut builder = ArrayDataBuilder::new(data_type.clone()).len(rows).align_buffers(true);
    if nulls & 1 != 0 {
        builder = builder.null_bit_buffer(Some(bitmap(next()?)?));
    }
    builder = match data_type {
        DataType::Boolean => builder.add_buffer(bitmap(next()?)?),
        DataType::Utf8 | DataType::Binary => builder.add_buffer(next()?).add_buffer(next()?),
        DataType::FixedSizeList(item, len) => {
            let elements = rows.checked_mul(*len as usize).ok_or_else(|| damaged("a vector is too long"))?;
            builder.add_child_data(build(item.data_type(), elements, nulls >> 1, parts)?)
        }
        other if other.primitive_width().is_some() => builder.add_buffer(next()?),
        other => return Err(BlockError::Type { data_type: other.clone() }),
    };
    // `build` checks lengths, offsets and UTF-8; an array that passes is safe to use.
    builder.build().map_err(|error| damaged(error.to_string()))
}

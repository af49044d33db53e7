//! The contents of slices. The length of a content is known before it is written.
//!
//! A number that is the same in all rows is written once. Other numbers without nulls are gathered in weight
//! order straight from the caller's rows into the block. Every other column is rearranged and encoded first.

use super::slice::ALIKE_FLAG;
use super::{ALIGNMENT, BlockError, slice};
use crate::lattice::Extent;
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::Buffer;
use arrow_schema::DataType;
use arrow_select::take::take;

/// Bytes in front of the values of a slice that has one part.
const ONE_PART_BYTES: usize = 16;

/// A column of the caller's rows, in their original order.
pub(super) struct Source {
    column: ArrayRef,
    /// The values and their width in bytes, if the column holds numbers without nulls.
    plain: Option<(Buffer, usize)>,
    /// Whether all values are equal.
    is_alike: bool,
}

/// What a slice will hold.
pub(super) enum Content<'c> {
    /// Numbers that are still in the order of the caller's rows.
    Plain { data_type: &'c DataType, values: &'c [u8], width: usize, order: &'c [u32] },
    /// One number for all rows.
    Alike { data_type: &'c DataType, value: &'c [u8], order: &'c [u32] },
    /// An encoded slice.
    Encoded { bytes: Vec<u8>, order: &'c [u32] },
}

impl Source {
    /// The sources of all columns of a table; `ids` are the places of its id columns.
    pub(super) fn of_all(columns: &[ArrayRef], ids: &[usize]) -> Vec<Self> {
        let mut sources: Vec<Self> = columns.iter().map(Self::of).collect();
        // If every id column were written once, nothing in a band would bound its number of rows.
        if ids.iter().all(|&place| sources[place].is_alike)
            && let Some(&first) = ids.first()
        {
            sources[first].is_alike = false;
        }
        sources
    }

    fn of(column: &ArrayRef) -> Self {
        let plain = column
            .data_type()
            .primitive_width()
            .filter(|width| matches!(width, 1 | 2 | 4 | 8) && column.null_count() == 0);
        let plain = plain.and_then(|width| {
            let parts = column.to_data();
            let whole = parts.buffers().first()?;
            Some((whole.slice_with_length(parts.offset() * width, parts.len() * width), width))
        });
        // The step usually is the same in all rows. Any other column shows by its second value that it is
        // not.
        let is_alike = plain.as_ref().is_some_and(|(values, width)| {
            values.len() > *width && values[*width..] == values[..values.len() - width]
        });
        Self { column: column.clone(), plain, is_alike }
    }

    /// The content of the slice that holds the rows `order`.
    pub(super) fn content<'c>(&'c self, order: &'c [u32]) -> Result<Content<'c>, BlockError> {
        if let Some((values, width)) = &self.plain {
            if self.is_alike {
                return Ok(Content::Alike {
                    data_type: self.column.data_type(),
                    value: &values[..*width],
                    order,
                });
            }
            return Ok(Content::Plain { data_type: self.column.data_type(), values, width: *width, order });
        }
        let mut bytes = Vec::new();
        slice::encode(&take(&self.column, &UInt32Array::from(order.to_vec()), None)?, &mut bytes)?;
        Ok(Content::Encoded { bytes, order })
    }

    /// At most how many bytes the slices of bands of these lengths take, each padded to [`ALIGNMENT`],
    /// whichever rows each band has. Slices of numbers without nulls take exactly as many.
    pub(super) fn bytes_at_most(&self, bands: &[usize]) -> usize {
        let Some((_, width)) = &self.plain else { return slice::bytes_at_most(&self.column, bands) };
        let of_band = |rows: &usize| {
            let bytes = if self.is_alike { *width } else { rows * width };
            one_part(bytes).next_multiple_of(ALIGNMENT)
        };
        bands.iter().map(of_band).sum()
    }
}

/// The length of a slice with one part of this length.
fn one_part(bytes: usize) -> usize {
    ONE_PART_BYTES + bytes.next_multiple_of(8)
}

impl Content<'_> {
    /// The length of the slice in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Plain { width, order, .. } => one_part(order.len() * width),
            Self::Alike { value, .. } => one_part(value.len()),
            Self::Encoded { bytes, .. } => bytes.len(),
        }
    }

    /// Writes the slice into `slice`, which has exactly its length and is zero-filled. Returns the extent of
    /// the values where writing shows it.
    pub(super) fn write(&self, slice: &mut [u8]) -> Option<Extent> {
        match self {
            Self::Encoded { bytes, .. } => {
                slice.copy_from_slice(bytes);
                None
            }
            Self::Alike { data_type, value, .. } => {
                begin_part(slice, value.len()).copy_from_slice(value);
                slice[4..8].copy_from_slice(&ALIKE_FLAG.to_le_bytes());
                Extent::of_bytes(data_type, value)
            }
            Self::Plain { data_type, values, width, order } => {
                let part = begin_part(slice, order.len() * width);
                match width {
                    1 => gather::<1>(values, order, part),
                    2 => gather::<2>(values, order, part),
                    4 => gather::<4>(values, order, part),
                    _ => gather::<8>(values, order, part),
                }
                Extent::of_bytes(data_type, part)
            }
        }
    }
}

/// Writes the header of a slice with one part and no nulls. Returns the bytes of that part.
fn begin_part(slice: &mut [u8], bytes: usize) -> &mut [u8] {
    slice[..4].copy_from_slice(&1_u32.to_le_bytes());
    slice[8..ONE_PART_BYTES].copy_from_slice(&(bytes as u64).to_le_bytes());
    &mut slice[ONE_PART_BYTES..ONE_PART_BYTES + bytes]
}

fn gather<const WIDTH: usize>(values: &[u8], order: &[u32], part: &mut [u8]) {
    let values = values.as_chunks::<WIDTH>().0;
    for (to, &row) in part.as_chunks_mut::<WIDTH>().0.iter_mut().zip(order) {
        *to = values[row as usize];
    }
}

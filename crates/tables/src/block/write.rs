//! Writing a block: rows in weight order, cut into bands and slices, behind a directory.

use super::content::{Content, Source};
use super::directory::Head;
use super::{
    ALIGNMENT, Band, BlockError, Directory, HEAD_BYTES, Slice, band_rows, checksum, damaged, schema_sum,
    slice,
};
use crate::lattice::Extent;
use crate::schema::{IndexColumn, number_bytes};
use crate::threads::{map, threads};
use crate::weight::{rows_in_order, weights_of_rows};
use crate::{Salt, TableSchema, Weight};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow_select::take::take;
use atoll_store::Buffer;
use std::sync::{Arc, Mutex, PoisonError};

/// Encodes rows, in any order, as a block of a table.
///
/// # Errors
/// [`BlockError::Columns`] and [`BlockError::Null`] where the rows do not fit the table; errors of weights
/// and extents.
pub fn encode_block(schema: &TableSchema, rows: &RecordBatch) -> Result<Vec<u8>, BlockError> {
    Ok(write_block(schema, rows)?.bytes.to_vec())
}

/// As [`encode_block`], but keeps the block in the buffer it was written to.
pub(crate) fn write_block(schema: &TableSchema, rows: &RecordBatch) -> Result<Written, BlockError> {
    check(schema, rows)?;
    let columns = |places: &[usize]| -> Vec<ArrayRef> {
        places.iter().map(|&place| Arc::clone(rows.column(place))).collect()
    };
    let (key, id) = (columns(schema.sample_key()), columns(schema.id()));
    let threads = threads(2 * rows.num_rows());
    let weights = weights_of_rows(&key, Salt(schema.salt()), threads)?;
    let (weights, order) = rows_in_order(&weights, &id, threads)?;
    encode(schema, rows, &order, &weights)
}

/// As [`encode_block`], for rows that are already ordered by (weight, id), given their weights.
///
/// # Errors
/// As [`encode_block`].
pub fn encode_sorted(
    schema: &TableSchema,
    rows: &RecordBatch,
    weights: &[Weight],
) -> Result<Vec<u8>, BlockError> {
    check(schema, rows)?;
    if weights.len() != rows.num_rows() {
        let problem = format!("{} weights for {} rows", weights.len(), rows.num_rows());
        return Err(BlockError::Columns { problem });
    }
    let order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    Ok(encode(schema, rows, &order, weights)?.bytes.to_vec())
}

pub(crate) fn check(schema: &TableSchema, rows: &RecordBatch) -> Result<(), BlockError> {
    let (expected, found) = (schema.columns(), rows.schema());
    if expected.fields().len() != found.fields().len() {
        let problem = format!("{} instead of {}", found.fields().len(), expected.fields().len());
        return Err(BlockError::Columns { problem });
    }
    for (place, (expected, found)) in expected.fields().iter().zip(found.fields()).enumerate() {
        if expected.name() != found.name() || expected.data_type() != found.data_type() {
            let of =
                |field: &arrow_schema::Field| format!("\"{}\" of type {}", field.name(), field.data_type());
            let problem = format!("column {place} is {} instead of {}", of(found), of(expected));
            return Err(BlockError::Columns { problem });
        }
        let column = rows.column(place);
        if !expected.is_nullable() && column.null_count() > 0 {
            let row = (0..column.len()).find(|&row| column.is_null(row)).unwrap_or_default();
            return Err(BlockError::Null { column: expected.name().clone(), row });
        }
    }
    Ok(())
}

/// At most how many bytes a block of these rows takes, which have been checked. It takes exactly as many if
/// all columns are numbers without nulls; otherwise it may take a little less.
pub(crate) fn block_bytes_at_most(schema: &TableSchema, rows: &RecordBatch) -> u64 {
    let sources = Source::of_all(rows.columns(), schema.id());
    let bands: Vec<usize> = band_rows(rows.num_rows()).collect();
    let front = HEAD_BYTES + Directory::encoded_bytes(bands.len(), schema.index().len(), sources.len());
    let contents = sources.iter().map(|source| source.bytes_at_most(&bands)).sum::<usize>();
    (front.next_multiple_of(ALIGNMENT) + contents) as u64
}

/// At most how many bytes one of these rows takes.
pub(crate) fn row_bytes_at_most(rows: &RecordBatch) -> u64 {
    let of_column = |column: &ArrayRef| {
        // A text has an end of 4 bytes, and a truth value takes less than one byte.
        number_bytes(column.data_type()) + slice::longest_text(column) as u64 + 4
    };
    rows.columns().iter().map(of_column).sum()
}

/// A block that has been written.
pub(crate) struct Written {
    pub(crate) bytes: Buffer,
    pub(crate) directory: Directory,
    /// Length of head and directory in bytes.
    pub(crate) front_bytes: u64,
}

/// Writes every slice in place, on several threads, and then the directory in front of them.
fn encode(
    schema: &TableSchema,
    rows: &RecordBatch,
    order: &[u32],
    weights: &[Weight],
) -> Result<Written, BlockError> {
    let sources = Source::of_all(rows.columns(), schema.id());
    let (mut contents, mut of_bands) = (Vec::new(), Vec::new());
    let mut from = 0;
    for count in band_rows(rows.num_rows()) {
        let (order, weights) = (&order[from..from + count], &weights[from..from + count]);
        of_bands.push(weights);
        for source in &sources {
            contents.push(source.content(order)?);
        }
        from += count;
    }
    let (index, slices) = (schema.index().len(), sources.len());
    let bands = of_bands.len();
    let front = HEAD_BYTES + Directory::encoded_bytes(bands, index, slices);
    let padded = |content: &Content<'_>| content.bytes().next_multiple_of(ALIGNMENT);
    let block_bytes = front.next_multiple_of(ALIGNMENT) + contents.iter().map(padded).sum::<usize>();
    let mut directory =
        Directory { rows: rows.num_rows() as u64, bytes: block_bytes as u64, bands: Vec::new() };
    let bytes = Buffer::try_build(block_bytes, |bytes| {
        let (at_front, behind) = bytes.split_at_mut(front.next_multiple_of(ALIGNMENT));
        let put = write_slices(&contents, at_front.len(), behind, threads(2 * rows.num_rows()));
        let bands = of_bands.iter().zip(contents.chunks(slices).zip(put.chunks(slices)));
        for (weights, (contents, put)) in bands {
            directory.bands.push(band_of(schema, rows, weights, contents, put)?);
        }
        let encoded = directory.encode();
        let head = Head {
            has_weights: false,
            directory_bytes: encoded.len() as u32,
            rows: directory.rows,
            block_bytes: directory.bytes,
            schema: schema_sum(schema),
            directory_sum: checksum(&encoded),
        };
        at_front[..HEAD_BYTES].copy_from_slice(&head.encode());
        at_front[HEAD_BYTES..front].copy_from_slice(&encoded);
        Ok::<_, BlockError>(())
    })?;
    Ok(Written { bytes, directory, front_bytes: front as u64 })
}

/// A slice that has been written, with the extent of its values if writing showed it.
struct WrittenSlice {
    slice: Slice,
    extent: Option<Extent>,
}

/// Writes slices one after the other into `bytes`, which begins at `offset` in the block.
fn write_slices(
    contents: &[Content<'_>],
    mut offset: usize,
    mut bytes: &mut [u8],
    threads: usize,
) -> Vec<WrittenSlice> {
    let mut places = Vec::with_capacity(contents.len());
    for content in contents {
        let len = content.bytes();
        let (own, behind) = bytes.split_at_mut(len.next_multiple_of(ALIGNMENT));
        // Locked once, by the thread that writes it.
        places.push((content, offset, Mutex::new(&mut own[..len])));
        (bytes, offset) = (behind, offset + len.next_multiple_of(ALIGNMENT));
    }
    map(&places, threads, |(content, offset, bytes)| {
        let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let extent = content.write(&mut bytes);
        let slice = Slice { offset: *offset as u64, bytes: bytes.len() as u64, checksum: checksum(&bytes) };
        WrittenSlice { slice, extent }
    })
}

fn band_of(
    schema: &TableSchema,
    rows: &RecordBatch,
    weights: &[Weight],
    contents: &[Content<'_>],
    put: &[WrittenSlice],
) -> Result<Band, BlockError> {
    let (Some(least), Some(greatest)) = (weights.first(), weights.last()) else {
        return Err(damaged("a band needs at least one row"));
    };
    let extent = |index: &IndexColumn| -> Result<Extent, BlockError> {
        if let (Some(extent), None) = (put[index.place].extent, &index.element) {
            return Ok(extent);
        }
        let (Content::Plain { order, .. } | Content::Alike { order, .. } | Content::Encoded { order, .. }) =
            &contents[index.place];
        let column = take(rows.column(index.place), &UInt32Array::from(order.to_vec()), None)?;
        Ok(Extent::of(&index.of_column(&column)?)?)
    };
    Ok(Band {
        rows: weights.len() as u32,
        least: *least,
        greatest: *greatest,
        extents: schema.index().iter().map(extent).collect::<Result<_, _>>()?,
        weights: None,
        slices: put.iter().map(|put| put.slice).collect(),
    })
}

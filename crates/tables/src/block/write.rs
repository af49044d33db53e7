//! Writing a block: rows into the order of their weights, bands, slices, and the directory in front of them.

use super::directory::Head;
use super::{
    ALIGNMENT, Band, BlockError, Directory, HEAD_BYTES, Slice, band_rows, checksum, schema_sum, slice,
};
use crate::lattice::Extent;
use crate::weight::{order, weights};
use crate::{Salt, TableSchema, Weight};
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, UInt64Array};
use arrow_select::take::take;
use std::sync::Arc;

/// Encodes rows, in any order, as a block of a table.
///
/// # Errors
/// [`BlockError::Columns`] and [`BlockError::Null`] where the rows do not fit the table, and errors of weights.
pub fn encode_block(schema: &TableSchema, rows: &RecordBatch) -> Result<Vec<u8>, BlockError> {
    check(schema, rows)?;
    let columns = |places: &[usize]| -> Vec<ArrayRef> {
        places.iter().map(|&place| Arc::clone(rows.column(place))).collect()
    };
    let weights = weights(&columns(schema.sample_key()), Salt(schema.salt()))?;
    let order = order(&weights, &columns(schema.id()))?;
    let weights: Vec<Weight> = order.iter().map(|&row| weights[row as usize]).collect();
    encode(schema, rows, &UInt32Array::from(order), &weights)
}

/// As [`encode_block`], for rows that are in the order of (weight, id) already, with their weights.
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
    let order: UInt32Array = (0..rows.num_rows() as u32).collect::<Vec<_>>().into();
    encode(schema, rows, &order, weights)
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

fn encode(
    schema: &TableSchema,
    rows: &RecordBatch,
    order: &UInt32Array,
    weights: &[Weight],
) -> Result<Vec<u8>, BlockError> {
    let (slices, index) = (rows.num_columns() + 1, schema.index().len());
    let bands = band_rows(rows.num_rows()).count();
    let directory_bytes = Directory::encoded_bytes(bands, index, slices);
    let mut bytes = vec![0; (HEAD_BYTES + directory_bytes).next_multiple_of(ALIGNMENT)];
    let mut directory = Directory { rows: rows.num_rows() as u64, bytes: 0, bands: Vec::new() };
    let mut from = 0;
    for count in band_rows(rows.num_rows()) {
        let rows_of_band = order.slice(from, count);
        let weights = &weights[from..from + count];
        directory.bands.push(encode_band(schema, rows, &rows_of_band, weights, &mut bytes)?);
        from += count;
    }
    directory.bytes = bytes.len() as u64;
    let encoded = directory.encode();
    let head = Head {
        directory_bytes: encoded.len() as u32,
        rows: directory.rows,
        block_bytes: directory.bytes,
        schema: schema_sum(schema),
        directory_sum: checksum(&encoded),
    };
    bytes[..HEAD_BYTES].copy_from_slice(&head.encode());
    bytes[HEAD_BYTES..HEAD_BYTES + encoded.len()].copy_from_slice(&encoded);
    Ok(bytes)
}

fn encode_band(
    schema: &TableSchema,
    rows: &RecordBatch,
    order: &UInt32Array,
    weights: &[Weight],
    bytes: &mut Vec<u8>,
) -> Result<Band, BlockError> {
    let numbers: UInt64Array = weights.iter().map(|weight| weight.get()).collect::<Vec<_>>().into();
    let mut slices = vec![put_slice(&(Arc::new(numbers) as ArrayRef), bytes)?];
    let mut columns = Vec::with_capacity(rows.num_columns());
    for column in rows.columns() {
        let column = take(column, order, None)?;
        slices.push(put_slice(&column, bytes)?);
        columns.push(column);
    }
    let extents = schema.index_values(&columns)?.iter().map(Extent::of).collect::<Result<_, _>>()?;
    // A band has a row at least.
    let (least, greatest) = (weights[0], weights[weights.len() - 1]);
    Ok(Band { rows: weights.len() as u32, least, greatest, extents, slices })
}

fn put_slice(column: &ArrayRef, bytes: &mut Vec<u8>) -> Result<Slice, BlockError> {
    let offset = bytes.len();
    slice::encode(column, bytes)?;
    let slice = Slice {
        offset: offset as u64,
        bytes: (bytes.len() - offset) as u64,
        checksum: checksum(&bytes[offset..]),
    };
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    Ok(slice)
}

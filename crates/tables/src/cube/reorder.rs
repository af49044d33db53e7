//! Long columns: concatenated or reordered in memory that is reused.
//!
//! Most columns of a simulation are plain numbers without nulls, which are handled here. The others go
//! through Arrow's kernels.
//!
//! Invariant: the result equals that of those kernels.

use super::column::{Numeric, build};
use crate::block::BlockError;
use crate::room::{Lent, buffer};
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::take::take;
use bytemuck::Pod;

/// Concatenates columns of one type.
pub(crate) fn joined(data_type: &DataType, columns: &[ArrayRef]) -> Result<ArrayRef, BlockError> {
    let plain: Option<Vec<ArrayData>> = columns.iter().map(plain).collect();
    match (plain_numbers(data_type), plain) {
        (Some(numeric), Some(columns)) if columns.len() > 1 => {
            let rows = columns.iter().map(ArrayData::len).sum();
            let numbers = match numeric.width {
                1 => appended::<u8>(&columns, rows),
                2 => appended::<u16>(&columns, rows),
                4 => appended::<u32>(&columns, rows),
                _ => appended::<u64>(&columns, rows),
            };
            build(data_type, numeric, rows, numbers, None)
        }
        _ => Ok(concat(&columns.iter().map(AsRef::<dyn Array>::as_ref).collect::<Vec<_>>())?),
    }
}

/// The rows of `column` in the order `places`, which names as many rows as the column has.
pub(super) fn rearranged(column: &ArrayRef, places: &UInt32Array) -> Result<ArrayRef, BlockError> {
    let (Some(numeric), Some(data)) = (plain_numbers(column.data_type()), plain(column)) else {
        return Ok(take(column, places, None)?);
    };
    let numbers = match numeric.width {
        1 => taken::<u8>(&data, places),
        2 => taken::<u16>(&data, places),
        4 => taken::<u32>(&data, places),
        _ => taken::<u64>(&data, places),
    };
    build(column.data_type(), numeric, places.len(), numbers, None)
}

/// The memory layout of a column's numbers, if each row has one number.
fn plain_numbers(data_type: &DataType) -> Option<Numeric> {
    Numeric::of(data_type).filter(|_| data_type.is_primitive())
}

/// The data of a column of numbers without nulls.
fn plain(column: &ArrayRef) -> Option<ArrayData> {
    (column.null_count() == 0 && column.data_type().is_primitive()).then(|| column.to_data())
}

fn appended<N: Pod + Send + ArrowNativeType>(columns: &[ArrayData], rows: usize) -> Buffer {
    let mut all = Lent::<N>::new(rows);
    columns.iter().for_each(|column| all.extend_from_slice(&column.buffer::<N>(0)[..column.len()]));
    buffer(all)
}

fn taken<N: Pod + Send + ArrowNativeType>(column: &ArrayData, places: &UInt32Array) -> Buffer {
    let numbers = &column.buffer::<N>(0)[..column.len()];
    buffer(Lent::collect(places.len(), places.values().iter().map(|&place| numbers[place as usize])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::for_seeds;
    use arrow_array::{
        BooleanArray, FixedSizeListArray, Float32Array, Int64Array, StringArray, UInt8Array, UInt16Array,
    };
    use arrow_schema::Field;
    use fastrand::Rng;
    use std::sync::Arc;

    /// A part of a column, some of it null or none.
    fn column(random: &mut Rng, kind: u8, rows: usize) -> ArrayRef {
        let more = rows + random.usize(..5);
        let nulls = random.u8(..4) == 0;
        let is_there: Vec<bool> = (0..more).map(|_| !nulls || random.bool()).collect();
        let there = |row: usize| is_there[row];
        let whole: ArrayRef = match kind {
            0 => Arc::new((0..more).map(|row| there(row).then(|| random.i64(..))).collect::<Int64Array>()),
            1 => Arc::new(
                (0..more).map(|row| there(row).then(|| random.f32() - 0.5)).collect::<Float32Array>(),
            ),
            2 => Arc::new((0..more).map(|row| there(row).then(|| random.u16(..))).collect::<UInt16Array>()),
            3 => Arc::new((0..more).map(|row| there(row).then(|| random.u8(..))).collect::<UInt8Array>()),
            4 => Arc::new((0..more).map(|row| there(row).then(|| random.bool())).collect::<BooleanArray>()),
            5 => Arc::new(
                (0..more).map(|row| there(row).then(|| "n".repeat(row % 4))).collect::<StringArray>(),
            ),
            _ => {
                let item = Arc::new(Field::new("item", DataType::Float32, true));
                let elements: Float32Array = (0..3 * more).map(|_| Some(random.f32())).collect();
                Arc::new(FixedSizeListArray::new(item, 3, Arc::new(elements), Some(is_there.clone().into())))
            }
        };
        whole.slice(more - rows, rows)
    }

    #[test]
    fn long_columns_are_those_that_the_kernels_make() {
        for_seeds("long_columns_are_those_that_the_kernels_make", 300, |random| {
            let kind = random.u8(..7);
            let count = random.usize(1..5);
            let lengths: Vec<usize> = (0..count).map(|_| random.usize(..200)).collect();
            let columns: Vec<ArrayRef> = lengths.iter().map(|&rows| column(random, kind, rows)).collect();
            let all: Vec<&dyn Array> = columns.iter().map(AsRef::as_ref).collect();
            let joined = joined(columns[0].data_type(), &columns).unwrap();
            assert_eq!(&joined, &concat(&all).unwrap());
            let count = if joined.is_empty() { 0 } else { random.usize(..300) };
            let places: UInt32Array = (0..count).map(|_| Some(random.u32(..joined.len() as u32))).collect();
            assert_eq!(&rearranged(&joined, &places).unwrap(), &take(&joined, &places, None).unwrap());
        });
    }
}

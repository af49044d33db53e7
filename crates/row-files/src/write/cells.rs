//! Values as texts.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt32Array, make_array};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take;

/// Nulls are written as the empty text.
const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_null("");

/// The columns of a batch by name; vectors become a column for each element, `pos[0]`.
pub(super) fn flattened(rows: &RecordBatch) -> Result<Vec<(String, ArrayRef)>, ArrowError> {
    let mut flat = Vec::with_capacity(rows.num_columns());
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        let DataType::FixedSizeList(_, len) = field.data_type() else {
            flat.push((field.name().clone(), readable(column)?));
            continue;
        };
        for element in 0..usize::try_from(*len).unwrap_or(0) {
            flat.push((format!("{}[{element}]", field.name()), readable(&elements(column, element)?)?));
        }
    }
    Ok(flat)
}

/// One element of every vector.
fn elements(column: &ArrayRef, element: usize) -> Result<ArrayRef, ArrowError> {
    let vectors = column.as_fixed_size_list();
    let place = |row: usize| {
        let place = vectors.value_offset_at(row) + element;
        u32::try_from(place).ok().filter(|_| vectors.is_valid(row))
    };
    let places: UInt32Array = (0..vectors.len()).map(place).collect();
    take(vectors.values(), &places, None)
}

/// Durations as numbers of their unit, and timestamps in UTC whatever their zone: names of zones mean
/// something only to a reader that has a table of them.
pub(super) fn readable(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Duration(_) => cast(column, &DataType::Int64),
        DataType::Timestamp(unit, Some(_)) => {
            let in_utc = DataType::Timestamp(*unit, Some("+00:00".into()));
            column.to_data().into_builder().data_type(in_utc).build().map(make_array)
        }
        _ => Ok(ArrayRef::clone(column)),
    }
}

/// The formatter for the values of a column.
pub(super) fn formatter(column: &ArrayRef) -> Result<ArrayFormatter<'_>, ArrowError> {
    ArrayFormatter::try_new(column, &OPTIONS)
}

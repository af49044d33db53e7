//! Values: what a row of a table counts as in an estimate.
//!
//! Invariant: a null is NaN, and NaN is no value.

use crate::expression::Column;
use crate::lattice::Numbers;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::DataType;
use std::sync::Arc;

/// A column as numbers, rounded to `f64`; times in their own unit, `true` as 1. `None` if the batch lacks the
/// column or its values are not numbers.
pub(super) fn numbers(rows: &RecordBatch, column: &Column) -> Option<Vec<f64>> {
    let whole = rows.column_by_name(&column.name)?;
    let Some(element) = column.element else { return of_array(whole) };
    let vectors = whole.as_fixed_size_list_opt()?;
    let (length, element) = (vectors.value_length() as usize, element as usize);
    if element >= length {
        return None;
    }
    let elements = of_array(&vectors.values().slice(vectors.value_offset_at(0), vectors.len() * length))?;
    let value = |row: usize| if vectors.is_null(row) { f64::NAN } else { elements[row * length + element] };
    Some((0..vectors.len()).map(value).collect())
}

/// The sum of a column of whole numbers, as they are stored, over the rows that have a value among `values`,
/// as [`numbers`] has them. `None` for a column of other numbers.
pub(super) fn whole_sum(rows: &RecordBatch, column: &Column, values: &[f64]) -> Option<i128> {
    let whole = rows.column_by_name(&column.name)?;
    let (array, length, element) = match column.element {
        None => (Arc::clone(whole), 1, 0),
        Some(element) => {
            let vectors = whole.as_fixed_size_list_opt()?;
            let length = vectors.value_length() as usize;
            let elements = vectors.values().slice(vectors.value_offset_at(0), vectors.len() * length);
            (elements, length, element as usize)
        }
    };
    let there = values.iter().enumerate().filter(|(_, value)| !value.is_nan());
    let places = there.map(|(row, _)| row * length + element);
    match Numbers::of(&array)? {
        Numbers::Signed(values) => {
            Some(places.filter_map(|place| values.get(place)).map(|value| i128::from(*value)).sum())
        }
        Numbers::Unsigned(values) => {
            Some(places.filter_map(|place| values.get(place)).map(|value| i128::from(*value)).sum())
        }
        Numbers::Float(_) => None,
    }
}

fn of_array(array: &ArrayRef) -> Option<Vec<f64>> {
    if let Some(truths) = array.as_boolean_opt() {
        return Some(
            truths.iter().map(|truth| truth.map_or(f64::NAN, |truth| f64::from(u8::from(truth)))).collect(),
        );
    }
    let mut values: Vec<f64> = match Numbers::of(array)? {
        Numbers::Signed(values) => values.iter().map(|value| *value as f64).collect(),
        Numbers::Unsigned(values) => values.iter().map(|value| *value as f64).collect(),
        Numbers::Float(values) => values.to_vec(),
    };
    if let Some(nulls) = array.nulls() {
        values
            .iter_mut()
            .zip(nulls)
            .filter(|(_, is_there)| !is_there)
            .for_each(|(value, _)| *value = f64::NAN);
    }
    Some(values)
}

/// How many of these are no value.
pub(super) fn missing(values: &[f64]) -> u64 {
    values.iter().filter(|value| value.is_nan()).count() as u64
}

/// Whether a column of this type has numbers.
pub(super) fn has_numbers(data_type: &DataType, element: Option<u32>) -> bool {
    let is_number = |data_type: &DataType| {
        data_type.is_numeric() || data_type.is_temporal() || *data_type == DataType::Boolean
    };
    match (data_type, element) {
        (DataType::FixedSizeList(item, length), Some(element)) => {
            i64::from(element) < i64::from(*length) && is_number(item.data_type())
        }
        (plain, None) => is_number(plain),
        (_, Some(_)) => false,
    }
}

/// 1 where a condition is true, 0 where it is false or unknown.
pub(super) fn ones(truths: &BooleanArray) -> Vec<f64> {
    truths.iter().map(|truth| f64::from(u8::from(truth == Some(true)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::{Int32Type, Int64Type};
    use arrow_array::{FixedSizeListArray, Float32Array, Int64Array, StringArray, UInt8Array, UInt64Array};

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    }

    fn shown(values: Option<Vec<f64>>) -> String {
        format!("{values:?}")
    }

    #[test]
    fn columns_of_every_kind_of_number_are_numbers_and_nulls_are_no_value() {
        let rows = batch(vec![
            ("i", Arc::new(Int64Array::from(vec![Some(-3), None])) as ArrayRef),
            ("u", Arc::new(UInt8Array::from(vec![None, Some(200)]))),
            ("f", Arc::new(Float32Array::from(vec![Some(0.5), None]))),
            ("b", Arc::new(BooleanArray::from(vec![Some(true), Some(false)]))),
            ("t", Arc::new(StringArray::from(vec!["1", "2"]))),
        ]);
        let of = |name: &str| shown(numbers(&rows, &Column::named(name)));
        assert_eq!(of("i"), "Some([-3.0, NaN])");
        assert_eq!(of("u"), "Some([NaN, 200.0])");
        assert_eq!(of("f"), "Some([0.5, NaN])");
        assert_eq!(of("b"), "Some([1.0, 0.0])");
        assert_eq!((of("t"), of("gone")), ("None".to_owned(), "None".to_owned()));
        for (field, name) in rows.schema().fields().iter().zip(["i", "u", "f", "b", "t"]) {
            assert_eq!(has_numbers(field.data_type(), None), name != "t", "{name}");
        }
    }

    #[test]
    fn whole_numbers_are_summed_as_they_are_stored() {
        const LARGE: i64 = 1 << 53;
        let vectors = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
            vec![Some(vec![Some(1), Some(2)]), Some(vec![Some(5), Some(LARGE + 1)]), None],
            2,
        );
        let rows = batch(vec![
            ("i", Arc::new(Int64Array::from(vec![Some(LARGE + 1), Some(-LARGE), None])) as ArrayRef),
            ("u", Arc::new(UInt64Array::from(vec![u64::MAX, u64::MAX, 1]))),
            ("f", Arc::new(Float32Array::from(vec![1.0, 2.0, 3.0]))),
            ("b", Arc::new(BooleanArray::from(vec![true, false, true]))),
            ("pos", Arc::new(vectors)),
        ]);
        let of = |rows: &RecordBatch, column: &Column| {
            whole_sum(rows, column, &numbers(rows, column).unwrap_or_default())
        };
        let named = |name: &str| of(&rows, &Column::named(name));
        assert_eq!((named("i"), named("u")), (Some(1), Some(2 * i128::from(u64::MAX) + 1)));
        assert_eq!((named("f"), named("b"), named("gone")), (None, None, None));
        let second = Column::element("pos", 1);
        assert_eq!(of(&rows, &second), Some(i128::from(LARGE) + 3));
        assert_eq!(of(&rows.slice(1, 2), &second), Some(i128::from(LARGE) + 1));
        // Rows that do not belong to the question have no value.
        assert_eq!(
            whole_sum(&rows, &Column::named("i"), &[1.0, f64::NAN, f64::NAN]),
            Some(i128::from(LARGE) + 1)
        );
    }

    #[test]
    fn an_element_of_a_vector_is_found_also_in_a_slice() {
        let vectors = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
            vec![Some(vec![Some(1), Some(2)]), None, Some(vec![Some(5), None]), Some(vec![Some(7), Some(8)])],
            2,
        );
        let rows = batch(vec![("pos", Arc::new(vectors) as ArrayRef)]);
        let second = |rows: &RecordBatch| shown(numbers(rows, &Column::element("pos", 1)));
        assert_eq!(second(&rows), "Some([2.0, NaN, NaN, 8.0])");
        assert_eq!(second(&rows.slice(2, 2)), "Some([NaN, 8.0])");
        assert_eq!(shown(numbers(&rows, &Column::element("pos", 2))), "None");
        let field = rows.schema().field(0).data_type().clone();
        assert!(has_numbers(&field, Some(1)) && !has_numbers(&field, Some(2)) && !has_numbers(&field, None));
    }
}

//! The memory that rows take, and how many rows fit within a limit.
//!
//! A slice shares the buffers of the whole, so only the part of them that its rows use is counted.

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

/// The memory of these rows in bytes, without unused parts of their buffers.
#[must_use]
pub fn bytes_of(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(|column| bytes_of_column(column.as_ref())).sum()
}

/// How many rows, from the first on, take at most `bytes` bytes; at least one, if there are rows.
#[must_use]
pub fn rows_within(rows: &RecordBatch, bytes: usize) -> usize {
    let (mut fitting, mut above) = (rows.num_rows().min(1), rows.num_rows() + 1);
    while above - fitting > 1 {
        let middle = fitting + (above - fitting) / 2;
        if bytes_of(&rows.slice(0, middle)) <= bytes {
            fitting = middle;
        } else {
            above = middle;
        }
    }
    fitting
}

fn bytes_of_column(column: &dyn Array) -> usize {
    let elements = |values: &dyn Array, from: usize, to: usize| {
        bytes_of_column(values.slice(from, to.saturating_sub(from)).as_ref()) + 8 * column.len()
    };
    match column.data_type() {
        DataType::Utf8View => column.as_string_view().lengths().map(|len| 16 + len as usize).sum(),
        DataType::BinaryView => column.as_binary_view().lengths().map(|len| 16 + len as usize).sum(),
        // The rows will be decoded, each as long as the mean value.
        DataType::Dictionary(..) => {
            let values = column.as_any_dictionary().values();
            (bytes_of_column(values.as_ref()) / values.len().max(1)).max(8).saturating_mul(column.len())
        }
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let ends = [list.value_offsets().first(), list.value_offsets().last()];
            let [from, to] = ends.map(|end| end.map_or(0, |end| usize::try_from(*end).unwrap_or(0)));
            elements(list.values().as_ref(), from, to)
        }
        DataType::LargeList(_) => {
            let list = column.as_list::<i64>();
            let ends = [list.value_offsets().first(), list.value_offsets().last()];
            let [from, to] = ends.map(|end| end.map_or(0, |end| usize::try_from(*end).unwrap_or(0)));
            elements(list.values().as_ref(), from, to)
        }
        _ => column.to_data().get_slice_memory_size().unwrap_or(8 * column.len()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use arrow_array::builder::{Int64Builder, ListBuilder, StringDictionaryBuilder};
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, Int64Array, StringArray, StringViewArray};
    use std::sync::Arc;

    fn rows(column: impl Array + 'static) -> RecordBatch {
        RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).unwrap()
    }

    #[test]
    fn rows_of_a_slice_count_with_what_they_use_whatever_their_type() {
        let texts: Vec<String> = (0..100).map(|row| "x".repeat(if row < 50 { 10 } else { 2000 })).collect();
        let mut lists = ListBuilder::new(Int64Builder::new());
        let mut words = StringDictionaryBuilder::<Int32Type>::new();
        for text in &texts {
            lists.append_value((0..text.len() as i64 / 8).map(Some));
            words.append_value(text);
        }
        for all in [
            rows(StringArray::from_iter_values(&texts)),
            rows(StringViewArray::from_iter_values(&texts)),
            rows(lists.finish()),
        ] {
            let (short, long) = (bytes_of(&all.slice(0, 50)), bytes_of(&all.slice(50, 50)));
            assert!((500..2000).contains(&short), "{short} bytes of {}", all.schema());
            assert!((100_000..102_000).contains(&long), "{long} bytes of {}", all.schema());
            let fitting = rows_within(&all.slice(50, 50), 20_500);
            assert!((9..=10).contains(&fitting), "{fitting} of {}", all.schema());
        }
        // Decoded, a hundred words take about as much as their texts.
        let words = bytes_of(&rows(words.finish()));
        assert!((95_000..110_000).contains(&words), "{words}");
    }

    #[test]
    fn one_row_fits_always_and_of_no_rows_none() {
        let numbers = rows(Int64Array::from_iter_values(0..100));
        assert_eq!(rows_within(&numbers, 80), 10);
        assert_eq!((rows_within(&numbers, 0), rows_within(&numbers.slice(0, 0), 80)), (1, 0));
        assert_eq!(rows_within(&numbers, usize::MAX), 100);
    }
}

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
        DataType::Dictionary(..) => bytes_decoded(column),
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

/// What the rows of a dictionary take once they are decoded. Texts count with their own lengths: a few that
/// are far longer than the others may be those of most rows.
fn bytes_decoded(column: &dyn Array) -> usize {
    let dictionary = column.as_any_dictionary();
    let values = dictionary.values();
    if values.is_empty() {
        return 8 * column.len();
    }
    let keys = dictionary.normalized_keys();
    let sum = |length: &dyn Fn(usize) -> usize| {
        let of_row = |(row, key): (usize, &usize)| 8 + if column.is_null(row) { 0 } else { length(*key) };
        keys.iter().enumerate().map(of_row).fold(0, usize::saturating_add)
    };
    match values.data_type() {
        DataType::Utf8 => sum(&|key| values.as_string::<i32>().value(key).len()),
        DataType::LargeUtf8 => sum(&|key| values.as_string::<i64>().value(key).len()),
        DataType::Utf8View => sum(&|key| values.as_string_view().value(key).len()),
        DataType::Binary => sum(&|key| values.as_binary::<i32>().value(key).len()),
        DataType::LargeBinary => sum(&|key| values.as_binary::<i64>().value(key).len()),
        DataType::BinaryView => sum(&|key| values.as_binary_view().value(key).len()),
        _ => (bytes_of_column(values.as_ref()) / values.len()).max(8).saturating_mul(column.len()),
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
    fn texts_of_a_dictionary_count_with_their_own_lengths() {
        let long = "x".repeat(100_000);
        let mut words = StringDictionaryBuilder::<Int32Type>::new();
        words.append_value(&long);
        (0..999).for_each(|row| words.append_value(format!("{row}")));
        (0..1000).for_each(|_| words.append_value(&long));
        (0..1000).for_each(|_| words.append_null());
        let all = rows(words.finish());
        let of = |from: usize, rows: usize| bytes_of(&all.slice(from, rows));
        assert!((100_000..101_000).contains(&of(0, 1)), "{}", of(0, 1));
        assert!((8_000..12_000).contains(&of(1, 999)), "{}", of(1, 999));
        assert!((100_000_000..101_000_000).contains(&of(1000, 1000)), "{}", of(1000, 1000));
        assert_eq!(of(2000, 1000), 8000, "nothing is no text, whatever its key");
        assert_eq!(rows_within(&all.slice(1000, 1000), 1 << 20), 10);
        let none = StringDictionaryBuilder::<Int32Type>::new().finish();
        assert_eq!(bytes_of(&rows(none)), 0);
    }

    #[test]
    fn one_row_fits_always_and_of_no_rows_none() {
        let numbers = rows(Int64Array::from_iter_values(0..100));
        assert_eq!(rows_within(&numbers, 80), 10);
        assert_eq!((rows_within(&numbers, 0), rows_within(&numbers.slice(0, 0), 80)), (1, 0));
        assert_eq!(rows_within(&numbers, usize::MAX), 100);
    }
}

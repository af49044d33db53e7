//! Sizes: how many bytes rows take, approximately.
//!
//! Numbers take the same in each row. Texts do not, and long ones may lie together: planned by the mean size,
//! an object of them could exceed what any store accepts.

use arrow_array::cast::AsArray;
use arrow_array::types::{BinaryType, ByteArrayType, Utf8Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use std::ops::Range;

/// Bytes that record where a text ends.
const TEXT_END_BYTES: usize = size_of::<i32>();

/// The approximate size of each row of a batch in memory.
#[derive(Debug)]
pub(super) struct RowBytes {
    /// Bytes of each row, without texts.
    each: usize,
    /// Bytes of the texts of each row; empty if no column holds texts.
    texts: Vec<u32>,
}

impl RowBytes {
    pub(super) fn of(rows: &RecordBatch) -> Self {
        let mut sizes = Self { each: 1, texts: Vec::new() };
        for column in rows.columns() {
            match column.data_type() {
                DataType::Utf8 => sizes.add_texts::<Utf8Type>(column),
                DataType::Binary => sizes.add_texts::<BinaryType>(column),
                other => {
                    // If no row has a vector they take next to nothing, whatever lies below the nulls.
                    let bytes =
                        if column.null_count() < column.len() { column.get_array_memory_size() } else { 0 };
                    let of_vectors = || bytes / column.len().max(1);
                    sizes.each += other.primitive_width().unwrap_or_else(of_vectors);
                }
            }
        }
        sizes
    }

    fn add_texts<T: ByteArrayType<Offset = i32>>(&mut self, column: &ArrayRef) {
        self.each += TEXT_END_BYTES;
        self.texts.resize(column.len(), 0);
        let Some(texts) = column.as_bytes_opt::<T>() else { return };
        for (bytes, ends) in self.texts.iter_mut().zip(texts.value_offsets().windows(2)) {
            *bytes = bytes.saturating_add(ends[1].abs_diff(ends[0]));
        }
    }

    /// Whether all rows take the same.
    pub(super) const fn are_alike(&self) -> bool {
        self.texts.is_empty()
    }

    /// The mean size of a row.
    pub(super) fn mean(&self) -> usize {
        let texts: usize = self.texts.iter().map(|&bytes| bytes as usize).sum();
        self.each + texts / self.texts.len().max(1)
    }

    /// The size of these rows together.
    pub(super) fn of_rows(&self, rows: &[u32]) -> usize {
        let numbers = rows.len() * self.each;
        if self.are_alike() {
            return numbers;
        }
        numbers + rows.iter().map(|&row| self.texts[row as usize] as usize).sum::<usize>()
    }

    /// Cuts the rows of a band into parts of at most `bytes_max` bytes, each with at least one row.
    pub(super) fn cut<'r>(
        &'r self,
        rows: &'r [u32],
        bytes_max: usize,
    ) -> impl Iterator<Item = Range<usize>> + 'r {
        let mut from = 0;
        std::iter::from_fn(move || {
            let mut bytes = 0;
            let fits = |row: &&u32| {
                bytes += self.of_rows(std::slice::from_ref(*row));
                bytes <= bytes_max
            };
            let count = rows[from..].iter().take_while(fits).count().max(1).min(rows.len() - from);
            let part = from..from + count;
            from = part.end;
            (!part.is_empty()).then_some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{BinaryArray, Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn texts_are_counted_row_by_row_and_numbers_alike() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
        let alike = RowBytes::of(&RecordBatch::try_from_iter([("a", Arc::clone(&numbers))]).unwrap());
        assert!(alike.are_alike());
        assert_eq!((alike.mean(), alike.of_rows(&[3, 0])), (9, 18));
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("four"), None, Some(""), Some("seventh")]));
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"1"[..], b"", b"", b"4444"]));
        // What a column was cut from makes no difference.
        let of_all = RecordBatch::try_from_iter([("a", numbers), ("b", texts), ("c", bytes)]).unwrap();
        let sizes = RowBytes::of(&of_all.slice(1, 3));
        assert!(!sizes.are_alike());
        assert_eq!((sizes.of_rows(&[0]), sizes.of_rows(&[2]), sizes.of_rows(&[0, 1, 2])), (17, 28, 62));
        assert_eq!(sizes.mean(), 20);
    }

    #[test]
    fn a_band_is_cut_where_its_rows_are_too_many_bytes() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["", "", "0123456789", "01234", "01234", ""]));
        let sizes = RowBytes::of(&RecordBatch::try_from_iter([("a", texts)]).unwrap());
        let cut = |rows: &[u32], most| sizes.cut(rows, most).collect::<Vec<_>>();
        assert_eq!(cut(&[0, 1, 2, 3], 26), [0..3, 3..4]);
        // A row that is too much by itself is alone.
        assert_eq!(cut(&[0, 1, 2, 3, 4, 5], 14), [0..2, 2..3, 3..4, 4..5, 5..6]);
        assert_eq!(cut(&[4, 3, 2], 20), [0..2, 2..3]);
        assert!(cut(&[], 20).is_empty());
    }
}

//! The step number that rows carry themselves, by convention in an integer column named `step`.
//!
//! The table files rows under the step of the block they were appended in. A user who filters by step filters
//! on this column. [`other_step`] finds rows in which the two disagree.

use arrow_array::{RecordBatch, downcast_integer_array};

/// Name of the column.
pub const STEP_COLUMN: &str = "step";

/// The first value in the step column that differs from `step`, if any. Nulls never differ, nor does any
/// value of a table without the column or with a column that is not of an integer type.
#[must_use]
pub fn other_step(rows: &RecordBatch, step: u64) -> Option<i128> {
    let said = rows.column_by_name(STEP_COLUMN)?.as_ref();
    downcast_integer_array!(
        said => said.iter().flatten().map(i128::from).find(|said| *said != i128::from(step)),
        _ => None
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{ArrayRef, Float64Array, Int32Array, UInt64Array};
    use std::sync::Arc;

    fn other(name: &str, column: ArrayRef, step: u64) -> Option<i128> {
        other_step(&RecordBatch::try_from_iter_with_nullable([(name, column, true)]).unwrap(), step)
    }

    #[test]
    fn a_step_that_contradicts_the_rows_is_found_whatever_its_type() {
        assert_eq!(other("step", Arc::new(Int32Array::from(vec![Some(7), None, Some(-8)])), 7), Some(-8));
        assert_eq!(other("step", Arc::new(UInt64Array::from(vec![u64::MAX])), 0), Some(i128::from(u64::MAX)));
        assert_eq!(other("step", Arc::new(Int32Array::from(vec![7, 7])), 7), None);
        assert_eq!(other("steps", Arc::new(Int32Array::from(vec![8])), 7), None);
        assert_eq!(other("step", Arc::new(Float64Array::from(vec![8.0])), 7), None);
    }
}

//! Extracts one element of every vector in a vector column, as a column of its own.

use arrow_array::{Array, ArrayRef, FixedSizeListArray, UInt64Array};
use arrow_schema::ArrowError;
use arrow_select::take::take;

/// The given element of each vector: null where the vector or the element is null, `None` if the vectors are
/// too short to have it.
pub(crate) fn element(list: &FixedSizeListArray, element: u32) -> Result<Option<ArrayRef>, ArrowError> {
    let size = u64::try_from(list.value_length()).unwrap_or(0);
    let element = u64::from(element);
    if element >= size {
        return Ok(None);
    }
    let places: Vec<u64> = (0..list.len() as u64).map(|row| row * size + element).collect();
    let places = UInt64Array::new(places.into(), list.nulls().cloned());
    take(list.values().as_ref(), &places, None).map(Some)
}

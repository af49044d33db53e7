//! The order of rows: by weight, then by id.
//!
//! Invariant: it depends on nothing but weights and ids, as long as no two rows have the same id; those stay in
//! the order in which they came.

use super::keys::KeyColumns;
use super::{Weight, WeightError};
use arrow_array::ArrayRef;

/// The rows in order of (weight, id), as a permutation: which row comes first, which second, and so on.
///
/// `ids` are the id columns in the order of the schema. They are compared by value, null first and NaN last, so
/// that the rows of one entity, whose weights are equal, follow each other in the order of, say, their steps.
///
/// # Errors
/// [`WeightError::NoColumns`], [`WeightError::Rows`] if an id column has not a row for each weight,
/// [`WeightError::NotAKey`], and [`WeightError::TooManyRows`] above 2^32 - 1 rows.
pub fn order(weights: &[Weight], ids: &[ArrayRef]) -> Result<Vec<u32>, WeightError> {
    let too_many = |_| WeightError::TooManyRows { rows: weights.len(), max: u32::MAX };
    let rows = u32::try_from(weights.len()).map_err(too_many)?;
    let ids = KeyColumns::new(ids)?;
    if ids.rows() != weights.len() {
        return Err(WeightError::Rows { column: 0, rows: ids.rows(), expected: weights.len() });
    }
    // The row is part of what is sorted, so that equal weights are in the order in which they came.
    let mut places: Vec<(Weight, u32)> = weights.iter().copied().zip(0..rows).collect();
    places.sort_unstable();
    for ties in places.chunk_by_mut(|left, right| left.0 == right.0).filter(|ties| ties.len() > 1) {
        ties.sort_by(|left, right| ids.compare(left.1 as usize, right.1 as usize));
    }
    Ok(places.into_iter().map(|(_, row)| row).collect())
}

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
    let mut places = by_weight(weights, rows);
    for ties in places.chunk_by_mut(|left, right| left.0 == right.0).filter(|ties| ties.len() > 1) {
        ties.sort_by(|left, right| ids.compare(left.1 as usize, right.1 as usize));
    }
    Ok(places.into_iter().map(|(_, row)| row).collect())
}

/// Rows that a bucket has, about.
const BUCKET_ROWS: usize = 8;

/// Buckets are no more than two to this, so that the ends of all of them stay in the cache.
const BUCKET_BITS_MAX: u32 = 12;

/// The rows by weight; those of equal weight in the order in which they came.
///
/// Weights are hashes, so their upper bits spread rows evenly: dealt into buckets by these, a few rows are left to
/// compare in each. Where weights are equal instead, a bucket is large, and sorted as any other list.
fn by_weight(weights: &[Weight], rows: u32) -> Vec<(Weight, u32)> {
    let bits = (weights.len() / BUCKET_ROWS).checked_ilog2().unwrap_or(0).min(BUCKET_BITS_MAX);
    // In two steps, since a shift by all 64 bits is none.
    let bucket = |weight: &Weight| (weight.get() >> 1 >> (63 - bits)) as usize;
    let mut ends = vec![0_usize; 1 << bits];
    weights.iter().for_each(|weight| ends[bucket(weight)] += 1);
    let mut begin = 0;
    for end in &mut ends {
        begin += std::mem::replace(end, begin);
    }
    let mut places = vec![(Weight::LEAST, 0); weights.len()];
    for (weight, row) in weights.iter().zip(0..rows) {
        let end = &mut ends[bucket(weight)];
        places[*end] = (*weight, row);
        *end += 1;
    }
    let mut begin = 0;
    for end in ends {
        places[begin..end].sort_unstable();
        begin = end;
    }
    places
}

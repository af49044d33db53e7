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

/// Rows of one part of the range of the weights, on average, below which a sort of each part beats one of all.
const PART_ROWS: u32 = 16;

/// Weights with their rows, which are part of what is sorted, so that equal weights are in the order in which
/// they came.
///
/// Weights are hashes, spread evenly over their range: dealt into as many equal parts of the range as there are
/// rows, up to a factor, they are almost in order.
fn by_weight(weights: &[Weight], rows: u32) -> Vec<(Weight, u32)> {
    let pairs = || weights.iter().copied().zip(0..rows);
    let parts = (rows / PART_ROWS).next_power_of_two();
    let (Some(least), Some(greatest)) = (weights.iter().min(), weights.iter().max()) else {
        return Vec::new();
    };
    let range = greatest.get() - least.get();
    let shift = (u64::BITS - range.leading_zeros()).saturating_sub(parts.trailing_zeros());
    // A shift by all bits, where there is one part, is none that the processor knows.
    let part = |weight: Weight| (weight.get() - least.get()).checked_shr(shift).unwrap_or(0) as usize;
    let mut ends = vec![0_u32; part(*greatest) + 2];
    weights.iter().for_each(|&weight| ends[part(weight) + 1] += 1);
    for place in 1..ends.len() {
        ends[place] += ends[place - 1];
    }
    // What is the beginning of each part becomes its end.
    let mut dealt = vec![(*least, 0); weights.len()];
    for (weight, row) in pairs() {
        let end = &mut ends[part(weight)];
        dealt[*end as usize] = (weight, row);
        *end += 1;
    }
    let mut from = 0;
    for end in ends {
        dealt[from..end as usize].sort_unstable();
        from = end as usize;
    }
    dealt
}

//! The order of rows: by weight, then by id.
//!
//! Invariant: the order depends on weights and ids alone, as long as no two rows have the same id; such rows
//! keep their original order.

use super::keys::KeyColumns;
use super::{Weight, WeightError};
use crate::room::Lent;
use crate::threads::map_owned;
use arrow_array::ArrayRef;

/// The rows in the order of (weight, id), as a permutation: the number of the first row, the second, and so
/// on.
///
/// `ids` are the id columns in the order of the schema. They are compared by value, null first and NaN last,
/// so that the rows of one entity, whose weights are equal, follow each other in the order of, for example,
/// their steps.
///
/// # Errors
/// [`WeightError::NoColumns`], [`WeightError::Rows`] if an id column does not have one row for each weight,
/// [`WeightError::NotAKey`], and [`WeightError::TooManyRows`] above 2^32 - 1 rows.
pub fn order(weights: &[Weight], ids: &[ArrayRef]) -> Result<Vec<u32>, WeightError> {
    let ids = KeyColumns::new(ids)?;
    if ids.rows() != weights.len() {
        return Err(WeightError::Rows { column: 0, rows: ids.rows(), expected: weights.len() });
    }
    let (sorted, mut order) = by_weight(weights, rows_of(weights)?, 1);
    break_all_ties(&sorted, &mut order, &ids);
    Ok(order.into_vec())
}

/// As [`order`], for many rows and on `threads` threads. Ids are compared only where weights are equal, which
/// is rare where rows are units.
///
/// # Errors
/// As [`order`], except for ids that are never compared.
pub(crate) fn order_of_rows(
    weights: &[Weight],
    ids: &[ArrayRef],
    threads: usize,
) -> Result<Lent<u32>, WeightError> {
    Ok(rows_in_order(weights, ids, threads)?.1)
}

/// As [`order_of_rows`], and also returns the weights in that order.
///
/// # Errors
/// As [`order_of_rows`].
pub(crate) fn rows_in_order(
    weights: &[Weight],
    ids: &[ArrayRef],
    threads: usize,
) -> Result<(Lent<Weight>, Lent<u32>), WeightError> {
    let (sorted, mut order) = by_weight(weights, rows_of(weights)?, threads);
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        break_all_ties(&sorted, &mut order, &KeyColumns::new(ids)?);
    }
    Ok((sorted, order))
}

fn rows_of(weights: &[Weight]) -> Result<u32, WeightError> {
    let too_many = |_| WeightError::TooManyRows { rows: weights.len(), max: u32::MAX };
    u32::try_from(weights.len()).map_err(too_many)
}

/// Sorts rows of equal weight by their ids.
fn break_all_ties(sorted: &[Weight], order: &mut [u32], ids: &KeyColumns) {
    let mut from = 0;
    for ties in sorted.chunk_by(PartialEq::eq) {
        let ties = from..from + ties.len();
        from = ties.end;
        if ties.len() > 1 {
            break_ties(&mut order[ties], ids);
        }
    }
}

/// Sorts rows of one weight by their ids. The rows of an entity are mostly in this order already.
fn break_ties(ties: &mut [u32], ids: &KeyColumns) {
    let compare = |left: &u32, right: &u32| ids.compare(*left as usize, *right as usize);
    if !ties.is_sorted_by(|left, right| compare(left, right).is_le()) {
        ties.sort_by(compare);
    }
}

/// Whether two keys of equally many columns are equal, pair by pair.
///
/// # Errors
/// As [`order`], where the columns of one side do not match those of the other.
pub(crate) fn same_keys(left: &[ArrayRef], right: &[ArrayRef]) -> Result<Vec<bool>, WeightError> {
    let rows = left.first().map_or(0, |column| column.len());
    let both = left.iter().zip(right).enumerate().map(|(column, (left, right))| {
        let not_a_key = |_| WeightError::NotAKey { column, data_type: right.data_type().clone() };
        arrow_select::concat::concat(&[left.as_ref(), right.as_ref()]).map_err(not_a_key)
    });
    let keys = KeyColumns::new(&both.collect::<Result<Vec<_>, _>>()?)?;
    Ok((0..rows).map(|row| keys.compare(row, rows + row).is_eq()).collect())
}

/// The most rows of a part that are sorted by insertion; more are sorted by a general algorithm.
const PART_ROWS_FEW: usize = 32;

/// Above this many rows, rows are first dealt into rough parts: dealing more of them at once than a cache
/// holds waits for memory on every row.
const ROWS_IN_CACHE: usize = 1 << 15;

/// The most parts of a rough deal: each needs room in a cache for the place of its next row.
const ROUGH_PARTS_MAX: u32 = 1 << 10;

/// Weights in rising order with their rows; rows of equal weight keep their original order.
fn by_weight(weights: &[Weight], rows: u32, threads: usize) -> (Lent<Weight>, Lent<u32>) {
    let order = Lent::collect(weights.len(), 0..rows);
    if weights.len() <= ROWS_IN_CACHE {
        return deal_fully(weights, &order);
    }
    let rough = (rows / (ROWS_IN_CACHE as u32 / 4)).next_power_of_two().min(ROUGH_PARTS_MAX);
    let (mut dealt, mut order, ends) = deal(weights, &order, rough);
    let (mut parts, mut from) = (Vec::with_capacity(ends.len()), 0);
    let (mut left, mut left_rows) = (dealt.as_mut_slice(), order.as_mut_slice());
    for end in ends {
        let (part, rest) = left.split_at_mut(end as usize - from);
        let (part_rows, rest_rows) = left_rows.split_at_mut(end as usize - from);
        parts.push((part, part_rows));
        (left, left_rows, from) = (rest, rest_rows, end as usize);
    }
    map_owned(parts, threads, |(weights, rows)| {
        let (dealt, order) = deal_fully(weights, rows);
        weights.copy_from_slice(&dealt);
        rows.copy_from_slice(&order);
    });
    (dealt, order)
}

/// Weights are hashes, spread evenly over their range: dealt into as many equal parts of the range as there
/// are rows, they are almost sorted.
fn deal_fully(weights: &[Weight], rows: &[u32]) -> (Lent<Weight>, Lent<u32>) {
    let (mut dealt, mut order, ends) = deal(weights, rows, (rows.len() as u32).next_power_of_two());
    let mut from = 0;
    for end in ends {
        let end = end as usize;
        if end - from > 1 {
            put_in_order(&mut dealt[from..end], &mut order[from..end]);
        }
        from = end;
    }
    (dealt, order)
}

/// Deals weights and their rows into equal parts of the range of the weights; rows of one part keep their
/// order. Returns also where each part ends.
fn deal(weights: &[Weight], rows: &[u32], parts: u32) -> (Lent<Weight>, Lent<u32>, Vec<u32>) {
    let (Some(least), Some(greatest)) = (weights.iter().min(), weights.iter().max()) else {
        return (Lent::new(0), Lent::new(0), Vec::new());
    };
    let range = greatest.get() - least.get();
    let shift = (u64::BITS - range.leading_zeros()).saturating_sub(parts.trailing_zeros());
    // With a single part the shift is the full width, which the processor does not support.
    let part = |weight: Weight| (weight.get() - least.get()).checked_shr(shift).unwrap_or(0) as usize;
    let mut ends = vec![0_u32; part(*greatest) + 2];
    weights.iter().for_each(|&weight| ends[part(weight) + 1] += 1);
    for place in 1..ends.len() {
        ends[place] += ends[place - 1];
    }
    // Dealing advances the beginning of each part to its end.
    let (mut dealt, mut order) = (Lent::filled(weights.len(), *least), Lent::filled(weights.len(), 0));
    for (&weight, &row) in weights.iter().zip(rows) {
        let end = &mut ends[part(weight)];
        (dealt[*end as usize], order[*end as usize]) = (weight, row);
        *end += 1;
    }
    (dealt, order, ends)
}

/// Sorts a few rows by weight; equal weights keep their order.
fn put_in_order(weights: &mut [Weight], rows: &mut [u32]) {
    if weights.len() > PART_ROWS_FEW {
        let mut pairs: Vec<(Weight, u32)> = weights.iter().copied().zip(rows.iter().copied()).collect();
        pairs.sort_by_key(|(weight, _)| *weight);
        for (place, pair) in pairs.into_iter().enumerate() {
            (weights[place], rows[place]) = pair;
        }
        return;
    }
    for place in 1..weights.len() {
        let (weight, row) = (weights[place], rows[place]);
        let mut to = place;
        while to > 0 && weights[to - 1] > weight {
            (weights[to], rows[to]) = (weights[to - 1], rows[to - 1]);
            to -= 1;
        }
        (weights[to], rows[to]) = (weight, row);
    }
}

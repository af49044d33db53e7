//! Means of groups, and histograms: several estimates from one sample.
//!
//! Each holds by itself; with `simultaneous`, all of them hold together.

use super::mean;
use super::outcome::{Estimate, checked};
use super::ratio::{Ratio, Sizes};
use super::values::missing;
use super::{Confidence, EstimateError, Units, share};

/// The mean of a column in each of the groups `0..count`; `None` for a group that the sample did not meet,
/// although it may exist.
///
/// `groups` has the group of each row, `None` for a row of no group. `values` has NaN for no value.
///
/// # Errors
/// [`EstimateError::Rows`] if there are fewer values or groups than rows.
pub fn group_means(
    units: &Units,
    groups: &[Option<u32>],
    values: &[f64],
    count: usize,
    confidence: &Confidence,
) -> Result<Vec<Option<Estimate>>, EstimateError> {
    checked(units, values.len())?;
    checked(units, groups.len())?;
    let of_group = |rows: &[usize]| {
        // Sums over the rows that a unit has in the group; units without such rows count for nothing.
        let ratio = Ratio::of_some(units, rows, values);
        let own = rows.iter().map(|row| values[*row]);
        (!rows.is_empty()).then(|| {
            let missing = own.clone().filter(|value| value.is_nan()).count() as u64;
            let mean = mean::of_ratio(units, &ratio, mean::deviation_of(own), confidence);
            Estimate { rows: rows.len() as u64, ..mean }.without(missing)
        })
    };
    Ok(rows_of_groups(&groups[..units.rows()], count).iter().map(|rows| of_group(rows)).collect())
}

/// The rows of each group, in rising order.
fn rows_of_groups(groups: &[Option<u32>], count: usize) -> Vec<Vec<usize>> {
    let mut rows = vec![Vec::new(); count];
    for (row, group) in groups.iter().enumerate() {
        if let Some(rows) = group.and_then(|group| rows.get_mut(group as usize)) {
            rows.push(row);
        }
    }
    rows
}

/// The share of rows in each bin: bin `i` holds the values from `edges[i]` up to, but not including, `edges[i
/// + 1]`.
///
/// Rows without a value or outside all bins count among all rows, and belong to no bin.
///
/// # Errors
/// [`EstimateError::Edges`] unless there are two edges or more and they rise; [`EstimateError::Rows`].
pub fn histogram(
    units: &Units,
    values: &[f64],
    edges: &[f64],
    confidence: &Confidence,
) -> Result<Vec<Estimate>, EstimateError> {
    checked(units, values.len())?;
    check_edges(edges)?;
    let sizes = Sizes::of(units);
    let missing = missing(&values[..units.rows()]);
    let of_bin =
        |few: &Vec<_>| share::of_ratio(units, &Ratio::of_few(few, &sizes), confidence).without(missing);
    Ok(units_in_bins(units, values, edges).iter().map(of_bin).collect())
}

/// The units that have rows in each bin, in their order, with how many: rows are looked at once, however many
/// bins there are.
fn units_in_bins(units: &Units, values: &[f64], edges: &[f64]) -> Vec<Vec<(usize, f64)>> {
    let mut bins: Vec<Vec<(usize, f64)>> = vec![Vec::new(); edges.len() - 1];
    for (unit, rows) in units.iter().enumerate() {
        for bin in values[rows].iter().filter_map(|value| bin_of(edges, *value)) {
            match bins[bin].last_mut() {
                Some((last, inside)) if *last == unit => *inside += 1.0,
                _ => bins[bin].push((unit, 1.0)),
            }
        }
    }
    bins
}

/// Refuses edges that do not rise.
pub(super) fn check_edges(edges: &[f64]) -> Result<(), EstimateError> {
    let rises = |(left, right): (&f64, &f64)| left < right;
    let falls = edges.iter().zip(edges.iter().skip(1)).position(|pair| !rises(pair));
    if edges.len() < 2 || falls.is_some() {
        return Err(EstimateError::Edges { place: falls.map_or(edges.len(), |place| place + 1) });
    }
    Ok(())
}

/// Which bin between edges, which rise, a value is in.
pub(super) fn bin_of(edges: &[f64], value: f64) -> Option<usize> {
    let before = edges.partition_point(|edge| *edge <= value);
    before.checked_sub(1).filter(|bin| bin + 1 < edges.len())
}

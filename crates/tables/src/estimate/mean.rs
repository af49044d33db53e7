//! Means and sums.
//!
//! A mean is a ratio over units. A sum is the mean times the number of rows, if that is known exactly;
//! otherwise it is the sum over the sample divided by the share of everything that the sample is.

use super::confidence::Bound;
use super::outcome::{Doubt, Estimate, Facts, Method, checked};
use super::ratio::{Ratio, Squares, total};
use super::{Confidence, EstimateError, Units};

/// The mean of a column, over the rows that have a value.
///
/// `values` has one value for each row, NaN for none.
///
/// # Errors
/// [`EstimateError::Rows`] if there are fewer values than rows.
pub fn mean(units: &Units, values: &[f64], confidence: &Confidence) -> Result<Estimate, EstimateError> {
    checked(units, values.len())?;
    Ok(of_ratio(units, &Ratio::of_values(units, values), deviation(units, values), confidence))
}

/// The sum of a column; rows without a value add nothing.
///
/// `rows` is the number of all rows, of which the sample is a part, if that is known exactly. Rows that are
/// counted there but do not belong to the sum must be in the sample, without a value.
/// # Errors
/// [`EstimateError::Rows`] if there are fewer values than rows.
pub fn sum(
    units: &Units,
    values: &[f64],
    rows: Option<u64>,
    confidence: &Confidence,
) -> Result<Estimate, EstimateError> {
    checked(units, values.len())?;
    let ratio = Ratio::of_rows(units, values);
    let deviation = deviation(units, values);
    if let Some(rows) = rows.filter(|_| !units.is_everything()) {
        return Ok(of_ratio(units, &ratio, deviation, confidence).scaled(rows as f64));
    }
    // If the number of rows is not known, the residual of a unit is its whole sum, since the sum over all
    // units is what is sought.
    let squares = ratio.residuals(0.0);
    let share = units.share();
    let bound = reach(&confidence.bound(ratio.units(), share), &squares);
    let total = ratio.above() / share;
    let facts = Facts {
        value: total,
        low: total - bound / share,
        high: total + bound / share,
        deviation: deviation * ratio.below() / share,
        method: Method::of(confidence),
        doubts: doubts(&ratio, &squares),
        units: ratio.units(),
    };
    Ok(Estimate::new(units, confidence, facts))
}

/// The estimate of a ratio, with an interval from its residuals.
pub(super) fn of_ratio(units: &Units, ratio: &Ratio, deviation: f64, confidence: &Confidence) -> Estimate {
    let value = ratio.value();
    let squares = ratio.residuals(value);
    let bound = reach(&confidence.bound(ratio.units(), units.share()), &squares) / ratio.below();
    let facts = Facts {
        value,
        low: value - bound,
        high: value + bound,
        deviation,
        method: Method::of(confidence),
        doubts: doubts(ratio, &squares),
        units: ratio.units(),
    };
    Estimate::new(units, confidence, facts)
}

/// How far the sum may be from what it estimates. Units that are all alike tell nothing about that: a sample
/// of zeros looks as certain as can be, and may have missed the few ones.
pub(super) fn reach(bound: &Bound, squares: &Squares) -> f64 {
    if squares.sum > 0.0 { bound.of_residuals(squares) } else { f64::INFINITY }
}

fn doubts(ratio: &Ratio, squares: &Squares) -> Vec<Doubt> {
    Doubt::few_units(ratio.units()).into_iter().chain(Doubt::of_squares(squares)).collect()
}

/// The standard deviation of the values over rows, without NaN.
pub(super) fn deviation(units: &Units, values: &[f64]) -> f64 {
    deviation_of(values[..units.rows()].iter().copied())
}

/// The standard deviation of the values that are not NaN.
pub(super) fn deviation_of(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let present = || values.clone().filter(|value| !value.is_nan());
    let count = present().count() as f64;
    let mean = total(present()) / count;
    (present().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0)).sqrt()
}

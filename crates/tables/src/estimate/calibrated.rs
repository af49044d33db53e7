//! Totals of rows of which a part is counted: post-stratification.
//!
//! The rows in question fall into two parts. Of one the exact number is known, and it contributes that number
//! times its mean in the sample. The other contributes its sum in the sample divided by the share of the
//! sample, since nothing else is known of it. This is the calibration estimator whose only auxiliary variable
//! is the membership of the counted part (Deville and Särndal, "Calibration estimators in survey sampling",
//! Journal of the American Statistical Association 87, 1992). docs/internals/tables-estimates.md derives its
//! variance.
//!
//! Invariant: without a counted part the estimate is that of the sample alone; without any other rows it is
//! the number of rows times the mean.

use super::mean::{deviation, reach, sum};
use super::outcome::{Doubt, Estimate, Facts, Method, UNITS_MIN, checked};
use super::ratio::{ROUNDING, Squares, total};
use super::{Confidence, EstimateError, Units};
use std::ops::Range;

/// A part of the rows in question whose number is known exactly.
///
/// Whether a row belongs to it must not depend on the weights of any rows. Otherwise the sample of the part
/// is no sample of it: the lightest rows, say, are all in the sample, and would stand for all others.
#[derive(Clone, Copy, Debug)]
pub struct KnownPart<'p> {
    /// The number of its rows, whether they are in the sample or not.
    pub rows: u64,
    /// Whether each row of the sample belongs to it.
    pub of_rows: &'p [bool],
}

impl KnownPart<'_> {
    /// Whether the sample is expected to have enough of the part to tell its mean.
    ///
    /// The expectation decides, and not what the sample happens to have: calibrating only where many rows
    /// were met would correct totals that are too high, and leave those that are too low.
    fn is_large_enough(&self, units: &Units) -> bool {
        self.rows as f64 * units.share() >= UNITS_MIN as f64
    }
}

/// What a unit has in the counted part and in the rest.
struct InParts {
    /// The sum of its values in the counted part.
    counted: f64,
    /// The number of its rows there, with or without a value.
    counted_rows: f64,
    /// The sum of its values in the rest.
    rest: f64,
    /// The number of its rows there.
    rest_rows: f64,
}

impl InParts {
    fn of(rows: Range<usize>, values: &[f64], is_counted: &[bool]) -> Self {
        let of_part = |wanted: bool| {
            let rows = rows.clone().filter(move |row| is_counted[*row] == wanted);
            let present = rows.clone().map(|row| values[row]).filter(|value| !value.is_nan());
            (total(present), rows.count() as f64)
        };
        let ((counted, counted_rows), (rest, rest_rows)) = (of_part(true), of_part(false));
        Self { counted, counted_rows, rest, rest_rows }
    }
}

/// The sum of a column over rows of which a part is counted; rows without a value add nothing.
///
/// Its value is `M R + S / p`: `M` the number of rows of the counted part, `R` the mean of the part in the
/// sample, `S` the sum of the other rows in the sample, `p` the share of the sample. The residual of a unit
/// is `g (y - m R) + s`, with `y`, `m` and `s` its sum and its rows in the counted part and its sum in the
/// rest, and `g` the weight `p M / Σ m` that calibration gives to the counted part (Särndal, Swensson and
/// Wretman, "The weighted residual technique for estimating the variance of the general regression estimator
/// of the finite population total", Biometrika 76, 1989).
///
/// Without enough rows of the counted part to expect [`UNITS_MIN`] of them in the sample, this is
/// [`sum`](super::sum) of an unknown number of rows.
///
/// # Errors
/// [`EstimateError::Rows`] if there are fewer values, or memberships, than rows.
pub fn calibrated_sum(
    units: &Units,
    values: &[f64],
    known: KnownPart<'_>,
    confidence: &Confidence,
) -> Result<Estimate, EstimateError> {
    checked(units, values.len())?;
    checked(units, known.of_rows.len())?;
    let parts: Vec<InParts> = units.iter().map(|rows| InParts::of(rows, values, known.of_rows)).collect();
    let sampled_rows: f64 = parts.iter().map(|part| part.counted_rows).sum();
    if units.is_everything() || sampled_rows == 0.0 || !known.is_large_enough(units) {
        return sum(units, values, None, confidence);
    }
    let (share, rows) = (units.share(), known.rows as f64);
    let mean = total(parts.iter().map(|part| part.counted)) / sampled_rows;
    let squares = residuals(&parts, mean, share * rows / sampled_rows);
    let count = parts.len() as u64;
    let bound = reach(&confidence.bound(count, share), &squares) / share;
    let value = rows * mean + total(parts.iter().map(|part| part.rest)) / share;
    let all_rows = rows + parts.iter().map(|part| part.rest_rows).sum::<f64>() / share;
    let of_counted = parts.iter().filter(|part| part.counted_rows > 0.0).count() as u64;
    let facts = Facts {
        value,
        low: value - bound,
        high: value + bound,
        deviation: deviation(units, values) * all_rows,
        method: Method::of(confidence),
        doubts: Doubt::few_units(of_counted).into_iter().chain(Doubt::of_squares(&squares)).collect(),
        units: count,
    };
    Ok(Estimate::new(units, confidence, facts))
}

/// The squares of the residuals of the units, for the mean of the counted part and the weight that it gets.
fn residuals(parts: &[InParts], mean: f64, weight: f64) -> Squares {
    let beyond_mean = |part: &InParts| part.counted - part.counted_rows * mean;
    // As in `Ratio::residuals`, rounding errors of units that are alike are no residuals.
    let is_rounding = |part: &InParts| beyond_mean(part).abs() <= part.counted_rows * ROUNDING * mean.abs();
    let are_alike = parts.iter().all(is_rounding);
    let residual = |part: &InParts| part.rest + if are_alike { 0.0 } else { weight * beyond_mean(part) };
    Squares::of(parts.iter().map(residual), 0.0)
}

#[cfg(test)]
mod tests {
    use super::super::distributions::student_quantile;
    use super::*;
    use crate::{Cut, Weight, Window};

    /// A sample of half of all units: a unit for each number, which is its weight in 2^60.
    fn half(numbers: &[u64]) -> Units {
        let weights: Vec<Weight> = numbers.iter().map(|number| Weight::new(number << 60).unwrap()).collect();
        Units::within(&weights, Window::below(Cut::of_share(0.5).unwrap())).unwrap()
    }

    fn estimate(units: &Units, values: &[f64], rows: u64, of_rows: &[bool]) -> Estimate {
        calibrated_sum(units, values, KnownPart { rows, of_rows }, &Confidence::default()).unwrap()
    }

    #[test]
    fn the_counted_part_is_its_number_times_its_mean_and_the_rest_is_what_the_sample_has_of_it() {
        let found = estimate(&half(&[1, 2, 3]), &[2.0, 4.0, 10.0], 100, &[true, true, false]);
        // A mean of 3, and 10 over one half.
        assert!((found.value - 320.0).abs() < 1e-9, "{found}");
        // Each counted row stands for 50 of which the sample has half: residuals of -25, 25 and 10.
        let squares: f64 = 25.0f64.powi(2) * 2.0 + 10.0f64.powi(2);
        let expected = student_quantile(0.975, 2) * (0.5 * 1.5 * squares).sqrt() / 0.5;
        assert!((found.half_width() - expected).abs() < 1e-9 * expected, "{found}, not {expected}");
        assert!(found.doubts.contains(&Doubt::FewUnits { units: 2 }), "{found}");
    }

    #[test]
    fn the_rows_of_a_unit_may_lie_in_both_parts() {
        let values = [1.0, 5.0, 7.0, 3.0];
        let found = estimate(&half(&[1, 1, 2, 2]), &values, 60, &[true, false, true, false]);
        assert!((found.value - (60.0 * 4.0 + 8.0 / 0.5)).abs() < 1e-9, "{found}");
        // 15 times -3 plus 5, and 15 times 3 plus 3.
        let squares: f64 = 40.0f64.powi(2) + 48.0f64.powi(2);
        let expected = student_quantile(0.975, 1) * (0.5 * 2.0 * squares).sqrt() / 0.5;
        assert!((found.half_width() - expected).abs() < 1e-9 * expected, "{found}, not {expected}");
    }

    #[test]
    fn all_counted_is_a_known_number_and_nothing_counted_an_unknown_one() {
        let (units, values) = (half(&[1, 2, 3, 4, 4]), [2.0, f64::NAN, 7.0, 1.0, 4.0]);
        let confidence = Confidence::default();
        let near = |found: &Estimate, expected: &Estimate| {
            let near = |one: f64, other: f64| (one - other).abs() < 1e-9 * other.abs();
            near(found.value, expected.value) && near(found.half_width(), expected.half_width())
        };
        let known = sum(&units, &values, Some(200), &confidence).unwrap();
        let found = estimate(&units, &values, 200, &[true; 5]);
        assert!(near(&found, &known), "{found}, not {known}");
        let unknown = sum(&units, &values, None, &confidence).unwrap();
        assert_eq!(estimate(&units, &values, 0, &[false; 5]), unknown);
        // Of a part of 59 rows, no more than 29.5 are expected.
        let is_counted = [true, true, false, false, false];
        assert_eq!(estimate(&units, &values, 59, &is_counted), unknown);
        assert_ne!(estimate(&units, &values, 60, &is_counted), unknown);
    }

    #[test]
    fn counted_rows_that_are_alike_leave_only_the_others_uncertain() {
        let (units, is_counted) = (half(&[1, 2, 3, 4]), [true, true, true, false]);
        let found = estimate(&units, &[0.1, 0.1, 0.1, 2.0], 90, &is_counted);
        let expected = student_quantile(0.975, 3) * (0.5 * 4.0 / 3.0 * 4.0f64).sqrt() / 0.5;
        assert!((found.half_width() - expected).abs() < 1e-9 * expected, "{found}, not {expected}");
    }

    #[test]
    fn fewer_memberships_than_rows_are_refused() {
        let known = KnownPart { rows: 100, of_rows: &[true] };
        let refused = calibrated_sum(&half(&[1, 2]), &[1.0, 2.0], known, &Confidence::default());
        assert!(matches!(refused, Err(EstimateError::Rows { .. })), "{refused:?}");
    }
}

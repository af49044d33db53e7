//! Totals of rows of which a part is counted: post-stratification.
//!
//! The rows in question fall into two parts. Of one the exact number is known, and it contributes that number
//! times its mean in the sample. The other contributes its sum in the sample divided by the share of the
//! sample, since nothing else is known of it. This is the calibration estimator whose only auxiliary variable
//! is the membership of the counted part (Deville and Särndal, "Calibration estimators in survey sampling",
//! Journal of the American Statistical Association 87, 1992). docs/internals/tables-estimates.md derives its
//! variance.
//!
//! Invariant: without a counted part the estimate is that of the sample alone; without any other rows its
//! value is the number of rows times the mean.
//! Invariant: a part that the sample has far more or fewer rows of than a throw of dice explains is not used.

use super::mean::{deviation, reach, sum};
use super::outcome::{Doubt, Estimate, Facts, Method, UNITS_MIN, checked};
use super::ratio::{ROUNDING, Squares, total};
use super::{Confidence, EstimateError, Units};
use std::ops::Range;

/// How many deviations the number of rows of a counted part in the sample may be from what is expected. Where
/// the part does not depend on weights, fewer than one sample in 100,000 is further off, so turning such
/// samples away changes nothing. The smallest part that is used, of which the sample has twice the rows that
/// are expected, is further off.
const DEVIATIONS_MAX: f64 = 5.0;

/// How many units of the rest, each with the mean square of all units, the bound allows for beyond those that
/// the sample met. Of a unit that occurs 3.7 times in a sample on average, one sample in forty has none; with
/// Student's t, four units reach as far as 3.9 of them.
const UNMET_REST_UNITS: f64 = 4.0;

/// A part of the rows in question whose number is known exactly.
///
/// Whether a row belongs to it must not depend on the weights of any rows. Otherwise the sample of the part
/// is no sample of it: the lightest rows, say, are all in the sample, and would stand for all others. A part
/// of whose rows the sample has far too many or too few is recognized, and ignored.
#[derive(Clone, Copy, Debug)]
pub struct KnownPart<'p> {
    /// The number of its rows, whether they are in the sample or not.
    pub rows: u64,
    /// Whether each row of the sample belongs to it.
    pub of_rows: &'p [bool],
}

/// What a sample has of a counted part.
struct Met {
    /// The number of its rows in the sample.
    rows: f64,
    /// How many rows come together in a unit, averaged over rows: in the part, or in the whole sample if that
    /// is more.
    at_once: f64,
}

impl Met {
    fn of(units: &Units, known: &KnownPart<'_>) -> Self {
        let (mut rows, mut squares, mut squares_of_all) = (0.0f64, 0.0f64, 0.0f64);
        for unit in units.iter() {
            squares_of_all += (unit.len() as f64).powi(2);
            let of_part = unit.filter(|row| known.of_rows[*row]).count() as f64;
            rows += of_part;
            squares += of_part * of_part;
        }
        // Without rows the quotients are NaN, and the maximum is the other number.
        let (of_part, of_all) = (squares / rows, squares_of_all / units.rows() as f64);
        Self { rows, at_once: of_part.max(of_all).max(1.0) }
    }
}

impl KnownPart<'_> {
    /// Whether the sample is expected to have enough units of the part to tell its mean.
    ///
    /// The expectation decides, and not what the sample happens to have: calibrating only where many rows
    /// were met would correct totals that are too high, and leave those that are too low.
    fn is_large_enough(&self, units: &Units, met: &Met) -> bool {
        self.rows as f64 * units.share() >= UNITS_MIN as f64 * met.at_once
    }

    /// Whether the sample has about as many rows of the part as a sample has of any part that does not depend
    /// on weights.
    ///
    /// Blocks that were written in the order of weights are contiguous ranges of them, as those of gathered
    /// and of imported tables are. The light ones are then in the sample as a whole, the heavy ones not at
    /// all, and what the sample has of the other rows is not the share of the sample either.
    fn is_drawn_by_lot(&self, units: &Units, met: &Met) -> bool {
        let share = units.share();
        let expected = share * self.rows as f64;
        // One more unit: small numbers are further off than a normal distribution has it.
        let variance = met.at_once * ((1.0 - share) * expected + met.at_once);
        (met.rows - expected).powi(2) <= DEVIATIONS_MAX.powi(2) * variance
    }

    /// Whether the sample could be one of the part, as far as the number of rows tells. There must be a
    /// membership for each row of the units.
    pub(super) fn agrees_with(&self, units: &Units) -> bool {
        self.is_drawn_by_lot(units, &Met::of(units, self))
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
/// Without enough rows of the counted part to expect [`UNITS_MIN`] units of them in the sample, or if the
/// sample has far more or fewer of its rows than expected, this is [`sum`](super::sum) of an unknown number
/// of rows.
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
    let met = Met::of(units, &known);
    if units.is_everything() || !known.is_large_enough(units, &met) {
        return sum(units, values, None, confidence);
    }
    if !known.is_drawn_by_lot(units, &met) || met.rows == 0.0 {
        let alone = sum(units, values, None, confidence)?;
        // Where units may have many rows, the sample may have missed the few that the part consists of.
        let may_be_few = met.rows == 0.0 && units.len() < units.rows();
        return Ok(if may_be_few { alone.doubted(Doubt::FewUnits { units: 0 }) } else { alone });
    }
    Ok(of_parts(units, values, known, confidence))
}

/// The sum, where the sample has rows of the counted part.
fn of_parts(units: &Units, values: &[f64], known: KnownPart<'_>, confidence: &Confidence) -> Estimate {
    let parts: Vec<InParts> = units.iter().map(|rows| InParts::of(rows, values, known.of_rows)).collect();
    let sampled_rows: f64 = parts.iter().map(|part| part.counted_rows).sum();
    let (share, rows) = (units.share(), known.rows as f64);
    let mean = total(parts.iter().map(|part| part.counted)) / sampled_rows;
    let squares = residuals(&parts, mean, share * rows / sampled_rows);
    let count = parts.len() as u64;
    let bound = reach(&confidence.bound(count, share), &allowing_for_unmet(&parts, &squares)) / share;
    let value = rows * mean + total(parts.iter().map(|part| part.rest)) / share;
    let all_rows = rows + parts.iter().map(|part| part.rest_rows).sum::<f64>() / share;
    let of_counted = parts.iter().filter(|part| part.counted_rows > 0.0).count() as u64;
    let of_rest = parts.iter().filter(|part| part.rest_rows > 0.0).count() as u64;
    let doubts = Doubt::few_units(of_counted)
        .into_iter()
        .chain(Doubt::few_outcomes(of_rest))
        .chain(Doubt::of_squares(&squares));
    let facts = Facts {
        value,
        low: value - bound,
        high: value + bound,
        deviation: deviation(units, values) * all_rows,
        method: Method::of(confidence),
        doubts: doubts.collect(),
        // A reading goes on while these are few.
        units: of_counted,
    };
    Estimate::new(units, confidence, facts)
}

/// The squares of residuals, with those of some units of the rest that the sample did not meet. Of a rest
/// with few rows the sample may have none, and then nothing else would tell that there are any.
fn allowing_for_unmet(parts: &[InParts], squares: &Squares) -> Squares {
    let of_units: f64 = parts.iter().map(|part| (part.counted + part.rest).powi(2)).sum();
    let unmet = UNMET_REST_UNITS * of_units / parts.len() as f64;
    // Units that are all alike still tell nothing about the others.
    let sum = if squares.sum > 0.0 { squares.sum + unmet } else { squares.sum };
    Squares { sum, largest: squares.largest, of_largest: squares.of_largest }
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
    use super::super::{calibrated_count, count};
    use super::*;
    use crate::seeds::for_seeds;
    use crate::{Cut, Weight, Window};

    /// A sample of half of all units: a unit for each number, which is its weight in 2^60.
    fn half(numbers: &[u64]) -> Units {
        let weights: Vec<Weight> = numbers.iter().map(|number| Weight::new(number << 60).unwrap()).collect();
        Units::within(&weights, Window::below(Cut::of_share(0.5).unwrap())).unwrap()
    }

    fn estimate(units: &Units, values: &[f64], rows: u64, of_rows: &[bool]) -> Estimate {
        calibrated_sum(units, values, KnownPart { rows, of_rows }, &Confidence::default()).unwrap()
    }

    /// The estimate where the sample was found to be one of the counted part, however few rows it has.
    fn estimate_in_parts(units: &Units, values: &[f64], rows: u64, of_rows: &[bool]) -> Estimate {
        of_parts(units, values, KnownPart { rows, of_rows }, &Confidence::default())
    }

    /// Units with these numbers of rows, which are a share of all.
    fn sample_of(sizes: &[usize], share: f64) -> Units {
        let unit = |(place, size): (u64, &usize)| std::iter::repeat_n(Weight::new(place).unwrap(), *size);
        let weights: Vec<Weight> = (1..).zip(sizes).flat_map(unit).collect();
        Units::within(&weights, Window::below(Cut::of_share(share).unwrap())).unwrap()
    }

    fn sum_alone(units: &Units, values: &[f64]) -> Estimate {
        sum(units, values, None, &Confidence::default()).unwrap()
    }

    #[test]
    fn the_counted_part_is_its_number_times_its_mean_and_the_rest_is_what_the_sample_has_of_it() {
        let found = estimate_in_parts(&half(&[1, 2, 3]), &[2.0, 4.0, 10.0], 100, &[true, true, false]);
        // A mean of 3, and 10 over one half.
        assert!((found.value - 320.0).abs() < 1e-9, "{found}");
        // Each counted row stands for 50 of which the sample has half: residuals of -25, 25 and 10.
        // Four units more, with the mean square of these three.
        let unmet = 4.0 * (4.0 + 16.0 + 100.0) / 3.0;
        let squares: f64 = 25.0f64.powi(2) * 2.0 + 10.0f64.powi(2) + unmet;
        let expected = student_quantile(0.975, 2) * (0.5 * 1.5 * squares).sqrt() / 0.5;
        assert!((found.half_width() - expected).abs() < 1e-9 * expected, "{found}, not {expected}");
        assert!(found.doubts.contains(&Doubt::FewUnits { units: 2 }), "{found}");
        assert!(found.doubts.contains(&Doubt::FewOutcomes { units: 1 }), "{found}");
        // A reading goes on until it has met enough of the counted part, however much it has of the rest.
        assert_eq!(found.units, 2);
    }

    #[test]
    fn the_rows_of_a_unit_may_lie_in_both_parts() {
        let values = [1.0, 5.0, 7.0, 3.0];
        let found = estimate_in_parts(&half(&[1, 1, 2, 2]), &values, 60, &[true, false, true, false]);
        assert!((found.value - (60.0 * 4.0 + 8.0 / 0.5)).abs() < 1e-9, "{found}");
        // 15 times -3 plus 5, and 15 times 3 plus 3.
        let squares: f64 = 40.0f64.powi(2) + 48.0f64.powi(2) + 4.0 * (36.0 + 100.0) / 2.0;
        let expected = student_quantile(0.975, 1) * (0.5 * 2.0 * squares).sqrt() / 0.5;
        assert!((found.half_width() - expected).abs() < 1e-9 * expected, "{found}, not {expected}");
    }

    #[test]
    fn all_counted_is_a_known_number_and_nothing_counted_an_unknown_one() {
        let (units, values) = (half(&[1, 2, 3, 4, 4]), [2.0, f64::NAN, 7.0, 1.0, 4.0]);
        let known = sum(&units, &values, Some(200), &Confidence::default()).unwrap();
        let found = estimate_in_parts(&units, &values, 200, &[true; 5]);
        let near = |one: f64, other: f64| (one - other).abs() < 1e-9 * other.abs();
        assert!(near(found.value, known.value), "{found}, not {known}");
        // There may be other rows all the same: four units with the mean square of 2, 0, 7 and 5.
        let unmet = student_quantile(0.975, 3).powi(2) * 0.5 * 4.0 / 3.0 * (4.0 + 49.0 + 25.0) / 0.25;
        let expected = (known.half_width().powi(2) + unmet).sqrt();
        assert!(near(found.half_width(), expected), "{found}, not {expected}");
        assert!(found.doubts.contains(&Doubt::FewOutcomes { units: 0 }), "{found}");
        assert_eq!(estimate(&units, &values, 0, &[false; 5]), sum_alone(&units, &values));
    }

    #[test]
    fn a_part_of_which_30_units_are_expected_is_used() {
        let values: Vec<f64> = (1..=40).map(f64::from).collect();
        let is_counted: Vec<bool> = (0..40).map(|row| row < 30).collect();
        // Of 59 rows, no more than 29.5 are expected; where units have two rows each, twice as many are due.
        for (size, rows) in [(1, 60), (2, 120)] {
            let units = sample_of(&vec![size; 40 / size], 0.5);
            let unknown = sum_alone(&units, &values);
            assert_eq!(estimate(&units, &values, rows - 1, &is_counted), unknown);
            assert_ne!(estimate(&units, &values, rows, &is_counted), unknown);
        }
        // One unit tells nothing about others, however many rows it has.
        let sizes: Vec<usize> = std::iter::once(1000).chain(std::iter::repeat_n(1, 40)).collect();
        let (units, values) = (sample_of(&sizes, 0.1), vec![5.0; 1040]);
        let is_counted: Vec<bool> = (0..1040).map(|row| row < 1000).collect();
        assert_eq!(estimate(&units, &values, 20_000, &is_counted), sum_alone(&units, &values));
    }

    #[test]
    fn a_part_of_which_the_sample_has_far_too_many_or_too_few_rows_is_not_used() {
        let values: Vec<f64> = (1..=80).map(f64::from).collect();
        let (units, confidence) = (sample_of(&[1; 80], 0.1), Confidence::default());
        let unknown = sum_alone(&units, &values);
        let count_alone = count(&units, &[true; 80], None, &confidence).unwrap();
        // 40 rows of 400 are expected. As a block of the lightest rows, it has all 80 in the sample, and as
        // one of the heaviest none.
        for met in [80, 0] {
            let is_counted: Vec<bool> = (0..80).map(|row| row < met).collect();
            assert_eq!(estimate(&units, &values, 400, &is_counted), unknown, "{met} rows");
            let known = KnownPart { rows: 400, of_rows: &is_counted };
            let counted = calibrated_count(&units, &[true; 80], known, &confidence).unwrap();
            assert_eq!(counted, count_alone, "{met} rows");
        }
        // What a throw of dice explains is used.
        let is_counted: Vec<bool> = (0..80).map(|row| row < 60).collect();
        assert_ne!(estimate(&units, &values, 400, &is_counted), unknown);
        let known = KnownPart { rows: 400, of_rows: &is_counted };
        let counted = calibrated_count(&units, &[true; 80], known, &confidence).unwrap();
        assert!((counted.value - 600.0).abs() < 1e-9, "{counted}");
        // Where units have several rows, the part may be a few that were not met.
        let units = sample_of(&[2; 40], 0.1);
        let found = estimate(&units, &values, 1000, &[false; 80]);
        assert_eq!(found, sum_alone(&units, &values).doubted(Doubt::FewUnits { units: 0 }));
    }

    #[test]
    fn a_count_of_nothing_but_the_counted_part_allows_for_others_that_come_together() {
        // 400 rows are expected, and met; the others may come a unit at a time as well.
        let high = |size: usize| {
            let units = sample_of(&vec![size; 400 / size], 0.1);
            let known = KnownPart { rows: 4000, of_rows: &[true; 400] };
            let found = calibrated_count(&units, &[true; 400], known, &Confidence::default()).unwrap();
            assert_eq!((found.value, found.low), (4000.0, 4000.0), "{found}");
            assert!(found.doubts.contains(&Doubt::FewOutcomes { units: 0 }), "{found}");
            found.high - found.value
        };
        // The square of Student's t, times the rows of a unit, over the share of the sample.
        let expected = |size: f64, units: f64| {
            student_quantile(0.975, units as u64 - 1).powi(2) * 0.9 * units / (units - 1.0) * size / 0.1
        };
        for (size, units) in [(1, 400.0), (4, 100.0)] {
            let (found, expected) = (high(size), expected(size as f64, units));
            assert!((found - expected).abs() < 1e-6 * expected, "{found}, not {expected}");
        }
    }

    #[test]
    fn a_rest_of_few_rows_is_allowed_for_where_the_sample_has_none_of_it() {
        // All but 20 rows are counted. One of these is expected in a sample; a third of all samples has none.
        const ROWS: usize = 20_000;
        const OTHERS: usize = 20;
        let mut missed = 0;
        for_seeds("a_rest_of_few_rows_is_allowed_for", 200, |random| {
            let (mut truth, mut values, mut is_counted) = (0.0, Vec::new(), Vec::new());
            for row in 0..ROWS {
                let value = 5.0 + 0.01 * random.f64();
                truth += value;
                if random.f64() < 0.05 {
                    values.push(value);
                    is_counted.push(row >= OTHERS);
                }
            }
            let units = sample_of(&vec![1; values.len()], 0.05);
            let found = estimate(&units, &values, (ROWS - OTHERS) as u64, &is_counted);
            missed += usize::from(!found.holds(truth));
            let others = is_counted.iter().filter(|is_counted| !**is_counted).count() as u64;
            let is_doubted = found.doubts.contains(&Doubt::FewOutcomes { units: others });
            assert!(others >= 10 || is_doubted, "{found}, with {others} others");
        });
        assert!(missed <= 10, "{missed} intervals of 200 without the truth");
    }

    #[test]
    fn counted_rows_that_are_alike_leave_only_the_others_uncertain() {
        let (units, is_counted) = (half(&[1, 2, 3, 4]), [true, true, true, false]);
        let found = estimate_in_parts(&units, &[0.1, 0.1, 0.1, 2.0], 90, &is_counted);
        let squares: f64 = 4.0 + (3.0 * 0.1f64.powi(2) + 4.0);
        let expected = student_quantile(0.975, 3) * (0.5 * 4.0 / 3.0 * squares).sqrt() / 0.5;
        assert!((found.half_width() - expected).abs() < 1e-9 * expected, "{found}, not {expected}");
    }

    #[test]
    fn fewer_memberships_than_rows_are_refused() {
        let known = KnownPart { rows: 100, of_rows: &[true] };
        let refused = calibrated_sum(&half(&[1, 2]), &[1.0, 2.0], known, &Confidence::default());
        assert!(matches!(refused, Err(EstimateError::Rows { .. })), "{refused:?}");
    }
}

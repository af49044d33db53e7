//! Shares and counts: how many rows satisfy a condition.
//!
//! The interval contains every share that the sample would not make surprising (Wilson's interval), with the
//! number of rows replaced by the number of independent rows that they are worth (Korn and Graubard,
//! "Confidence intervals for proportions with small expected number of positive counts estimated from survey
//! data", Survey Methodology 24, 1998). A share near 0 then gets an interval that leans to the right, instead
//! of one that goes below 0.

use super::confidence::Bound;
use super::outcome::{Doubt, Estimate, Facts, Method, checked};
use super::ratio::Ratio;
use super::{Confidence, EstimateError, KnownPart, Units};

/// The number of bisections that separate any two numbers of 53 bits.
const HALVINGS: u32 = 60;

/// The share of rows that satisfy a condition; `holds` has the outcome for each row.
///
/// # Errors
/// [`EstimateError::Rows`] if there are fewer outcomes than rows.
pub fn share(units: &Units, holds: &[bool], confidence: &Confidence) -> Result<Estimate, EstimateError> {
    checked(units, holds.len())?;
    Ok(of_ratio(units, &Ratio::of_condition(units, |row| holds[row]), confidence))
}

/// The number of rows that satisfy a condition, among all rows and not only those of the sample.
///
/// `rows` is the number of all rows, of which the sample is a part, if that is known exactly.
///
/// # Errors
/// [`EstimateError::Rows`] if there are fewer outcomes than rows.
pub fn count(
    units: &Units,
    holds: &[bool],
    rows: Option<u64>,
    confidence: &Confidence,
) -> Result<Estimate, EstimateError> {
    checked(units, holds.len())?;
    let ratio = Ratio::of_condition(units, |row| holds[row]);
    Ok(match rows {
        Some(rows) if !units.is_everything() => of_ratio(units, &ratio, confidence).scaled(rows as f64),
        _ => of_total(units, &ratio, having(&ratio), confidence),
    })
}

/// The number of rows that satisfy a condition which all rows of a counted part satisfy: the number of these,
/// and an estimate of the others, whose interval is as for [`count`] of an unknown number of rows. If the
/// sample has far more or fewer rows of that part than expected, this is [`count`] of an unknown number of
/// rows altogether.
///
/// # Errors
/// [`EstimateError::Rows`] if there are fewer outcomes, or memberships, than rows.
pub fn calibrated_count(
    units: &Units,
    holds: &[bool],
    known: KnownPart<'_>,
    confidence: &Confidence,
) -> Result<Estimate, EstimateError> {
    checked(units, known.of_rows.len())?;
    if units.is_everything() || !known.agrees_with(units) {
        return count(units, holds, None, confidence);
    }
    checked(units, holds.len())?;
    let ratio = Ratio::of_condition(units, |row| holds[row] && !known.of_rows[row]);
    // All units were looked at, also where few of them, or none, have one of the other rows.
    Ok(of_total(units, &ratio, ratio.units(), confidence).plus(known.rows as f64))
}

/// The estimate of a ratio whose numerators are parts of their denominators.
pub(super) fn of_ratio(units: &Units, ratio: &Ratio, confidence: &Confidence) -> Estimate {
    let value = ratio.value();
    let squares = ratio.residuals(value);
    let bound = confidence.bound(ratio.units(), units.share());
    let spread = ShareSpread::new(ratio, squares.sum);
    let is_inside = |share: f64| (value - share).abs() * ratio.below() <= spread.bound(&bound, share);
    let sides = [ratio.units_with(|above, _| above > 0.0), ratio.units_with(|above, below| above < below)];
    let doubts = Doubt::few_units(ratio.units())
        .into_iter()
        .chain(sides.into_iter().min().and_then(Doubt::few_outcomes))
        .chain(Doubt::of_squares(&squares));
    let facts = Facts {
        value,
        low: farthest_inside(value, 0.0, is_inside),
        high: farthest_inside(value, 1.0, is_inside),
        deviation: (value * (1.0 - value)).max(0.0).sqrt(),
        method: Method::of(confidence),
        doubts: doubts.collect(),
        units: ratio.units(),
    };
    Estimate::new(units, confidence, facts)
}

/// The number of units with a numerator.
fn having(ratio: &Ratio) -> u64 {
    ratio.units_with(|above, _| above > 0.0)
}

/// The estimate of the total of the numerators, ignoring the denominators, from as many units as `seen_units`
/// says.
fn of_total(units: &Units, ratio: &Ratio, seen_units: u64, confidence: &Confidence) -> Estimate {
    let (seen, share) = (ratio.above(), units.share());
    let squares = ratio.residuals(0.0);
    // How many counted rows come together, averaged over rows: the spread of a count grows with it. If none
    // were seen, each unit is assumed to be all of a piece, as in `ShareSpread::new`.
    let at_once = if seen > 0.0 { squares.sum / seen } else { ratio.rows_squared() / ratio.below().max(1.0) };
    let bound = confidence.bound(seen_units, share);
    let is_inside = |expected: f64| (seen - expected).abs() <= bound.of(at_once * expected);
    let mut beyond = 2.0 * seen + 8.0;
    while is_inside(beyond) && beyond < f64::MAX / 4.0 {
        beyond *= 2.0;
    }
    let doubts = Doubt::few_units(ratio.units())
        .into_iter()
        .chain(Doubt::few_outcomes(having(ratio)))
        .chain(Doubt::of_squares(&squares));
    let facts = Facts {
        value: seen / share,
        low: farthest_inside(seen, 0.0, is_inside) / share,
        high: if is_inside(beyond) {
            f64::INFINITY
        } else {
            farthest_inside(seen, beyond, is_inside) / share
        },
        deviation: seen.sqrt() / share,
        method: Method::of(confidence),
        doubts: doubts.collect(),
        units: seen_units,
    };
    Estimate::new(units, confidence, facts)
}

/// How the spread of a share depends on the share, given how alike the rows of a unit are.
pub(super) struct ShareSpread(f64);

impl ShareSpread {
    /// Derived from the squares of the residuals at the ratio itself. If all rows have one outcome, these say
    /// nothing, and each unit is assumed to be all of a piece.
    pub(super) fn new(ratio: &Ratio, squares: f64) -> Self {
        let value = ratio.value();
        let spread = value * (1.0 - value);
        Self(if spread > 0.0 { squares / spread } else { ratio.rows_squared() })
    }

    /// How far the sum of the residuals may be from zero if the share is `share`.
    pub(super) fn bound(&self, bound: &Bound, share: f64) -> f64 {
        bound.of(self.0 * share * (1.0 - share))
    }
}

/// The farthest point towards `end` that is inside, found by bisection from `value`; `end` itself may be
/// outside.
fn farthest_inside(value: f64, end: f64, is_inside: impl Fn(f64) -> bool) -> f64 {
    if value.is_nan() || is_inside(end) {
        return end;
    }
    let (mut inside, mut outside) = (value, end);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (inside + outside);
        if is_inside(middle) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    inside
}

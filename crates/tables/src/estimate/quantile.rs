//! Quantiles, by Woodruff's method.
//!
//! The share of rows up to the true quantile is known. A value is therefore inside the interval if the share
//! of sampled rows up to it is no further from the known share than shares of samples are (Woodruff,
//! "Confidence intervals for medians and other position measures", Journal of the American Statistical
//! Association 47, 1952), with the variance of a ratio over units.
//!
//! Invariant: the ends of the interval are values of the sample, or infinite where it has none that far out.

use super::outcome::{Doubt, Estimate, Facts, Method, checked};
use super::ratio::Ratio;
use super::share::ShareSpread;
use super::{Confidence, EstimateError, Units, mean};

/// A number of rows within this distance of a rank counts as equal to it, since ranks are products of floats.
const RANK_ROUNDING: f64 = 1e-9;

/// The least value such that at least this share of the rows have it or a smaller one, over the rows with a
/// value.
///
/// `values` has one value for each row, NaN for none. The share lies between 0 and 1, without the ends: a
/// sample cannot tell the least and the greatest value.
///
/// # Errors
/// [`EstimateError::Share`], and [`EstimateError::Rows`] if there are fewer values than rows.
pub fn quantile(
    units: &Units,
    values: &[f64],
    share: f64,
    confidence: &Confidence,
) -> Result<Estimate, EstimateError> {
    check_share(share)?;
    checked(units, values.len())?;
    let present = values[..units.rows()].iter().copied().filter(|value| !value.is_nan());
    let mut ranks = Ranks(present.collect());
    let rows = ranks.0.len() as f64;
    let value = ranks.at(share * rows).unwrap_or(f64::NAN);
    let up_to = compared(units, values, |other| other <= value);
    let squares = up_to.residuals(up_to.value());
    let bound = confidence.bound(up_to.units(), units.share());
    let reach = ShareSpread::new(&up_to, squares.sum).bound(&bound, share);
    let facts = Facts {
        value,
        low: ranks.low_end(share * rows - reach),
        high: ranks.after(share * rows + reach).unwrap_or(f64::INFINITY),
        deviation: mean::deviation(units, values),
        method: Method::of(confidence),
        doubts: doubts(units, values, value, &up_to),
        units: up_to.units(),
    };
    Ok(Estimate::new(units, confidence, facts))
}

/// The quantile of all values, none of which is NaN; NaN if there are none.
pub(super) fn of_values(values: Vec<f64>, share: f64) -> Result<f64, EstimateError> {
    check_share(share)?;
    let rows = values.len() as f64;
    Ok(Ranks(values).at(share * rows).unwrap_or(f64::NAN))
}

pub(super) fn check_share(share: f64) -> Result<(), EstimateError> {
    if share > 0.0 && share < 1.0 { Ok(()) } else { Err(EstimateError::Share { share }) }
}

fn doubts(units: &Units, values: &[f64], value: f64, up_to: &Ratio) -> Vec<Doubt> {
    let has_any = |above: f64, _: f64| above > 0.0;
    let from = compared(units, values, |other| other >= value);
    let sides = [up_to.units_with(has_any), from.units_with(has_any)];
    let squares = up_to.residuals(up_to.value());
    let is_alike = sides.iter().all(|side| *side == up_to.units()) && squares.sum <= 0.0;
    // A value that most rows share has no rows beyond it, hence no residuals; that is no reason for doubt.
    let of_squares = Doubt::of_squares(&squares).filter(|doubt| *doubt != Doubt::NoSpread || is_alike);
    Doubt::few_units(up_to.units())
        .into_iter()
        .chain(sides.into_iter().min().and_then(Doubt::few_outcomes))
        .chain(of_squares)
        .collect()
}

/// Among the rows with a value, those whose value satisfies a condition.
fn compared(units: &Units, values: &[f64], holds: impl Fn(f64) -> bool) -> Ratio {
    Ratio::new(units, |rows| {
        let present = values[rows].iter().filter(|value| !value.is_nan());
        present.fold((0.0, 0.0), |sum, value| (sum.0 + f64::from(u8::from(holds(*value))), sum.1 + 1.0))
    })
}

/// Values of which a few are selected by rank: each selection takes one pass, while sorting takes many.
struct Ranks(Vec<f64>);

impl Ranks {
    /// The least value such that `rank` values, or more, are no greater.
    fn at(&mut self, rank: f64) -> Option<f64> {
        self.select((rank - RANK_ROUNDING).ceil().max(1.0) - 1.0)
    }

    /// The least value such that more than `rank` values are no greater.
    fn after(&mut self, rank: f64) -> Option<f64> {
        self.select((rank + RANK_ROUNDING).floor().max(0.0))
    }

    fn low_end(&mut self, rank: f64) -> f64 {
        if rank <= 0.0 { f64::NEG_INFINITY } else { self.at(rank).unwrap_or(f64::NEG_INFINITY) }
    }

    /// The value that has `before` values before it in order; `None` beyond the last.
    fn select(&mut self, before: f64) -> Option<f64> {
        let place = before as usize;
        if place >= self.0.len() {
            return None;
        }
        Some(*self.0.select_nth_unstable_by(place, f64::total_cmp).1)
    }
}

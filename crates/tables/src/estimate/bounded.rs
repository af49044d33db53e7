//! Means of values with known bounds: an interval that holds at any moment, for any number of units.
//!
//! Source: Waudby-Smith and Ramdas, "Confidence sequences for sampling without replacement", NeurIPS 2020,
//! and "Estimating means of bounded random variables by betting", Journal of the Royal Statistical Society B
//! 86, 2024, for the choice of the bets. Unlike the normal mixture, this interval rests on no approximation;
//! the price is its width.
//!
//! Invariant: the bet on a row depends only on the rows before it.

use super::outcome::{Doubt, Estimate, Facts, Method, checked};
use super::{Confidence, EstimateError, Units, mean};

/// The largest bet: beyond it the price of a bet grows out of hand.
const BET_MAX: f64 = 0.5;

/// The mean of a column with bounded values, where every row is a unit and their number is known.
///
/// The values are taken in the order given, which is that of the weights. The interval holds at whatever
/// moment the reading stops.
///
/// # Errors
/// [`EstimateError::Bounds`] if the bounds are not two finite numbers that rise, or a value lies outside or
/// is missing; [`EstimateError::NotRows`] if a unit has several rows, or there are more than `rows`;
/// [`EstimateError::Rows`].
pub fn bounded_mean(
    units: &Units,
    values: &[f64],
    (least, greatest): (f64, f64),
    rows: u64,
    confidence: &Confidence,
) -> Result<Estimate, EstimateError> {
    checked(units, values.len())?;
    if units.rows() != units.len() || units.len() as u64 > rows {
        return Err(EstimateError::NotRows {
            rows: units.rows() as u64,
            units: rows.min(units.len() as u64),
        });
    }
    let values = &values[..units.rows()];
    let is_outside = |value: &&f64| !(least..=greatest).contains(*value);
    let stray = values.iter().find(is_outside).copied();
    if !(least < greatest && (greatest - least).is_finite()) || stray.is_some() {
        return Err(EstimateError::Bounds { least, greatest, value: stray });
    }
    let mut bets = Bets::new(rows as f64, confidence.risk());
    for value in values {
        bets.take((value - least) / (greatest - least));
    }
    let (low, high) = bets.interval();
    let unscaled = |share: f64| least + share.clamp(0.0, 1.0) * (greatest - least);
    let value = values.iter().sum::<f64>() / values.len() as f64;
    let facts = Facts {
        value,
        // The centre of the bets differs from the mean, which may lie just outside of a very narrow interval.
        low: unscaled(low).min(value),
        high: unscaled(high).max(value),
        deviation: mean::deviation(units, values),
        method: Method::EmpiricalBernstein,
        doubts: values.is_empty().then_some(Doubt::FewUnits { units: 0 }).into_iter().collect(),
        units: values.len() as u64,
    };
    Ok(Estimate::new(units, confidence, facts))
}

/// The sums that make up the interval, over values scaled to 0..1.
struct Bets {
    rows: f64,
    /// The logarithm of two over the risk.
    chance: f64,
    taken: f64,
    sum: f64,
    /// The sum of squared differences between each value and the mean up to and including it.
    spread: f64,
    /// The sum of bets times values, each value restated as an observation of the mean of all rows.
    won: f64,
    /// The sum of the bets, restated in the same way.
    staked: f64,
    price: f64,
}

impl Bets {
    fn new(rows: f64, risk: f64) -> Self {
        Self {
            rows,
            chance: (2.0 / risk).ln(),
            taken: 0.0,
            sum: 0.0,
            spread: 0.0,
            won: 0.0,
            staked: 0.0,
            price: 0.0,
        }
    }

    fn take(&mut self, value: f64) {
        // A prior for what is not known yet: one more row with the value one half, and a variance of one
        // quarter.
        let mean = (0.5 + self.sum) / (self.taken + 1.0);
        let variance = (0.25 + self.spread) / (self.taken + 1.0);
        let place = self.taken + 1.0;
        let bet = (2.0 * self.chance / (variance * place * place.ln_1p())).sqrt().min(BET_MAX);
        // The next row is expected to have the mean of the rows that are left.
        let left = self.rows - self.taken;
        self.won += bet * (value + self.sum / left);
        self.staked += bet * (1.0 + self.taken / left);
        self.price += (value - mean).powi(2) * (-(-bet).ln_1p() - bet);
        self.taken += 1.0;
        self.sum += value;
        let mean = (0.5 + self.sum) / (self.taken + 1.0);
        self.spread += (value - mean).powi(2);
    }

    fn interval(&self) -> (f64, f64) {
        if self.staked <= 0.0 {
            return (0.0, 1.0);
        }
        let (centre, reach) = (self.won / self.staked, (self.chance + self.price) / self.staked);
        // At the extremes, all remaining rows are 0, or all are 1.
        let (least, greatest) = (self.sum / self.rows, (self.sum + self.rows - self.taken) / self.rows);
        ((centre - reach).max(least), (centre + reach).min(greatest))
    }
}

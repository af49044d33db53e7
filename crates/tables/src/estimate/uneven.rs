//! Uneven weights: whether a share of the weights says nothing about a number of rows.
//!
//! A total whose number of rows is not known divides what the sample has by the share of the sample. That is
//! right where the weights of all rows lie anywhere. A table made from a sample of another one, under the
//! same salt, has only weights of that sample: of a table of the lightest hundredth, a sample of a hundredth
//! is everything, and stands for a hundred times as many rows as there are.
//!
//! Two things tell such a table: how far apart the weights of all rows lie, and how many rows there are at
//! most. Either bounds the number of units, and the sample has far more of them than its share of that many.
//!
//! Invariant: of tables whose weights lie anywhere, fewer than one in ten million is doubted, whatever its
//! size, and however its rows are stored.
//! Invariant: nothing is read for an estimate that is doubted already, or exact.

use super::known_rows::Sample;
use super::planning::{Plan, together};
use super::{Doubt, EstimateRequest, Estimated, Units};
use crate::{Cut, Query, Readable, TableError, Window, Work};

/// What is never put down to chance: less probable than `e` to the minus this, which is two in a billion.
const IMPROBABLE: f64 = 20.0;

/// The number of bisections that separate any two widths.
const HALVINGS: u32 = 60;

impl Readable {
    /// The estimate from a sample; of a total that rests on the share of the sample, with a doubt if weights
    /// are uneven.
    pub(super) async fn estimated_of(
        &self,
        plan: &Plan,
        request: &EstimateRequest,
        sample: &Sample,
        units: &Units,
    ) -> Result<Estimated, TableError> {
        let found = plan.estimated(request, sample, units)?;
        if !plan.is_open_total || sample.rows.is_some() {
            return Ok(found);
        }
        self.doubting_uneven_weights(&plan.query, units.share(), found).await
    }

    /// A total that rests on the share of the sample, with a doubt if weights are uneven.
    pub(super) async fn doubting_uneven_weights(
        &self,
        query: &Query,
        share: f64,
        found: Estimated,
    ) -> Result<Estimated, TableError> {
        if found.estimate.is_exact() || !found.estimate.is_valid() {
            return Ok(found);
        }
        let query = query.clone().as_of(found.version);
        let (is_uneven, work) = self.has_uneven_weights(&query, found.estimate.units, share).await?;
        let estimate = if is_uneven { found.estimate.doubted(Doubt::UnevenWeights) } else { found.estimate };
        Ok(Estimated { estimate, work: together(found.work, work), ..found })
    }

    /// Whether the weights of a query's rows are uneven, given that a sample of this share has so many units;
    /// and the work it took to tell.
    pub(super) async fn has_uneven_weights(
        &self,
        query: &Query,
        units: u64,
        share: f64,
    ) -> Result<(bool, Work), TableError> {
        let (window, columns) = (Window::below(Cut::ALL), Some(Vec::new()));
        let all = Query { window, units: None, limit: None, columns, ..query.clone() };
        let width_min = width_min(units, share);
        let spread = self.spread(&all, width_min).await?;
        let is_uneven = spread.width() < width_min || is_improbable(units, share, spread.rows as f64);
        Ok((is_uneven, spread.work))
    }
}

/// Whether a sample of this share has more units than chance allows for if there are at most `most` of them
/// (H. Chernoff, "A measure of asymptotic efficiency for tests of a hypothesis based on the sum of
/// observations", Annals of Mathematical Statistics 23, 1952).
fn is_improbable(units: u64, share: f64, most: f64) -> bool {
    let part = units as f64 / most;
    if part <= share || units == 0 {
        return false;
    }
    if part > 1.0 {
        return true;
    }
    let others = if part < 1.0 { (1.0 - part) * ((1.0 - part) / (1.0 - share)).ln() } else { 0.0 };
    most * (part * (part / share).ln() + others) > IMPROBABLE
}

/// The most units whose weights lie so close together by chance. That `n` of them all lie within a width `w`
/// of their own choice has the probability `n w^(n-1)` at most.
fn units_max(width: f64) -> f64 {
    let of_each = -width.ln();
    let about = IMPROBABLE / of_each;
    1.0 + (IMPROBABLE + (1.0 + about).ln_1p()) / of_each
}

/// The least width of all weights with which so many units in a sample of this share are no surprise.
fn width_min(units: u64, share: f64) -> f64 {
    let (mut narrow, mut wide) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = 0.5 * (narrow + wide);
        if is_improbable(units, share, units_max(middle)) {
            narrow = middle;
        } else {
            wide = middle;
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds::for_seeds;

    #[test]
    fn units_that_their_number_or_the_distance_of_their_weights_rules_out_are_improbable() {
        // 3,700 rows that a sample of a hundredth has all of.
        assert!(is_improbable(3_700, 0.01, 3_700.0) && is_improbable(370, 0.001, 3_700.0));
        assert!(!is_improbable(37, 0.01, 3_700.0) && !is_improbable(60, 0.01, 3_700.0));
        assert!(is_improbable(101, 0.5, 100.0) && !is_improbable(100, 1.0, 100.0));
        assert!(!is_improbable(0, 0.0, 0.0));
        // Thirty units suffice to tell a table of a hundredth, and some more one of four fifths.
        assert!(width_min(30, 0.001) > 0.01 && width_min(30, 0.009) > 0.01);
        assert!(width_min(200, 0.4) > 0.8 && width_min(30, 0.4) < 0.8);
    }

    #[test]
    fn weights_that_lie_anywhere_are_not_uneven_in_any_sample() {
        for_seeds("weights_that_lie_anywhere", 300, |random| {
            let count = random.usize(2..2_000);
            let mut weights: Vec<f64> = (0..count).map(|_| random.f64()).collect();
            weights.sort_by(f64::total_cmp);
            let width = weights[count - 1] - weights[0];
            for share in [0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 0.999] {
                let units = weights.partition_point(|weight| *weight < share) as u64;
                assert!(width >= width_min(units, share), "{units} of {count} below {share}, over {width}");
                assert!(!is_improbable(units, share, count as f64), "{units} of {count} below {share}");
            }
        });
    }

    #[test]
    fn weights_of_a_window_are_uneven_however_much_of_it_is_sampled() {
        for_seeds("weights_of_a_window", 300, |random| {
            let count = random.usize(400..2_000);
            let (from, width) = [(0.0, 0.01), (0.0, 0.5), (0.0, 0.8), (0.3, 0.5)][random.usize(..4)];
            let mut weights: Vec<f64> = (0..count).map(|_| from + width * random.f64()).collect();
            weights.sort_by(f64::total_cmp);
            let found = weights[count - 1] - weights[0];
            let share = from + width * (0.3 + 0.4 * random.f64());
            let units = weights.partition_point(|weight| *weight < share) as u64;
            // The total is wrong by a fifth at least, unless the sample happens to have its share.
            let is_far = (units as f64 / share - count as f64).abs() > 0.2 * count as f64;
            assert!(!is_far || found < width_min(units, share), "{units} of {count} below {share}");
        });
    }
}

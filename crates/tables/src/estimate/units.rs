//! Units: which rows of a sample belong together, and which share of all units they are.
//!
//! Rows come in the order of their weights. Rows of equal weight are one unit, since no cut can part them.
//! This is true of the rows of an entity, and equally of two keys with one hash.
//!
//! Invariant: every unit of the window below the cut is present with all of its rows; otherwise the estimates
//! are wrong.

use super::EstimateError;
use crate::{Cut, Weight, Window};
use std::ops::Range;

/// The units of a sample.
#[derive(Clone, Debug)]
pub struct Units {
    /// The end of the rows of each unit.
    ends: Vec<usize>,
    last: Option<Weight>,
    after: Cut,
    until: Cut,
    /// The rows of a unit beyond these that a limit of rows let in.
    cut_off: usize,
}

impl Units {
    /// No units yet, of those above a cut; [`Units::extend`] adds them.
    #[must_use]
    pub fn none_after(after: Cut) -> Self {
        Self { ends: Vec::new(), last: None, after, until: after, cut_off: 0 }
    }

    /// The units of these rows, which must be all rows of the window.
    ///
    /// # Errors
    /// [`EstimateError::Order`] if the weights fall, or lie outside the window.
    pub fn within(weights: &[Weight], window: Window) -> Result<Self, EstimateError> {
        let mut units = Self::none_after(window.after());
        units.extend(weights, window.until())?;
        Ok(units)
    }

    /// The units of a sample of the first units above a cut, which further units follow. All but the last are
    /// used, and the cut is at the weight of the last.
    ///
    /// The end of such a sample is not chosen beforehand, so its last weight is not a chosen cut. But given
    /// that weight, the units before it are a sample of those below it, whatever their values.
    ///
    /// # Errors
    /// [`EstimateError::Order`] if the weights fall, or do not lie above the cut.
    pub fn first(weights: &[Weight], after: Cut) -> Result<Self, EstimateError> {
        let mut units = Self::none_after(after);
        if let Some(last) = weights.last() {
            units.extend(&weights[..weights.partition_point(|weight| weight < last)], Cut::below(*last))?;
        }
        Ok(units)
    }

    /// The units of a sample of the first rows above a cut, which further rows follow: as [`Units::first`],
    /// with the note that the limit of rows chose the last unit.
    ///
    /// The more rows a unit has, the more often it is the one in which the limit is reached. Leaving that one
    /// out leaves out the large ones.
    ///
    /// # Errors
    /// As [`Units::first`].
    pub fn first_rows(weights: &[Weight], after: Cut) -> Result<Self, EstimateError> {
        let mut units = Self::first(weights, after)?;
        units.leave_out(weights.len() - units.rows());
        Ok(units)
    }

    /// Notes that a limit of rows let in so many of the next unit, which do not count.
    pub(super) fn leave_out(&mut self, rows: usize) {
        self.cut_off = rows;
    }

    /// The rows of the next unit that a limit of rows let in.
    pub(super) fn left_out(&self) -> usize {
        self.cut_off
    }

    /// Adds the next rows, which must be all rows up to the cut `until`.
    ///
    /// # Errors
    /// [`EstimateError::Order`] if the weights fall, or do not lie between the cuts; then nothing was added.
    pub fn extend(&mut self, weights: &[Weight], until: Cut) -> Result<(), EstimateError> {
        let is_outside = |weight: &Weight| self.until.takes(*weight) || !until.takes(*weight);
        let falls = weights.iter().zip(weights.iter().skip(1)).position(|(left, right)| left > right);
        let misplaced = falls.map(|row| row + 1).or_else(|| weights.iter().position(is_outside));
        if let Some(row) = misplaced {
            return Err(EstimateError::Order { row: self.rows() + row });
        }
        let first = self.rows();
        for (row, weight) in weights.iter().enumerate() {
            match self.ends.last_mut() {
                Some(end) if self.last == Some(*weight) => *end += 1,
                _ => self.ends.push(first + row + 1),
            }
            self.last = Some(*weight);
        }
        self.until = until;
        Ok(())
    }

    /// Marks everything as read: nothing lies above the last cut.
    pub fn complete(&mut self) {
        self.until = Cut::ALL;
    }

    /// The number of units.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no units.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The unit of a row.
    pub(super) fn of_row(&self, row: usize) -> usize {
        self.ends.partition_point(|end| *end <= row)
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The share of all units that the sample is, on average over salts; 1 if it is everything.
    #[must_use]
    pub fn share(&self) -> f64 {
        if self.is_everything() { 1.0 } else { self.until.share() - self.after.share() }
    }

    /// Whether these are all units that exist.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.after == Cut::NOTHING && self.until == Cut::ALL
    }

    /// The rows of each unit.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| start..*end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(numbers: &[u64]) -> Vec<Weight> {
        numbers.iter().map(|number| Weight::new(*number).unwrap()).collect()
    }

    fn ranges(units: &Units) -> Vec<Range<usize>> {
        units.iter().collect()
    }

    #[test]
    fn rows_of_one_weight_are_one_unit_also_across_batches() {
        let mut units = Units::none_after(Cut::NOTHING);
        units.extend(&weights(&[1, 1, 2]), Cut::through(Weight::new(4).unwrap())).unwrap();
        units.extend(&weights(&[5, 5]), Cut::through(Weight::new(9).unwrap())).unwrap();
        assert_eq!(ranges(&units), [0..2, 2..3, 3..5]);
        assert_eq!((units.len(), units.rows()), (3, 5));
    }

    #[test]
    fn rows_out_of_order_or_outside_the_window_are_refused() {
        let window = Cut::window(0.25, 0.5).unwrap();
        let inside = 5 << 60;
        assert!(Units::within(&weights(&[inside, inside + 1]), window).is_ok());
        for wrong in [&[inside + 1, inside][..], &[1], &[9 << 60]] {
            assert!(matches!(Units::within(&weights(wrong), window), Err(EstimateError::Order { .. })));
        }
        // Rows that were added once are refused the second time.
        let mut units = Units::within(&weights(&[inside]), window).unwrap();
        assert!(units.extend(&weights(&[inside]), Cut::ALL).is_err());
    }

    #[test]
    fn the_first_units_leave_out_the_one_that_sets_the_cut() {
        let first =
            Units::first(&weights(&[1 << 60, 2 << 60, 2 << 60, 1 << 62, 1 << 62]), Cut::NOTHING).unwrap();
        assert_eq!(ranges(&first), [0..1, 1..3]);
        assert!((first.share() - 0.25).abs() < 1e-15);
        assert!(!first.is_everything());
    }

    #[test]
    fn a_window_is_as_large_as_it_says() {
        let units = Units::within(&[], Cut::window(0.25, 0.375).unwrap()).unwrap();
        assert_eq!(units.share(), 0.125);
        let mut units = Units::none_after(Cut::NOTHING);
        units.extend(&[], Cut::of_share(0.5).unwrap()).unwrap();
        units.complete();
        assert!(units.is_everything() && units.share() == 1.0);
    }
}

//! Reading until an estimate is narrow enough: decides after each batch whether to stop or to read on.
//!
//! The first look plans how much to read, and there is no second look before that much was read: with few
//! looks, the moment of stopping says little about the values. A narrow interval with doubts is returned with
//! its doubts. Reading on until they are gone would stop at just those samples that have not met what the
//! doubts are about. [`Stopping::Anytime`](super::Stopping::Anytime) makes looking entirely harmless.
//!
//! Invariant: it asks for no more rows than the limit allows, and stops when everything was read.

use super::outcome::{Doubt, Estimate, UNITS_MIN};
use super::{Confidence, EstimateError, KnownPart, Quantity, Units};
use crate::{Cut, Weight};

/// How much more than planned is read, so that the uncertainty of the plan seldom costs another round.
const MARGIN: f64 = 1.1;

/// The most growth of the sample between two looks. A plan from few units may be far off, and a look costs
/// nothing.
const GROWTH_MAX: f64 = 8.0;

/// The growth where the sample is too small to plan with.
const GROWTH_BLIND: f64 = 2.0;

/// The largest share of everything that a relative tolerance may need at best if the interval contains 0;
/// beyond it the tolerance is refused.
const SHARE_FOR_ZERO_MAX: f64 = 0.5;

/// How narrow an estimate is to be: a bound on half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// This part of the value: 0.01 for 1 %.
    Relative(f64),
    /// In the unit of the value.
    Absolute(f64),
    /// This part of one standard deviation of the rows.
    OfDeviation(f64),
}

impl Tolerance {
    /// The tolerance for an estimate, in the unit of its value.
    fn of(self, estimate: &Estimate) -> f64 {
        match self {
            Self::Relative(part) => part * estimate.value.abs(),
            Self::Absolute(width) => width,
            Self::OfDeviation(part) => part * estimate.deviation,
        }
    }

    fn checked(self) -> Result<Self, EstimateError> {
        let (Self::Relative(number) | Self::Absolute(number) | Self::OfDeviation(number)) = self;
        if number > 0.0 && number.is_finite() {
            Ok(self)
        } else {
            Err(EstimateError::Tolerance { tolerance: number })
        }
    }
}

/// What to do after a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read this many more rows.
    GoOn {
        /// At least one.
        rows: u64,
    },
    /// Stop with this answer. It has [`Doubt::TooWide`] if the limit of rows was reached first.
    Stop(Estimate),
}

/// A sample that grows until its estimate is narrow enough.
#[derive(Clone, Debug)]
pub struct Reading {
    quantity: Quantity,
    confidence: Confidence,
    tolerance: Tolerance,
    rows_max: u64,
    units: Units,
    values: Vec<f64>,
    /// The exact number of rows of a part, and whether each row belongs to it; nothing if none is known.
    counted_rows: u64,
    is_counted: Vec<bool>,
    /// The number of rows before which a look is pointless.
    next_look: u64,
}

impl Reading {
    /// A reading of what lies above a cut, with nothing read yet.
    ///
    /// # Errors
    /// [`EstimateError::Tolerance`] if the tolerance is not a positive number.
    pub fn new(
        quantity: Quantity,
        confidence: Confidence,
        tolerance: Tolerance,
        rows_max: Option<u64>,
        after: Cut,
    ) -> Result<Self, EstimateError> {
        Ok(Self {
            quantity,
            confidence: confidence.until_narrow(),
            tolerance: tolerance.checked()?,
            rows_max: rows_max.unwrap_or(u64::MAX),
            units: Units::none_after(after),
            values: Vec::new(),
            counted_rows: 0,
            is_counted: Vec::new(),
            next_look: 0,
        })
    }

    /// Takes the next rows, which must be all rows up to a cut, and decides whether to go on.
    ///
    /// # Errors
    /// [`EstimateError::Order`], [`EstimateError::Rows`], the errors of the quantity, and
    /// [`EstimateError::HoldsZero`] if the tolerance is relative to a value that cannot be told from 0.
    pub fn push(
        &mut self,
        weights: &[Weight],
        values: &[f64],
        until: Cut,
        is_last: bool,
    ) -> Result<Step, EstimateError> {
        self.push_beside(None, weights, values, until, is_last)
    }

    /// As [`Reading::push`], with a part of all rows whose number is known, which must be the same in every
    /// call.
    ///
    /// # Errors
    /// As [`Reading::push`], and [`EstimateError::Rows`] unless there is a membership for each row.
    pub fn push_beside(
        &mut self,
        known: Option<KnownPart<'_>>,
        weights: &[Weight],
        values: &[f64],
        until: Cut,
        is_last: bool,
    ) -> Result<Step, EstimateError> {
        let counts = [Some(values.len()), known.map(|known| known.of_rows.len())];
        if let Some(count) = counts.into_iter().flatten().find(|count| *count != weights.len()) {
            return Err(EstimateError::Rows { values: count, rows: weights.len() });
        }
        self.units.extend(weights, until)?;
        self.values.extend_from_slice(values);
        if let Some(known) = known {
            self.counted_rows = known.rows;
            self.is_counted.extend_from_slice(known.of_rows);
        }
        if is_last {
            self.units.complete();
        }
        let rows = self.units.rows() as u64;
        if is_last || rows >= self.rows_max {
            return self.end().map(Step::Stop);
        }
        if rows < self.next_look {
            return Ok(Step::GoOn { rows: self.next_look - rows });
        }
        let (estimate, is_met) = self.look()?;
        if is_met && estimate.units >= UNITS_MIN {
            return Ok(Step::Stop(estimate));
        }
        let wanted = (rows.max(1) as f64 * self.growth(&estimate, false)?).ceil() as u64;
        self.next_look = wanted.clamp(rows + 1, self.rows_max);
        Ok(Step::GoOn { rows: self.next_look - rows })
    }

    /// The answer from what was pushed, when no more rows will come.
    ///
    /// # Errors
    /// As [`Reading::push`].
    pub fn end(&self) -> Result<Estimate, EstimateError> {
        let (estimate, is_met) = self.look()?;
        if is_met {
            return Ok(estimate);
        }
        self.growth(&estimate, true)?;
        Ok(estimate.doubted(Doubt::TooWide))
    }

    /// Notes that a limit of rows let in so many of the next unit, which were not pushed.
    pub(super) fn leave_out(&mut self, rows: usize) {
        self.units.leave_out(rows);
    }

    /// The share of all units that was read.
    pub(super) fn share(&self) -> f64 {
        self.units.share()
    }

    /// The present estimate, and whether it is narrow enough.
    fn look(&self) -> Result<(Estimate, bool), EstimateError> {
        let (units, values, confidence) = (&self.units, &self.values, &self.confidence);
        let known = KnownPart { rows: self.counted_rows, of_rows: &self.is_counted };
        let estimate = self.quantity.estimate_beside(known, units, values, confidence)?;
        let is_met = estimate.is_exact() || estimate.half_width() <= self.tolerance.of(&estimate);
        Ok((estimate, is_met))
    }

    /// The factor by which the sample must grow before the next look.
    fn growth(&self, estimate: &Estimate, is_end: bool) -> Result<f64, EstimateError> {
        if estimate.units < UNITS_MIN {
            return Ok(GROWTH_BLIND);
        }
        if !estimate.half_width().is_finite() {
            return Ok(GROWTH_MAX);
        }
        let of_tolerance = |tolerance: f64| self.growth_to(estimate, tolerance);
        if let Tolerance::Relative(part) = self.tolerance
            && estimate.holds(0.0)
        {
            // At best the truth lies at the farther end of the interval.
            let best = of_tolerance(part * estimate.low.abs().max(estimate.high.abs()));
            let is_hopeless = best * self.units.share() > SHARE_FOR_ZERO_MAX
                || best * self.units.rows() as f64 > self.rows_max as f64;
            if is_end || is_hopeless {
                let (low, high, rows) = (estimate.low, estimate.high, estimate.rows);
                return Err(EstimateError::HoldsZero { low, high, rows });
            }
            return Ok(best.clamp(GROWTH_BLIND, GROWTH_MAX));
        }
        Ok(of_tolerance(self.tolerance.of(estimate)).min(GROWTH_MAX))
    }

    /// The factor by which the sample must grow for the interval to become as narrow as `tolerance`. The
    /// width falls with the root of what was read, and reaches zero when everything was read.
    fn growth_to(&self, estimate: &Estimate, tolerance: f64) -> f64 {
        let share = self.units.share();
        let odds = share / (1.0 - share) * (estimate.half_width() / tolerance).powi(2) * MARGIN;
        let wanted = if odds.is_finite() { odds / (1.0 + odds) } else { 1.0 };
        wanted / share
    }
}

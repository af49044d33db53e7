//! Estimates: a number, an interval, and what speaks against trusting it.
//!
//! Invariant: `low <= value <= high` wherever they are numbers, and an exact estimate has all three equal.
//! Invariant: whatever a sample cannot tell is in the doubts; no number comes without them.

use super::ratio::Squares;
use super::{Confidence, EstimateError, Units};
use serde::Serialize;

/// Fewest units of an estimate that is to be trusted.
pub const UNITS_MIN: u64 = 30;

/// Fewest units on either side of a share or a quantile.
pub const OUTCOME_UNITS_MIN: u64 = 10;

/// Most of the variance that the five largest units may carry.
pub const LARGEST_SHARE_MAX: f64 = 0.5;

/// How an interval was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// Everything was read.
    Exact,
    /// Student's t, for a sample whose size was fixed beforehand.
    StudentT,
    /// The normal mixture, a confidence sequence: holds at whatever moment one stops.
    NormalMixture,
    /// The empirical Bernstein confidence sequence for sampling without replacement, of values whose bounds
    /// are known: holds at whatever moment one stops, for any number of units.
    EmpiricalBernstein,
}

impl Method {
    pub(super) fn of(confidence: &Confidence) -> Self {
        if confidence.is_anytime() { Self::NormalMixture } else { Self::StudentT }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::StudentT => "Student's t",
            Self::NormalMixture => "normal mixture, anytime",
            Self::EmpiricalBernstein => "empirical Bernstein, anytime",
        }
    }
}

/// Why an interval may hold the truth less often than it says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Doubt {
    /// Fewer than [`UNITS_MIN`] units.
    FewUnits {
        /// How many there are.
        units: u64,
    },
    /// Fewer than [`OUTCOME_UNITS_MIN`] units with, or without, what is counted.
    FewOutcomes {
        /// How many there are.
        units: u64,
    },
    /// The five largest units carry over half of the variance: what the sample did not meet may be larger
    /// still.
    FewCarryMost {
        /// What they carry.
        share: f64,
    },
    /// All units are alike, so nothing is known about the spread.
    NoSpread,
    /// A value is infinite.
    Infinite,
    /// The reading ended before the interval was as narrow as it was to be.
    TooWide,
}

impl Doubt {
    pub(super) fn few_units(units: u64) -> Option<Self> {
        (units < UNITS_MIN).then_some(Self::FewUnits { units })
    }

    pub(super) fn few_outcomes(units: u64) -> Option<Self> {
        (units < OUTCOME_UNITS_MIN).then_some(Self::FewOutcomes { units })
    }

    pub(super) fn of_squares(squares: &Squares) -> Option<Self> {
        if !squares.sum.is_finite() {
            Some(Self::Infinite)
        } else if squares.sum <= 0.0 {
            Some(Self::NoSpread)
        } else {
            let share = squares.of_largest;
            (share > LARGEST_SHARE_MAX).then_some(Self::FewCarryMost { share })
        }
    }
}

impl std::fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FewUnits { units } => write!(formatter, "only {units} units, {UNITS_MIN} are needed"),
            Self::FewOutcomes { units } => {
                write!(formatter, "only {units} units of one outcome, {OUTCOME_UNITS_MIN} are needed")
            }
            Self::FewCarryMost { share } => {
                write!(formatter, "the five largest units carry {:.0} % of the variance", share * 100.0)
            }
            Self::NoSpread => formatter.write_str("all units are alike, which says nothing about the others"),
            Self::Infinite => formatter.write_str("a value is infinite"),
            Self::TooWide => formatter.write_str("reading ended before the tolerance was met"),
        }
    }
}

/// What a sample says about a number.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// The number; NaN where the sample has no value at all.
    pub value: f64,
    /// Where the interval begins; minus infinity if the sample does not bound it.
    pub low: f64,
    /// Where it ends; infinity if the sample does not bound it.
    pub high: f64,
    /// How probable it is that the interval holds the truth, over salts.
    pub confidence: f64,
    /// How the interval was found.
    pub method: Method,
    /// Units that had a say.
    pub units: u64,
    /// Rows of the sample, with or without a value; of the mean of a group, those of the group.
    pub rows: u64,
    /// How many of them have no value: it is null or NaN. They have no say in a mean or a quantile, add
    /// nothing to a sum, and are in no bin. Always 0 where rows are counted, or looked at for a condition.
    pub missing: u64,
    /// One standard deviation of the rows, on the scale of the value: what `of_sd` tolerances refer to.
    pub deviation: f64,
    /// What speaks against trusting the interval; empty if nothing does.
    pub doubts: Vec<Doubt>,
}

/// What an estimator found, before it is judged whether that was everything.
pub(super) struct Facts {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    pub deviation: f64,
    pub method: Method,
    pub doubts: Vec<Doubt>,
    pub units: u64,
}

impl Estimate {
    pub(super) fn new(units: &Units, confidence: &Confidence, facts: Facts) -> Self {
        let exact = units.is_everything();
        let Facts { value, low, high, deviation, method, doubts, units: seen } = facts;
        // Without a value nothing bounds the truth, and a bound of NaN would say less than that.
        let open = |bound: f64, end: f64| if bound.is_nan() { end } else { bound };
        Self {
            value,
            low: if exact { value } else { open(low, f64::NEG_INFINITY) },
            high: if exact { value } else { open(high, f64::INFINITY) },
            confidence: if exact { 1.0 } else { confidence.level() },
            method: if exact { Method::Exact } else { method },
            units: seen,
            rows: units.rows() as u64,
            missing: 0,
            deviation,
            doubts: if exact { Vec::new() } else { doubts },
        }
    }

    /// A number that is known without reading any row.
    pub(super) fn known(value: f64) -> Self {
        Self::of_everything(value, 0.0, 0, 0)
    }

    /// A number of so many rows, which are all that there are.
    pub(super) fn of_everything(value: f64, deviation: f64, units: u64, rows: u64) -> Self {
        let (confidence, method, doubts) = (1.0, Method::Exact, Vec::new());
        Self {
            value,
            low: value,
            high: value,
            confidence,
            method,
            units,
            rows,
            missing: 0,
            deviation,
            doubts,
        }
    }

    /// Whether everything was read, so that the value is the truth.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.method == Method::Exact
    }

    /// Whether nothing speaks against trusting the interval.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.doubts.is_empty()
    }

    /// How far the interval reaches from the value, on its longer side.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        if self.is_exact() { 0.0 } else { (self.high - self.value).max(self.value - self.low) }
    }

    /// Whether the interval holds a number.
    #[must_use]
    pub fn holds(&self, number: f64) -> bool {
        self.low <= number && number <= self.high
    }

    /// The estimate of a multiple: a count from a share, say. The factor is positive and known exactly.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        // No times an interval without an end is still none.
        let times = |number: f64| if factor == 0.0 { 0.0 } else { number * factor };
        Self {
            value: times(self.value),
            low: times(self.low),
            high: times(self.high),
            deviation: times(self.deviation),
            ..self
        }
    }

    /// The same, of a sample in which so many rows have no value.
    #[must_use]
    pub(super) fn without(self, missing: u64) -> Self {
        Self { missing, ..self }
    }

    /// The same with one doubt more.
    #[must_use]
    pub(super) fn doubted(mut self, doubt: Doubt) -> Self {
        self.doubts.push(doubt);
        self
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let missing =
            if self.missing > 0 { format!(", {} without a value", self.missing) } else { String::new() };
        if self.is_exact() {
            return write!(formatter, "{} (exact, {} rows{missing})", self.value, self.rows);
        }
        let Self { value, low, high, units, .. } = self;
        let per_cent = self.confidence * 100.0;
        write!(formatter, "{value}, {per_cent} % interval {low} to {high} ({units} units{missing}")?;
        for (place, doubt) in self.doubts.iter().enumerate() {
            write!(formatter, "{}{doubt}", if place == 0 { "; not valid: " } else { ", " })?;
        }
        formatter.write_str(")")
    }
}

/// Refuses fewer values than rows.
pub(super) fn checked(units: &Units, values: usize) -> Result<(), EstimateError> {
    if values < units.rows() {
        return Err(EstimateError::Rows { values, rows: units.rows() });
    }
    Ok(())
}

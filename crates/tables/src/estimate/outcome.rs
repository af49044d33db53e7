//! Estimates: a number, an interval, and the doubts about it.
//!
//! Invariant: `low <= value <= high` wherever they are numbers; in an exact estimate all three are equal.
//! Invariant: whatever a sample cannot tell is among the doubts; no number comes without them.

use super::ratio::Squares;
use super::{Confidence, EstimateError, Units};
use serde::Serialize;

/// The fewest units of an estimate that is to be trusted.
pub const UNITS_MIN: u64 = 30;

/// The fewest units on either side of a share or a quantile.
pub const OUTCOME_UNITS_MIN: u64 = 10;

/// The largest part of the variance that the five largest units may carry.
pub const LARGEST_SHARE_MAX: f64 = 0.5;

/// The largest unit that a limit of rows may leave out, as a part of the rows of the sample.
pub const UNIT_CUT_OFF_MAX: f64 = 0.1;

/// How an interval was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// Everything was read.
    Exact,
    /// Student's t, for a sample whose size was fixed beforehand.
    StudentT,
    /// The normal mixture, a confidence sequence: holds at whatever moment the reading stops.
    NormalMixture,
    /// The empirical Bernstein confidence sequence for sampling without replacement, of values with known
    /// bounds: holds at whatever moment the reading stops, for any number of units.
    EmpiricalBernstein,
}

impl Method {
    pub(super) fn of(confidence: &Confidence) -> Self {
        if confidence.is_anytime() { Self::NormalMixture } else { Self::StudentT }
    }

    /// The name of the method.
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

/// A reason why an interval may contain the truth less often than it claims.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Doubt {
    /// Fewer than [`UNITS_MIN`] units.
    FewUnits {
        /// The number of units.
        units: u64,
    },
    /// Fewer than [`OUTCOME_UNITS_MIN`] units with, or without, what is counted.
    FewOutcomes {
        /// The number of such units.
        units: u64,
    },
    /// The five largest units carry over half of the variance: a unit that the sample did not meet may be
    /// larger still.
    FewCarryMost {
        /// The part of the variance that they carry.
        share: f64,
    },
    /// A limit of rows was reached in a unit with over a [tenth](UNIT_CUT_OFF_MAX) of the rows before it. The
    /// limit is reached in large units more often than in small ones, and the unit is left out.
    UnitCutOff {
        /// Its rows up to the limit.
        rows: u64,
    },
    /// All units are alike, so nothing is known about the spread.
    NoSpread,
    /// A value is infinite.
    Infinite,
    /// The weights of the rows do not lie anywhere, as those of a table made from a sample of another one do
    /// not, so the share of the sample does not tell how many rows there are.
    UnevenWeights,
    /// The reading ended before the interval was as narrow as requested.
    TooWide,
}

impl Doubt {
    pub(super) fn few_units(units: u64) -> Option<Self> {
        (units < UNITS_MIN).then_some(Self::FewUnits { units })
    }

    pub(super) fn few_outcomes(units: u64) -> Option<Self> {
        (units < OUTCOME_UNITS_MIN).then_some(Self::FewOutcomes { units })
    }

    fn of_left_out(units: &Units) -> Option<Self> {
        let (rows, before) = (units.left_out(), units.rows());
        // Where units are rows, they are all as large.
        let is_large = rows > 1 && rows as f64 > UNIT_CUT_OFF_MAX * before as f64;
        is_large.then_some(Self::UnitCutOff { rows: rows as u64 })
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
            Self::UnitCutOff { rows } => {
                write!(formatter, "the limit of rows cut off a unit after {rows} rows, as it does large ones")
            }
            Self::NoSpread => formatter.write_str("all units are alike, which says nothing about the others"),
            Self::Infinite => formatter.write_str("a value is infinite"),
            Self::UnevenWeights => formatter.write_str(
                "the rows are no sample of their number: their weights lie in a part of the range, as in a \
                 table made from a sample under the same salt",
            ),
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
    /// The low end of the interval; minus infinity if the sample does not bound it.
    pub low: f64,
    /// The high end of the interval; infinity if the sample does not bound it.
    pub high: f64,
    /// The probability, over salts, that the interval contains the truth.
    pub confidence: f64,
    /// How the interval was found.
    pub method: Method,
    /// The number of units that contributed.
    pub units: u64,
    /// Rows of the sample, with or without a value; for the mean of a group, rows of the group.
    pub rows: u64,
    /// How many of these rows have no value, that is, null or NaN. They do not contribute to a mean or a
    /// quantile, add nothing to a sum, and are in no bin. Always 0 where rows are counted, or tested for a
    /// condition.
    pub missing: u64,
    /// One standard deviation of the rows, in the unit of the value; `of_sd` tolerances refer to it.
    pub deviation: f64,
    /// The reasons not to trust the interval; empty if there are none.
    pub doubts: Vec<Doubt>,
}

/// What an estimator found, before it is known whether the sample was everything.
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
        let Facts { value, low, high, deviation, method, mut doubts, units: seen } = facts;
        doubts.extend(Doubt::of_left_out(units));
        // Without a value nothing bounds the truth: the interval is then open, as an end of NaN would say
        // less.
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

    /// An estimate known without reading any row.
    pub(super) fn known(value: f64) -> Self {
        Self::of_everything(value, 0.0, 0, 0)
    }

    /// An estimate from all rows that there are.
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

    /// Whether everything was read, so that the value is exact.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.method == Method::Exact
    }

    /// Whether the estimate has no doubts.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.doubts.is_empty()
    }

    /// The distance from the value to the farther end of the interval.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        if self.is_exact() { 0.0 } else { (self.high - self.value).max(self.value - self.low) }
    }

    /// Whether the interval contains a number.
    #[must_use]
    pub fn holds(&self, number: f64) -> bool {
        self.low <= number && number <= self.high
    }

    /// The estimate of a multiple, such as a count from a share. The factor is positive and known exactly.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        // Zero times an open end is zero.
        let times = |number: f64| if factor == 0.0 { 0.0 } else { number * factor };
        Self {
            value: times(self.value),
            low: times(self.low),
            high: times(self.high),
            deviation: times(self.deviation),
            ..self
        }
    }

    /// The estimate of a number that is more by `number`, which is known exactly.
    #[must_use]
    pub(super) fn plus(self, number: f64) -> Self {
        Self { value: self.value + number, low: self.low + number, high: self.high + number, ..self }
    }

    /// The same estimate, from a sample in which `missing` rows have no value.
    #[must_use]
    pub(super) fn without(self, missing: u64) -> Self {
        Self { missing, ..self }
    }

    /// The same estimate with one more doubt.
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

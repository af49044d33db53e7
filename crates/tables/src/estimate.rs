//! Estimates: numbers from samples, with intervals that contain the truth as often as they claim.
//!
//! [`Units`] records which rows of a sample belong together and how large a share of everything they are. The
//! functions here turn values of those rows into an [`Estimate`], and a [`Reading`] reads on until an
//! estimate is narrow enough. None of them reads a table; [`Table::estimate`](crate::Table::estimate) does,
//! and calls them. docs/internals/tables-estimates.md has the formulas, their sources, and how often they
//! were right.
//!
//! Invariant: the unit of every variance is the unit of sampling, never the row.
//! Invariant: whatever a sample cannot tell is stated in [`Estimate::doubts`].

mod bounded;
mod calibrated;
mod confidence;
mod distributions;
mod estimate_all;
mod everything;
mod groups;
mod known_rows;
mod mean;
mod narrowing;
mod outcome;
mod planning;
mod quantile;
mod ratio;
mod reading;
mod refining;
mod request;
mod share;
mod table_groups;
#[cfg(test)]
mod tests;
mod uneven;
mod units;
mod values;

pub use bounded::bounded_mean;
pub use calibrated::{KnownPart, calibrated_sum};
pub use confidence::{Confidence, Stopping};
pub use distributions::{normal_quantile, student_quantile};
pub use groups::{group_means, histogram};
pub use mean::{mean, sum};
pub use outcome::{
    Doubt, Estimate, LARGEST_SHARE_MAX, Method, OUTCOME_UNITS_MIN, UNIT_CUT_OFF_MAX, UNITS_MIN,
};
pub use quantile::quantile;
pub use reading::{Reading, Step, Tolerance};
pub use refining::RefinedEstimates;
pub use request::{EstimateRequest, Estimated, Subject, Within};
pub use share::{calibrated_count, count, share};
pub use table_groups::{GroupMeans, Histogram};
pub use units::Units;

use atoll_errors::ErrorKind;

/// The quantity that is estimated from one value for each row. For shares and counts, the value is 1 for a
/// row that satisfies the condition, and anything else for a row that does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// The mean of the rows with a value.
    Mean,
    /// The sum, given the exact number of rows if it is known.
    Sum {
        /// The number of all rows, of which the sample is a part.
        rows: Option<u64>,
    },
    /// The number of rows that satisfy the condition, given the exact number of rows if it is known.
    Count {
        /// The number of all rows, of which the sample is a part.
        rows: Option<u64>,
    },
    /// The share of rows that satisfy the condition.
    Share,
    /// The value below which this share of rows lies.
    Quantile {
        /// Between 0 and 1.
        share: f64,
    },
}

impl Quantity {
    /// The estimate from one value for each row; NaN stands for no value.
    ///
    /// # Errors
    /// [`EstimateError::Rows`] for fewer values than rows, [`EstimateError::Share`].
    pub fn estimate(
        self,
        units: &Units,
        values: &[f64],
        confidence: &Confidence,
    ) -> Result<Estimate, EstimateError> {
        let holds = || -> Vec<bool> { values.iter().map(|value| *value == 1.0).collect() };
        match self {
            Self::Mean => mean(units, values, confidence),
            Self::Sum { rows } => sum(units, values, rows, confidence),
            Self::Count { rows } => count(units, &holds(), rows, confidence),
            Self::Share => share(units, &holds(), confidence),
            Self::Quantile { share } => quantile(units, values, share, confidence),
        }
    }

    /// As [`Quantity::estimate`], for rows of which a part is counted: of use for a total whose number of
    /// rows is not known, and ignored elsewhere. A condition holds for all rows of that part.
    ///
    /// # Errors
    /// As [`Quantity::estimate`], and [`EstimateError::Rows`] for fewer memberships than rows.
    pub fn estimate_beside(
        self,
        known: KnownPart<'_>,
        units: &Units,
        values: &[f64],
        confidence: &Confidence,
    ) -> Result<Estimate, EstimateError> {
        match self {
            // Nothing is known.
            _ if known.rows == 0 => self.estimate(units, values, confidence),
            Self::Sum { rows: None } => calibrated_sum(units, values, known, confidence),
            Self::Count { rows: None } => {
                let holds: Vec<bool> = values.iter().map(|value| *value == 1.0).collect();
                calibrated_count(units, &holds, known, confidence)
            }
            other => other.estimate(units, values, confidence),
        }
    }
}

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EstimateError {
    /// The rows are not in the order of their weights, or outside of the sample.
    #[error("row {row} of the sample is out of order, or outside of its window")]
    Order {
        /// The row, counted from 0.
        row: usize,
    },
    /// There are fewer values than rows.
    #[error("there are {values} values for {rows} rows")]
    Rows {
        /// The number of values given.
        values: usize,
        /// The number of rows of the sample.
        rows: usize,
    },
    /// The confidence is not a probability between 0 and 1.
    #[error("a confidence must lie between 0 and 1, such as 0.95, not {level}")]
    Confidence {
        /// The confidence given.
        level: f64,
    },
    /// The share of a quantile does not lie between 0 and 1.
    #[error("a quantile's share must lie between 0 and 1, such as 0.5, not {share}")]
    Share {
        /// The share given.
        share: f64,
    },
    /// The tolerance is not a positive number.
    #[error("a tolerance must be a positive number, not {tolerance}")]
    Tolerance {
        /// The tolerance given.
        tolerance: f64,
    },
    /// The edges of a histogram do not rise.
    #[error("a histogram needs two edges or more, each above the one before; edge {place} is not")]
    Edges {
        /// The edge, counted from 0.
        place: usize,
    },
    /// The known groups do not have the column's type.
    #[error("the groups of column \"{column}\" were given as {found}")]
    Groups {
        /// The column.
        column: String,
        /// The type given.
        found: String,
    },
    /// The column has a type whose values cannot be told apart as groups.
    #[error("rows cannot be grouped by column \"{column}\", which has type {data_type}")]
    NotGroups {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The bounds of the values do not hold.
    #[error("the values do not lie between {least} and {greatest}{}", stray(.value))]
    Bounds {
        /// The lower bound.
        least: f64,
        /// The upper bound.
        greatest: f64,
        /// A value outside, if there is one.
        value: Option<f64>,
    },
    /// The estimator needs each row to be a unit by itself.
    #[error("bounds of values help only where each row is sampled by itself: {rows} rows are {units} units")]
    NotRows {
        /// The number of rows of the sample.
        rows: u64,
        /// The number of its units.
        units: u64,
    },
    /// Bounds were given where no estimator uses them.
    #[error("bounds of values cannot be used {place}")]
    BoundsUnused {
        /// Where they were given.
        place: &'static str,
        /// What the caller can do instead.
        hint: &'static str,
    },
    /// The tolerance is relative to a value that may be zero.
    #[error(
        "no tolerance can be relative to a value that may be 0: after {rows} rows it lies between {low} and \
         {high}; give the tolerance as `absolute`, or as `of_sd`, a part of one standard deviation"
    )]
    HoldsZero {
        /// The low end of the interval.
        low: f64,
        /// The high end of the interval.
        high: f64,
        /// Rows read.
        rows: u64,
    },
}

fn stray(value: &Option<f64>) -> String {
    value.map(|value| format!(": one is {value}")).unwrap_or_default()
}

impl EstimateError {
    /// The error kind that all doors share.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Order { .. } | Self::Rows { .. } => ErrorKind::Internal,
            Self::NotRows { .. } | Self::BoundsUnused { .. } | Self::NotGroups { .. } => {
                ErrorKind::Unsupported
            }
            Self::Confidence { .. }
            | Self::Share { .. }
            | Self::Tolerance { .. }
            | Self::Edges { .. }
            | Self::Groups { .. }
            | Self::Bounds { .. }
            | Self::HoldsZero { .. } => ErrorKind::InvalidInput,
        }
    }

    /// What the caller can do about the error, where the text does not say it.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::BoundsUnused { hint, .. } => Some(*hint),
            Self::NotGroups { .. } => Some("group by a column of numbers, texts, times or truth values"),
            _ => None,
        }
    }
}

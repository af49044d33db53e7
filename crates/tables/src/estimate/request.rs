//! What to estimate of the rows of a query, and how well.

use super::{Confidence, Estimate, EstimateError, Quantity, Tolerance};
use crate::Work;
use crate::expression::{Column, Expression};
use crate::protocol::Version;

/// What is to be estimated.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The mean of a column, of the rows that have a value.
    Mean(Column),
    /// The sum of a column.
    Sum(Column),
    /// How many rows there are.
    Count,
    /// The share of the rows that satisfy a condition too.
    Share(Expression),
    /// The value of a column below which this share of the rows lies.
    Quantile(Column, f64),
}

impl Subject {
    /// What is estimated of the values of rows, of which there are so many in all, where that is known.
    pub(super) fn quantity(&self, rows: Option<u64>) -> Quantity {
        match self {
            Self::Mean(_) => Quantity::Mean,
            Self::Sum(_) => Quantity::Sum { rows },
            Self::Count => Quantity::Count { rows },
            Self::Share(_) => Quantity::Share,
            Self::Quantile(_, share) => Quantity::Quantile { share: *share },
        }
    }
}

/// How narrow the estimate shall be, and what that may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    /// Half of the interval, at most.
    pub tolerance: Tolerance,
    /// Most rows to read for it. The answer then says that it is too wide.
    pub rows_max: Option<u64>,
}

/// A question for an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimateRequest {
    /// What of.
    pub subject: Subject,
    /// How sure.
    pub confidence: Confidence,
    /// Reads on until the estimate is so narrow; else the sample is the query's, its window, units or limit.
    pub within: Option<Within>,
    /// How many rows the query has, where the caller knows it exactly, such as from [`crate::Table::count`]:
    /// makes sums surer. Without a filter, or with one that no index column is in, it is found without being
    /// told.
    pub rows: Option<u64>,
    /// Between what all values of the column lie, for means of rows whose number is known, from the query's
    /// own sample: an interval without any approximation. Refused with whatever else they would be of no use
    /// for.
    pub bounds: Option<(f64, f64)>,
}

impl EstimateRequest {
    /// The estimate from the query's own sample, at 95 %.
    #[must_use]
    pub fn new(subject: Subject) -> Self {
        Self { subject, confidence: Confidence::default(), within: None, rows: None, bounds: None }
    }

    /// The same, as sure as this.
    #[must_use]
    pub fn confidence(self, confidence: Confidence) -> Self {
        Self { confidence, ..self }
    }

    /// The same, from as many rows as that takes.
    #[must_use]
    pub fn within(self, tolerance: Tolerance, rows_max: Option<u64>) -> Self {
        Self { within: Some(Within { tolerance, rows_max }), ..self }
    }

    /// The same, of so many rows.
    #[must_use]
    pub fn of_rows(self, rows: u64) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// The same, of values between bounds.
    #[must_use]
    pub fn bounded(self, least: f64, greatest: f64) -> Self {
        Self { bounds: Some((least, greatest)), ..self }
    }

    /// Refuses bounds that would not be looked at, and seem to have made an interval that they have no part
    /// in.
    pub(super) fn check_bounds(&self) -> Result<(), EstimateError> {
        let (place, hint) = match (self.bounds, self.within, &self.subject) {
            (Some(_), Some(_), _) => (
                "to an estimate that is read on for until it is narrow enough",
                "leave out the bounds, or take the estimate from a sample",
            ),
            (Some(_), None, Subject::Mean(_)) | (None, ..) => return Ok(()),
            (Some(_), None, _) => ("to anything but a mean", "leave out the bounds"),
        };
        Err(EstimateError::BoundsUnused { place, hint })
    }
}

/// The answer to a question for an estimate.
#[derive(Clone, Debug)]
pub struct Estimated {
    /// What was found.
    pub estimate: Estimate,
    /// The version that was read.
    pub version: Version,
    /// Rows of the sample that were read for it.
    pub rows_read: u64,
    /// What that took.
    pub work: Work,
}

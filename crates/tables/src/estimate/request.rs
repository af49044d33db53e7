//! What to estimate from the rows of a query, and how well.

use super::{Confidence, Estimate, EstimateError, Quantity, Tolerance};
use crate::Work;
use crate::expression::{Column, Expression};
use crate::protocol::Version;

/// The quantity to estimate.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The mean of a column, over the rows that have a value.
    Mean(Column),
    /// The sum of a column.
    Sum(Column),
    /// The number of rows.
    Count,
    /// The share of the rows that also satisfy a condition.
    Share(Expression),
    /// The value of a column below which this share of the rows lies.
    Quantile(Column, f64),
}

impl Subject {
    /// The quantity to estimate from values of rows, given the number of all rows if it is known.
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

/// How narrow the estimate is to be, and what that may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Within {
    /// The tolerance on half the width of the interval.
    pub tolerance: Tolerance,
    /// The most rows to read. An answer that reaches this limit has
    /// [`Doubt::TooWide`](super::Doubt::TooWide).
    pub rows_max: Option<u64>,
}

/// A question for an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimateRequest {
    /// What to estimate.
    pub subject: Subject,
    /// How certain the interval is to be.
    pub confidence: Confidence,
    /// Reads on until the estimate is narrow enough; without it, the sample is the query's own window, units
    /// or limit.
    pub within: Option<Within>,
    /// The number of rows of the query, if the caller knows it exactly, for example from
    /// [`crate::Table::count`]. It makes sums more certain. For a query without a filter, or with a filter on
    /// no index column, the number is found anyway, unless rows were deleted by a condition; and so it is for
    /// a region of which directories tell it.
    pub rows: Option<u64>,
    /// Bounds of all values of the column, for means of rows whose number is known, from the query's own
    /// sample: gives an interval without any approximation. Refused wherever they would not be used.
    pub bounds: Option<(f64, f64)>,
}

impl EstimateRequest {
    /// An estimate from the query's own sample, at 95 %.
    #[must_use]
    pub fn new(subject: Subject) -> Self {
        Self { subject, confidence: Confidence::default(), within: None, rows: None, bounds: None }
    }

    /// The same request with this confidence.
    #[must_use]
    pub fn confidence(self, confidence: Confidence) -> Self {
        Self { confidence, ..self }
    }

    /// The same request, from as many rows as this tolerance takes.
    #[must_use]
    pub fn within(self, tolerance: Tolerance, rows_max: Option<u64>) -> Self {
        Self { within: Some(Within { tolerance, rows_max }), ..self }
    }

    /// The same request, for a query of `rows` rows.
    #[must_use]
    pub fn of_rows(self, rows: u64) -> Self {
        Self { rows: Some(rows), ..self }
    }

    /// The same request, for values between these bounds.
    #[must_use]
    pub fn bounded(self, least: f64, greatest: f64) -> Self {
        Self { bounds: Some((least, greatest)), ..self }
    }

    /// Refuses bounds that would be ignored, since the interval would seem to rest on them.
    pub(super) fn check_bounds(&self) -> Result<(), EstimateError> {
        let (place, hint) = match (self.bounds, self.within, &self.subject) {
            (Some(_), Some(_), _) => (
                "for an estimate that keeps reading until it is narrow enough",
                "leave out the bounds, or take the estimate from a sample",
            ),
            (Some(_), None, Subject::Mean(_)) | (None, ..) => return Ok(()),
            (Some(_), None, _) => ("for anything but a mean", "leave out the bounds"),
        };
        Err(EstimateError::BoundsUnused { place, hint })
    }
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Estimated {
    /// What was found.
    pub estimate: Estimate,
    /// The version that was read.
    pub version: Version,
    /// The number of rows of the sample that were read.
    pub rows_read: u64,
    /// The work it took.
    pub work: Work,
}

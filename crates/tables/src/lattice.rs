//! The lattice: where the value of an index column lies among the cubes, and what a region asks of it.
//!
//! Two things that never mix. *Pruning*: an [`Axis`] maps every finite value to a [`Coordinate`] by exact
//! integer arithmetic, a [`Span`] is the side of a cube on that axis, and [`Region::prunes`] judges a cube by
//! the tight
//! [`Extent`]s of its rows. *The predicate*: [`Region::matches`] judges the values as they are stored.
//!
//! Invariant: an axis, once made, never moves a value; a root grows by doubling its spans.
//! Invariant: coordinates rise with the values, so what is pruned holds no row of the region.

mod axis;
mod extent;
mod fraction;
mod numbers;
mod region;
mod scalar;
mod span;
#[cfg(test)]
mod tests;

pub(crate) use numbers::{Kind, Numbers};

pub use axis::{Axis, Coordinates, Missing};
pub use extent::Extent;
pub(crate) use extent::joined;
pub(crate) use fraction::{FRACTION_BITS, fractions};
pub use region::{Interval, Region};
pub use scalar::Scalar;
pub use span::{Side, Span};

use arrow_schema::DataType;
use atoll_errors::ErrorKind;

/// Where a value lies on its axis, in cells of the lattice.
///
/// The middle, 2^63, is the value 0 of signed and float columns; unsigned columns begin with 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinate(pub u64);

/// Why an axis, an extent or a region cannot be had, or does not fit its columns.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LatticeError {
    /// Only numbers and times can be indexed.
    #[error("a column of type {data_type} cannot be an index column: it is neither a number nor a time")]
    NotIndexable {
        /// The type of the column.
        data_type: DataType,
    },
    /// The column is not of the type that its axis was made for.
    #[error("the index column has type {actual}, its axis {expected}")]
    OtherType {
        /// The type of the axis.
        expected: DataType,
        /// The type of the column.
        actual: DataType,
    },
    /// An axis cannot be laid out around NaN or an infinity.
    #[error("a domain from {least} to {greatest} is not finite")]
    Unbounded {
        /// The least value that was expected.
        least: Scalar,
        /// The greatest value that was expected.
        greatest: Scalar,
    },
    /// A bound is NaN, which lies nowhere.
    #[error("a bound of the interval on index column {column} is NaN")]
    BoundNotANumber {
        /// Place among the index columns.
        column: usize,
    },
    /// The lower bound lies above the upper one.
    #[error("the interval on index column {column} is inside out: it goes from {low} to {high}")]
    InsideOut {
        /// Place among the index columns.
        column: usize,
        /// The lower bound.
        low: Scalar,
        /// The upper bound.
        high: Scalar,
    },
    /// There is not one column for each interval.
    #[error("the region has {intervals} intervals, and there are {columns} index columns")]
    Columns {
        /// Intervals of the region.
        intervals: usize,
        /// Columns that were given.
        columns: usize,
    },
    /// The columns do not have the same number of rows.
    #[error("index column {column} has {rows} rows, the first one {expected}")]
    Rows {
        /// Place among the index columns.
        column: usize,
        /// Rows of that column.
        rows: usize,
        /// Rows of the first column.
        expected: usize,
    },
}

impl LatticeError {
    /// What it means for the caller.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::NotIndexable { .. } => ErrorKind::Unsupported,
            Self::OtherType { .. }
            | Self::Unbounded { .. }
            | Self::BoundNotANumber { .. }
            | Self::InsideOut { .. }
            | Self::Columns { .. }
            | Self::Rows { .. } => ErrorKind::InvalidInput,
        }
    }
}

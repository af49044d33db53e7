//! The lattice: maps values of index columns to coordinates of cubes, and judges cubes and rows by a region.
//!
//! Two concerns that never mix. *Pruning*: an [`Axis`] maps every finite value to a [`Coordinate`] by exact
//! integer arithmetic, a [`Span`] is the side of a cube on that axis, and [`Region::prunes`] judges a cube by
//! the tight [`Extent`]s of its rows. *The predicate*: [`Region::matches`] judges stored values.
//!
//! Invariant: an axis never changes the coordinate of a value; a root grows by doubling its spans.
//! Invariant: coordinates rise with the values, so a pruned cube holds no row of the region.

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

/// The place of a value on its axis, in cells of the lattice.
///
/// The middle, 2^63, is the value 0 of signed and float columns; unsigned columns start at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinate(pub u64);

/// Why an axis, an extent or a region cannot be made, or does not fit its columns.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LatticeError {
    /// Only numbers and times can be indexed.
    #[error("a column of type {data_type} cannot be an index column: it is neither a number nor a time")]
    NotIndexable {
        /// The type of the column.
        data_type: DataType,
    },
    /// The column has another type than its axis.
    #[error("the index column has type {actual}, its axis {expected}")]
    OtherType {
        /// The type of the axis.
        expected: DataType,
        /// The type of the column.
        actual: DataType,
    },
    /// An axis cannot be laid out around NaN or infinities.
    #[error("a domain from {least} to {greatest} is not finite")]
    Unbounded {
        /// The least expected value.
        least: Scalar,
        /// The greatest expected value.
        greatest: Scalar,
    },
    /// A bound is NaN, which has no place in the order.
    #[error("a bound of the interval on index column {column} is NaN")]
    BoundNotANumber {
        /// The place among the index columns.
        column: usize,
    },
    /// The lower bound lies above the upper one.
    #[error("the ends of the interval on index column {column} are reversed: it goes from {low} to {high}")]
    InsideOut {
        /// The place among the index columns.
        column: usize,
        /// The lower bound.
        low: Scalar,
        /// The upper bound.
        high: Scalar,
    },
    /// The number of columns differs from the number of intervals.
    #[error("the region has {intervals} intervals, and there are {columns} index columns")]
    Columns {
        /// The intervals of the region.
        intervals: usize,
        /// The columns that were given.
        columns: usize,
    },
    /// The columns do not have the same number of rows.
    #[error("index column {column} has {rows} rows, the first one {expected}")]
    Rows {
        /// The place among the index columns.
        column: usize,
        /// The rows of that column.
        rows: usize,
        /// The rows of the first column.
        expected: usize,
    },
}

impl LatticeError {
    /// The error kind that all doors share.
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

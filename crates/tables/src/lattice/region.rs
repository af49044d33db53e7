//! Regions: one half-open interval for each index column, and how cubes and rows are judged by them.
//!
//! [`Region::prunes`] and [`Region::covers`] judge the extents of a cube; [`Region::matches`] judges stored
//! values. Neither uses coordinates.
//!
//! Invariant: an extent that holds a value of the region is never pruned, and a covered extent holds no value
//! outside of it.

use super::{Axis, Coordinate, Extent, LatticeError, Numbers, Scalar};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use std::ops::RangeInclusive;

/// The interval `[low, high)`; `None` leaves a side unbounded.
///
/// An interval that is unbounded on both sides accepts everything, even null and NaN. Any other interval
/// accepts neither of these, and treats infinities as numbers: `[5, none)` contains the positive one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval<T> {
    /// The inclusive lower bound.
    pub low: Option<T>,
    /// The exclusive upper bound.
    pub high: Option<T>,
}

impl<T> Default for Interval<T> {
    fn default() -> Self {
        Self { low: None, high: None }
    }
}

impl<T> From<std::ops::Range<T>> for Interval<T> {
    fn from(range: std::ops::Range<T>) -> Self {
        Self { low: Some(range.start), high: Some(range.end) }
    }
}

impl<T> From<std::ops::RangeFrom<T>> for Interval<T> {
    fn from(range: std::ops::RangeFrom<T>) -> Self {
        Self { low: Some(range.start), high: None }
    }
}

impl<T> From<std::ops::RangeTo<T>> for Interval<T> {
    fn from(range: std::ops::RangeTo<T>) -> Self {
        Self { low: None, high: Some(range.end) }
    }
}

impl<T: PartialOrd> Interval<T> {
    /// Whether it is unbounded on both sides, and so accepts everything.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.low.is_none() && self.high.is_none()
    }

    /// Whether it contains no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!((&self.low, &self.high), (Some(low), Some(high)) if low >= high)
    }

    /// Whether it contains a value.
    #[must_use]
    pub fn contains(&self, value: &T) -> bool {
        self.low.as_ref().is_none_or(|low| value >= low) && self.high.as_ref().is_none_or(|high| value < high)
    }
}

/// One interval for each index column, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    intervals: Vec<Interval<Scalar>>,
}

impl Region {
    /// The region of these intervals. `[3, 3)` is empty, which is not an error.
    ///
    /// # Errors
    /// [`LatticeError::BoundNotANumber`] and [`LatticeError::InsideOut`].
    pub fn new(intervals: Vec<Interval<Scalar>>) -> Result<Self, LatticeError> {
        for (column, interval) in intervals.iter().enumerate() {
            if interval.low.into_iter().chain(interval.high).any(Scalar::is_nan) {
                return Err(LatticeError::BoundNotANumber { column });
            }
            if let (Some(low), Some(high)) = (interval.low, interval.high)
                && low > high
            {
                return Err(LatticeError::InsideOut { column, low, high });
            }
        }
        Ok(Self { intervals })
    }

    /// The region that contains everything, for a table with this many index columns.
    #[must_use]
    pub fn everything(columns: usize) -> Self {
        Self { intervals: vec![Interval::default(); columns] }
    }

    /// Its intervals.
    #[must_use]
    pub fn intervals(&self) -> &[Interval<Scalar>] {
        &self.intervals
    }

    /// The columns that the region restricts, with their intervals.
    fn restrictions(&self) -> impl Iterator<Item = (usize, &Interval<Scalar>)> {
        self.intervals.iter().enumerate().filter(|(_, interval)| !interval.is_open())
    }

    /// Whether no row with these extents, one for each index column, can be in the region.
    #[must_use]
    pub fn prunes(&self, extents: &[Extent]) -> bool {
        self.restrictions().any(|(column, interval)| {
            let above = |least: Scalar| interval.high.is_some_and(|high| least >= high);
            let below = |greatest: Scalar| interval.low.is_some_and(|low| greatest < low);
            // An unknown extent cannot be pruned.
            let Some(extent) = extents.get(column) else { return false };
            let beside = |(least, greatest)| above(least) || below(greatest);
            interval.is_empty() || extent.range().is_none_or(beside)
        })
    }

    /// Whether every row with these extents is in the region, so that no predicate has to be evaluated.
    #[must_use]
    pub fn covers(&self, extents: &[Extent]) -> bool {
        self.restrictions().all(|(column, interval)| {
            let inside = |(least, greatest)| interval.contains(&least) && interval.contains(&greatest);
            // A box without rows is covered; a box of rows without values is not.
            let is_inside = |extent: &Extent| !extent.has_incomparable() && extent.range().is_none_or(inside);
            extents.get(column).is_some_and(is_inside)
        })
    }

    /// The coordinates that rows in the region can have on each axis.
    #[must_use]
    pub fn reach(&self, axes: &[Axis]) -> Vec<RangeInclusive<Coordinate>> {
        self.intervals.iter().zip(axes).map(|(interval, axis)| axis.reach(interval)).collect()
    }

    /// The rows in the region, judged by their stored values.
    ///
    /// # Errors
    /// [`LatticeError::Columns`] or [`LatticeError::Rows`] if the columns do not fit, and
    /// [`LatticeError::NotIndexable`] if one of them is neither a number nor a time.
    pub fn matches(&self, columns: &[ArrayRef]) -> Result<BooleanBuffer, LatticeError> {
        if columns.len() != self.intervals.len() {
            return Err(LatticeError::Columns { intervals: self.intervals.len(), columns: columns.len() });
        }
        let expected = columns.first().map_or(0, |column| column.len());
        let odd = columns.iter().enumerate().find(|(_, column)| column.len() != expected);
        if let Some((column, rows)) = odd.map(|(place, column)| (place, column.len())) {
            return Err(LatticeError::Rows { column, rows, expected });
        }
        let mut found = BooleanBuffer::new_set(expected);
        for (interval, column) in
            self.intervals.iter().zip(columns).filter(|(interval, _)| !interval.is_open())
        {
            found = &found & &satisfied(interval, column)?;
        }
        Ok(found)
    }
}

/// The rows of a column that satisfy an interval that is not unbounded on both sides.
fn satisfied(interval: &Interval<Scalar>, column: &ArrayRef) -> Result<BooleanBuffer, LatticeError> {
    let not_indexable = || LatticeError::NotIndexable { data_type: column.data_type().clone() };
    let rows = column.len();
    let satisfied = match Numbers::of(column).ok_or_else(not_indexable)? {
        Numbers::Signed(values) => {
            let interval = raised(interval, Scalar::raised_to_integer);
            BooleanBuffer::collect_bool(rows, |row| interval.contains(&values[row].into()))
        }
        Numbers::Unsigned(values) => {
            let interval = raised(interval, Scalar::raised_to_integer);
            BooleanBuffer::collect_bool(rows, |row| interval.contains(&values[row].into()))
        }
        Numbers::Float(values) => {
            let interval = raised(interval, Scalar::raised_to_float);
            BooleanBuffer::collect_bool(rows, |row| interval.contains(&values[row]))
        }
    };
    Ok(match column.nulls() {
        Some(nulls) => &satisfied & nulls.inner(),
        None => satisfied,
    })
}

/// The interval in the type of a column; it contains the same values of that type.
fn raised<T>(interval: &Interval<Scalar>, raise: impl Fn(Scalar) -> Option<T>) -> Interval<T> {
    Interval { low: interval.low.and_then(&raise), high: interval.high.and_then(&raise) }
}

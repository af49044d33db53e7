//! Bounds: the ranges that a filter allows for index columns, and the boxes of rows that these rule out.
//!
//! Invariant: a box is ruled out only if no row in it satisfies the filter.

use super::explain::Within;
use super::extremes::End;
use crate::TableSchema;
use crate::expression::{Bound, Column, Interval, Judge, Values, Verdict};
use crate::lattice::{Extent, Scalar};

/// What a filter requires of the index columns.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    judge: Option<Judge>,
    /// Names of the index columns.
    names: Vec<String>,
    /// One interval per index column.
    intervals: Vec<Interval>,
    is_empty: bool,
}

impl Bounds {
    pub(super) fn of(schema: &TableSchema, filter: Option<&Bound>) -> Self {
        let range = |column: &Column| filter.map_or(Interval::EVERYTHING, |filter| filter.ranges(column));
        let (index, names) = (schema.index_columns(), schema.roles().index);
        let intervals: Vec<Interval> = index.iter().map(range).collect();
        let mut columns = filter.map_or(&[][..], Bound::columns).iter();
        let is_empty = intervals.iter().any(Interval::is_empty)
            || columns.any(|name| range(&Column::named(name)).is_empty());
        Self { judge: filter.map(|filter| filter.judge(index)), names, intervals, is_empty }
    }

    /// Whether no row at all can satisfy the filter.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The verdict of the filter on all rows with these extents, one per index column.
    pub(super) fn verdict(&self, extents: &[Extent]) -> Verdict {
        self.judge.as_ref().map_or(Verdict::Always, |judge| judge.verdict(extents))
    }

    /// How far towards an end matching rows may reach in an index column, given by its place among these, if
    /// all rows reach as far as `value`.
    pub(super) fn reachable(&self, axis: usize, end: End, value: Scalar) -> Scalar {
        let limit = match (self.intervals.get(axis).map(|interval| &interval.values), end, value) {
            (Some(Values::Integers { low, .. }), End::Least, Scalar::Signed(_)) => {
                i64::try_from(*low).ok().map(Scalar::Signed)
            }
            (Some(Values::Integers { high, .. }), End::Greatest, Scalar::Signed(_)) => {
                i64::try_from(*high).ok().map(Scalar::Signed)
            }
            (Some(Values::Integers { low, .. }), End::Least, Scalar::Unsigned(_)) => {
                u64::try_from(*low).ok().map(Scalar::Unsigned)
            }
            (Some(Values::Integers { high, .. }), End::Greatest, Scalar::Unsigned(_)) => {
                u64::try_from(*high).ok().map(Scalar::Unsigned)
            }
            (Some(Values::Floats { low, .. }), End::Least, Scalar::Float(_)) => Some(Scalar::Float(*low)),
            (Some(Values::Floats { high, .. }), End::Greatest, Scalar::Float(_)) => {
                Some(Scalar::Float(*high))
            }
            _ => None,
        };
        // The nearer of the two: a limit beyond the value does not matter.
        limit.filter(|limit| end.order(&value, limit).is_lt()).unwrap_or(value)
    }

    /// The intervals that rule anything out, as strings.
    pub(super) fn explained(&self) -> Vec<Within> {
        let texts = self.names.iter().zip(&self.intervals).filter_map(|(column, interval)| {
            let (low, high) = match &interval.values {
                Values::Integers { low, high } => (
                    (*low != i128::MIN).then(|| low.to_string()),
                    (*high != i128::MAX).then(|| high.to_string()),
                ),
                Values::Floats { low, high } => (
                    (*low != f64::NEG_INFINITY).then(|| low.to_string()),
                    (*high != f64::INFINITY).then(|| high.to_string()),
                ),
                _ => (None, None),
            };
            let is_open = low.is_none() && high.is_none();
            (!is_open).then(|| Within { column: column.clone(), low, high })
        });
        texts.collect()
    }
}

//! Bounds: where the index columns of an answer must lie, and which boxes of rows that leaves out.
//!
//! Invariant: a box is left out only if no row in it satisfies the filter.

use super::explain::Within;
use crate::TableSchema;
use crate::expression::{Bound, Column, Interval, Values, Verdict};
use crate::lattice::Extent;

/// What a filter asks of the index columns.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    filter: Option<Bound>,
    /// Names of the index columns.
    index: Vec<String>,
    /// One interval for each.
    intervals: Vec<Interval>,
    is_empty: bool,
}

impl Bounds {
    pub(super) fn of(schema: &TableSchema, filter: Option<&Bound>) -> Self {
        let ranges = |name: &String| filter.map_or(Interval::EVERYTHING, |filter| range(filter, name));
        let index = schema.index().iter().map(|&place| schema.columns().field(place).name().clone());
        let index: Vec<String> = index.collect();
        let intervals = index.iter().map(ranges).collect();
        let mut columns = filter.map_or(&[][..], Bound::columns).iter();
        let is_empty = columns.any(|name| ranges(name).is_empty());
        Self { filter: filter.cloned(), index, intervals, is_empty }
    }

    /// Whether no row at all can satisfy the filter.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// What the filter says of all rows of these extents, one for each index column.
    pub(super) fn verdict(&self, extents: &[Extent]) -> Verdict {
        let Some(filter) = &self.filter else { return Verdict::Always };
        filter.verdict(&|column: &Column| {
            let place =
                self.index.iter().position(|name| column.element.is_none() && *name == column.name)?;
            extents.get(place).copied()
        })
    }

    /// The intervals that leave anything out, as texts.
    pub(super) fn explained(&self) -> Vec<Within> {
        let texts = self.index.iter().zip(&self.intervals).filter_map(|(column, interval)| {
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

fn range(filter: &Bound, name: &str) -> Interval {
    filter.ranges(&Column::named(name))
}

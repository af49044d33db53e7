//! Known weights: those that every row of an answer has, where the filter fixes the sample key.
//!
//! A weight is a hash of the sample key. So `pid = 17` says which weight its rows have, in a table that
//! samples by `pid`, and of each band only the rows around it are worth decoding. The window of the query
//! stays what it is: what is left out would not have satisfied the filter.
//!
//! Invariant: the weight of a row that satisfies the filter is among the known ones.

use crate::expression::{Bound, Column, POINTS_MAX};
use crate::planted::{self, Bug};
use crate::weight::weights;
use crate::{Salt, TableSchema, Weight};
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_select::take::take;
use std::sync::Arc;

/// The weights that rows of an answer can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// In rising order, each once.
    weights: Arc<[Weight]>,
}

impl Known {
    /// The weights of the rows that satisfy a filter, if it leaves the sample key but few values.
    pub(super) fn of(schema: &TableSchema, filter: &Bound) -> Option<Self> {
        let values = |&place: &usize| {
            let field = schema.columns().field(place);
            filter.points(&Column::named(field.name()), field.data_type())
        };
        let values = schema.sample_key().iter().map(values).collect::<Option<Vec<_>>>()?;
        // Hashing the values as columns of the table are hashed, so that they cannot come out otherwise.
        let salt = if planted::is(Bug::KnownWeightUnsalted) { 0 } else { schema.salt() };
        let mut weights = weights(&product(&values)?, Salt(salt)).ok()?;
        weights.sort_unstable();
        weights.dedup();
        if planted::is(Bug::KnownWeightForgotten) {
            weights.pop();
        }
        Some(Self { weights: weights.into() })
    }

    /// Those from one weight to another, both included.
    pub(super) fn between(&self, least: Weight, greatest: Weight) -> &[Weight] {
        let from = self.weights.partition_point(|weight| *weight < least);
        let to = self.weights.partition_point(|weight| *weight <= greatest);
        &self.weights[from..to.max(from)]
    }
}

/// Every combination of a value of each column, as columns; none if they are too many.
fn product(values: &[ArrayRef]) -> Option<Vec<ArrayRef>> {
    let total = values.iter().try_fold(1_usize, |total, values| total.checked_mul(values.len()));
    let total = total.filter(|total| *total <= POINTS_MAX)?;
    // One row for each combination: a column changes once all combinations of those after it were there.
    let mut each = total;
    let column = |values: &ArrayRef| {
        each = each.checked_div(values.len()).unwrap_or(0);
        let place = |row: usize| (row / each.max(1) % values.len().max(1)) as u32;
        take(values, &UInt32Array::from_iter_values((0..total).map(place)), None).ok()
    };
    values.iter().map(column).collect()
}

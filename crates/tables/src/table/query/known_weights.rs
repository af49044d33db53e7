//! Known weights: the possible weights of matching rows, if the filter fixes the sample key.
//!
//! A weight is a hash of the sample key. In a table sampled by `pid`, `pid = 17` therefore determines the
//! weight of matching rows, and of each band only the rows around that weight have to be decoded. The window
//! of the query is unaffected: rows that are left out would not have satisfied the filter.
//!
//! Invariant: the weight of a row that satisfies the filter is one of the known weights.

use crate::expression::{Bound, Column, POINTS_MAX};
use crate::planted::{self, Bug};
use crate::weight::weights;
use crate::{Salt, TableSchema, Weight};
use arrow_array::{Array, ArrayRef, UInt32Array};
use arrow_select::take::take;
use std::sync::Arc;

/// The weights that matching rows can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownWeights {
    /// In rising order, without duplicates.
    weights: Arc<[Weight]>,
}

impl KnownWeights {
    /// The weights of rows that satisfy a filter, if it allows only few values of the sample key.
    pub(super) fn of(schema: &TableSchema, filter: &Bound) -> Option<Self> {
        let values = |&place: &usize| {
            let field = schema.columns().field(place);
            filter.points(&Column::named(field.name()), field.data_type())
        };
        let values = schema.sample_key().iter().map(values).collect::<Option<Vec<_>>>()?;
        // Hashed by the same code as columns of the table, so that the results agree.
        let salt = if planted::is(Bug::KnownWeightUnsalted) { 0 } else { schema.salt() };
        let mut weights = weights(&product(&values)?, Salt(salt)).ok()?;
        weights.sort_unstable();
        weights.dedup();
        if planted::is(Bug::KnownWeightForgotten) {
            weights.pop();
        }
        Some(Self { weights: weights.into() })
    }

    /// The known weights in a range, both ends included.
    pub(super) fn between(&self, least: Weight, greatest: Weight) -> &[Weight] {
        let from = self.weights.partition_point(|weight| *weight < least);
        let to = self.weights.partition_point(|weight| *weight <= greatest);
        &self.weights[from..to.max(from)]
    }
}

/// All combinations of one value per column, as columns; `None` if there are too many.
fn product(values: &[ArrayRef]) -> Option<Vec<ArrayRef>> {
    let total = values.iter().try_fold(1_usize, |total, values| total.checked_mul(values.len()));
    let total = total.filter(|total| *total <= POINTS_MAX)?;
    // One row per combination: a column changes after all combinations of the columns behind it.
    let mut each = total;
    let column = |values: &ArrayRef| {
        each = each.checked_div(values.len()).unwrap_or(0);
        let place = |row: usize| (row / each.max(1) % values.len().max(1)) as u32;
        take(values, &UInt32Array::from_iter_values((0..total).map(place)), None).ok()
    };
    values.iter().map(column).collect()
}

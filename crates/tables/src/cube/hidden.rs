//! What rows keep beside their columns: where they were written, unless that is known of all of them.

use super::Origins;
use super::origin::{ends_of, says_steps};
use super::source::Source;
use crate::protocol::RunId;
use arrow_array::{Array, ArrayRef, UInt32Array, UInt64Array};
use std::ops::Range;
use std::sync::Arc;

/// What the rows of a tree keep, in the order in which they will lie.
#[derive(Debug)]
pub(super) struct HiddenOfTree {
    names: Arc<[RunId]>,
    /// Places among the names; none if there is one.
    runs: Vec<u32>,
    /// Steps; none if a column says them.
    steps: Vec<u64>,
    /// The column that is the step of every row.
    step_column: Option<usize>,
}

/// What the rows of an object keep.
pub(super) struct Hidden {
    pub(super) names: Vec<RunId>,
    pub(super) step_column: Option<usize>,
    pub(super) columns: Vec<Source>,
    /// The first and the last step.
    pub(super) steps: (u64, u64),
}

impl HiddenOfTree {
    /// Of rows that are put in this order, of which a column says the steps or none does.
    pub(super) fn of(origins: Origins, step_column: Option<usize>, order: &[u32]) -> Self {
        let names = Arc::clone(origins.names());
        let (mut runs, mut steps) = (Vec::new(), Vec::new());
        if names.len() > 1 {
            runs = order.iter().map(|&row| origins.runs()[row as usize]).collect();
        }
        if step_column.is_none() {
            steps = order.iter().map(|&row| origins.steps()[row as usize]).collect();
        }
        Self { names, runs, steps, step_column }
    }

    /// Of the rows of one object.
    pub(super) fn of_object(&self, sources: &[Source], rows: Range<usize>) -> Hidden {
        let (mut names, mut columns): (_, Vec<ArrayRef>) = (vec![0], Vec::new());
        if let Some(runs) = self.runs.get(rows.clone()).filter(|_| self.names.len() > 1) {
            names = runs.to_vec();
            names.sort_unstable();
            names.dedup();
            if names.len() > 1 {
                let place = |run: &u32| names.binary_search(run).unwrap_or_default() as u32;
                columns.push(Arc::new(runs.iter().map(place).collect::<UInt32Array>()));
            }
        }
        let some = |source: &Source| source.column().slice(rows.start, rows.len());
        let steps = self.steps.get(rows.clone()).unwrap_or_default();
        let ends = match self.step_column {
            Some(place) => ends_of(&some(&sources[place])),
            None => steps.iter().min().copied().zip(steps.iter().max().copied()),
        };
        let mut step_column = self.step_column;
        if step_column.is_none() {
            // It may be that of a part of the rows all the same.
            step_column = sources.iter().position(|source| says_steps(&some(source), steps));
        }
        if step_column.is_none() {
            columns.push(Arc::new(UInt64Array::from(steps.to_vec())));
        }
        let name = |&run: &u32| self.names.get(run as usize).cloned();
        Hidden {
            names: names.iter().filter_map(name).collect(),
            step_column,
            columns: columns.iter().map(Source::of).collect(),
            steps: ends.unwrap_or_default(),
        }
    }
}

//! Hidden columns: the origins of rows, kept beside the columns of the table unless all rows share them.

use super::Origins;
use super::origin::{ends_of, says_steps};
use super::source::Source;
use crate::protocol::RunId;
use arrow_array::{Array, ArrayRef, UInt32Array, UInt64Array};
use std::ops::Range;
use std::sync::Arc;

/// The hidden columns of the rows of a tree, in the order in which the rows will lie.
#[derive(Debug)]
pub(super) struct HiddenOfTree {
    names: Arc<[RunId]>,
    /// Places among the names; empty if there is only one name.
    runs: Vec<u32>,
    /// Steps; empty if a column of the table equals them.
    steps: Vec<u64>,
    /// The column that equals the step of every row.
    step_column: Option<usize>,
}

/// The hidden columns of the rows of one object.
pub(super) struct Hidden {
    pub(super) names: Vec<RunId>,
    pub(super) step_column: Option<usize>,
    pub(super) columns: Vec<Source>,
    /// The first and the last step.
    pub(super) steps: (u64, u64),
}

impl HiddenOfTree {
    /// The hidden columns of rows that are put into `order`; `step_column` is the column that equals the
    /// steps, if any.
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

    /// The hidden columns of the rows of one object.
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
            // A column may equal the steps of just these rows.
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

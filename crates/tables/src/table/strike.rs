//! Strikes: which rows of a part a version has struck, judged row by row.

use super::codec::damaged;
use super::{Table, TableError};
use crate::cube::Origins;
use crate::expression::{Bound, Expression};
use crate::planted::{self, Bug};
use crate::protocol::{RunId, StepRange, Struck};
use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Rows of a part that meet all that is said here are struck.
#[derive(Clone)]
pub(super) struct Strike {
    /// Rows of some runs; none where that does not matter.
    runs: Option<OfRuns>,
    /// Rows of these steps; none where all are meant.
    steps: Option<StepRange>,
    /// Rows for which this is true; all for none.
    condition: Option<Arc<Bound>>,
}

/// Rows of which runs are meant.
#[derive(Clone)]
struct OfRuns {
    runs: Runs,
    /// Which of the names of a part are meant: all bands of a part share their names, of which there may be
    /// thousands.
    known: OnceLock<Meant>,
}

/// Names, and which of them are meant.
#[derive(Clone)]
struct Meant {
    names: Arc<[RunId]>,
    meant: Arc<[bool]>,
}

#[derive(Clone)]
enum Runs {
    Only(RunId),
    AllBut(Arc<BTreeSet<RunId>>),
}

impl OfRuns {
    const fn new(runs: Runs) -> Self {
        Self { runs, known: OnceLock::new() }
    }

    /// Which of these names are meant.
    fn meant(&self, names: &Arc<[RunId]>) -> Arc<[bool]> {
        let are_meant = || -> Arc<[bool]> { names.iter().map(|name| self.means(name)).collect() };
        let known = self.known.get_or_init(|| Meant { names: Arc::clone(names), meant: are_meant() });
        if Arc::ptr_eq(&known.names, names) { Arc::clone(&known.meant) } else { are_meant() }
    }

    fn means(&self, name: &RunId) -> bool {
        match &self.runs {
            Runs::Only(run) => run == name,
            Runs::AllBut(runs) => !runs.contains(name),
        }
    }
}

impl Strike {
    /// What a version says is struck of a part. `bound` makes a condition of its text.
    pub(super) fn of(
        struck: Struck,
        bound: impl FnOnce(&Arc<str>) -> Result<Arc<Bound>, TableError>,
    ) -> Result<Self, TableError> {
        let Struck { run, steps, expression } = struck;
        let runs = run.map(|run| OfRuns::new(Runs::Only(run)));
        Ok(Self { runs, steps, condition: expression.as_ref().map(bound).transpose()? })
    }

    /// Whatever other runs wrote.
    pub(super) const fn all_but(runs: Arc<BTreeSet<RunId>>) -> Self {
        Self { runs: Some(OfRuns::new(Runs::AllBut(runs))), steps: None, condition: None }
    }

    /// Whether it looks at where rows were written.
    pub(super) const fn needs_origins(&self) -> bool {
        self.runs.is_some() || self.steps.is_some()
    }

    /// Which rows are struck. Origins are there where they are needed.
    pub(super) fn strikes(
        &self,
        rows: &RecordBatch,
        origins: Option<&Origins>,
    ) -> Result<BooleanBuffer, TableError> {
        if planted::is(Bug::OriginIgnored) && self.needs_origins() {
            return Ok(BooleanBuffer::new_unset(rows.num_rows()));
        }
        let mut struck = BooleanBuffer::new_set(rows.num_rows());
        if let (Some(runs), Some(origins)) = (&self.runs, origins) {
            let meant = runs.meant(origins.names());
            let of_runs = |row: usize| origins.runs().get(row).is_some_and(|&run| meant[run as usize]);
            struck = &struck & &BooleanBuffer::collect_bool(rows.num_rows(), of_runs);
        }
        if let (Some(steps), Some(origins)) = (self.steps, origins) {
            let of_steps = |row: usize| origins.steps().get(row).is_some_and(|step| steps.contains(*step));
            struck = &struck & &BooleanBuffer::collect_bool(rows.num_rows(), of_steps);
        }
        if let Some(condition) = &self.condition {
            struck = &struck & &is_true(&condition.evaluate(rows)?);
        }
        Ok(struck)
    }
}

/// Where a condition is true: not where it is false, and not where it is null.
pub(super) fn is_true(found: &arrow_array::BooleanArray) -> BooleanBuffer {
    use arrow_array::Array;
    found.nulls().map_or_else(|| found.values().clone(), |nulls| found.values() & nulls.inner())
}

/// The condition of a stored text.
pub(super) fn bound(table: &Table, text: &str) -> Result<Arc<Bound>, TableError> {
    let unreadable = |error| damaged(&table.name, &format!("what was deleted cannot be told: {error}"));
    // It was within the limit of its caller, and whatever is kept of a delete has to be read.
    let bound = Expression::parse_stored(text).and_then(|expression| expression.bind(table.schema.columns()));
    bound.map(Arc::new).map_err(unreadable)
}

//! Strikes: which rows of a part a version has struck, decided row by row.

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

/// The rows of a part that match all of these criteria are struck.
#[derive(Clone)]
pub(super) struct Strike {
    /// Rows of some runs; `None` for any run.
    runs: Option<RunSelection>,
    /// Rows of these steps; `None` for all steps.
    steps: Option<StepRange>,
    /// Rows for which this is true; `None` for all rows.
    condition: Option<Arc<Bound>>,
}

/// A selection of runs.
#[derive(Clone)]
struct RunSelection {
    runs: Runs,
    /// Which run names of a part are selected, computed once: all bands of a part share their names, of which
    /// there may be thousands.
    known: OnceLock<SelectedNames>,
}

/// Run names, and which of them are selected.
#[derive(Clone)]
struct SelectedNames {
    names: Arc<[RunId]>,
    meant: Arc<[bool]>,
}

#[derive(Clone)]
enum Runs {
    Only(RunId),
    AllBut(Arc<BTreeSet<RunId>>),
}

impl RunSelection {
    const fn new(runs: Runs) -> Self {
        Self { runs, known: OnceLock::new() }
    }

    /// Which of these names are selected.
    fn meant(&self, names: &Arc<[RunId]>) -> Arc<[bool]> {
        let are_meant = || -> Arc<[bool]> { names.iter().map(|name| self.means(name)).collect() };
        let known = self.known.get_or_init(|| SelectedNames { names: Arc::clone(names), meant: are_meant() });
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
    /// The strike of what a version says about a part. `bound` compiles the text of a condition.
    pub(super) fn of(
        struck: Struck,
        bound: impl FnOnce(&Arc<str>) -> Result<Arc<Bound>, TableError>,
    ) -> Result<Self, TableError> {
        let Struck { run, steps, expression } = struck;
        let runs = run.map(|run| RunSelection::new(Runs::Only(run)));
        Ok(Self { runs, steps, condition: expression.as_ref().map(bound).transpose()? })
    }

    /// Strikes the rows of all runs but these.
    pub(super) const fn all_but(runs: Arc<BTreeSet<RunId>>) -> Self {
        Self { runs: Some(RunSelection::new(Runs::AllBut(runs))), steps: None, condition: None }
    }

    /// Whether it needs to know where rows were written.
    pub(super) const fn needs_origins(&self) -> bool {
        self.runs.is_some() || self.steps.is_some()
    }

    /// Which rows are struck. `origins` must be given if they are needed.
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

/// Where a condition is true, that is neither false nor null.
pub(super) fn is_true(found: &arrow_array::BooleanArray) -> BooleanBuffer {
    use arrow_array::Array;
    found.nulls().map_or_else(|| found.values().clone(), |nulls| found.values() & nulls.inner())
}

/// The condition of a stored text.
pub(super) fn bound(table: &Table, text: &str) -> Result<Arc<Bound>, TableError> {
    let unreadable =
        |error| damaged(&table.name, &format!("the condition of a delete cannot be read: {error}"));
    // The text was within the limit when it was given, and a stored delete must always be readable.
    let bound = Expression::parse_stored(text).and_then(|expression| expression.bind(table.schema.columns()));
    bound.map(Arc::new).map_err(unreadable)
}

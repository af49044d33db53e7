//! Where the steps of a file go: one block per step, or many steps at a time, packed.
//!
//! Invariant: a step counts as imported once the table has it.

use super::Imported;
use crate::Failure;
use arrow_array::RecordBatch;
use atoll_tables::protocol::{BlockId, EditError, RunId};
use atoll_tables::{Loader, PackOptions, Table, TableError, WholeStep};
use std::collections::VecDeque;

/// Bytes of rows that are packed together.
const TREE_BYTES: u64 = 64 << 20;

/// Takes the steps of one run in rising order. No other writer appends to the attempt of this import: a step
/// that exists already is not from the file, and is an error.
pub(super) enum Sink<'t> {
    /// Each step becomes a block.
    Blocks { table: &'t Table, run: RunId, attempt: u64 },
    /// Many steps become a tree; with number and row count of each step that is not in the table yet.
    Trees { loader: Box<Loader>, waiting: VecDeque<(u64, u64)> },
}

impl<'t> Sink<'t> {
    pub(super) fn begin(table: &'t Table, run: &str, attempt: u64, is_packed: bool) -> Result<Self, Failure> {
        if !is_packed {
            return Ok(Self::Blocks { table, run: run.into(), attempt });
        }
        let loader = table.loader(run, attempt, TREE_BYTES, PackOptions::default())?.only_new();
        Ok(Self::Trees { loader: Box::new(loader), waiting: VecDeque::new() })
    }

    pub(super) async fn take(
        &mut self,
        step: u64,
        rows: RecordBatch,
        imported: &mut Imported,
    ) -> Result<(), Failure> {
        let count = rows.num_rows() as u64;
        match self {
            Self::Blocks { table, run, attempt } => {
                let id = BlockId { run: run.clone(), attempt: *attempt, step, rank: 0 };
                match table.append_new(id, None, &rows).await.map_err(of_step)? {
                    None => return Err(of_somebody_else(run, step)),
                    Some(_) => imported.count(step, count),
                }
                Ok(())
            }
            Self::Trees { loader, waiting } => {
                waiting.push_back((step, count));
                let pushed = loader.push(WholeStep { step, time: None, rows }).await;
                count_up_to(loader.last(), waiting, imported);
                pushed.map_err(of_step)
            }
        }
    }

    /// Returns once the table has all steps that were taken.
    pub(super) async fn finish(&mut self, imported: &mut Imported) -> Result<(), Failure> {
        let Self::Trees { loader, waiting } = self else { return Ok(()) };
        let finished = loader.finish().await;
        count_up_to(loader.last(), waiting, imported);
        finished.map(drop).map_err(of_step)
    }
}

/// Whether a step was refused because another writer appended one to the attempt.
pub(super) const fn is_of_somebody_else(failure: &Failure) -> bool {
    matches!(failure, Failure::Run { .. })
}

/// Why a step was refused. The steps of a file rise, so a step in the way is not from the file.
fn of_step(error: TableError) -> Failure {
    match error {
        TableError::Edit(EditError::StepOrder { id, last }) => of_somebody_else(&id.run, last),
        other => other.into(),
    }
}

fn of_somebody_else(run: &RunId, step: u64) -> Failure {
    Failure::Run {
        run: run.0.to_string(),
        problem: format!("has rows of step {step} that another writer has just appended"),
        hint: "import the file under another --run, or again with --restart, which deletes that step"
            .to_owned(),
    }
}

fn count_up_to(last: Option<u64>, waiting: &mut VecDeque<(u64, u64)>, imported: &mut Imported) {
    while let Some((step, rows)) = waiting.pop_front_if(|(step, _)| last.is_some_and(|last| *step <= last)) {
        imported.count(step, rows);
    }
}

//! Loading: adds whole steps of a run at once, with rows that are already packed.
//!
//! Loaded rows are clean: they were not visible before, so no earlier tombstone applies to them. A load waits
//! for no other rank, since it brings the rows of all ranks.

use super::pack::check_sum;
use super::run::not_begun;
use super::{BlockId, EditError, LoadedStep, Manifest, Piece, Placed, RunId, Version};
use crate::planted::{self, Bug};

impl Manifest {
    /// Checks whether steps of a run, in rising order, could be loaded in the next version, as far as that
    /// can be told without their rows.
    ///
    /// # Errors
    /// As [`Manifest::apply`]; [`EditError::AlreadyDone`] if the table has all of the steps.
    pub fn admits_load(
        &self,
        run: &RunId,
        attempt: u64,
        mut steps: impl Iterator<Item = u64> + Clone,
    ) -> Result<(), EditError> {
        let known = self.runs.get(run).ok_or_else(|| not_begun(run, attempt))?;
        if steps.clone().all(|step| known.has_step(attempt, step)) {
            return Err(EditError::AlreadyDone);
        }
        // The first step is the most restricted: if it is admitted, so are the others.
        let first = steps.next().map(|step| BlockId { run: run.clone(), attempt, step, rank: 0 });
        first.map_or(Ok(()), |first| known.admit_whole(&first))
    }

    pub(super) fn load(
        &mut self,
        run: &RunId,
        attempt: u64,
        steps: &[LoadedStep],
        add: &[Piece],
    ) -> Result<Vec<Placed>, EditError> {
        let id = |step: &LoadedStep| BlockId { run: run.clone(), attempt, step: step.step, rank: 0 };
        self.admits_load(run, attempt, steps.iter().map(|step| step.step))?;
        check_sum(steps.iter().map(|step| step.rows), add, 0)?;
        self.check_new(add)?;
        let mut gone = Vec::new();
        for step in steps {
            let state = self.runs.get_mut(run).ok_or_else(|| not_begun(run, attempt))?;
            state.admit_whole(&id(step))?;
            let shown = state.show(step.step, step.time, step.rows);
            gone.extend(self.supersede(run, shown));
        }
        for piece in add {
            // The rows become visible only here, so earlier deletes do not apply to them.
            let clean_to = if planted::is(Bug::DeleteReachesLoads) { Version::EMPTY } else { self.version };
            self.pieces.insert(piece.key(), Placed { piece: piece.clone(), born: self.version, clean_to });
        }
        Ok(gone)
    }
}

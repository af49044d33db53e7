//! Applies edits: decides whether an edit is valid in the current version and computes the next version.
//!
//! The current version may be newer than the one that the edit was made for. These checks are all that stands
//! between two processes that change the table concurrently.

use super::run::{SupersededSteps, not_begun};
use super::{
    AddedColumn, Block, Edit, EditError, LastStep, Manifest, ObjectId, Placed, Run, RunId, Scope, Version,
};
use crate::planted::{self, Bug};

impl Manifest {
    /// The next version, if the edit is valid in this one.
    ///
    /// Takes time and space proportional to the edit, and to the number of pieces if it strikes some;
    /// everything else is shared with this version.
    ///
    /// # Errors
    /// [`EditError::AlreadyDone`] if there is nothing left to do; other variants of [`EditError`] if the edit
    /// contradicts itself, or what was committed since it was made.
    pub fn apply(&self, edit: &Edit) -> Result<Self, EditError> {
        if let Edit::Append { blocks } = edit {
            self.check_ranks(blocks)?;
        }
        self.clone().apply_owned(edit, true)
    }

    /// Refuses blocks with a rank that their run does not have, even for visible steps, for which nothing
    /// would be left to do. Only new edits are checked: one that was committed before this check existed must
    /// stay readable.
    fn check_ranks(&self, blocks: &[Block]) -> Result<(), EditError> {
        let of_run =
            |block: &Block| self.runs.get(&block.id.run).map_or(Ok(()), |run| run.admit_rank(&block.id));
        blocks.iter().try_for_each(of_run)
    }

    /// The next version after an edit that is already committed. Applies only the checks that every committed
    /// edit has passed. Consumes this version.
    pub(crate) fn applied(self, edit: &Edit) -> Result<Self, EditError> {
        self.apply_owned(edit, false)
    }

    fn apply_owned(self, edit: &Edit, is_wish: bool) -> Result<Self, EditError> {
        let mut next = self;
        next.version = next.version.next();
        // The pieces that this edit removes.
        let gone = match edit {
            Edit::Begin { run, attempt, ranks, last } => {
                next.check_last(run, *last)?;
                next.begin(run, *attempt, *ranks)?
            }
            Edit::Append { blocks } => next.append(blocks, is_wish)?,
            Edit::Load { run, attempt, steps, add } => next.load(run, *attempt, steps, add)?,
            Edit::Pack { base, remove, add, dropped } => next.pack(*base, remove, add, *dropped)?,
            Edit::Delete { scope } => next.delete(scope),
            Edit::RaiseFloor { to } => next.raise_floor(*to)?,
            Edit::Forget { objects } => next.forget(objects)?,
            Edit::AddColumn { column } => next.add_column(column)?,
        };
        next.settle(&gone);
        Ok(next)
    }

    /// This version as it would be if every arriving step were complete with the blocks received so far:
    /// steps that they would supersede are superseded.
    #[must_use]
    pub fn with_arriving(&self) -> Self {
        // A tombstone holds for pieces that are clean to a lower version, so the content must be that of the
        // next one.
        let mut next = Self { version: self.version.next(), ..self.clone() };
        let steps = |(run, state): (&RunId, &Run)| {
            let run = run.clone();
            state.arriving.keys().map(move |&step| (run.clone(), step)).collect::<Vec<_>>()
        };
        for (run, step) in self.runs.iter().flat_map(steps) {
            next.publish(&run, step);
        }
        Self { version: self.version, ..next }
    }

    /// Refuses to begin if the run has advanced since the caller looked at it.
    fn check_last(&self, run: &RunId, last: LastStep) -> Result<(), EditError> {
        let there = self.runs.get(run).and_then(Run::last_complete);
        match last {
            LastStep::Is(seen) if seen != there => {
                Err(EditError::RunWentOn { run: run.clone(), last: there })
            }
            LastStep::Any | LastStep::Is(_) => Ok(()),
        }
    }

    fn begin(&mut self, run: &RunId, attempt: u64, ranks: u32) -> Result<Vec<Placed>, EditError> {
        if ranks == 0 {
            return Err(EditError::Ranks { run: run.clone(), actual: 1, asked: 0 });
        }
        let Some(known) = self.runs.get_mut(run) else {
            self.runs.insert(run.clone(), Run::begin(attempt, ranks));
            return Ok(Vec::new());
        };
        if attempt < known.attempt {
            return Err(EditError::StaleAttempt { run: run.clone(), attempt, current: known.attempt });
        }
        if attempt == known.attempt {
            let same = EditError::AlreadyDone;
            let other = EditError::Ranks { run: run.clone(), actual: known.ranks, asked: ranks };
            return Err(if ranks == known.ranks { same } else { other });
        }
        let gone: Vec<Placed> = known.arriving_pieces().cloned().collect();
        let complete = std::mem::take(&mut known.complete);
        let arriving = std::mem::take(&mut known.arriving);
        *known = Run { complete, ..Run::begin(attempt, ranks) };
        if planted::is(Bug::ArrivingKept) {
            known.arriving = arriving;
            return Ok(Vec::new());
        }
        self.busy.remove(run);
        self.end_arriving(&gone);
        Ok(gone)
    }

    fn append(&mut self, blocks: &[Block], is_wish: bool) -> Result<Vec<Placed>, EditError> {
        let (mut is_news, mut gone) = (false, Vec::new());
        for block in blocks {
            let run = self.runs.get(&block.id.run);
            let run = run.ok_or_else(|| not_begun(&block.id.run, block.id.attempt))?;
            if planted::is(Bug::RetriedBlockDoubled) && run.has(&block.id) {
                let (born, clean_to) = (self.version, self.version);
                if let Some(piece) = block.piece.clone() {
                    self.pieces.insert(piece.key(), Placed { piece, born, clean_to });
                }
                is_news = true;
            } else if !run.has(&block.id) {
                gone.extend(self.append_one(block, is_wish)?);
                is_news = true;
            }
        }
        if is_news { Ok(gone) } else { Err(EditError::AlreadyDone) }
    }

    fn append_one(&mut self, block: &Block, is_wish: bool) -> Result<Vec<Placed>, EditError> {
        if let Some(piece) = &block.piece {
            self.check_unused(piece.object)?;
        }
        let at = self.version;
        let run = self.runs.get_mut(&block.id.run);
        let run = run.ok_or_else(|| not_begun(&block.id.run, block.id.attempt))?;
        if run.take(block, at, is_wish)? {
            return Ok(self.publish(&block.id.run, block.id.step));
        }
        self.busy.insert(block.id.run.clone());
        self.arriving_objects.extend(block.piece.iter().map(|piece| (piece.object, ())));
        Ok(Vec::new())
    }

    /// Notes that pieces are no longer arriving.
    fn end_arriving(&mut self, pieces: &[Placed]) {
        for placed in pieces {
            self.arriving_objects.remove(&placed.piece.object);
        }
    }

    /// Makes a step visible. If it is the first of its attempt, supersedes the same and all later steps of
    /// earlier attempts in the same version, so that no reader sees both or neither.
    fn publish(&mut self, run: &RunId, step: u64) -> Vec<Placed> {
        let Some(state) = self.runs.get_mut(run) else { return Vec::new() };
        let (blocks, shown) = state.publish(step);
        if state.arriving.is_empty() {
            self.busy.remove(run);
        }
        self.end_arriving(&blocks);
        let gone = self.supersede(run, shown);
        for mut placed in blocks {
            // The rows become visible only here, so earlier deletes do not apply to them.
            if !planted::is(Bug::DeleteReachesForward) {
                placed.clean_to = self.version;
            }
            self.pieces.insert(placed.piece.key(), placed);
        }
        gone
    }

    /// Updates the step count for a step that has just become visible, and strikes the steps that it
    /// supersedes.
    pub(super) fn supersede(
        &mut self,
        run: &RunId,
        SupersededSteps { superseded, steps }: SupersededSteps,
    ) -> Vec<Placed> {
        self.steps = self.steps + 1 - superseded;
        if superseded == 0 || planted::is(Bug::SupersededShown) {
            return Vec::new();
        }
        self.strike(&Scope { run: Some(run.clone()), steps, expression: None })
    }

    /// Strikes rows. A step that is deleted whole is marked, so that it is no longer listed.
    fn delete(&mut self, scope: &Scope) -> Vec<Placed> {
        if scope.expression.is_none() {
            let every = self.runs.keys().cloned();
            let runs: Vec<RunId> =
                scope.run.as_ref().map_or_else(|| every.collect(), |run| vec![run.clone()]);
            for run in runs {
                if let Some(run) = self.runs.get_mut(&run) {
                    run.delete(scope.steps);
                }
            }
        }
        self.strike(scope)
    }

    fn raise_floor(&mut self, to: Version) -> Result<Vec<Placed>, EditError> {
        // The version that this edit makes does not exist yet when its author asks.
        if to >= self.version {
            return Err(EditError::Ahead { asked: to, current: self.version });
        }
        if to <= self.floor {
            return Err(EditError::AlreadyDone);
        }
        self.floor = to;
        Ok(Vec::new())
    }

    fn forget(&mut self, objects: &[ObjectId]) -> Result<Vec<Placed>, EditError> {
        let mut is_news = false;
        for object in objects {
            let is_early = self.retired.get(object).is_some_and(|life| life.retired > self.floor);
            if is_early || self.names(*object) {
                return Err(EditError::InUse { object: *object });
            }
            is_news |= self.retired.remove(object).is_some();
        }
        if is_news { Ok(Vec::new()) } else { Err(EditError::AlreadyDone) }
    }

    fn add_column(&mut self, column: &AddedColumn) -> Result<Vec<Placed>, EditError> {
        match self.columns.iter().find(|known| known.name == column.name) {
            Some(known) if known == column => Err(EditError::AlreadyDone),
            Some(_) => Err(EditError::ColumnThere { column: column.name.to_string() }),
            None => {
                self.columns = self.columns.iter().chain([column]).cloned().collect();
                Ok(Vec::new())
            }
        }
    }

    /// Refuses an object that any version has named.
    pub(super) fn check_unused(&self, object: ObjectId) -> Result<(), EditError> {
        if self.retired.contains_key(&object) || self.names(object) {
            return Err(EditError::ObjectReused { object });
        }
        Ok(())
    }
}

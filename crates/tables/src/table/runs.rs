//! Runs and steps: what a version says about them, without a look at any row.

use super::{Table, TableError};
use crate::TableSchema;
use crate::protocol::{Edit, EditError, Form, Manifest, Run, RunId, Scope, StepRange, Version};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A run, as the current version has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its name.
    pub name: String,
    /// The attempt that may write.
    pub attempt: u64,
    /// How many ranks write each of its steps.
    pub ranks: u32,
    /// The last visible step, whoever wrote it: a checkpoint is admissible up to it.
    pub last_complete: Option<u64>,
    /// The last step that the current attempt made visible.
    pub published: Option<u64>,
    /// How many steps are visible.
    pub steps: u64,
    /// How many rows they have; rows that were deleted by an expression count.
    pub rows: u64,
}

/// What a rank of a run has to know of it, listed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The attempt that may write.
    pub attempt: u64,
    /// The last visible step, whoever wrote it: a checkpoint is admissible up to it.
    pub last_complete: Option<u64>,
    /// The last step that the current attempt made visible.
    pub published: Option<u64>,
    /// Whether a block of this rank has come in the current attempt.
    pub has_rank_given: bool,
}

/// A visible step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// Its run.
    pub run: String,
    /// Its number.
    pub step: u64,
    /// Its time in the unit of the simulation, if its writer told it.
    pub time: Option<f64>,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// How many rows it has; rows that were deleted by an expression count.
    pub rows: u64,
}

/// What a version of a table is made of.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// The table's name.
    pub name: String,
    /// Its columns and their roles.
    pub schema: Arc<TableSchema>,
    /// The version that this is about.
    pub version: Version,
    /// How many visible pieces lie as their writers appended them.
    pub blocks: u64,
    /// How many were packed.
    pub cubes: u64,
    /// How many rows they have; rows that were deleted by an expression and not packed since count.
    pub rows: u64,
    /// How many bytes they take in the store.
    pub bytes: u64,
    /// How many runs there are.
    pub runs: u64,
    /// How many steps of them are visible.
    pub steps: u64,
}

impl TableInfo {
    /// Of a table in which there is nothing.
    pub(super) fn none(name: &str, schema: Arc<TableSchema>, version: Version) -> Self {
        let name = name.to_owned();
        Self { name, schema, version, blocks: 0, cubes: 0, rows: 0, bytes: 0, runs: 0, steps: 0 }
    }

    /// Adds what a version has.
    pub(super) fn add(&mut self, manifest: &Manifest) {
        let add = |total: &mut u64, number: u64| *total = total.saturating_add(number);
        for piece in manifest.pieces.values().map(|placed| &placed.piece) {
            add(if piece.form == Form::Cube { &mut self.cubes } else { &mut self.blocks }, 1);
            add(&mut self.rows, piece.rows);
            add(&mut self.bytes, piece.bytes);
        }
        for run in manifest.runs.values().filter(|run| is_listed(run)) {
            add(&mut self.runs, 1);
            add(&mut self.steps, steps_there(run).count() as u64);
        }
    }
}

impl Table {
    /// The runs, by name. A run all of whose steps were deleted is not among them, but for one whose attempt
    /// has made no step visible yet: they may come.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn runs(&self) -> Result<Vec<RunSummary>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        Ok(manifest.runs.iter().filter(|(_, run)| is_listed(run)).map(summary).collect())
    }

    /// The visible steps of a run, or of all runs one after the other, in rising order.
    ///
    /// # Errors
    /// [`TableError::NoRun`], [`TableError::Damaged`], errors of the store.
    pub async fn steps(&self, run: Option<&str>) -> Result<Vec<StepSummary>, TableError> {
        self.steps_from(run, 0).await
    }

    /// As [`Table::steps`], but for those before a step. Those of one attempt become visible in rising order.
    ///
    /// # Errors
    /// As [`Table::steps`].
    pub async fn steps_from(&self, run: Option<&str>, first: u64) -> Result<Vec<StepSummary>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        let steps_of = |(name, run): (&RunId, &Run)| -> Vec<StepSummary> {
            let there = run.complete.since(&first).filter(|(_, there)| !there.is_deleted);
            there
                .map(|(step, there)| StepSummary {
                    run: name.to_string(),
                    step: *step,
                    time: there.time.map(|time| time.number()),
                    attempt: there.attempt,
                    rows: there.rows,
                })
                .collect()
        };
        let Some(name) = run else { return Ok(manifest.runs.iter().flat_map(steps_of).collect()) };
        let id = RunId::from(name);
        let run = manifest.runs.get(&id).ok_or_else(|| self.no_run(name, manifest.runs.keys()))?;
        Ok(steps_of((&id, run)))
    }

    /// The steps of a run, from one on, that its attempt under way wrote and that were deleted since, in
    /// rising order: it cannot write them again, and a new attempt can.
    ///
    /// # Errors
    /// As [`Table::steps`].
    pub async fn deleted_steps_from(&self, run: &str, first: u64) -> Result<Vec<u64>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        let id = RunId::from(run);
        let run = manifest.runs.get(&id).ok_or_else(|| self.no_run(run, manifest.runs.keys()))?;
        let deleted =
            run.complete.since(&first).filter(|(_, there)| there.is_deleted && there.attempt == run.attempt);
        Ok(deleted.map(|(step, _)| *step).collect())
    }

    /// The last visible step of a run: a checkpoint is admissible up to it. None if the run has no visible
    /// step, as after all of them were deleted, or never began, so that a program that starts for the first
    /// time may ask as well.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn last_complete(&self, run: &str) -> Result<Option<u64>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        Ok(manifest.runs.get(run).and_then(Run::last_complete))
    }

    /// What a rank of a run has to know of it, also where all its steps were deleted; none if it never began.
    /// It costs the same however many runs and steps there are.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn run_state(&self, run: &str, rank: u32) -> Result<Option<RunState>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        Ok(manifest.runs.get(run).map(|run| RunState {
            attempt: run.attempt,
            last_complete: run.last_complete(),
            published: run.published,
            has_rank_given: run.has_given(rank),
        }))
    }

    /// What the current version is made of.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn info(&self) -> Result<TableInfo, TableError> {
        let state = self.ledger.current().await?;
        let schema = self.schema_of(&state.manifest)?;
        let mut info = TableInfo::none(&self.name, schema, state.head.version);
        info.add(&state.manifest);
        Ok(info)
    }

    /// Waits for a version after `since`: returns the current version as soon as there is one, and after
    /// `wait` at the latest. Nothing polls: the store wakes whoever waits.
    ///
    /// # Errors
    /// [`TableError::Edit`] if `since` is ahead of the table, [`TableError::NotFound`] if the table is
    /// dropped, errors of the store.
    pub async fn follow(&self, since: Version, wait: Duration) -> Result<Version, TableError> {
        let head = self.ledger.head_now().await?;
        if since > head.version {
            return Err(EditError::Ahead { asked: since, current: head.version }.into());
        }
        if since < head.version {
            return Ok(head.version);
        }
        Ok(self.ledger.wait(head, wait).await?.version)
    }

    /// Deletes the rows that are visible now and meet all that is said: of a run, of steps, for which an
    /// expression is true. The version in which they are gone. Rows that come later stay, also of the same
    /// steps.
    ///
    /// Whole steps go as such; of others the rows are left out by queries until they are packed. Older
    /// versions keep what they had. A step that went as a whole can be written again by a new attempt only:
    /// for the attempt that wrote it, it is there already. With all steps of a run goes what its ranks noted
    /// of them, and its attributes, unless an attempt that began has completed no step yet, or a snapshot is
    /// kept that may show it. An attempt that had completed some and goes on notes its attributes again.
    ///
    /// # Errors
    /// [`TableError::NoRun`], [`TableError::Steps`] for steps inside out, [`TableError::Filter`] for one that
    /// does not fit the table, errors of the store.
    pub async fn delete(
        &self,
        run: Option<&str>,
        steps: Option<Range<u64>>,
        expression: Option<&str>,
    ) -> Result<Version, TableError> {
        let steps = match steps {
            None => StepRange::ALL,
            Some(steps) if steps.is_empty() => {
                return Err(TableError::Steps { from: steps.start, to: steps.end });
            }
            Some(steps) => StepRange { from: steps.start, to: Some(steps.end) },
        };
        self.delete_within(run, steps, expression).await
    }

    /// As [`Table::delete`], of a step and all later ones, the last that there can be among them.
    ///
    /// # Errors
    /// As [`Table::delete`].
    pub async fn delete_from(
        &self,
        run: Option<&str>,
        first: u64,
        expression: Option<&str>,
    ) -> Result<Version, TableError> {
        self.delete_within(run, StepRange::since(first), expression).await
    }

    async fn delete_within(
        &self,
        run: Option<&str>,
        steps: StepRange,
        expression: Option<&str>,
    ) -> Result<Version, TableError> {
        if let Some(name) = run {
            let manifest = self.ledger.current().await?.manifest;
            if !manifest.runs.contains_key(name) {
                return Err(self.no_run(name, manifest.runs.keys()));
            }
        }
        let expression = match expression {
            Some(text) => Some(checked(&*self.schema_now().await?, text)?),
            None => None,
        };
        let is_whole = steps == StepRange::ALL && expression.is_none();
        // As they are before: what is noted from here on is about the run's next life.
        let (noted, of_ranks) = match is_whole {
            true => (self.noted_of(run).await?, self.rank_notes_of(run).await?),
            false => (Vec::new(), Vec::new()),
        };
        let scope = Scope { run: run.map(RunId::from), steps, expression };
        let version = self.ledger.commit(Edit::Delete { scope }).await?;
        if is_whole {
            // What ranks noted is about steps that are no longer there.
            self.forget_notes(&of_ranks).await?;
            self.forget_attributes(noted).await?;
        }
        Ok(version)
    }

    pub(super) fn no_run<'a>(&self, name: &str, names: impl Iterator<Item = &'a RunId>) -> TableError {
        let distance = |other: &&RunId| strsim::damerau_levenshtein(name, &other.0);
        let near = names.min_by_key(distance).filter(|other| distance(other) <= 2);
        TableError::NoRun {
            table: self.name.clone(),
            run: name.to_owned(),
            near: near.map(ToString::to_string),
        }
    }
}

/// An expression as the manifest keeps it, once it is known to fit the table.
fn checked(schema: &TableSchema, text: &str) -> Result<Arc<str>, TableError> {
    let expression = crate::expression::Expression::parse(text)?;
    expression.bind(schema.columns())?;
    Ok(expression.stored()?.into())
}

fn steps_there(run: &Run) -> impl Iterator<Item = u64> {
    run.complete.values().filter(|there| !there.is_deleted).map(|there| there.rows)
}

/// Whether there is anything left of it, or may come.
pub(super) fn is_listed(run: &Run) -> bool {
    run.published.is_none() || steps_there(run).next().is_some() || !run.arriving.is_empty()
}

fn summary((name, run): (&RunId, &Run)) -> RunSummary {
    RunSummary {
        name: name.to_string(),
        attempt: run.attempt,
        ranks: run.ranks,
        last_complete: run.last_complete(),
        published: run.published,
        steps: steps_there(run).count() as u64,
        rows: steps_there(run).fold(0, u64::saturating_add),
    }
}

//! Runs and steps: what a version says about them, without reading rows.

use super::{Query, Table, TableError};
use crate::TableSchema;
use crate::protocol::{Edit, EditError, Form, Manifest, Run, RunId, Scope, StepRange, Version};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A run in the current version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSummary {
    /// Its name.
    pub name: String,
    /// The attempt that may write.
    pub attempt: u64,
    /// Number of ranks that write each of its steps.
    pub ranks: u32,
    /// The last visible step of any attempt; a checkpoint is admissible up to it.
    pub last_complete: Option<u64>,
    /// The last step that the current attempt made visible.
    pub published: Option<u64>,
    /// Number of visible steps.
    pub steps: u64,
    /// Number of rows in them, including those deleted by an expression.
    pub rows: u64,
}

/// What a rank needs to know about its run, listed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunState {
    /// The attempt that may write.
    pub attempt: u64,
    /// The last visible step of any attempt; a checkpoint is admissible up to it.
    pub last_complete: Option<u64>,
    /// The last step that the current attempt made visible.
    pub published: Option<u64>,
    /// Whether the current attempt has received a block of this rank.
    pub has_rank_given: bool,
}

/// A visible step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepSummary {
    /// Its run.
    pub run: String,
    /// Its number.
    pub step: u64,
    /// Its time, if the writer gave one: in [`TableSchema::time_unit`], or else in a unit that only the
    /// writer knows.
    pub time: Option<f64>,
    /// The attempt that wrote it.
    pub attempt: u64,
    /// Number of rows, including those deleted by an expression.
    pub rows: u64,
}

/// What a version of a table consists of.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// The table's name.
    pub name: String,
    /// Its columns and their roles.
    pub schema: Arc<TableSchema>,
    /// The version described.
    pub version: Version,
    /// Number of visible pieces that are still blocks, as appended.
    pub blocks: u64,
    /// Number of visible pieces that are packed.
    pub cubes: u64,
    /// Number of rows, including those deleted by an expression and not yet packed away.
    pub rows: u64,
    /// Number of bytes that they take in the store.
    pub bytes: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of visible steps.
    pub steps: u64,
}

impl TableInfo {
    /// The description of an empty table.
    pub(super) fn none(name: &str, schema: Arc<TableSchema>, version: Version) -> Self {
        let name = name.to_owned();
        Self { name, schema, version, blocks: 0, cubes: 0, rows: 0, bytes: 0, runs: 0, steps: 0 }
    }

    /// Adds the content of a version.
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
    /// The runs, sorted by name. A run whose steps were all deleted is not listed, unless its attempt has
    /// made no step visible yet: those are expected to come.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn runs(&self) -> Result<Vec<RunSummary>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        Ok(manifest.runs.iter().filter(|(_, run)| is_listed(run)).map(summary).collect())
    }

    /// The visible steps of one run, or of all runs one after another, in rising order.
    ///
    /// # Errors
    /// [`TableError::NoRun`], [`TableError::Damaged`], errors of the store.
    pub async fn steps(&self, run: Option<&str>) -> Result<Vec<StepSummary>, TableError> {
        self.steps_from(run, 0).await
    }

    /// Like [`Table::steps`], from step `first` on. Steps of one attempt become visible in rising order.
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

    /// The steps with rows that a query may return, by run: those that are visible in its version, of its
    /// runs. Its filter and its sample are not considered, because that would take reading rows.
    ///
    /// # Errors
    /// [`TableError::VersionGone`], [`TableError::Damaged`], errors of the store.
    pub async fn steps_asked(&self, query: &Query) -> Result<BTreeMap<String, Vec<u64>>, TableError> {
        let manifest = self.manifest_for(query).await?;
        let asked =
            manifest.runs.iter().filter(|(name, _)| query.runs.as_ref().is_none_or(|runs| runs.has(name)));
        let steps_of = |run: &Run| -> Vec<u64> {
            let with_rows = run.complete.iter().filter(|(_, there)| !there.is_deleted && there.rows > 0);
            with_rows.map(|(step, _)| *step).collect()
        };
        let steps = asked.map(|(name, run)| (name.to_string(), steps_of(run)));
        Ok(steps.filter(|(_, steps)| !steps.is_empty()).collect())
    }

    /// The steps from `first` on that the current attempt of a run wrote and that were deleted since, in
    /// rising order. Only a new attempt can write them again.
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

    /// The last visible step of a run, up to which a checkpoint is admissible. `None` if the run has no
    /// visible step because all were deleted or it never began, so a program may ask even on its first start.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn last_complete(&self, run: &str) -> Result<Option<u64>, TableError> {
        let manifest = self.ledger.current().await?.manifest;
        Ok(manifest.runs.get(run).and_then(Run::last_complete))
    }

    /// What a rank needs to know about its run, even if all steps were deleted; `None` if the run never
    /// began. The cost does not depend on the number of runs and steps.
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

    /// What the current version consists of.
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

    /// Waits for a version after `since`: returns the current version as soon as there is a later one, and
    /// after `wait` at the latest. Does not poll: the store wakes the waiting task.
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

    /// Deletes the visible rows that match all of the given criteria: of a run, of a range of steps, for
    /// which an expression is true. Returns the first version without them. Rows that are added later stay,
    /// even of the same steps.
    ///
    /// Whole steps are removed as such; from others, queries leave the deleted rows out until they are
    /// packed. Older versions keep their rows. A step that was deleted whole can be written again only by a
    /// new attempt, because the attempt that wrote it still counts it as written. Deleting all steps of a run
    /// also removes the notes of its ranks, even those of an attempt that has completed no step yet: an
    /// attempt that found no checkpoint begins anew that way. The run's attributes are removed too, unless
    /// its current attempt has completed no step yet, or a snapshot exists that may show the run. An attempt
    /// that had completed steps and continues has to set its attributes again.
    ///
    /// # Errors
    /// [`TableError::NoRun`], [`TableError::Steps`] for an empty range of steps, [`TableError::Filter`] for
    /// an expression that does not fit the table, [`TableError::DeleteInDoubt`] if the store failed in the
    /// middle, [`TableError::NotesLeft`] if the rows are deleted but notes or attributes may be left, other
    /// errors of the store.
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

    /// Like [`Table::delete`], for a step and all later ones, including the last possible one.
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
        // Read before the delete: anything noted later is about the run's next life.
        let (noted, of_ranks) = match is_whole {
            true => (self.noted_of(run).await?, self.rank_notes_of(run).await?),
            false => (Vec::new(), Vec::new()),
        };
        let scope = Scope { run: run.map(RunId::from), steps, expression };
        let version = self.ledger.commit(Edit::Delete { scope }).await;
        let version = version.map_err(|error| self.of_delete(error))?;
        // The rows are deleted now: an error of what follows must not say that nothing was done.
        let forgot = async {
            // Ranks' notes are about steps that no longer exist.
            self.forget_notes(&of_ranks).await?;
            self.forget_attributes(noted).await
        };
        let left = |source| TableError::NotesLeft { version, source: Box::new(source) };
        if is_whole {
            forgot.await.map_err(left)?;
        }
        Ok(version)
    }

    /// The error of a delete. One that may have been committed is no other edit that may be repeated.
    fn of_delete(&self, error: TableError) -> TableError {
        let source = match error {
            TableError::InDoubt { source, .. } => source,
            TableError::Forgotten { .. } => Box::new(error),
            error => return error,
        };
        TableError::DeleteInDoubt { table: self.name.clone(), source }
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

/// Parses an expression, checks that it fits the table, and returns the form that the manifest stores.
fn checked(schema: &TableSchema, text: &str) -> Result<Arc<str>, TableError> {
    let expression = crate::expression::Expression::parse(text)?;
    expression.bind(schema.columns())?;
    Ok(expression.stored()?.into())
}

fn steps_there(run: &Run) -> impl Iterator<Item = u64> {
    run.complete.values().filter(|there| !there.is_deleted).map(|there| there.rows)
}

/// Whether the run has rows left, or may still get some.
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

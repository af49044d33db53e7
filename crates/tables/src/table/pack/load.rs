//! Loading: adds many rows of a run at once, packed immediately and written only once.
//!
//! An append makes a step durable and visible as soon as it is computed; packing it later rewrites each row.
//! Rows that are all available up front, as in an import, need not go that way: they are grown into a tree of
//! cubes in memory, and all their steps become visible in one version.
//!
//! Invariant: a load adds either all of its steps or none.
//! Invariant: rows are checked before anything else uses them.

use super::super::append::Encoded;
use super::super::ledger::Fate;
use super::super::query::NewIds;
use super::super::{Table, TableError};
use super::growth::OBJECTS_IN_FLIGHT_MAX;
use super::input::weighed;
use super::pace::Pace;
use super::{PackOptions, in_new_cubes};
use crate::TableSchema;
use crate::block::{block_bytes_at_most, check};
use crate::cube::{GrowingOrigins, Origins, Tree, joined};
use crate::protocol::{
    Block, BlockId, Edit, EditError, LoadedStep, ObjectId, Piece, RunId, SessionId, StepTime, Version,
};
use crate::threads::map;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use futures::{StreamExt, stream};
use std::sync::Arc;

/// How often objects are written, if the session ends each time.
const SESSIONS_MAX: usize = 5;

/// Maximum number of steps in one load. An edit names each of them in some fifty bytes, and a store accepts a
/// few MiB at once.
pub(super) const STEPS_MAX: usize = 1 << 14;

/// Maximum number of steps that are stored as a block each; more steps become a tree, however few their rows.
const BLOCKS_MAX: usize = 64;

/// A step with the rows of all ranks.
#[derive(Clone, Debug)]
pub struct WholeStep {
    /// The step.
    pub step: u64,
    /// Its time in the unit of the simulation, if it has one.
    pub time: Option<f64>,
    /// Its rows, with the columns of the table.
    pub rows: RecordBatch,
}

/// A load that is ready to be written.
pub(super) struct Loading {
    run: RunId,
    attempt: u64,
    steps: Vec<LoadedStep>,
    /// The ids of the rows, if ids are unique.
    ids: Vec<Arc<NewIds>>,
    rows: Rows,
    threads: usize,
}

enum Rows {
    Tree(Tree),
    Blocks(Vec<Encoded>),
}

impl Table {
    /// Adds whole steps of a run, in rising order and packed immediately; returns the version that has them.
    ///
    /// All of them become visible in one version. Adding the same steps again changes nothing. If both the
    /// rows (below [`PackOptions::rows_min`]) and the steps are few, each step becomes a block until it is
    /// packed with others, unless one is too large for an object. Takes about six times as much memory as the
    /// rows; [`Table::loader`] takes more steps than fit in memory.
    ///
    /// # Errors
    /// As [`Table::append`]; [`EditError::StepArriving`] while only some ranks' blocks of a step have
    /// arrived; [`TableError::TooManySteps`], [`TableError::PackOptions`].
    pub async fn load(
        &self,
        run: &str,
        attempt: u64,
        steps: &[WholeStep],
        options: &PackOptions,
    ) -> Result<Version, TableError> {
        options.validate()?;
        if steps.is_empty() {
            return self.version().await;
        }
        if steps.len() > STEPS_MAX {
            return Err(TableError::TooManySteps { steps: steps.len(), max: STEPS_MAX });
        }
        let run = RunId::from(run);
        if let Some(version) = self.has_loaded(&run, attempt, steps).await? {
            return Ok(version);
        }
        self.notice_columns(steps.iter().map(|step| &step.rows)).await?;
        let loading = self.loading(&run, attempt, steps, options)?;
        let made = self.write_loading(&loading, options).await?;
        Ok(made.unwrap_or_else(|| self.ledger.known_version()))
    }

    /// The current version if it has all of these steps; an error if they may not be loaded now. So loading
    /// the same steps again costs only this check.
    pub(super) async fn has_loaded(
        &self,
        run: &RunId,
        attempt: u64,
        steps: &[WholeStep],
    ) -> Result<Option<Version>, TableError> {
        let state = self.ledger.current().await?;
        match state.manifest.admits_load(run, attempt, steps.iter().map(|step| step.step)) {
            Ok(()) => Ok(None),
            Err(EditError::AlreadyDone) => Ok(Some(state.head.version)),
            Err(error) => Err(error.into()),
        }
    }

    /// Prepares the load for writing, without calling the store.
    pub(super) fn loading(
        &self,
        run: &RunId,
        attempt: u64,
        steps: &[WholeStep],
        options: &PackOptions,
    ) -> Result<Loading, TableError> {
        let count = steps.iter().map(|step| step.rows.num_rows() as u64).sum::<u64>();
        let (schema, threads) = (self.lineage.newest(), options.threads(count));
        for step in steps {
            // Rows from before a column was added have no value in it.
            let known = self.lineage.with_columns_up_to(&schema, step.rows.num_columns());
            check(&known, &step.rows).map_err(Self::of_new_rows)?;
        }
        let ids = self.new_ids(run, attempt, steps)?;
        // Rows that are few may be long: a tree divides what is too large for one object.
        let fits = |step: &WholeStep| block_bytes_at_most(&schema, &step.rows) <= self.block_bytes_max();
        let is_few = count < options.rows_min && steps.len() <= BLOCKS_MAX && steps.iter().all(fits);
        let rows = if is_few || count == 0 {
            let id = |step: u64| BlockId { run: run.clone(), attempt, step, rank: 0 };
            let blocks = steps.iter().map(|step| self.encode(id(step.step), step.time, &step.rows));
            Rows::Blocks(blocks.collect::<Result<_, _>>()?)
        } else {
            let (rows, origins) = self.together(&schema, run, steps, threads)?;
            let weights = weighed(&schema, &rows, threads).map_err(Self::of_new_rows)?;
            let tree = Tree::grow(&schema, rows, weights.into_vec(), origins, &options.shape, threads);
            Rows::Tree(tree.map_err(in_new_cubes)?)
        };
        let steps = steps.iter().map(loaded).collect();
        Ok(Loading { run: run.clone(), attempt, steps, ids, rows, threads })
    }

    /// Writes and commits the load; returns its version, or `None` if another process added all of the steps
    /// in the meantime. A commit in doubt is settled as its own, and never mistaken for that of another
    /// process.
    pub(super) async fn write_loading(
        &self,
        loading: &Loading,
        options: &PackOptions,
    ) -> Result<Option<Version>, TableError> {
        let mut pace = Pace::begin(self, options).await?;
        for _ in 0..SESSIONS_MAX {
            let session = self.ledger.session().await?.id;
            let add = match &loading.rows {
                Rows::Tree(tree) => match self.write_tree(tree, session, loading.threads, &mut pace).await {
                    Err(TableError::Fenced { .. }) => continue,
                    grown => grown?.pieces,
                },
                Rows::Blocks(blocks) => self.write_blocks(blocks, session).await?,
            };
            let written: Vec<ObjectId> = add.iter().map(|piece| piece.object).collect();
            let (run, steps) = (loading.run.clone(), loading.steps.clone());
            let edit = Edit::Load { run, attempt: loading.attempt, steps, add };
            match self.commit_written(edit, session, &written, loading.ids.clone()).await? {
                Fate::Made(version, _) => return Ok(Some(version)),
                Fate::Refused(EditError::AlreadyDone) => return Ok(None),
                Fate::Refused(error) => return Err(error.into()),
                Fate::Forgotten => return Err(TableError::Forgotten { table: self.name.clone() }),
                // Objects written under an ended session may be removed at any time, so they are written
                // again.
                Fate::Fenced => {}
            }
        }
        Err(TableError::Fenced { table: self.name.clone() })
    }

    /// Creates the objects of blocks under a session: all of them or, on an error, none that stays, as in
    /// [`Table::write_tree`].
    async fn write_blocks(&self, blocks: &[Encoded], session: SessionId) -> Result<Vec<Piece>, TableError> {
        // Named first: one whose outcome is unknown may exist, and has to be removed like the others.
        let begun: Vec<ObjectId> = blocks.iter().map(|_| self.ledger.new_object_of(session)).collect();
        let put = blocks.iter().zip(&begun).map(|(block, name)| self.put_block(block, *name));
        let put: Vec<_> = put.collect();
        // Every write ends before anything is removed, so that none creates an object after its removal.
        let put: Vec<_> = stream::iter(put).buffered(OBJECTS_IN_FLIGHT_MAX).collect().await;
        let put: Result<Vec<Block>, TableError> = put.into_iter().collect();
        if put.is_err() {
            let _ = self.remove_objects(&begun).await;
        }
        Ok(put?.into_iter().filter_map(|block| block.piece).collect())
    }

    /// The ids of the rows, if ids are unique.
    fn new_ids(
        &self,
        run: &RunId,
        attempt: u64,
        steps: &[WholeStep],
    ) -> Result<Vec<Arc<NewIds>>, TableError> {
        if !self.schema.has_unique_ids() {
            return Ok(Vec::new());
        }
        let of_step = |step: &WholeStep| {
            let id = BlockId { run: run.clone(), attempt, step: step.step, rank: 0 };
            NewIds::of(&self.schema, &id, &step.rows).map(Arc::new)
        };
        steps.iter().map(of_step).collect()
    }

    /// Concatenates the rows of all steps, which must have been checked, with all columns of the schema; also
    /// returns their origins.
    fn together(
        &self,
        schema: &TableSchema,
        run: &RunId,
        steps: &[WholeStep],
        threads: usize,
    ) -> Result<(RecordBatch, Origins), TableError> {
        let count = steps.iter().map(|step| step.rows.num_rows()).sum();
        let mut origins = GrowingOrigins::with_room(count);
        for step in steps {
            origins.append_alike(run, step.step, step.rows.num_rows());
        }
        let origins = origins.finish();
        let places: Vec<usize> = (0..schema.columns().fields().len()).collect();
        let columns = map(&places, threads, |&place| {
            let data_type = schema.columns().field(place).data_type();
            let of_step = |step: &WholeStep| -> ArrayRef {
                let column = step.rows.columns().get(place).cloned();
                column.unwrap_or_else(|| new_null_array(data_type, step.rows.num_rows()))
            };
            let columns: Vec<ArrayRef> = steps.iter().map(of_step).collect();
            joined(data_type, &columns)
        });
        let columns = columns.into_iter().collect::<Result<Vec<_>, _>>().map_err(Self::of_new_rows)?;
        let options = RecordBatchOptions::new().with_row_count(Some(origins.rows()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(schema.columns()), columns, &options);
        Ok((rows.map_err(|error| Self::of_new_rows(error.into()))?, origins))
    }
}

fn loaded(step: &WholeStep) -> LoadedStep {
    let rows = step.rows.num_rows() as u64;
    LoadedStep { step: step.step, time: step.time.map(StepTime::from), rows }
}

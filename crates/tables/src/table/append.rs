//! Appending: turns the rows of one rank and step into a block, and commits the block to a version.

use super::append_queue::{AppendAnswer, Lane, Ready};
use super::codec::tight_box;
use super::ledger::{Fate, create};
use super::query::NewIds;
use super::runs::{RunSummary, is_listed};
use super::{Table, TableError, check_name};
use crate::block::{BlockError, Written, block_bytes_at_most, check, row_bytes_at_most, write_block};
use crate::lattice::joined;
use crate::protocol::{
    Block, BlockId, Edit, EditError, Extent, Form, LastStep, Manifest, ObjectId, Piece, Run, RunId,
    SessionId, StepRange, StepTime, TightBox, Version, WeightRange,
};
use arrow_array::RecordBatch;
use atoll_errors::ErrorKind;
use atoll_store::{Buffer, Cell, Outcome};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often the objects of an append are written, if the session ends each time.
const SESSIONS_MAX: usize = 5;

/// A block encoded for its object.
pub(super) struct Encoded {
    id: BlockId,
    time: Option<StepTime>,
    rows: u64,
    /// Empty for a block without rows.
    bytes: Buffer,
    front_bytes: u64,
    tight: TightBox,
    /// The new ids, if ids are unique. A block without rows has no ids but still names its step.
    ids: Option<Arc<NewIds>>,
}

impl Table {
    /// Begins an attempt of a run: from then on, only this attempt may append to the run. Idempotent, so
    /// every rank may call it.
    ///
    /// The name of a run is not empty, and has at most 255 bytes and no control characters.
    ///
    /// # Errors
    /// [`TableError::Name`]; [`TableError::Edit`] if a later attempt has begun, or this one with a different
    /// number of ranks; errors of the store.
    pub async fn begin(&self, run: &str, attempt: u64, ranks: u32) -> Result<Version, TableError> {
        check_name("run", run)?;
        let edit = Edit::Begin { run: RunId::from(run), attempt, ranks, last: LastStep::Any };
        self.ledger.commit(edit).await
    }

    /// Begins the next attempt of a run, 1 for a new run, and returns its number. The number is taken by a
    /// conditional write, so no two processes get the same one; a single process calls this for all ranks.
    ///
    /// # Errors
    /// As [`Table::begin`].
    pub async fn begin_next(&self, run: &str, ranks: u32) -> Result<u64, TableError> {
        check_name("run", run)?;
        let run = RunId::from(run);
        let mut taken = 0;
        loop {
            let manifest = self.ledger.current().await?.manifest;
            let last = manifest.runs.get(&run).map_or(0, |run| run.attempt).max(taken);
            let attempt = attempt_after(&run, last)?;
            let edit = Edit::Begin { run: run.clone(), attempt, ranks, last: LastStep::Any };
            match self.ledger.commit_new(edit).await {
                Ok(_) => return Ok(attempt),
                // Another process took this number in the meantime.
                Err(TableError::Edit(
                    EditError::StaleAttempt { .. } | EditError::AlreadyDone | EditError::Ranks { .. },
                )) if ranks > 0 => taken = attempt,
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins the next attempt of a run if the run is unchanged since the caller saw it. `seen` is its entry
    /// in [`Table::runs`], or `None` if it was not listed. Returns the number of the attempt, or `None` if
    /// another attempt has begun or the last complete step has changed; then nothing was changed. The check
    /// and the start are one conditional write: of several callers that saw the same state, only one
    /// succeeds, and it supersedes no step that came since.
    ///
    /// # Errors
    /// As [`Table::begin`].
    pub async fn begin_after(
        &self,
        run: &str,
        seen: Option<&RunSummary>,
        ranks: u32,
    ) -> Result<Option<u64>, TableError> {
        check_name("run", run)?;
        let run = RunId::from(run);
        let manifest = self.ledger.current().await?.manifest;
        let there = manifest.runs.get(&run);
        let is_as_seen = match (seen, there) {
            (Some(seen), Some(there)) => {
                (seen.attempt, seen.last_complete) == (there.attempt, there.last_complete())
            }
            (Some(_), None) => false,
            // A run of which nothing is left is not listed either.
            (None, there) => !there.is_some_and(is_listed),
        };
        if !is_as_seen {
            return Ok(None);
        }
        // If another attempt begins in the meantime, it has this number or a higher one.
        let attempt = attempt_after(&run, there.map_or(0, |there| there.attempt))?;
        let last = LastStep::Is(there.and_then(Run::last_complete));
        match self.ledger.commit_new(Edit::Begin { run, attempt, ranks, last }).await {
            Ok(_) => Ok(Some(attempt)),
            Err(TableError::Edit(
                EditError::RunWentOn { .. }
                | EditError::StaleAttempt { .. }
                | EditError::AlreadyDone
                | EditError::Ranks { .. },
            )) if ranks > 0 => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Appends the rows of one rank and step; returns the version that contains them.
    ///
    /// The rows become visible in the version that adds the last rank's rows of the step. Appending the same
    /// block again changes nothing, even after its rows were packed or deleted. Concurrent appends share
    /// commits; those of one rank are committed in the order in which they were called.
    ///
    /// # Errors
    /// [`TableError::Block`] if the rows do not fit the table, [`TableError::TooLarge`], [`TableError::Edit`]
    /// if the attempt or step may not be written, or if ids are unique and the run already has some of these
    /// ([`EditError::RepeatedIds`]), [`TableError::Behind`] if an earlier append of the same rank failed,
    /// [`TableError::BlockInDoubt`] if the store failed in the middle, other errors of the store.
    pub async fn append(&self, id: BlockId, rows: &RecordBatch) -> Result<Version, TableError> {
        self.append_at(id, None, rows).await
    }

    /// Like [`Table::append`], with the time of the step in [`crate::TableSchema::time_unit`]. It is stored
    /// bit by bit and returned by [`Table::steps`]. If ranks give different times, that of the lowest rank
    /// counts.
    ///
    /// # Errors
    /// As [`Table::append`].
    pub async fn append_at(
        &self,
        id: BlockId,
        time: Option<f64>,
        rows: &RecordBatch,
    ) -> Result<Version, TableError> {
        let ids = vec![id.clone()];
        self.notice_columns([rows]).await?;
        let made = self.append_encoded(ids, false, |table| Ok(vec![table.encode(id, time, rows)?])).await?;
        Ok(made.unwrap_or_else(|| self.ledger.known_version()))
    }

    /// Like [`Table::append_at`], for callers that must know whether these very rows were added. Returns
    /// `None` if the table already had this block, with these or other rows; then nothing was changed and
    /// these rows were not kept. Does not share its commit with other appends.
    ///
    /// # Errors
    /// As [`Table::append`].
    pub async fn append_new(
        &self,
        id: BlockId,
        time: Option<f64>,
        rows: &RecordBatch,
    ) -> Result<Option<Version>, TableError> {
        let ids = vec![id.clone()];
        self.notice_columns([rows]).await?;
        self.append_encoded(ids, true, |table| Ok(vec![table.encode(id, time, rows)?])).await
    }

    /// Appends the rows as the next free step of a rank, even if other processes do the same concurrently:
    /// the first step from `from` on that comes after the last complete step and that no other process has
    /// written as this rank. Returns the step and the version.
    ///
    /// # Errors
    /// As [`Table::append`]; [`EditError::StepOrder`] if there is no higher step number.
    pub async fn append_next(
        &self,
        (run, attempt, rank): (RunId, u64, u32),
        from: u64,
        time: Option<f64>,
        rows: &RecordBatch,
    ) -> Result<(u64, Version), TableError> {
        let behind = |last: u64| {
            let id = || BlockId { run: run.clone(), attempt, step: last, rank };
            last.checked_add(1).ok_or_else(|| TableError::Edit(EditError::StepOrder { id: id(), last }))
        };
        let manifest = self.ledger.current().await?.manifest;
        // Steps that this attempt wrote count as taken, even if they were deleted since.
        let last = manifest.runs.get(&run).and_then(|run| run.last_complete().max(run.published));
        let mut step = match last {
            Some(last) => from.max(behind(last)?),
            None => from,
        };
        loop {
            let id = BlockId { run: run.clone(), attempt, step, rank };
            step = match self.append_new(id, time, rows).await {
                Ok(Some(version)) => return Ok((step, version)),
                // Another process took this step, or a later one, in the meantime.
                Ok(None) => behind(step)?,
                Err(TableError::Edit(EditError::StepOrder { last, .. })) => behind(last.max(step))?,
                Err(error) => return Err(error),
            };
        }
    }

    /// Like [`Table::append_at`], for several blocks that are committed in one version, all or none.
    ///
    /// # Errors
    /// As [`Table::append`].
    pub async fn append_all(
        &self,
        blocks: &[(BlockId, Option<f64>, RecordBatch)],
    ) -> Result<Version, TableError> {
        let ids = blocks.iter().map(|(id, ..)| id.clone()).collect();
        self.notice_columns(blocks.iter().map(|(_, _, rows)| rows)).await?;
        let encode =
            |(id, time, rows): &(BlockId, Option<f64>, RecordBatch)| self.encode(id.clone(), *time, rows);
        let made = self.append_encoded(ids, false, |_| blocks.iter().map(encode).collect()).await?;
        Ok(made.unwrap_or_else(|| self.ledger.known_version()))
    }

    /// Looks for columns that other processes have added, if rows have more columns than this handle knows.
    pub(super) async fn notice_columns<'r>(
        &self,
        rows: impl IntoIterator<Item = &'r RecordBatch>,
    ) -> Result<(), TableError> {
        let known = self.lineage.newest().columns().fields().len();
        if rows.into_iter().any(|rows| rows.num_columns() > known) {
            self.schema_now().await?;
        }
        Ok(())
    }

    /// Encodes the blocks only after it has joined the queue, so that a failure to encode also fails the
    /// appends behind it. Returns `None` if the table already had the blocks.
    async fn append_encoded(
        &self,
        ids: Vec<BlockId>,
        is_alone: bool,
        encode: impl FnOnce(&Self) -> Result<Vec<Encoded>, TableError>,
    ) -> Result<Option<Version>, TableError> {
        let Some(first) = ids.first().cloned() else { return self.version().await.map(Some) };
        let lanes: Vec<Lane> = ids.iter().map(|id| (id.run.clone(), id.attempt, id.rank)).collect();
        let mut place = self.append_queue.join(lanes);
        let encoded = encode(self)?;
        let new: Vec<Arc<NewIds>> = encoded.iter().filter_map(|block| block.ids.clone()).collect();
        // Kept over all rounds: a later round may find what an earlier one left in doubt.
        let (mut before, mut was_in_doubt) = (Vec::<(BlockId, ObjectId)>::new(), false);
        for _ in 0..SESSIONS_MAX {
            let mut begun = Vec::new();
            let (session, blocks) = match self.put_blocks(&encoded, &mut begun).await {
                Ok(put) => put,
                Err(error) => {
                    // No version names any of these objects, and no vacuum removes them while this session
                    // lasts. What is in an edit in doubt stays.
                    let unnamed = before.iter().filter(|_| !was_in_doubt);
                    begun.extend(unnamed.map(|(_, object)| *object));
                    drop(place);
                    // Removing anything would have to wait for the unreachable store once more.
                    if error.kind() != ErrorKind::Unavailable {
                        let _ = self.remove_objects(&begun).await;
                    }
                    return match was_in_doubt {
                        true => self.append_result(Err(error), first, Some(false)),
                        false => Err(error),
                    };
                }
            };
            let (ids, is_in_doubt) = (new.clone(), Arc::default());
            let written = objects_of(&blocks);
            let doubt = Arc::clone(&is_in_doubt);
            let answer = place.commit(self, Ready { blocks, ids, session, is_alone, is_in_doubt }).await;
            was_in_doubt |= doubt.load(Ordering::Relaxed);
            // Objects written under an ended session may be removed at any time, so they are written again.
            if let Ok(AppendAnswer::Fate(Fate::Fenced) | AppendAnswer::Anew | AppendAnswer::Go) = answer {
                before.extend(written);
                continue;
            }
            // Leave the queue first: blocks that are appended again need not wait for the removals below.
            drop(place);
            before.extend_from_slice(&written);
            let is_ours = was_in_doubt && self.is_one_named(&before);
            let unnamed = self.unnamed(written, &answer, was_in_doubt);
            // The caller needs the outcome of the append, not of this clean-up; objects that stay here go
            // with a vacuum.
            let _ = self.remove_objects(&unnamed).await;
            return self.append_result(answer, first, was_in_doubt.then_some(is_ours));
        }
        let fenced = Err(TableError::Fenced { table: self.name.clone() });
        self.append_result(fenced, first, was_in_doubt.then_some(false))
    }

    /// Turns the outcome of an append into what the caller gets. `is_named` is set if an edit of its blocks
    /// is in doubt, and says whether the table has named one of the objects written for them.
    fn append_result(
        &self,
        answer: Result<AppendAnswer, TableError>,
        first: BlockId,
        is_named: Option<bool>,
    ) -> Result<Option<Version>, TableError> {
        let in_doubt = |id, source| TableError::BlockInDoubt { id, source: Box::new(source) };
        match answer {
            Ok(AppendAnswer::Fate(Fate::Made(version, _))) => Ok(Some(version)),
            Ok(AppendAnswer::Fate(Fate::Refused(EditError::AlreadyDone))) => {
                Ok((is_named == Some(true)).then(|| self.ledger.known_version()))
            }
            Ok(AppendAnswer::Fate(Fate::Refused(error))) => Err(error.into()),
            Ok(AppendAnswer::Fate(Fate::Forgotten)) => {
                Err(in_doubt(first, TableError::Forgotten { table: self.name.clone() }))
            }
            Ok(AppendAnswer::Behind) if is_named.is_some() => {
                Err(in_doubt(first.clone(), TableError::Behind { id: first }))
            }
            Ok(AppendAnswer::Behind) => Err(TableError::Behind { id: first }),
            // An error of a later attempt says nothing about the earlier edit that is in doubt.
            Err(error) | Ok(AppendAnswer::Failed(error))
                if is_named.is_some() || error.outcome() == Outcome::Unknown =>
            {
                Err(in_doubt(first, error))
            }
            Err(error) | Ok(AppendAnswer::Failed(error)) => Err(error),
            Ok(AppendAnswer::Fate(Fate::Fenced) | AppendAnswer::Anew | AppendAnswer::Go) => {
                Err(TableError::Fenced { table: self.name.clone() })
            }
        }
    }

    /// Whether the table has named one of the objects that were written for blocks. Also true without
    /// objects: blocks without rows are the same, whoever appended them.
    fn is_one_named(&self, written: &[(BlockId, ObjectId)]) -> bool {
        let is_named = |manifest: &Manifest| {
            written.is_empty() || written.iter().any(|(block, object)| manifest.has_named(block, *object))
        };
        self.ledger.known().is_some_and(|known| is_named(&known.manifest))
    }

    /// The objects written for blocks that no version names or will ever name, because the blocks were
    /// refused or the table already had them. They are removed at once, since no vacuum removes them while
    /// this session lasts.
    fn unnamed(
        &self,
        written: Vec<(BlockId, ObjectId)>,
        answer: &Result<AppendAnswer, TableError>,
        is_in_doubt: bool,
    ) -> Vec<ObjectId> {
        let all = || written.iter().map(|(_, object)| *object).collect();
        match answer {
            // The table was dropped.
            Err(TableError::NotFound { .. }) | Ok(AppendAnswer::Failed(TableError::NotFound { .. })) => all(),
            _ if is_in_doubt => Vec::new(),
            Ok(AppendAnswer::Fate(Fate::Refused(_)) | AppendAnswer::Behind) => all(),
            // Removing anything would have to wait for the unreachable store once more.
            Ok(AppendAnswer::Failed(error)) if error.kind() == ErrorKind::Unavailable => Vec::new(),
            Ok(AppendAnswer::Failed(error)) if error.outcome() == Outcome::Refused => all(),
            // An edit of which only a part is new skips the blocks that the table already had.
            // What this handle knows otherwise may be of versions that the store has lost.
            Ok(AppendAnswer::Fate(Fate::Made(_, made))) => {
                let is_unnamed = |(block, object): &&(BlockId, ObjectId)| !made.has_named(block, *object);
                written.iter().filter(is_unnamed).map(|(_, object)| *object).collect()
            }
            _ => Vec::new(),
        }
    }

    /// At most how many bytes these rows of one rank and step take as one object, and at most how many a
    /// single row takes. An append takes rows up to [`Table::block_bytes_max`]; a load cuts more rows into
    /// several objects.
    ///
    /// # Errors
    /// [`TableError::Block`] if the rows do not fit the table.
    pub fn bytes_at_most(&self, rows: &RecordBatch) -> Result<(u64, u64), TableError> {
        let schema = self.lineage.with_columns(rows.num_columns());
        check(&schema, rows).map_err(Self::of_new_rows)?;
        Ok((block_bytes_at_most(&schema, rows), row_bytes_at_most(rows)))
    }

    /// The error for rows that are not stored yet.
    pub(super) fn of_new_rows(source: BlockError) -> TableError {
        TableError::Block { object: "new rows".to_owned(), source }
    }

    pub(super) fn encode(
        &self,
        id: BlockId,
        time: Option<f64>,
        rows: &RecordBatch,
    ) -> Result<Encoded, TableError> {
        // Rows without the most recently added columns are written with the schema from before these were
        // added. Blocks without rows are checked too, since a rank that has none now will have some later.
        let schema = self.lineage.with_columns(rows.num_columns());
        let Written { bytes, directory, front_bytes } =
            write_block(&schema, rows).map_err(Self::of_new_rows)?;
        let ids = self.schema.has_unique_ids();
        let ids = ids.then(|| NewIds::of(&self.schema, &id, rows)).transpose()?.map(Arc::new);
        let max = self.block_bytes_max();
        if bytes.len() as u64 > max {
            return Err(TableError::TooLarge { bytes: bytes.len() as u64, max });
        }
        let rows = rows.num_rows() as u64;
        let tight = tight_box(&joined(directory.bands.iter().map(|band| band.extents.as_slice())));
        let bytes = if rows == 0 { Buffer::new() } else { bytes };
        Ok(Encoded { id, time: time.map(StepTime::from), rows, bytes, front_bytes, tight, ids })
    }

    /// Creates the objects of blocks under the current session, and returns it. `begun` gets their names
    /// first: on an error, each of them may exist, and none is created afterwards.
    async fn put_blocks(
        &self,
        encoded: &[Encoded],
        begun: &mut Vec<ObjectId>,
    ) -> Result<(SessionId, Vec<Block>), TableError> {
        let session = self.ledger.session().await?.id;
        begun.extend(encoded.iter().map(|_| self.ledger.new_object_of(session)));
        let put = encoded.iter().zip(begun.iter()).map(|(block, name)| self.put_block(block, *name));
        let put: Vec<Result<Block, TableError>> = futures::future::join_all(put).await;
        let blocks: Result<Vec<Block>, TableError> = put.into_iter().collect();
        Ok((session, blocks?))
    }

    /// Creates the object of a block under this name, unless the block has no rows.
    pub(super) async fn put_block(&self, block: &Encoded, object: ObjectId) -> Result<Block, TableError> {
        let (id, time) = (block.id.clone(), block.time);
        if block.rows == 0 {
            return Ok(Block { id, time, piece: None });
        }
        self.put_object(object, &block.bytes).await?;
        let extent = Extent { run: Some(id.run.clone()), steps: StepRange::only(id.step) };
        let (rows, bytes) = (block.rows, block.bytes.len() as u64);
        let (form, weights) = (Form::Block, WeightRange::ALL);
        let (front_bytes, tight) = (block.front_bytes, Some(block.tight.clone()));
        let piece = Piece { object, part: 0, form, weights, rows, bytes, front_bytes, extent, tight };
        Ok(Block { id, time, piece: Some(piece) })
    }

    async fn put_object(&self, object: ObjectId, bytes: &Buffer) -> Result<(), TableError> {
        let partition = self.names.object(object);
        create(&*self.store, Cell::new(&partition, b""), bytes).await
    }
}

/// The attempt number after `last`.
fn attempt_after(run: &RunId, last: u64) -> Result<u64, EditError> {
    let stale = || EditError::StaleAttempt { run: run.clone(), attempt: last, current: last };
    last.checked_add(1).ok_or_else(stale)
}

/// The blocks that have an object, each with its object.
fn objects_of(blocks: &[Block]) -> Vec<(BlockId, ObjectId)> {
    blocks.iter().filter_map(|block| Some((block.id.clone(), block.piece.as_ref()?.object))).collect()
}

//! The journey of a write: it is checked, made durable as far as asked, and then made visible.
//!
//! Everything that can fail happens before the log has the write: its lengths are checked (`sizes`), what it
//! will touch is read (`resident`), and long values are written (`placed`). Then the group is logged
//! (`logged`), and the trees take it in. At last it may make a checkpoint due (`due`).

mod due;
mod logged;
mod placed;
mod resident;
mod sizes;

pub(crate) use due::Waiting;
pub(crate) use placed::PlacedValue;
pub(crate) use sizes::{check_size, check_sizes};

use crate::batch::{Action, Given, Op, WriteBatch};
use crate::engine::Engine;
use crate::forest::{Change, Forest, NewValue};
use crate::gate::Alone;
use crate::hot::HotKey;
use crate::meter::Weight;
use crate::planted::{self, Bug};
use crate::room::{Need, bytes_to_log};
use crate::search::LANES;
use crate::sharded_lock::Write;
use crate::shared::{Shared, Writer};
use crate::snapshot::Reader;
use crate::{Durability, EngineError};
use atoll_disk::{DiskError, Operation};
use std::sync::atomic::Ordering;

/// Values of a group up to this many bytes are not counted before they are written.
const SMALL_GROUP_BYTES: u64 = 128 << 10;

/// If a deleted range has fewer keys than this, their hot copies are dropped one by one; otherwise all copies
/// of the tree are.
const HOT_KEYS_IN_RANGE_MAX: usize = 64;

/// The acknowledgement of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its place in the order of all commits, from 1.
    pub sequence: u64,
    /// What it survives.
    pub durability: Durability,
}

/// A commit that is visible, and the log position that a sync must reach to make it durable.
pub(crate) struct Visible {
    pub(crate) sequence: u64,
    position: u64,
}

/// A sync that makes one commit survive a loss of power.
pub struct SyncTicket {
    engine: Engine,
    position: u64,
}

impl SyncTicket {
    /// Syncs, or waits for another caller's sync that covers this commit too.
    ///
    /// # Errors
    /// [`EngineError::NotDurable`]: the commit is visible but may not survive.
    pub fn run(self) -> Result<(), EngineError> {
        self.engine.shared.sync_visible(self.position)
    }
}

impl Engine {
    /// As [`Engine::update`] with [`Durability::Flushed`], together with a ticket for the sync that remains
    /// to be done.
    ///
    /// # Errors
    /// As [`Engine::update`].
    pub fn update_visible<R, E: From<EngineError>>(
        &self,
        decide: impl FnOnce(&Reader<'_>) -> Result<(Option<WriteBatch>, R), E>,
    ) -> Result<(R, Option<SyncTicket>), E> {
        self.shared.wait_for_usual_room()?;
        let writer = self.shared.writer.alone();
        self.shared.check_open()?;
        let (batch, answer) = decide(&Reader { engine: self })?;
        let Some(batch) = batch else { return Ok((answer, None)) };
        let visible = self.shared.commit_decided(writer, &batch, Durability::Flushed)?;
        Ok((answer, Some(SyncTicket { engine: self.clone(), position: visible.position })))
    }

    /// As [`Engine::write`] with [`Durability::Synced`], but returns once the batch is visible, with a ticket
    /// for the sync that remains to be done.
    ///
    /// # Errors
    /// As [`Engine::write`], except for those of the sync.
    pub fn write_visible(&self, batch: &WriteBatch) -> Result<SyncTicket, EngineError> {
        let visible = self.shared.commit_unsynced(&batch.ops(), Vec::new(), Durability::Synced)?;
        Ok(SyncTicket { engine: self.clone(), position: visible.position })
    }
}

impl Shared {
    /// Commits `ops` and waits until they are as durable as asked.
    pub(crate) fn commit(&self, ops: &[Op<'_>], durability: Durability) -> Result<Commit, EngineError> {
        self.commit_placed(ops, Vec::new(), durability)
    }

    /// As [`Shared::commit`], where the values of the first ops were placed already.
    pub(crate) fn commit_placed(
        &self,
        ops: &[Op<'_>],
        placed: Vec<PlacedValue>,
        durability: Durability,
    ) -> Result<Commit, EngineError> {
        let visible = self.commit_unsynced(ops, placed, durability)?;
        self.make_durable(&visible, durability)
    }

    /// As [`Shared::commit_placed`], but leaves the sync to the caller.
    fn commit_unsynced(
        &self,
        ops: &[Op<'_>],
        placed: Vec<PlacedValue>,
        durability: Durability,
    ) -> Result<Visible, EngineError> {
        if let Err(error) = self.wait_for_room(Need::of(ops)) {
            self.unplace(&placed.into_iter().map(Some).collect::<Vec<_>>());
            return Err(error);
        }
        let visible = match (ops, placed.is_empty()) {
            ([op], true) => self.write_in_place(op, is_flushed(durability))?,
            _ => None,
        };
        match visible {
            Some(visible) => Ok(visible),
            None => self.commit_visible(self.writer.alone(), ops, placed, durability),
        }
    }

    /// Commits the batch that an update returned.
    pub(crate) fn commit_decided(
        &self,
        writer: Alone<'_, Writer>,
        batch: &WriteBatch,
        durability: Durability,
    ) -> Result<Visible, EngineError> {
        let ops = batch.ops();
        self.note_usual(Need::of(&ops));
        self.commit_visible(writer, &ops, Vec::new(), durability)
    }

    /// Commits `ops` under the writer lock, and releases the lock.
    fn commit_visible(
        &self,
        mut writer: Alone<'_, Writer>,
        ops: &[Op<'_>],
        placed: Vec<PlacedValue>,
        durability: Durability,
    ) -> Result<Visible, EngineError> {
        let forest = self.take_in(&mut writer, ops, placed, durability)?;
        Ok(self.end_alone(writer, forest))
    }

    /// Logs `ops` and makes their changes, which are visible once the lock that this returns is released.
    fn take_in(
        &self,
        writer: &mut Writer,
        ops: &[Op<'_>],
        placed: Vec<PlacedValue>,
        durability: Durability,
    ) -> Result<Write<'_, Forest>, EngineError> {
        let mut placed: Vec<Option<PlacedValue>> = placed.into_iter().map(Some).collect();
        let _bytes = self.count_to_log(ops);
        if let Err(error) = self.prepare(ops, &mut placed) {
            self.unplace(&placed);
            return Err(error);
        }
        let logged = self.log_ops(writer, ops, &placed, is_flushed(durability));
        let in_log = logged.inspect_err(|_| self.unplace(&placed))?;
        let changes: Vec<_> = changes_of(ops, &placed).collect();
        let mut forest = self.forest.write();
        // If this fails, the store is broken before the lock of the trees is released: no reader sees half of
        // it.
        let half_done = in_log;
        self.forget_hot(&forest, ops);
        let applied = forest.apply(&changes, &self.backing, &mut writer.retired);
        applied.map_err(|error| self.undecided(writer, error))?;
        half_done.done();
        Ok(forest)
    }

    /// Commits `ops`, which take back a change that is in the trees and not in the log, after the checkpoint
    /// that was to include the change failed with `error`. Returns the error for the caller.
    ///
    /// The next opening may find that checkpoint all the same. With this group behind it, it makes no
    /// difference. So where a superblock may name the checkpoint, the group is synced: a loss of power must
    /// not leave the checkpoint without it.
    pub(crate) fn take_back(
        &self,
        mut writer: Alone<'_, Writer>,
        ops: &[Op<'_>],
        error: EngineError,
    ) -> EngineError {
        // A sync failed, so nothing will be committed that could rely on the change. It stays visible, and
        // whether it survives is open, even if `error` says only that the sync was another caller's.
        if self.check_writable().is_err() {
            return if error.is_unknown() { error } else { self.not_durable_by_others() };
        }
        let half_done = self.unfinished();
        match self.take_in(&mut writer, ops, Vec::new(), Durability::Flushed) {
            Ok(forest) => {
                half_done.done();
                let visible = self.end_alone(writer, forest);
                let Err(not_durable) = self.sync_if_half_committed(&visible) else { return error };
                let store = self.backing.name();
                tracing::error!(%store, %error, "a checkpoint failed, and so did the sync of the group that takes its change back: a loss of power may bring the change back");
                not_durable
            }
            // The store is broken before the writer lock is released.
            Err(refused) => {
                let store = self.backing.name();
                tracing::error!(%store, error = %refused, "a change whose checkpoint failed could not be taken back: open the store again");
                EngineError::Undecided { store, source: Box::new(error) }
            }
        }
    }

    /// Syncs a commit if one of the superblocks may name a checkpoint that failed. No checkpoint is running.
    fn sync_if_half_committed(&self, visible: &Visible) -> Result<(), EngineError> {
        let is_half_committed = self.committed.lock().is_none();
        if is_half_committed { self.sync_visible(visible.position) } else { Ok(()) }
    }

    /// Drops the hot copies of all records that a commit is about to change, before any of them is seen
    /// changed. The caller has the trees locked for itself.
    fn forget_hot(&self, forest: &Forest, ops: &[Op<'_>]) {
        if self.hot.is_empty() {
            return;
        }
        for together in ops.chunks(LANES) {
            let keys = || together.iter().filter_map(|op| Some(HotKey::of(op.tree, op.action.key()?)));
            keys().for_each(|key| self.hot.prefetch(&key));
            keys().for_each(|key| self.hot.forget(&key));
        }
        for op in ops {
            let Action::DeleteRange(from, to) = op.action else { continue };
            let Some(tree) = forest.tree(op.tree) else { continue };
            match tree.few_keys_in((from, to), HOT_KEYS_IN_RANGE_MAX, &self.backing) {
                Some(keys) => keys.iter().for_each(|key| self.hot.forget(&HotKey::of(op.tree, key))),
                None => self.hot.forget_tree(op.tree),
            }
        }
    }

    /// Ends a commit that was made alone and is in the trees, and releases the locks.
    pub(crate) fn end_alone(&self, mut writer: Alone<'_, Writer>, mut forest: Write<'_, Forest>) -> Visible {
        let (visible, waiting) = self.end_commit(&writer, &forest.sequence);
        self.relieve(&mut forest.trees);
        let chores = writer.log.as_mut().map(|log| log.chores(&self.backing));
        drop(forest);
        drop(writer);
        self.do_chores(chores);
        self.ask_if_due(waiting);
        visible
    }

    /// Counts the values of a large group until it is handed to the disk. Small groups are not worth it.
    fn count_to_log(&self, ops: &[Op<'_>]) -> Option<Weight> {
        let weight = Some(bytes_to_log(ops))
            .filter(|&bytes| bytes > SMALL_GROUP_BYTES)
            .map(|bytes| self.backing.buffer(bytes));
        if weight.is_some() {
            self.backing.shed_values();
        }
        weight
    }

    /// Does everything that can fail before the log is written.
    fn prepare(&self, ops: &[Op<'_>], placed: &mut Vec<Option<PlacedValue>>) -> Result<(), EngineError> {
        self.check_writable()?;
        check_sizes(ops)?;
        self.make_resident(ops, placed.len())?;
        if placed.is_empty() {
            self.check_appends(ops)?;
        }
        for extent in placed.iter().flatten().filter_map(|placed| placed.extent) {
            self.space.lock().land(extent);
        }
        self.place_large_values(ops, placed)
    }

    /// Waits until a visible commit is as durable as asked.
    pub(crate) fn make_durable(
        &self,
        visible: &Visible,
        durability: Durability,
    ) -> Result<Commit, EngineError> {
        if durability == Durability::Synced {
            self.sync_visible(visible.position)?;
        }
        Ok(Commit { sequence: visible.sequence, durability })
    }

    /// As [`Shared::sync_to`], for a commit that is visible: it took effect, whichever sync failed.
    fn sync_visible(&self, position: u64) -> Result<(), EngineError> {
        self.sync_to(position).map_err(|error| match error {
            EngineError::Poisoned { .. } => self.not_durable_by_others(),
            EngineError::Fenced { .. } => self.fenced(true),
            error => error,
        })
    }

    /// The error for a change that is visible and may not survive, because another caller's sync failed.
    fn not_durable_by_others(&self) -> EngineError {
        let store = self.backing.name();
        let source = std::io::Error::other("another caller's sync that covered this write failed");
        let source = DiskError { operation: Operation::Sync, name: store.clone(), offset: 0, source };
        EngineError::NotDurable { store, source }
    }

    pub(crate) fn sync_to(&self, position: u64) -> Result<(), EngineError> {
        let Some(disk) = self.backing.disk() else { return Ok(()) };
        if planted::is(Bug::SyncSkipped) {
            return Ok(());
        }
        let flushed = || self.flushed.load(Ordering::Acquire);
        self.syncer.reach(position, &**disk, flushed).map_err(|error| self.of_sync(error))
    }
}

/// Whether a write is handed to the disk before it is acknowledged. A synced one always is, or its sync would
/// wait for ever.
pub(crate) fn is_flushed(durability: Durability) -> bool {
    match durability {
        Durability::Buffered => false,
        Durability::Flushed => !planted::is(Bug::FlushSkipped),
        Durability::Synced => true,
    }
}

/// The changes to apply.
fn changes_of<'a>(ops: &[Op<'a>], placed: &[Option<PlacedValue>]) -> impl Iterator<Item = (u32, Change<'a>)> {
    ops.iter().zip(placed).map(|(op, placed)| (op.tree, change_of(op, placed.as_ref())))
}

fn change_of<'a>(op: &Op<'a>, placed: Option<&PlacedValue>) -> Change<'a> {
    let value = |given: Given<'a>| match placed {
        Some(placed) => placed.to_value(),
        None => NewValue::Inline(given.bytes()),
    };
    match op.action {
        Action::Put(key, given) => Change::Put(key, value(given)),
        Action::Append(key, given) => Change::Append(key, value(given)),
        Action::Delete(key) => Change::Delete(key),
        Action::DeleteRange(from, to) => Change::DeleteRange(from, to),
    }
}

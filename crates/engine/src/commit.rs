//! The journey of a write: checked, made durable as far as asked, then visible.

use crate::batch::{Action, Given, Op, WriteBatch};
use crate::delta::{MERGED_MORE, record_bytes};
use crate::engine::Engine;
use crate::forest::{Change, Count, Forest, NewValue};
use crate::gate::Alone;
use crate::log::Log;
use crate::meter::Weight;
use crate::pins::Pin;
use crate::planted::{self, Bug};
use crate::record::{Logged, OVERHEAD_MAX, Record};
use crate::room::{Need, bytes_to_log};
use crate::search::{self, Missing};
use crate::sharded::Write;
use crate::shared::{Shared, Writer};
use crate::slot::Slot;
use crate::snapshot::Reader;
use crate::space::{Extent, SegmentUse};
use crate::sync::SyncError;
use crate::tree;
use crate::value::{EXTENT_FROM, INLINE_BELOW, Piece, VALUE_MAX};
use crate::{Durability, EngineError, KEY_MAX};
use atoll_disk::{DiskError, Operation};
use std::collections::HashMap;
use std::ops::{Bound, RangeBounds};
use std::sync::atomic::Ordering;

/// Most bytes of one group of the log; its header has four bytes for their number.
const BATCH_MAX: u64 = u32::MAX as u64;

/// Bytes of values in one group that nobody counts before they are written.
const SMALL_GROUP: u64 = 128 << 10;

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

/// A value beyond the size of leaf records; a large one was written to an extent of its own.
pub(crate) struct Placed {
    piece: Piece,
    extent: Option<Extent>,
}

impl Placed {
    /// The value, for the tree.
    pub(crate) fn to_value(&self) -> NewValue<'static> {
        NewValue::piece(self.piece.clone())
    }
}

/// A sync that makes one commit survive the loss of power.
pub struct SyncTicket {
    engine: Engine,
    position: u64,
}

impl SyncTicket {
    /// Syncs, or waits for the sync of somebody else that covers this commit too.
    ///
    /// # Errors
    /// [`EngineError::NotDurable`]: the commit is visible but may not survive.
    pub fn run(self) -> Result<(), EngineError> {
        self.engine.shared.sync_visible(self.position)
    }
}

impl Engine {
    /// As [`Engine::update`] with [`Durability::Flushed`], and a ticket for the sync that is yet to come.
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
}

/// A range of keys of a tree.
type OfTree<'a> = (u32, (Bound<&'a [u8]>, Bound<&'a [u8]>));

fn is_in((of, range): &OfTree<'_>, tree: u32, key: &[u8]) -> bool {
    *of == tree && range.contains(key)
}

impl Shared {
    /// Commits `ops` and waits until they are as durable as asked.
    pub(crate) fn commit(&self, ops: &[Op<'_>], durability: Durability) -> Result<Commit, EngineError> {
        self.commit_placed(ops, Vec::new(), durability)
    }

    /// As [`Shared::commit`], where the values of the first ops were placed before.
    pub(crate) fn commit_placed(
        &self,
        ops: &[Op<'_>],
        placed: Vec<Placed>,
        durability: Durability,
    ) -> Result<Commit, EngineError> {
        if let Err(error) = self.wait_for_room(Need::of(ops)) {
            self.unplace(&placed.into_iter().map(Some).collect::<Vec<_>>());
            return Err(error);
        }
        let visible = match (ops, placed.is_empty()) {
            ([op], true) => self.write_in_place(op, is_flushed(durability))?,
            _ => None,
        };
        let visible = match visible {
            Some(visible) => visible,
            None => self.commit_visible(self.writer.alone(), ops, placed, durability)?,
        };
        self.make_durable(&visible, durability)
    }

    /// Commits what an update decided.
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

    /// Commits `ops` under the writer lock, and gives the lock back.
    fn commit_visible(
        &self,
        mut writer: Alone<'_, Writer>,
        ops: &[Op<'_>],
        placed: Vec<Placed>,
        durability: Durability,
    ) -> Result<Visible, EngineError> {
        let mut placed: Vec<Option<Placed>> = placed.into_iter().map(Some).collect();
        let _bytes = self.count_to_log(ops);
        if let Err(error) = self.prepare(ops, &mut placed) {
            self.unplace(&placed);
            return Err(error);
        }
        if let Err(error) = self.log_ops(&mut writer, ops, &placed, is_flushed(durability)) {
            self.unplace(&placed);
            return Err(error);
        }
        let changes: Vec<_> = changes_of(ops, &placed).collect();
        let mut forest = self.forest.write();
        if let Err(error) = forest.apply(&changes, &self.backing, &mut writer.retired) {
            // The log has it and memory does not: only opening again can tell what is true.
            self.syncer.poison();
            return Err(error);
        }
        Ok(self.end_alone(writer, forest))
    }

    /// Ends a commit that was made alone and that the trees have, and gives the locks back.
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

    /// Gives the commit its place in the order of all, that of its group in the log; how many bytes wait for a checkpoint.
    pub(crate) fn end_commit(&self, writer: &Writer, sequence: &Count) -> (Visible, u64) {
        let position = writer.log.as_ref().map_or(0, |log| log.point().position);
        let tail = position - writer.checkpointed;
        // Space that only waits for a checkpoint is as good a reason for one as a long log.
        let waiting = tail.max(writer.retired.added_bytes());
        (Visible { sequence: sequence.add(1), position }, waiting)
    }

    /// Asks for a checkpoint when so much waits for one, or memory does. While one runs, all it is about to write seems to
    /// wait still: who commits after it sees what is left.
    pub(crate) fn ask_if_due(&self, waiting: u64) {
        let is_due = waiting >= self.options.checkpoint_bytes || self.backing.wants_checkpoint();
        if is_due && !self.checkpointing.is_locked() {
            self.ask_for_checkpoint();
        }
    }

    /// Counts the values of a large group until it is handed to the disk; small ones are few enough.
    fn count_to_log(&self, ops: &[Op<'_>]) -> Option<Weight> {
        let weight = Some(bytes_to_log(ops))
            .filter(|&bytes| bytes > SMALL_GROUP)
            .map(|bytes| self.backing.buffer(bytes));
        if weight.is_some() {
            self.backing.shed_values();
        }
        weight
    }

    /// Everything that can fail before the log is written.
    fn prepare(&self, ops: &[Op<'_>], placed: &mut Vec<Option<Placed>>) -> Result<(), EngineError> {
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

    /// As [`Shared::sync_to`] for a commit that everybody sees: whoever's sync failed, it took effect.
    fn sync_visible(&self, position: u64) -> Result<(), EngineError> {
        self.sync_to(position).map_err(|error| match error {
            EngineError::Poisoned { store } => {
                let source = std::io::Error::other("the sync that covered this write failed for another one");
                let source = DiskError { operation: Operation::Sync, name: store.clone(), offset: 0, source };
                EngineError::NotDurable { store, source }
            }
            error => error,
        })
    }

    pub(crate) fn sync_to(&self, position: u64) -> Result<(), EngineError> {
        let Some(disk) = self.backing.disk() else { return Ok(()) };
        if planted::is(Bug::SyncSkipped) {
            return Ok(());
        }
        let flushed = || self.flushed.load(Ordering::Acquire);
        self.syncer.reach(position, &**disk, flushed).map_err(|error| match error {
            SyncError::Failed(source) => EngineError::NotDurable { store: self.backing.name(), source },
            SyncError::Poisoned => EngineError::Poisoned { store: self.backing.name() },
        })
    }

    /// Reads what the changes will touch, so that applying them needs no disk. The values of the first `placed` are not what
    /// their ops say, but pieces that were placed before: these never go beside a leaf, however short they look.
    fn make_resident(&self, ops: &[Op<'_>], placed: usize) -> Result<(), EngineError> {
        // Nodes are let go of only under the writer lock, which is held.
        if self.backing.is_all_resident() {
            return Ok(());
        }
        let (is_short, mut beside) = (self.backing.is_short(), HashMap::new());
        let mut all_beside = true;
        for (index, op) in ops.iter().enumerate() {
            let may_go = is_short && index >= placed;
            match op.action {
                Action::Put(key, given) if may_go && self.goes_beside(op.tree, key, given, &mut beside) => {
                    continue;
                }
                Action::Put(key, _) | Action::Append(key, _) | Action::Delete(key) => {
                    self.make_key_resident(op.tree, key)?;
                }
                Action::DeleteRange(from, to) => self.make_range_resident(op.tree, from, to)?,
            }
            all_beside = false;
        }
        // Otherwise there is no leaf among theirs that could be let go of.
        if is_short && !all_beside && placed == 0 {
            self.let_go_for(ops);
        }
        Ok(())
    }

    /// Lets go of leaves that nobody read lately and that only take small records: to change them would cost their memory
    /// until the next checkpoint.
    fn let_go_for(&self, ops: &[Op<'_>]) {
        let Some(puts) = ops.iter().map(small_put).collect::<Option<Vec<_>>>() else { return };
        let mut forest = self.forest.write();
        let mut bytes: HashMap<*const Slot, usize> = HashMap::new();
        for &(tree, key, value) in &puts {
            if let Some(slot) = forest.tree(tree).map(|state| search::slot_of(&state.root, key)) {
                *bytes.entry(std::ptr::from_ref(slot)).or_default() += record_bytes(key, value);
            }
        }
        for (tree, key, _) in puts {
            if let Some(state) = forest.trees.get_mut(tree as usize) {
                let of_slot = |slot| bytes.get(&slot).map_or(usize::MAX / 2, |bytes| bytes + MERGED_MORE);
                tree::let_go(&mut state.root, key, of_slot, &self.backing);
            }
        }
    }

    /// Whether a record goes beside its leaf, which is not resident; `added` are the bytes that others do before it, by the
    /// address of the slot. Slots stay where they are as long as the writer lock is held.
    fn goes_beside(
        &self,
        tree: u32,
        key: &[u8],
        given: Given<'_>,
        added: &mut HashMap<*const Slot, usize>,
    ) -> bool {
        if given.bytes().len() >= INLINE_BELOW {
            return false;
        }
        let forest = self.forest.read();
        let missing = forest.tree(tree).and_then(|state| search::leaf_of(&state.root, key).err());
        let Some(Missing { parent: Some(parent), child }) = missing else { return false };
        let slot = &parent.children[child];
        let before = added.entry(std::ptr::from_ref(slot)).or_default();
        let bytes = record_bytes(key, given.bytes());
        let goes = parent.has_leaves() && slot.takes_delta(*before + bytes + MERGED_MORE);
        *before += if goes { bytes } else { 0 };
        goes
    }

    pub(crate) fn make_key_resident(&self, tree: u32, key: &[u8]) -> Result<(), EngineError> {
        loop {
            let Some((missing, pin)) = self.missing_for(tree, key)? else { return Ok(()) };
            self.load_missing(tree, missing, pin)?;
        }
    }

    fn missing_for(&self, tree: u32, key: &[u8]) -> Result<Option<(Missing, Pin)>, EngineError> {
        let forest = self.forest.read();
        let Some(state) = forest.tree(tree) else { return Ok(None) };
        let missing = tree::missing_for(&state.root, key, &self.backing)?;
        Ok(missing.map(|missing| (missing, self.pins.pin(forest.epoch))))
    }

    fn make_range_resident(
        &self,
        tree: u32,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<(), EngineError> {
        let forest = self.forest.read();
        let Some(state) = forest.tree(tree) else { return Ok(()) };
        // What has no room is read all the same: a page that cannot be read is an error before the log has anything.
        tree::load_range(&state.root, (from, to), &|slot| self.load_slot(slot), &self.backing)
    }

    /// Refuses appends that would make a value too long.
    fn check_appends(&self, ops: &[Op<'_>]) -> Result<(), EngineError> {
        if !ops.iter().any(|op| matches!(op.action, Action::Append(..))) {
            return Ok(());
        }
        let mut grown: HashMap<(u32, &[u8]), u64> = HashMap::new();
        let mut deleted = Vec::new();
        let forest = self.forest.read();
        for op in ops {
            let (key, total) = match op.action {
                Action::Put(key, given) => (key, given.bytes().len() as u64),
                Action::Delete(key) => (key, 0),
                Action::Append(key, given) => {
                    let stored = || search::get(&forest.tree(op.tree)?.root, key).ok().flatten();
                    let is_deleted = || deleted.iter().any(|range| is_in(range, op.tree, key));
                    let before = match grown.get(&(op.tree, key)) {
                        Some(before) => *before,
                        None if is_deleted() => 0,
                        None => stored().map_or(0, |stored| stored.len()),
                    };
                    (key, before + given.bytes().len() as u64)
                }
                Action::DeleteRange(from, to) => {
                    let range = (op.tree, (from, to));
                    grown.retain(|&(tree, key), _| !is_in(&range, tree, key));
                    deleted.push(range);
                    continue;
                }
            };
            check_size("value", total, 0, VALUE_MAX)?;
            grown.insert((op.tree, key), total);
        }
        Ok(())
    }

    /// Gives every longer value a piece; writes those that are too large for the log to extents of their own.
    fn place_large_values(
        &self,
        ops: &[Op<'_>],
        placed: &mut Vec<Option<Placed>>,
    ) -> Result<(), EngineError> {
        let epoch = self.forest.read().epoch;
        for op in &ops[placed.len()..] {
            placed.push(match op.action {
                Action::Put(_, given) | Action::Append(_, given) if given.bytes().len() >= INLINE_BELOW => {
                    Some(self.place(given, epoch, false)?)
                }
                _ => None,
            });
        }
        Ok(())
    }

    /// A piece for one value; `ahead` if the writer lock is not held and its commit is yet to come.
    pub(crate) fn place(&self, given: Given<'_>, epoch: u64, ahead: bool) -> Result<Placed, EngineError> {
        let bytes = given.to_buffer();
        let len = bytes.len() as u64;
        let checksum = self.backing.checksum(&bytes);
        let Some(disk) = self.backing.disk() else {
            return Ok(Placed { piece: Piece::resident(bytes, checksum, epoch), extent: None });
        };
        if bytes.len() < EXTENT_FROM {
            return Ok(Placed { piece: Piece::in_log(bytes, checksum, epoch), extent: None });
        }
        let extent = if ahead {
            self.space.lock().allocate_in_flight(len)
        } else {
            self.space.lock().allocate_for_writer(len)
        };
        let written =
            disk.reserve(extent.offset, extent.len).and_then(|()| disk.write_at(extent.offset, &bytes));
        if let Err(error) = written {
            self.space.lock().cancel(extent);
            return Err(error.into());
        }
        // Not kept in memory: the system has it, and who writes much would fill the budget with what nobody may read.
        let piece = Piece::on_disk(extent.offset, bytes.len() as u32, checksum, epoch);
        Ok(Placed { piece, extent: Some(extent) })
    }

    pub(crate) fn unplace(&self, placed: &[Option<Placed>]) {
        let mut space = self.space.lock();
        for extent in placed.iter().flatten().filter_map(|placed| placed.extent) {
            space.cancel(extent);
        }
    }

    /// Writes the group of `ops` to the log.
    pub(crate) fn log_ops(
        &self,
        writer: &mut Writer,
        ops: &[Op<'_>],
        placed: &[Option<Placed>],
        flush: bool,
    ) -> Result<(), EngineError> {
        let Some(log) = &mut writer.log else { return Ok(()) };
        let bound: usize = ops.iter().map(encoded_bound).sum();
        check_size("batch", bound as u64, 0, BATCH_MAX)?;
        self.prepare_log(log, bound)?;
        let prepared = log.begin();
        let mut in_log = Vec::new();
        for (op, placed) in ops.iter().zip(placed) {
            if planted::is(Bug::RangeDeleteNotLogged) && matches!(op.action, Action::DeleteRange(..)) {
                continue;
            }
            record_of(op, placed.as_ref()).encode(log.payload());
            if let Some(Placed { piece, extent: None }) = placed {
                // The bytes are the last of the record.
                let offset = log.payload_offset() - u64::from(piece.len());
                log.will_settle(piece.clone(), offset);
                in_log.push((offset, u64::from(piece.len())));
            }
        }
        let ended = log.end(&prepared, self.syncer.synced());
        if flush || log.is_heavy() {
            if let Err(error) = log.flush(&self.backing) {
                log.roll_back(&prepared, ended);
                return Err(error.into());
            }
            self.flushed.store(log.flushed(), Ordering::Release);
        }
        if in_log.is_empty() {
            return Ok(());
        }
        let mut space = self.space.lock();
        for (offset, len) in in_log {
            if let Some(segment) = space.segment_of(offset)
                && !planted::is(Bug::LogValuesNotCounted)
            {
                segment.live += len;
            }
        }
        Ok(())
    }

    /// Makes sure that a group of `payload` bytes fits into the segment.
    pub(crate) fn prepare_log(&self, log: &mut Log, payload: usize) -> Result<(), EngineError> {
        if log.fits(payload) {
            return Ok(());
        }
        let len = Log::segment_for(payload).max(self.options.segment_bytes()).next_multiple_of(4096);
        let extent = self.space.lock().allocate_segment(len);
        let window = self.window_ahead.lock().take_if(|window| window.covers(extent.offset, 1));
        if let Err(error) = log.switch((extent, window), self.syncer.synced(), &self.backing) {
            // The jump to it may be on disk, so nothing else may ever lie there: the next try takes it again.
            self.space.lock().spare_segment(extent);
            return Err(error.into());
        }
        self.flushed.store(log.flushed(), Ordering::Release);
        self.space.lock().add_segment(SegmentUse { extent, number: log.point().number, live: 0 });
        Ok(())
    }
}

/// The tree, the key and the value of a put whose value will lie in the leaf.
fn small_put<'a>(op: &Op<'a>) -> Option<(u32, &'a [u8], &'a [u8])> {
    match op.action {
        Action::Put(key, given) if given.bytes().len() < INLINE_BELOW => Some((op.tree, key, given.bytes())),
        _ => None,
    }
}

/// Whether a write is handed to the disk before it is acknowledged: a synced one in any case, for its sync would wait
/// for ever.
pub(crate) fn is_flushed(durability: Durability) -> bool {
    match durability {
        Durability::Buffered => false,
        Durability::Flushed => !planted::is(Bug::FlushSkipped),
        Durability::Synced => true,
    }
}

/// The changes to apply.
fn changes_of<'a>(ops: &[Op<'a>], placed: &[Option<Placed>]) -> impl Iterator<Item = (u32, Change<'a>)> {
    ops.iter().zip(placed).map(|(op, placed)| (op.tree, change_of(op, placed.as_ref())))
}

fn change_of<'a>(op: &Op<'a>, placed: Option<&Placed>) -> Change<'a> {
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

fn record_of<'a>(op: &Op<'a>, placed: Option<&Placed>) -> Record<'a> {
    let value = |given: Given<'a>| match placed {
        Some(Placed { piece, extent: Some(extent) }) => {
            Logged::Extent { offset: extent.offset, len: piece.len(), checksum: piece.checksum() }
        }
        _ => Logged::Bytes { bytes: given.bytes(), at: 0 },
    };
    let tree = op.tree;
    match op.action {
        Action::Put(key, given) => Record::Put { tree, key, value: value(given) },
        Action::Append(key, given) => Record::Append { tree, key, value: value(given) },
        Action::Delete(key) => Record::Delete { tree, key },
        Action::DeleteRange(from, to) => Record::DeleteRange { tree, from, to },
    }
}

fn encoded_bound(op: &Op<'_>) -> usize {
    let bytes = match op.action {
        Action::Put(key, given) | Action::Append(key, given) => {
            key.len() + if given.bytes().len() < EXTENT_FROM { given.bytes().len() } else { 0 }
        }
        Action::Delete(key) => key.len(),
        Action::DeleteRange(from, to) => bound_len(from) + bound_len(to),
    };
    bytes + OVERHEAD_MAX
}

fn bound_len(bound: Bound<&[u8]>) -> usize {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.len(),
        Bound::Unbounded => 0,
    }
}

pub(crate) fn check_sizes(ops: &[Op<'_>]) -> Result<(), EngineError> {
    for op in ops {
        match op.action {
            Action::Put(key, given) | Action::Append(key, given) => {
                check_size("key", key.len() as u64, 1, KEY_MAX as u64)?;
                check_size("value", given.bytes().len() as u64, 0, VALUE_MAX)?;
            }
            Action::Delete(key) => check_size("key", key.len() as u64, 1, KEY_MAX as u64)?,
            Action::DeleteRange(from, to) => {
                check_size("key", bound_len(from).max(bound_len(to)) as u64, 0, KEY_MAX as u64)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn check_size(what: &'static str, actual: u64, min: u64, max: u64) -> Result<(), EngineError> {
    if (min..=max).contains(&actual) { Ok(()) } else { Err(EngineError::Size { what, actual, min, max }) }
}

//! Room in memory: what is evicted when there is too little, and which writers wait for it.
//!
//! Leaves that are on disk are evicted at once by the thread that brings too much in. What is not on disk yet
//! needs a checkpoint. One begins when the unwritten bytes are half of the room, or up to two thirds where
//! the store does not fit, a quarter of the room became unwritten since the last one, and three quarters of
//! the room are taken. Writers that fill the rest before it ends wait for it.
//!
//! Invariant: a waiting writer holds no lock, and waits at most until one whole checkpoint has ended, perhaps
//! after one that is already under way.
//! Invariant: no writer waits unless a thread runs that makes checkpoints.
//! Invariant: after a checkpoint that panicked, which is the last one, and after several background
//! checkpoints that failed in a row, writes are refused where there is no room in memory or in the log, or
//! where too much of the file waits for a checkpoint to free it.

use crate::batch::{Action, Given, Op};
use crate::forest::TreeState;
use crate::frames::FRAME_BYTES;
use crate::planted::{self, Bug};
use crate::shared::{Shared, Wanted};
use crate::slot::Slot;
use crate::threads::{AtomicU64, Condvar, Mutex, MutexGuard};
use crate::tree::{self, Evictable};
use crate::value::{EXTENT_FROM, INLINE_BELOW};
use crate::{Engine, EngineError};
use std::sync::atomic::Ordering;

/// How many passes over the leaves are made before eviction gives up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    One = 1,
    Two = 2,
}

/// About how many bytes a write brings in: a leaf for each change, and those of its values that stay in
/// memory until they are handed to the disk.
#[derive(Clone, Copy)]
pub(crate) struct Need(u64);

impl Need {
    pub(crate) fn of(ops: &[Op<'_>]) -> Self {
        // Further parts of a long value go into the leaf of the first.
        let is_further = |op: &&Op<'_>| matches!(op.action, Action::Append(_, Given::Part(_)));
        let leaves = ops.len() - ops.iter().filter(is_further).count();
        Self(leaves as u64 * FRAME_BYTES as u64 + bytes_to_log(ops))
    }

    /// For a write of values of these lengths.
    fn of_values(lengths: impl Iterator<Item = usize>) -> Self {
        let logged = |len: usize| if (INLINE_BELOW..EXTENT_FROM).contains(&len) { 2 * len as u64 } else { 0 };
        Self(lengths.map(|len| FRAME_BYTES as u64 + logged(len)).sum())
    }

    /// For a change that makes or copies `count` nodes.
    pub(crate) fn of_nodes(count: usize) -> Self {
        Self(count as u64 * FRAME_BYTES as u64)
    }
}

/// Bytes of the values that go to the log, counted twice: as pieces, and in the log's buffer.
pub(crate) fn bytes_to_log(ops: &[Op<'_>]) -> u64 {
    let lengths = ops.iter().filter_map(|op| match op.action {
        Action::Put(_, given) | Action::Append(_, given) => Some(given.bytes().len()),
        Action::Delete(_) | Action::DeleteRange(..) => None,
    });
    lengths.filter(|len| (INLINE_BELOW..EXTENT_FROM).contains(len)).map(|len| 2 * len as u64).sum()
}

/// State of the writers that wait for memory.
#[derive(Default)]
pub(crate) struct Room {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes usually needed by writes whose need is unknown before the writer lock is held.
    usual: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Whether a thread that makes checkpoints is running.
    is_served: bool,
    /// Checkpoints that this thread began, and ended, successfully or not.
    begun: u64,
    ended: u64,
    /// Waiting is known to be futile while fewer bytes than this are held.
    futile_below: u64,
}

/// Ends all waiting when the thread that makes checkpoints ends, for whatever reason.
pub(crate) struct Serving<'a>(&'a Shared);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.end_waiting();
    }
}

impl Engine {
    /// Whether a write of values of these lengths, alone or with conditions, may have to wait until a
    /// checkpoint makes room in memory, which blocks its thread.
    #[must_use]
    pub fn may_wait(&self, lengths: impl Iterator<Item = usize>) -> bool {
        self.shared.may_wait(self.shared.need_of(lengths))
    }

    /// Waits until there is room for such a write, or until a checkpoint has made as much room as there will
    /// be.
    ///
    /// # Errors
    /// [`EngineError`] if the store takes no writes, or if checkpoints fail and there is no room.
    pub fn wait_for_room(&self, lengths: impl Iterator<Item = usize>) -> Result<(), EngineError> {
        self.shared.wait_for_room(self.shared.need_of(lengths))
    }
}

impl Shared {
    fn need_of(&self, lengths: impl Iterator<Item = usize>) -> Need {
        Need(Need::of_values(lengths).0.max(self.room.usual.load(Ordering::Relaxed)))
    }

    fn has_room(&self, need: Need) -> bool {
        let has_room = self.backing.has_room(self.bytes_for(need)) && !self.spoiled.is_log_full();
        has_room || self.backing.disk().is_none()
    }

    fn may_wait(&self, need: Need) -> bool {
        if self.has_room(need) {
            return false;
        }
        let state = self.room.state.lock();
        state.is_served && self.backing.held_bytes() >= state.futile_below
    }

    /// Waits while memory is full of what only a checkpoint can release, or would be after this write. No
    /// lock is held.
    #[inline]
    pub(crate) fn wait_for_room(&self, need: Need) -> Result<(), EngineError> {
        if self.has_room(need) {
            return Ok(());
        }
        self.check_writable()?;
        // Old values are evicted without a lock; a few more of them than needed, so that this is not repeated
        // for every write.
        self.backing.shed_values_for(self.bytes_for(need) + self.backing.room() / 64);
        self.make_room_by_waiting(need);
        self.wait_for_checkpoint(need);
        // Where no checkpoint succeeds, nothing else bounds what is written.
        if self.spoiled.is_stuck() && !self.has_room(need) {
            return Err(self.refusal_without_checkpoints());
        }
        Ok(())
    }

    /// As [`Shared::wait_for_room`], for a write whose need is not known yet: it is assumed to need as much
    /// as earlier ones.
    #[inline]
    pub(crate) fn wait_for_usual_room(&self) -> Result<(), EngineError> {
        self.wait_for_room(Need(self.room.usual.load(Ordering::Relaxed)))
    }

    /// Notes how much such a write needed in the end.
    pub(crate) fn note_usual(&self, Need(need): Need) {
        let before = self.room.usual.load(Ordering::Relaxed);
        // A rare need is forgotten after some writes without it.
        let usual = need.max(before - before / 8);
        if usual != before {
            self.room.usual.store(usual, Ordering::Relaxed);
        }
    }

    /// Bytes that must be free for a write: no more than one eviction can free.
    fn bytes_for(&self, Need(need): Need) -> u64 {
        // Writers copy what a running checkpoint holds.
        let copies = if self.checkpointing.is_locked() { 2 } else { 1 };
        need.saturating_mul(copies).min(self.backing.room() / 4)
    }

    fn wait_for_checkpoint(&self, need: Need) {
        let mut state = self.room.state.lock();
        // A checkpoint that runs already may have started before the bytes that fill the memory now.
        let enough = state.begun + 1;
        let is_full = || !self.backing.has_room(self.bytes_for(need));
        while is_full()
            && self.backing.held_bytes() >= state.futile_below
            && state.ended < enough
            && state.is_served
        {
            // A running checkpoint holds what could otherwise be evicted: its end may be enough.
            if state.begun == state.ended {
                self.nudge.ask(Wanted::Checkpoint);
            }
            self.room.changed.wait(&mut state);
            // Written data can be evicted at this point, but only a thread that needs the room does so.
            MutexGuard::unlocked(&mut state, || self.make_room_by_waiting(need));
        }
        // Repeated attempts to evict the rest would fail alike.
        if state.ended >= enough && is_full() {
            state.futile_below = self.backing.held_bytes() + self.options.memory_bytes / 16;
        }
    }

    /// Called before the thread that makes checkpoints starts; writers wait from here on.
    pub(crate) fn serving_begins(&self) {
        self.room.state.lock().is_served = true;
    }

    /// Marks the calling thread as the one that makes checkpoints, for as long as the returned guard lives.
    pub(crate) fn serve(&self) -> Serving<'_> {
        Serving(self)
    }

    /// Notes that a background checkpoint begins.
    pub(crate) fn checkpoint_begins(&self) {
        self.room.state.lock().begun += 1;
    }

    /// Notes that a background checkpoint ended.
    pub(crate) fn checkpoint_ended(&self) {
        let mut state = self.room.state.lock();
        state.ended = state.begun;
        if self.backing.excess() == 0 {
            state.futile_below = 0;
        }
        if !planted::is(Bug::RoomUntold) {
            self.room.changed.notify_all();
        }
    }

    /// Releases all waiting writers: no checkpoint will come.
    pub(crate) fn end_waiting(&self) {
        self.room.state.lock().is_served = false;
        self.room.changed.notify_all();
    }

    /// Asks the background thread for a checkpoint.
    pub(crate) fn ask_for_checkpoint(&self) {
        if self.options.background && !self.options.read_only {
            self.nudge.ask(Wanted::Checkpoint);
        }
    }

    /// Evicts leaves beyond the budget. The caller holds the writer lock, because a write relies on the
    /// leaves that it made resident.
    pub(crate) fn relieve(&self, trees: &mut [TreeState]) {
        let went = self.let_go_of_leaves(trees, Looks::Two, 0);
        if went.is_some() && self.backing.excess() > self.options.memory_bytes / 16 {
            self.ask_for_checkpoint();
        }
    }

    /// As [`Shared::relieve`], for room of `need` bytes, and without asking for a checkpoint where too little
    /// could be evicted. Returns whether enough was, if it was tried.
    pub(crate) fn let_go_of_leaves(&self, trees: &mut [TreeState], looks: Looks, need: u64) -> Option<bool> {
        if !self.may_relieve(need) {
            return None;
        }
        self.backing.shed_values_for(need);
        let all_went = self.evict_leaves(trees, looks, need);
        self.backing.meter().gaps_close(64);
        // Leaves that cannot go, because they are newer than the last checkpoint or held by a snapshot, are
        // not searched for again with every write; and what was just read is not evicted before it is used.
        let above = self.backing.held_bytes() + (self.options.memory_bytes / 64).max(16 << 10);
        self.evict_above.store(if all_went { 0 } else { above }, Ordering::Relaxed);
        Some(all_went)
    }

    /// Evicts leaves after reads brought in too many. Needs the writer lock, because a write relies on the
    /// leaves that it made resident, but does not wait for it: readers never wait.
    pub(crate) fn make_room(&self) {
        if !self.may_relieve(0) {
            return;
        }
        let went = {
            let Some(_writer) = self.writer.try_alone() else { return };
            let Some(mut forest) = self.forest.try_write() else { return };
            // A single pass spares what was read since the last one, and so what the caller is about to read.
            self.let_go_of_leaves(&mut forest.trees, Looks::One, 0)
        };
        if went == Some(false) {
            drop(self.let_go_of_views());
        }
    }

    /// As [`Shared::make_room`], for what a write brings in.
    fn make_room_by_waiting(&self, need: Need) {
        let need = self.bytes_for(need);
        if !self.may_relieve(need) {
            return;
        }
        let went = {
            let _writer = self.writer.alone();
            self.let_go_of_leaves(&mut self.forest.write().trees, Looks::Two, need)
        };
        if went == Some(false) {
            drop(self.let_go_of_views());
        }
    }

    /// Takes what views hold and could read back, for the caller to drop outside of locks.
    pub(crate) fn let_go_of_views(&self) -> Vec<Slot> {
        self.views.alive().iter().flat_map(|view| view.let_go()).collect()
    }

    /// Notes that a leaf was read for one lookup alone. After enough of these, searching for leaves to evict
    /// is worth while again: the reader or checkpoint that kept them may have ended.
    pub(crate) fn read_in_vain(&self) {
        let lower = |above: u64| Some(above.saturating_sub(FRAME_BYTES as u64));
        let _ = self.evict_above.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
    }

    fn may_relieve(&self, need: u64) -> bool {
        self.backing.excess_with(need) > 0
            && self.backing.held_bytes() + need > self.evict_above.load(Ordering::Relaxed)
            && self.backing.disk().is_some()
    }

    /// Evicts a few more leaves than the budget asks for, so that this is not repeated for every write.
    /// Returns whether that many could be evicted. The second pass takes what the first one spared.
    fn evict_leaves(&self, trees: &mut [TreeState], looks: Looks, need: u64) -> bool {
        let mut wanted = self.backing.excess_with(need) + self.options.memory_bytes / 16;
        let each_look = [Evictable::Leaves, Evictable::Records];
        for what in each_look.into_iter().cycle().take(each_look.len() * looks as usize) {
            for state in &mut *trees {
                if wanted == 0 {
                    return true;
                }
                let turn = self.turn.fetch_add(TURN_STEP, Ordering::Relaxed);
                let gone = tree::evict(&mut state.root, wanted, turn, what, &self.backing);
                wanted = wanted.saturating_sub(gone);
            }
        }
        wanted == 0
    }
}

/// How far each pass over the leaves begins behind the one before; prime to the usual numbers of children.
const TURN_STEP: usize = 211;

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_buffer::Buffer;

    #[test]
    fn a_long_value_needs_one_leaf_however_many_parts_it_has() {
        let part = Buffer::copy_from(&[7; EXTENT_FROM]);
        let op = |action| Op { tree: 0, action };
        let put = || op(Action::Put(b"long", Given::Part(&part)));
        let further = || op(Action::Append(b"long", Given::Part(&part)));
        let leaf = FRAME_BYTES as u64;
        assert_eq!(Need::of(&[put()]).0, leaf);
        assert_eq!(Need::of(&[put(), further(), further(), further()]).0, leaf);
        let other = op(Action::Append(b"other", Given::Bytes(b"few")));
        assert_eq!(Need::of(&[put(), further(), other]).0, 2 * leaf);
    }
}

//! Room in memory: what goes when there is too little, and who waits for it.
//!
//! Leaves that are on disk are let go of at once, by whoever brings too much in. What is not on disk yet
//! needs a checkpoint; it begins when that is half of the room, a quarter of the room came to it since the
//! last one, and three quarters of the room are taken. Writers who fill the rest before it ends wait for it.
//!
//! Invariant: who waits holds no lock, and waits no longer than until one whole checkpoint ended, perhaps
//! behind one that runs already.
//! Invariant: nobody waits unless a thread runs that makes checkpoints.
//! Invariant: behind a checkpoint that panicked, which is the last one, writes are refused where there is no
//! room, in memory or in the log.

use crate::batch::{Action, Given, Op};
use crate::forest::TreeState;
use crate::frames::FRAME_BYTES;
use crate::planted::{self, Bug};
use crate::shared::{Shared, Wanted};
use crate::slot::Slot;
use crate::threads::{AtomicU64, Condvar, Mutex, MutexGuard};
use crate::tree::{self, Going};
use crate::value::{EXTENT_FROM, INLINE_BELOW};
use crate::{Engine, EngineError};
use std::sync::atomic::Ordering;

/// How often leaves are looked at before it is said that too few can go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    One = 1,
    Two = 2,
}

/// Bytes that a write brings in, about: a leaf for each change, and what of its values is in memory until it
/// is handed to the disk.
#[derive(Clone, Copy)]
pub(crate) struct Need(u64);

impl Need {
    pub(crate) fn of(ops: &[Op<'_>]) -> Self {
        // The further parts of a long value go where the first went.
        let is_further = |op: &&Op<'_>| matches!(op.action, Action::Append(_, Given::Part(_)));
        let leaves = ops.len() - ops.iter().filter(is_further).count();
        Self(leaves as u64 * FRAME_BYTES as u64 + bytes_to_log(ops))
    }

    /// Of a write of values of such lengths.
    fn of_values(lengths: impl Iterator<Item = usize>) -> Self {
        let logged = |len: usize| if (INLINE_BELOW..EXTENT_FROM).contains(&len) { 2 * len as u64 } else { 0 };
        Self(lengths.map(|len| FRAME_BYTES as u64 + logged(len)).sum())
    }

    /// Of a change that makes or copies so many nodes.
    pub(crate) fn of_nodes(count: usize) -> Self {
        Self(count as u64 * FRAME_BYTES as u64)
    }
}

/// Bytes of the values that go to the log: twice, as pieces and as what is written there.
pub(crate) fn bytes_to_log(ops: &[Op<'_>]) -> u64 {
    let lengths = ops.iter().filter_map(|op| match op.action {
        Action::Put(_, given) | Action::Append(_, given) => Some(given.bytes().len()),
        Action::Delete(_) | Action::DeleteRange(..) => None,
    });
    lengths.filter(|len| (INLINE_BELOW..EXTENT_FROM).contains(len)).map(|len| 2 * len as u64).sum()
}

/// Where writers wait for memory.
#[derive(Default)]
pub(crate) struct Room {
    state: Mutex<State>,
    changed: Condvar,
    /// Bytes that writes need which are not known before the writer lock is held.
    usual: AtomicU64,
}

#[derive(Default)]
struct State {
    /// A thread runs that makes checkpoints.
    is_served: bool,
    /// Checkpoints that this thread began, and ended, well or not.
    begun: u64,
    ended: u64,
    /// Bytes held below which waiting was in vain.
    futile_below: u64,
}

/// Says when the thread that makes checkpoints ends, however it does.
pub(crate) struct Serving<'a>(&'a Shared);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.end_waiting();
    }
}

impl Engine {
    /// Whether a write of values of such lengths, by itself or with conditions, may have to wait until a
    /// checkpoint makes room in memory, which blocks its thread.
    #[must_use]
    pub fn may_wait(&self, lengths: impl Iterator<Item = usize>) -> bool {
        self.shared.may_wait(self.shared.need_of(lengths))
    }

    /// Waits until there is room for such a write, or a checkpoint made as much as there will be.
    ///
    /// # Errors
    /// [`EngineError`] if the store takes no writes.
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

    /// Waits while memory is full of what only a checkpoint can make room for, or would be with what a write
    /// brings in. No lock is held.
    #[inline]
    pub(crate) fn wait_for_room(&self, need: Need) -> Result<(), EngineError> {
        if self.has_room(need) {
            return Ok(());
        }
        self.check_writable()?;
        // Old values go without a lock; some more of them, so that it is not done for every write.
        self.backing.shed_values_for(self.bytes_for(need) + self.backing.room() / 64);
        self.make_room_by_waiting(need);
        self.wait_for_checkpoint(need);
        // Where no checkpoint will ever be made, nothing else bounds what is written.
        if self.spoiled.is_spoiled() && !self.has_room(need) {
            return Err(EngineError::Broken { store: self.backing.name() });
        }
        Ok(())
    }

    /// As [`Shared::wait_for_room`], for a write that is not known yet: it is taken to need as much as those
    /// before.
    #[inline]
    pub(crate) fn wait_for_usual_room(&self) -> Result<(), EngineError> {
        self.wait_for_room(Need(self.room.usual.load(Ordering::Relaxed)))
    }

    /// Notes what such a write needed after all.
    pub(crate) fn note_usual(&self, Need(need): Need) {
        let before = self.room.usual.load(Ordering::Relaxed);
        // What is rare is forgotten after some writes without it.
        let usual = need.max(before - before / 8);
        if usual != before {
            self.room.usual.store(usual, Ordering::Relaxed);
        }
    }

    /// Bytes that must be free for a write: no more than a look can make room for.
    fn bytes_for(&self, Need(need): Need) -> u64 {
        // What a running checkpoint holds is copied by whoever changes it.
        let copies = if self.checkpointing.is_locked() { 2 } else { 1 };
        need.saturating_mul(copies).min(self.backing.room() / 4)
    }

    fn wait_for_checkpoint(&self, need: Need) {
        let mut state = self.room.state.lock();
        // One that runs already may have looked before there was what fills the memory now.
        let enough = state.begun + 1;
        let is_full = || !self.backing.has_room(self.bytes_for(need));
        while is_full()
            && self.backing.held_bytes() >= state.futile_below
            && state.ended < enough
            && state.is_served
        {
            // One that runs holds what could go otherwise: it may be enough that it ends.
            if state.begun == state.ended {
                self.nudge.ask(Wanted::Checkpoint);
            }
            self.room.changed.wait(&mut state);
            // What was written can go now, and does not before somebody looks who needs the room.
            MutexGuard::unlocked(&mut state, || self.make_room_by_waiting(need));
        }
        // What cannot go does not, however often it is tried.
        if state.ended >= enough && is_full() {
            state.futile_below = self.backing.held_bytes() + self.options.memory_bytes / 16;
        }
    }

    /// A thread that makes checkpoints is about to start; writers wait from here on.
    pub(crate) fn serving_begins(&self) {
        self.room.state.lock().is_served = true;
    }

    /// The calling thread makes checkpoints for as long as the answer is kept.
    pub(crate) fn serve(&self) -> Serving<'_> {
        Serving(self)
    }

    /// A checkpoint of the background begins.
    pub(crate) fn checkpoint_begins(&self) {
        self.room.state.lock().begun += 1;
    }

    /// A checkpoint of the background ended.
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

    /// Lets everybody go who waits: no checkpoint will come.
    pub(crate) fn end_waiting(&self) {
        self.room.state.lock().is_served = false;
        self.room.changed.notify_all();
    }

    /// Asks the background for a checkpoint.
    pub(crate) fn ask_for_checkpoint(&self) {
        if self.options.background && !self.options.read_only {
            self.nudge.ask(Wanted::Checkpoint);
        }
    }

    /// Lets go of leaves beyond the budget. The writer lock is held: a write relies on the leaves that it
    /// made resident.
    pub(crate) fn relieve(&self, trees: &mut [TreeState]) {
        let went = self.let_go_of_leaves(trees, Looks::Two, 0);
        if went.is_some() && self.backing.excess() > self.options.memory_bytes / 16 {
            self.ask_for_checkpoint();
        }
    }

    /// As [`Shared::relieve`], for room of `need` bytes, without asking for a checkpoint where too little
    /// could go; whether enough went, if it was tried.
    pub(crate) fn let_go_of_leaves(&self, trees: &mut [TreeState], looks: Looks, need: u64) -> Option<bool> {
        if !self.may_relieve(need) {
            return None;
        }
        self.backing.shed_values_for(need);
        let all_went = self.evict_leaves(trees, looks, need);
        self.backing.meter().gaps_close(64);
        // What cannot go, being newer than the last checkpoint or held by a snapshot, is not looked for again
        // with every write; and what was just read is not taken away before it is used.
        let above = self.backing.held_bytes() + (self.options.memory_bytes / 64).max(16 << 10);
        self.evict_above.store(if all_went { 0 } else { above }, Ordering::Relaxed);
        Some(all_went)
    }

    /// Lets go of leaves when reads brought in too many. Only under the writer lock, which is not waited for:
    /// a write relies on the leaves it made resident, and readers do not wait.
    pub(crate) fn make_room(&self) {
        if !self.may_relieve(0) {
            return;
        }
        let went = {
            let Some(_writer) = self.writer.try_alone() else { return };
            let Some(mut forest) = self.forest.try_write() else { return };
            // One look spares what was read since the last one, and so what the caller is about to read.
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

    /// Lets go of what views hold and could read back; for the caller to drop outside of locks.
    pub(crate) fn let_go_of_views(&self) -> Vec<Slot> {
        self.views.alive().iter().flat_map(|view| view.let_go()).collect()
    }

    /// A leaf was read for one lookup alone. After enough of them it is worth while to look again for what
    /// can go: the reader or the checkpoint that kept it may be gone.
    pub(crate) fn read_in_vain(&self) {
        let lower = |above: u64| Some(above.saturating_sub(FRAME_BYTES as u64));
        let _ = self.evict_above.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
    }

    fn may_relieve(&self, need: u64) -> bool {
        self.backing.excess_with(need) > 0
            && self.backing.held_bytes() + need > self.evict_above.load(Ordering::Relaxed)
            && self.backing.disk().is_some()
    }

    /// Lets go of some more leaves than the budget asks for, so that it is not done for every write; whether
    /// so many could go. The second look takes those that the first passed over.
    fn evict_leaves(&self, trees: &mut [TreeState], looks: Looks, need: u64) -> bool {
        let mut wanted = self.backing.excess_with(need) + self.options.memory_bytes / 16;
        let each_look = [Going::Leaves, Going::Records];
        for what in each_look.into_iter().cycle().take(each_look.len() * looks as usize) {
            for state in &mut *trees {
                if wanted == 0 {
                    return true;
                }
                let turn = self.turn.fetch_add(TURN, Ordering::Relaxed);
                let gone = tree::evict(&mut state.root, wanted, turn, what, &self.backing);
                wanted = wanted.saturating_sub(gone);
            }
        }
        wanted == 0
    }
}

/// By how much each look at the leaves begins further on: prime to the usual numbers of children.
const TURN: usize = 211;

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

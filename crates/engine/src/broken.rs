//! The broken state of a store, which follows a write that fails or panics after its group is in the log: the
//! log has the write, and memory has half of it or none.
//!
//! Whether the write took effect is then undecided, and no reader may see half of it. So the store refuses
//! readers and writers alike, and the next opening has what the log says.
//!
//! Invariant: a listener is called after the store broke, never before, so any lookup that it makes then is
//! refused.
//! Invariant: from the moment a group is in the log until the trees have it, an [`UnfinishedGroup`] exists
//! for it.
//! Invariant: a store is marked as broken before the lock of the trees, or the latch of a half-changed leaf,
//! is released.

use crate::shared::{Shared, Writer};
use crate::threads::{AtomicBool, AtomicUsize, Mutex};
use crate::{Engine, EngineError};
use atoll_errors::ErrorKind;
use std::sync::atomic::Ordering;

const ANSWERING: usize = 0;
const BROKEN: usize = 1;
const CLOSED: usize = 2;

/// A listener that wants to know that a store broke.
type BrokenListener = Box<dyn FnOnce() + Send>;

/// Whether a store answers. Every lookup checks it.
#[derive(Default)]
pub(crate) struct Answering {
    state: AtomicUsize,
    to_tell: Mutex<Vec<BrokenListener>>,
}

impl Answering {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Ordering::Acquire) == ANSWERING
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    pub(crate) fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    fn is_broken(&self) -> bool {
        self.state.load(Ordering::Acquire) == BROKEN
    }

    fn break_off(&self) {
        // A closed store stays closed.
        let _ = self.state.compare_exchange(ANSWERING, BROKEN, Ordering::AcqRel, Ordering::Acquire);
    }

    fn when_broken(&self, tell: BrokenListener) {
        let mut to_tell = self.to_tell.lock();
        // The thread that breaks the store takes the list after it has set the state.
        if !self.is_broken() {
            return to_tell.push(tell);
        }
        drop(to_tell);
        tell();
    }

    fn tell_all(&self) {
        if self.is_broken() {
            let to_tell = std::mem::take(&mut *self.to_tell.lock());
            to_tell.into_iter().for_each(|tell| tell());
        }
    }

    /// The error for a caller that asks while the store does not answer.
    #[cold]
    pub(crate) fn refusal(&self, store: String) -> EngineError {
        if self.is_closed() { EngineError::Closed { store } } else { EngineError::Broken { store } }
    }
}

/// A group that is in the log, or on its way there, and not yet in the trees. Dropped without
/// [`UnfinishedGroup::done`], by an error or a panic, it breaks the store.
#[must_use = "dropped at once, it breaks the store"]
pub(crate) struct UnfinishedGroup<'s>(&'s Shared);

impl UnfinishedGroup<'_> {
    /// The trees have the group, or it was taken back.
    #[inline]
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for UnfinishedGroup<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.answering.break_off();
        self.0.syncer.poison();
        self.0.answering.tell_all();
    }
}

/// Whether checkpoints can be counted on: one that panicked is the last one, and others may fail one after
/// the other.
#[derive(Default)]
pub(crate) struct Spoiled {
    is_spoiled: AtomicBool,
    /// Background checkpoints that failed since one succeeded.
    failures: AtomicUsize,
    /// How the last of them failed.
    failure: Mutex<Option<(ErrorKind, String)>>,
    /// Whether the log, or the space that cannot be freed, has since reached its limit.
    is_log_full: AtomicBool,
}

/// Where no checkpoint succeeds, writes are refused once the log, or the space that cannot be freed, is this
/// many times what makes a checkpoint due.
const LOG_FULL_FACTOR: u64 = 4;

/// After this many checkpoints in a row that failed, the next one is not expected to succeed either.
const FAILURES_MAX: usize = 3;

impl Spoiled {
    /// Whether no checkpoint is expected to succeed.
    pub(crate) fn is_stuck(&self) -> bool {
        self.is_spoiled() || self.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }

    fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_log_full(&self) -> bool {
        self.is_log_full.load(Ordering::Relaxed) && self.is_stuck()
    }

    /// Notes that `waiting` bytes, of log or of space to be freed, wait for a checkpoint to succeed, where
    /// `due` bytes make one due.
    pub(crate) fn note_waiting(&self, waiting: u64, due: u64) {
        if waiting >= due.saturating_mul(LOG_FULL_FACTOR) && self.is_stuck() {
            self.is_log_full.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a background checkpoint failed.
    pub(crate) fn note_failure(&self, error: &EngineError) {
        *self.failure.lock() = Some((error.kind(), error.to_string()));
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a checkpoint succeeded.
    fn note_success(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.is_log_full.store(false, Ordering::Relaxed);
    }
}

/// A running checkpoint. If a panic drops it, it is the last one.
struct RunningCheckpoint<'s>(&'s Shared);

impl Drop for RunningCheckpoint<'_> {
    fn drop(&mut self) {
        self.0.spoiled.is_spoiled.store(true, Ordering::Relaxed);
        let store = self.0.backing.name();
        tracing::error!(%store, "a checkpoint panicked, and no other follows: writes go on until memory or the log is full; open the store again");
    }
}

impl Engine {
    /// Fails if this store answers nothing any more: it was closed, or one of its operations ended half-way.
    ///
    /// # Errors
    /// [`EngineError::Closed`], [`EngineError::Broken`].
    pub fn check_answers(&self) -> Result<(), EngineError> {
        self.shared.check_open()
    }

    /// Calls `tell` once, as soon as an operation ends half-way and this store answers nothing more;
    /// immediately if that has happened already. `tell` must not call this store or wait for another thread:
    /// locks are held while it runs.
    pub fn when_broken(&self, tell: impl FnOnce() + Send + 'static) {
        self.shared.answering.when_broken(Box::new(tell));
    }
}

impl Shared {
    /// The error for a write that finds no room, where no checkpoint is expected to make some. The next one
    /// is tried all the same, as no commit will ask for it.
    #[cold]
    pub(crate) fn refusal_without_checkpoints(&self) -> EngineError {
        let store = self.backing.name();
        let failure = self.spoiled.failure.lock().clone();
        match failure {
            Some((kind, cause)) if !self.spoiled.is_spoiled() => {
                self.ask_for_checkpoint();
                EngineError::CheckpointsFail { store, kind, cause }
            }
            _ => EngineError::Broken { store },
        }
    }

    /// Begins a step that must not end half-way.
    #[inline]
    pub(crate) fn unfinished(&self) -> UnfinishedGroup<'_> {
        UnfinishedGroup(self)
    }

    /// The error for a write that failed after its group was in the log. The group is whole. It is handed to
    /// the disk here, together with the acknowledged groups before it that wait in memory, since nothing will
    /// do so later.
    pub(crate) fn undecided(&self, writer: &mut Writer, error: EngineError) -> EngineError {
        let mut source = error;
        if let Some(log) = &mut writer.log {
            match log.flush(&self.backing) {
                Ok(()) => self.flushed.store(log.flushed(), Ordering::Release),
                Err(error) => {
                    tracing::warn!(store = self.backing.name(), error = %source, "a write could not be applied, and its log could not be written");
                    source = error.into();
                }
            }
        }
        EngineError::Undecided { store: self.backing.name(), source: Box::new(source) }
    }

    /// Runs a checkpoint for the holder of `checkpointing`. If it panics, the list of what left the trees is
    /// lost with it: a later checkpoint would commit as if nothing had left them, and that space would never
    /// come back. So no later checkpoint is made, and the log goes on until there is no room.
    pub(crate) fn whole<R>(&self, run: impl FnOnce() -> Result<R, EngineError>) -> Result<R, EngineError> {
        if self.spoiled.is_spoiled() {
            return Err(EngineError::Broken { store: self.backing.name() });
        }
        let running = RunningCheckpoint(self);
        let done = run();
        std::mem::forget(running);
        if done.is_ok() {
            self.spoiled.note_success();
        }
        done
    }
}

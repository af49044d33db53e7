//! What becomes of a store when a write fails behind the log, or panics there: the log has it, and memory has
//! a half of it or none.
//!
//! Nobody can say then whether it happened, and nobody may see a half of it. So the store answers nothing
//! more, to readers and writers alike, and whoever opens it again has what the log says.
//!
//! Invariant: whoever asked to be told is told after it broke, never before: what they look up then is
//! refused.
//! Invariant: from when a group is in the log until the trees have it somebody holds an [`Unfinished`].
//! Invariant: a store is broken before the lock of the trees, or the latch of the leaf, is given back that
//! was changed by half.

use crate::shared::{Shared, Writer};
use crate::threads::{AtomicBool, AtomicUsize, Mutex};
use crate::{Engine, EngineError};
use std::sync::atomic::Ordering;

const ON: usize = 0;
const BROKEN: usize = 1;
const CLOSED: usize = 2;

/// Somebody who wants to know that a store broke.
type Tell = Box<dyn FnOnce() + Send>;

/// Whether a store answers. Everybody who looks something up asks.
#[derive(Default)]
pub(crate) struct Answering {
    state: AtomicUsize,
    to_tell: Mutex<Vec<Tell>>,
}

impl Answering {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.state.load(Ordering::Acquire) == ON
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
        // What was closed stays closed.
        let _ = self.state.compare_exchange(ON, BROKEN, Ordering::AcqRel, Ordering::Acquire);
    }

    fn when_broken(&self, tell: Tell) {
        let mut to_tell = self.to_tell.lock();
        // Who breaks it takes the list after that.
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

    /// What is told to whoever asks when it does not.
    #[cold]
    pub(crate) fn refusal(&self, store: String) -> EngineError {
        if self.is_closed() { EngineError::Closed { store } } else { EngineError::Broken { store } }
    }
}

/// A group that is in the log, or on its way there, and not yet in the trees. Dropped without
/// [`Unfinished::done`] it breaks the store: by an error, or by a panic.
#[must_use = "dropped at once, it breaks the store"]
pub(crate) struct Unfinished<'s>(&'s Shared);

impl Unfinished<'_> {
    /// The trees have what the group says, or it was taken back.
    #[inline]
    pub(crate) fn done(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.answering.break_off();
        self.0.syncer.poison();
        self.0.answering.tell_all();
    }
}

/// Whether a checkpoint panicked, after which there is none.
#[derive(Default)]
pub(crate) struct Spoiled {
    is_spoiled: AtomicBool,
    /// Whether the log became as long since as it may.
    is_log_full: AtomicBool,
}

/// The log takes so many times what makes a checkpoint due before writes are refused where none will be made.
const LOG_FULL: u64 = 4;

impl Spoiled {
    pub(crate) fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_log_full(&self) -> bool {
        self.is_log_full.load(Ordering::Relaxed)
    }

    /// So much waits for a checkpoint, where so much makes one due.
    pub(crate) fn note_waiting(&self, waiting: u64, due: u64) {
        if self.is_spoiled() && waiting >= due.saturating_mul(LOG_FULL) {
            self.is_log_full.store(true, Ordering::Relaxed);
        }
    }
}

/// A checkpoint that runs; dropped by a panic, it is the last one.
struct Running<'s>(&'s Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.spoiled.is_spoiled.store(true, Ordering::Relaxed);
        let store = self.0.backing.name();
        tracing::error!(%store, "a checkpoint panicked and is the last one: writes go on until memory or the log is full; open the store again");
    }
}

impl Engine {
    /// Refuses where this store answers nothing any more: it was closed, or something of it ended half-way.
    ///
    /// # Errors
    /// [`EngineError::Closed`], [`EngineError::Broken`].
    pub fn check_answers(&self) -> Result<(), EngineError> {
        self.shared.check_open()
    }

    /// Has `tell` called, once, as soon as something ends half-way and this store answers nothing more; at
    /// once where that happened before. It must not call this store, nor wait for anybody: locks are held
    /// meanwhile.
    pub fn when_broken(&self, tell: impl FnOnce() + Send + 'static) {
        self.shared.answering.when_broken(Box::new(tell));
    }
}

impl Shared {
    /// Begins what must not end half-way.
    #[inline]
    pub(crate) fn unfinished(&self) -> Unfinished<'_> {
        Unfinished(self)
    }

    /// What is told of a write that failed behind the log. Its group is whole, and is handed to the disk with
    /// those before it that were acknowledged and wait in memory: nobody does that later.
    pub(crate) fn undecided(&self, writer: &mut Writer, error: EngineError) -> EngineError {
        let mut source = error;
        if let Some(log) = &mut writer.log {
            match log.flush(&self.backing) {
                Ok(()) => self.flushed.store(log.flushed(), Ordering::Release),
                Err(error) => {
                    tracing::warn!(store = self.backing.name(), error = %source, "a write could not be made, nor its log be written");
                    source = error.into();
                }
            }
        }
        EngineError::Undecided { store: self.backing.name(), source: Box::new(source) }
    }

    /// Runs a checkpoint, for whoever has `checkpointing`. Should it panic, what left the trees is lost with
    /// it: a later one would commit as if that had never been, and nobody would get its space again. So there
    /// is none; the log goes on until there is no room.
    pub(crate) fn whole<R>(&self, run: impl FnOnce() -> Result<R, EngineError>) -> Result<R, EngineError> {
        if self.spoiled.is_spoiled() {
            return Err(EngineError::Broken { store: self.backing.name() });
        }
        let running = Running(self);
        let done = run();
        std::mem::forget(running);
        done
    }
}

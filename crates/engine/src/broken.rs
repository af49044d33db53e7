//! What becomes of a store when a write fails behind the log, or panics there: the log has it, and memory has a half of it or none.
//!
//! Nobody can say then whether it happened, and nobody may see a half of it. So the store answers nothing more, to readers
//! and writers alike, and whoever opens it again has what the log says.
//!
//! Invariant: whoever asked to be told is told after it broke, never before: what they look up then is refused.
//! Invariant: from when a group is in the log until the trees have it somebody holds an [`Unfinished`].
//! Invariant: a store is broken before the lock of the trees, or the latch of the leaf, is given back that was changed by half.

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

/// A group that is in the log, or on its way there, and not yet in the trees. Dropped without [`Unfinished::done`] it breaks the
/// store: by an error, or by a panic.
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

/// A checkpoint that runs; dropped by a panic, it is the last one.
struct Running<'s>(&'s AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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

    /// Has `tell` called, once, as soon as something ends half-way and this store answers nothing more; at once where that happened
    /// before. It must not call this store, nor wait for anybody: locks are held meanwhile.
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

    /// What is told of a write that failed behind the log. Its group is whole, and is handed to the disk with those before it that were
    /// acknowledged and wait in memory: nobody does that later.
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

    /// Runs a checkpoint, for whoever has `checkpointing`. Should it panic, what left the trees is lost with it: a later one would commit
    /// as if that had never been, and nobody would get its space again. So there is none; the log goes on.
    pub(crate) fn whole<R>(&self, run: impl FnOnce() -> Result<R, EngineError>) -> Result<R, EngineError> {
        if self.is_spoiled.load(Ordering::Relaxed) {
            return Err(EngineError::Broken { store: self.backing.name() });
        }
        let running = Running(&self.is_spoiled);
        let done = run();
        std::mem::forget(running);
        done
    }
}

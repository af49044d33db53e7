//! What becomes of a store when a write fails behind the log, or panics there: the log has it, and memory has a half of it or none.
//!
//! Nobody can say then whether it happened, and nobody may see a half of it. So the store answers nothing more, to readers
//! and writers alike, and whoever opens it again has what the log says.
//!
//! Invariant: from when a group is in the log until the trees have it somebody holds an [`Unfinished`].
//! Invariant: a store is broken before the lock of the trees, or the latch of the leaf, is given back that was changed by half.

use crate::EngineError;
use crate::shared::Shared;
use crate::threads::{AtomicBool, AtomicUsize};
use std::sync::atomic::Ordering;

const ON: usize = 0;
const BROKEN: usize = 1;
const CLOSED: usize = 2;

/// Whether a store answers. Everybody who looks something up asks.
#[derive(Default)]
pub(crate) struct Answering(AtomicUsize);

impl Answering {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire) == ON
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }

    pub(crate) fn close(&self) {
        self.0.store(CLOSED, Ordering::Release);
    }

    fn break_off(&self) {
        // What was closed stays closed.
        let _ = self.0.compare_exchange(ON, BROKEN, Ordering::AcqRel, Ordering::Acquire);
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
    }
}

/// A checkpoint that runs; dropped by a panic, it is the last one.
struct Running<'s>(&'s AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// Begins what must not end half-way.
    #[inline]
    pub(crate) fn unfinished(&self) -> Unfinished<'_> {
        Unfinished(self)
    }

    /// What is told of a write that failed behind the log.
    pub(crate) fn undecided(&self, error: EngineError) -> EngineError {
        EngineError::Undecided { store: self.backing.name(), source: Box::new(error) }
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

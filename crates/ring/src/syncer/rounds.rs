//! Syncs of the rounds of a loop: the loop goes on while the disk is busy, and what it answers waits.
//!
//! Invariant: a number counts as synced only after a sync ended that began behind the writes it was given for.
//! Invariant: whoever saw what was written so far waits for the last number: no answer tells of what could still be lost.

use super::Syncer;
use crate::NodeError;
use atoll_engine::{Engine, EngineError};
use mio::Waker;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Syncs that were asked for, each with a number, and how many of them are done.
pub(crate) struct Rounds {
    syncer: Syncer<u64>,
    asked: u64,
    synced: u64,
    told: Receiver<Result<Vec<u64>, EngineError>>,
}

impl Rounds {
    /// Begins the thread that syncs; it wakes the loop after each sync.
    pub(crate) fn begin(engine: Engine, waker: Arc<Waker>) -> std::io::Result<Self> {
        let (tell, told) = channel();
        let syncer = Syncer::start(engine, move |done| {
            // A loop that ended wants to know nothing, and one that is not woken looks with its next tick.
            drop(tell.send(done));
            let _ = waker.wake();
        })?;
        Ok(Self { syncer, asked: 0, synced: 0, told })
    }

    /// Has synced what was written so far.
    pub(crate) fn ask(&mut self) {
        self.asked += 1;
        self.syncer.hand(vec![self.asked]);
    }

    /// The number that everything written so far waits for; none where all of it is synced.
    pub(crate) fn awaited(&self) -> Option<u64> {
        (self.synced < self.asked).then_some(self.asked)
    }

    /// The last number that is synced.
    ///
    /// # Errors
    /// [`NodeError`] when a sync failed: what was written may be lost with the power, so that nobody may be told of it.
    pub(crate) fn synced(&mut self) -> Result<u64, NodeError> {
        loop {
            match self.told.try_recv() {
                Ok(done) => self.synced = done?.into_iter().fold(self.synced, u64::max),
                Err(TryRecvError::Empty) => return Ok(self.synced),
                Err(TryRecvError::Disconnected) => return Err(NodeError::Loop),
            }
        }
    }
}

//! Syncs for the rounds of a loop, whose replies wait for them.
//!
//! On a quick disk the loop syncs by itself when no connection can have a turn: one sync for all that came
//! meanwhile, and no thread to wake. On a slow disk, or one of unknown speed, or while only connections have
//! turns that wait for no sync, a thread syncs and the loop goes on.
//!
//! Invariant: a number counts as synced only once a sync has ended that began after the writes it was given
//! for.
//! Invariant: a reply that may have seen any write so far waits for the last number, so that no reply reveals
//! what could still be lost.

use super::Syncer;
use crate::NodeError;
use crate::clock::Clock;
use atoll_engine::{Engine, EngineError};
use atoll_replica::Moment;
use mio::Waker;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// Longest sync that counts as quick, in microseconds.
const QUICK_US: u64 = 2_000;
/// Quick syncs in a row that make a disk quick, until the next slow one.
const QUICK_IN_A_ROW: u32 = 64;
/// How long the turns of other connections may delay a sync, in microseconds. After that the thread does it.
const WAIT_MAX_US: u64 = 20_000;

/// The number of a sync, and when it was handed to the thread.
type Handed = (u64, Moment);

/// Numbered requests for a sync, and how many of them are done.
pub(crate) struct Rounds {
    engine: Engine,
    clock: Arc<dyn Clock>,
    syncer: Syncer<Handed>,
    told: Receiver<Result<Vec<Handed>, EngineError>>,
    asked: u64,
    synced: u64,
    /// When the first of the requests that wait for the loop was made.
    waiting_since: Option<Moment>,
    quick_in_a_row: u32,
}

impl Rounds {
    /// Starts the thread that syncs. It wakes the loop after each sync.
    pub(crate) fn begin(engine: Engine, clock: Arc<dyn Clock>, waker: Arc<Waker>) -> std::io::Result<Self> {
        let (tell, told) = channel();
        // No period: every write belongs to a round that asks for its sync.
        let syncer = Syncer::start(engine.clone(), None, move |done| {
            // A loop that has ended needs no news. One that cannot be woken looks at its next tick.
            drop(tell.send(done));
            let _ = waker.wake();
        })?;
        Ok(Self { engine, clock, syncer, told, asked: 0, synced: 0, waiting_since: None, quick_in_a_row: 0 })
    }

    /// Ends a round. Returns the number that everything written so far waits for; none if all of it is
    /// synced.
    pub(crate) fn settle(&mut self, now: Moment, has_written: bool) -> Option<u64> {
        if has_written {
            self.asked += 1;
            self.waiting_since.get_or_insert(now);
        }
        let is_the_threads =
            |since: Moment| self.quick_in_a_row < QUICK_IN_A_ROW || now >= since.after(WAIT_MAX_US);
        if self.waiting_since.is_some_and(is_the_threads) {
            self.hand_over(now);
        }
        (self.synced < self.asked).then_some(self.asked)
    }

    /// Whether a sync waits for [`sync_here`](Self::sync_here).
    pub(crate) fn waits_for_loop(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// Hands the sync that waits, if one does, to the thread.
    pub(crate) fn hand_over(&mut self, now: Moment) {
        if self.waiting_since.take().is_some() {
            self.syncer.hand(vec![(self.asked, now)]);
        }
    }

    /// Does the sync that waits, on this thread.
    ///
    /// # Errors
    /// [`NodeError`] if the sync failed, as for [`synced`](Self::synced).
    pub(crate) fn sync_here(&mut self) -> Result<(), NodeError> {
        if self.waiting_since.take().is_none() {
            return Ok(());
        }
        let began = self.clock.now().moment;
        self.engine.sync()?;
        self.synced = self.asked;
        self.learn(began);
        Ok(())
    }

    /// The last number that is synced.
    ///
    /// # Errors
    /// [`NodeError`] if a sync failed: a power failure could lose what was written, so it must not be
    /// acknowledged.
    pub(crate) fn synced(&mut self) -> Result<u64, NodeError> {
        loop {
            match self.told.try_recv() {
                // The last of them was handed over shortly before its sync, so it measures little else.
                Ok(done) => {
                    if let Some((number, handed)) = done?.pop() {
                        self.synced = self.synced.max(number);
                        self.learn(handed);
                    }
                }
                Err(TryRecvError::Empty) => return Ok(self.synced),
                Err(TryRecvError::Disconnected) => return Err(NodeError::Loop),
            }
        }
    }

    /// Learns from a sync that was wanted at this moment and is done.
    fn learn(&mut self, wanted: Moment) {
        let is_quick = self.clock.now().moment <= wanted.after(QUICK_US);
        self.quick_in_a_row = if is_quick { self.quick_in_a_row.saturating_add(1) } else { 0 };
    }
}

//! Syncs of the rounds of a loop, whose answers wait for them.
//!
//! Where the disk is quick the loop syncs itself, once nobody else can have a turn: one sync for all who came
//! meanwhile, and no thread to be woken. Where it is slow, or not known yet, a thread does that, and the loop
//! goes on.
//!
//! Invariant: a number counts as synced only after a sync ended that began behind the writes it was given
//! for.
//! Invariant: whoever saw what was written so far waits for the last number: no answer tells of what could
//! still be lost.

use super::Syncer;
use crate::NodeError;
use crate::clock::Clock;
use atoll_engine::{Engine, EngineError};
use atoll_replica::Moment;
use mio::Waker;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// A sync that takes no longer than this, in microseconds, is a quick one.
const QUICK_US: u64 = 2_000;
/// So many quick ones in a row make a disk quick, until the next slow one.
const QUICK_IN_A_ROW: u32 = 64;
/// For how long turns of others go before a sync at most, in microseconds: then it is the thread's.
const WAIT_MAX_US: u64 = 20_000;

/// A sync, and when it was handed to the thread.
type Handed = (u64, Moment);

/// Syncs that were asked for, each with a number, and how many of them are done.
pub(crate) struct Rounds {
    engine: Engine,
    clock: Arc<dyn Clock>,
    syncer: Syncer<Handed>,
    told: Receiver<Result<Vec<Handed>, EngineError>>,
    asked: u64,
    synced: u64,
    /// When the first was asked for of those that wait for the loop.
    waiting_since: Option<Moment>,
    quick_in_a_row: u32,
}

impl Rounds {
    /// Begins the thread that syncs; it wakes the loop after each sync.
    pub(crate) fn begin(engine: Engine, clock: Arc<dyn Clock>, waker: Arc<Waker>) -> std::io::Result<Self> {
        let (tell, told) = channel();
        // Every write is of a round that asks for its sync.
        let syncer = Syncer::start(engine.clone(), None, move |done| {
            // A loop that ended wants to know nothing, and one that is not woken looks with its next tick.
            drop(tell.send(done));
            let _ = waker.wake();
        })?;
        let (asked, synced, waiting_since, quick_in_a_row) = Default::default();
        Ok(Self { engine, clock, syncer, told, asked, synced, waiting_since, quick_in_a_row })
    }

    /// A round is over, behind which there is something to sync or nothing new. The number that everything
    /// written so far waits for; none where all of it is synced.
    pub(crate) fn settle(&mut self, now: Moment, has_written: bool) -> Option<u64> {
        if has_written {
            self.asked += 1;
            self.waiting_since.get_or_insert(now);
        }
        let is_the_threads =
            |since: &mut Moment| self.quick_in_a_row < QUICK_IN_A_ROW || now >= since.after(WAIT_MAX_US);
        if self.waiting_since.take_if(is_the_threads).is_some() {
            self.syncer.hand(vec![(self.asked, now)]);
        }
        (self.synced < self.asked).then_some(self.asked)
    }

    /// Whether something waits for [`sync_here`](Self::sync_here).
    pub(crate) fn waits_for_loop(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// Syncs here and now what waits for it.
    ///
    /// # Errors
    /// [`NodeError`] when that failed, as of [`synced`](Self::synced).
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
    /// [`NodeError`] when a sync failed: what was written may be lost with the power, so that nobody may be
    /// told of it.
    pub(crate) fn synced(&mut self) -> Result<u64, NodeError> {
        loop {
            match self.told.try_recv() {
                // What was handed over last waited for little else.
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

    /// A sync that was wanted at this moment is done by now.
    fn learn(&mut self, wanted: Moment) {
        let is_quick = self.clock.now().moment <= wanted.after(QUICK_US);
        self.quick_in_a_row = if is_quick { self.quick_in_a_row.saturating_add(1) } else { 0 };
    }
}

//! How the writes of a round become as durable as their keyspaces ask for, and which replies wait for that.
//!
//! All keyspaces share the log of the engine, so one sync covers all. A round that wrote to a keyspace that
//! is synced asks for one; the replies of connections that have seen nothing of such a keyspace do not wait
//! for it.
//!
//! Invariant: a reply that may have seen a write to a keyspace that is synced leaves after the sync of that
//! write.

use super::{Home, Slots};
use crate::NodeError;
use crate::clock::{Clock, Now};
use crate::options::Persistence;
use crate::syncer::Rounds;
use atoll_engine::{Durability, WriteBatch};
use atoll_errors::ErrorKind;
use atoll_replica::Slot;
use mio::{Registry, Waker};
use std::cell::Cell;
use std::sync::Arc;

/// Which classes were written to since the last settling.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unsettled {
    off: bool,
    flushed: bool,
    synced: bool,
}

impl Unsettled {
    /// Notes a write to a keyspace of this class.
    pub(super) fn note(&mut self, class: Persistence) {
        match class {
            Persistence::Off => self.off = true,
            Persistence::EverySecond => self.flushed = true,
            Persistence::Always => self.synced = true,
        }
    }
}

/// Whether keyspaces were read or written that are synced, or others.
#[derive(Debug, Default)]
pub(super) struct Touches {
    synced: Cell<bool>,
    others: Cell<bool>,
}

impl Touches {
    /// Notes that a keyspace of this class was read or written.
    pub(super) fn note(&self, class: Persistence) {
        match class {
            Persistence::Always => self.synced.set(true),
            Persistence::Off | Persistence::EverySecond => self.others.set(true),
        }
    }
}

impl Slots {
    /// Notes that a slot was looked at.
    pub(super) fn touch(&self, slot: Slot) {
        self.touches.note(self.home.keyspaces().class_of(slot));
    }

    /// Whether since the last call only keyspaces were read or written whose replies wait for no sync; none
    /// if none was.
    pub(crate) fn take_is_free(&self) -> Option<bool> {
        let Touches { synced, others } = &self.touches;
        let (synced, others) = (synced.take(), others.take());
        (synced || others).then_some(!synced)
    }

    /// From here on replies wait for syncs, if they must not leave before one. The waker is the loop's.
    pub(crate) fn sync_in_rounds(&mut self, clock: Arc<dyn Clock>, waker: Arc<Waker>) -> std::io::Result<()> {
        if let Home::Alone(keyspaces) = &self.home {
            let syncs = keyspaces.class_of(Slot(0)) == Persistence::Always;
            self.in_rounds = Some((clock, waker));
            if syncs {
                self.begin_rounds()?;
            }
        }
        Ok(())
    }

    fn begin_rounds(&mut self) -> std::io::Result<()> {
        if let Some((clock, waker)) = self.in_rounds.take() {
            self.rounds = Some(Rounds::begin(self.engine.clone(), clock, waker)?);
        }
        Ok(())
    }

    /// Makes what was written as durable as its keyspaces ask for. If that takes a sync that is not done yet,
    /// returns the number that replies have to wait for.
    pub(crate) fn settle(&mut self, now: Now, registry: &Registry) -> Result<Option<u64>, NodeError> {
        if let Home::Replicated(replicated) = &mut self.home {
            replicated.settle(now, registry)?;
            let answers = replicated.take_answers();
            answers.iter().for_each(|(ticket, _)| self.answered(*ticket));
            self.answers.extend(answers);
            return Ok(None);
        }
        let Unsettled { off, flushed, synced } = std::mem::take(&mut self.unsettled);
        if synced {
            self.begin_rounds().map_err(|source| NodeError::System { action: "begin a thread", source })?;
        }
        let awaited = self.rounds.as_mut().and_then(|rounds| rounds.settle(now.moment, synced));
        if synced && self.rounds.is_none() {
            self.put_barrier(Durability::Synced)?;
        } else if flushed {
            self.put_barrier(Durability::Flushed)?;
        } else if off {
            // Nothing is made durable, but a half-failed write ends this node as it ends others.
            self.engine.check_answers()?;
        }
        Ok(awaited)
    }

    /// Makes all earlier writes this durable.
    fn put_barrier(&mut self, durability: Durability) -> Result<(), NodeError> {
        let mut batch = WriteBatch::new();
        batch.put(&self.barrier, b"0", b"");
        match self.engine.write(&batch, durability) {
            // There is no room for another write, but the earlier ones have theirs.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => self.engine.sync()?,
            written => drop(written?),
        }
        Ok(())
    }

    /// Whether a sync waits until the loop has nothing else to do.
    pub(crate) fn sync_waits(&self) -> bool {
        self.rounds.as_ref().is_some_and(Rounds::waits_for_loop)
    }

    /// Hands the sync that waits to a thread. To be called when nobody who has a turn can come to wait for
    /// it.
    pub(crate) fn hand_over_sync(&mut self, now: Now) {
        if let Some(rounds) = &mut self.rounds {
            rounds.hand_over(now.moment);
        }
    }

    /// Does the sync that waits. To be called when the loop has nothing else to do.
    pub(crate) fn sync_here(&mut self) -> Result<(), NodeError> {
        self.rounds.as_mut().map_or(Ok(()), Rounds::sync_here)
    }

    /// The number of the last sync that is done.
    pub(crate) fn synced(&mut self) -> Result<u64, NodeError> {
        self.rounds.as_mut().map_or(Ok(0), Rounds::synced)
    }
}

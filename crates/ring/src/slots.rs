//! The slots of one loop: here a write is handed to the log of its slot, and its answer comes now or later.
//!
//! With one copy nobody has to agree: a write is applied and answered at once.
//!
//! Invariant: no answer to a write leaves before [`Slots::settle`] made the write as durable as was chosen.

use crate::NodeError;
use crate::clock::Now;
use crate::options::Persistence;
use atoll_engine::{Durability, Engine, EngineError, Tree, WriteBatch};
use atoll_errors::ErrorKind;
use atoll_keyspace::{Applied, Keyspace, KeyspaceError, Overdue, ReadOutcome};
use atoll_replica::Ticket;
use atoll_resp::{Command, Protocol, ReplyWriter};

/// The slots of one loop.
pub(crate) struct Slots {
    keyspace: Keyspace,
    engine: Engine,
    persistence: Persistence,
    /// A write behind all others makes these as durable as it is itself.
    barrier: Tree,
    /// Whether something was written since the last one.
    is_unsettled: bool,
}

/// When a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Answer {
    /// It was.
    Now,
    /// By its ticket, once its write is committed.
    #[expect(dead_code, reason = "with one copy a write is committed at once")]
    Later(Ticket),
}

/// How a reply is written.
pub(crate) struct Reply<'a> {
    pub(crate) target: &'a mut Vec<u8>,
    pub(crate) protocol: Protocol,
}

/// The tree that all loops of a node keep their slots in; no two have the same ones.
const TREE: &str = "slots";

impl Slots {
    /// Opens the slots that this engine holds.
    pub(crate) fn open(engine: &Engine, persistence: Persistence) -> Result<Self, NodeError> {
        let keyspace = Keyspace::open(engine, TREE)?;
        let barrier = engine.tree("barrier")?;
        Ok(Self { keyspace, engine: engine.clone(), persistence, barrier, is_unsettled: false })
    }

    /// Hands a write to the log of its slot.
    pub(crate) fn write(
        &mut self,
        slot: u16,
        now: Now,
        command: &Command<'_>,
        reply: &mut Reply<'_>,
    ) -> Answer {
        let next = self.next(slot);
        let applied = self.keyspace.apply(slot, next, now.date_ms, command, reply.protocol, reply.target);
        self.is_unsettled = true;
        if let Err(error) = applied {
            refuse(&error, reply);
        }
        Answer::Now
    }

    /// Reads. What it meets that should have been deleted is deleted first, through the log.
    pub(crate) fn read(
        &mut self,
        slot: u16,
        now: Now,
        command: &Command<'_>,
        reply: &mut Reply<'_>,
    ) -> Answer {
        for _ in 0..READS_MAX {
            match self.keyspace.read(slot, now.date_ms, command, reply.protocol, reply.target) {
                Ok(ReadOutcome::Answered) => return Answer::Now,
                Ok(ReadOutcome::Expired(overdue)) => {
                    if let Err(error) = self.expire(&overdue, now) {
                        refuse(&error, reply);
                        return Answer::Now;
                    }
                }
                Err(error) => {
                    refuse(&error, reply);
                    return Answer::Now;
                }
            }
        }
        // Each time others were deleted, which never takes two rounds: all that it reads is of one state.
        ReplyWriter::new(reply.target, reply.protocol).error("INTERNAL", "a key does not stay deleted");
        Answer::Now
    }

    /// Deletes keys of one slot whose time is over.
    fn expire(&mut self, overdue: &[Overdue], now: Now) -> Result<(), KeyspaceError> {
        let Some(slot) = overdue.first().map(|key| key.slot) else { return Ok(()) };
        let keys: Vec<_> = overdue.iter().map(|key| (key.key.as_slice(), key.deadline_ms)).collect();
        let next = self.next(slot);
        self.is_unsettled = true;
        let mut count = Vec::new();
        self.keyspace.apply_expiry(slot, next, now.date_ms, &keys, Protocol::Resp2, &mut count)
    }

    /// The place of the next entry of a slot's log.
    fn next(&self, slot: u16) -> Applied {
        let last = self.keyspace.applied(slot);
        Applied { epoch: last.epoch.max(1), sequence: last.sequence + 1 }
    }

    /// Makes what was written so far as durable as was chosen.
    pub(crate) fn settle(&mut self) -> Result<(), EngineError> {
        let durability = match self.persistence {
            _ if !self.is_unsettled => return Ok(()),
            Persistence::Off => return Ok(()),
            Persistence::EverySecond => Durability::Flushed,
            Persistence::Always => Durability::Synced,
        };
        let mut batch = WriteBatch::new();
        batch.put(&self.barrier, b"", b"");
        self.engine.write(&batch, durability)?;
        self.is_unsettled = false;
        Ok(())
    }
}

/// How often a read is tried.
const READS_MAX: usize = 4;

/// Answers that the store failed.
fn refuse(error: &KeyspaceError, reply: &mut Reply<'_>) {
    let kind = if error.is_unknown() { ErrorKind::TimedOut } else { error.kind() };
    tracing::error!(%error, "a command failed");
    ReplyWriter::new(reply.target, reply.protocol).error(kind.names().resp, &error.to_string());
}

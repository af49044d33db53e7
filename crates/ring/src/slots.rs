//! The slots of one loop: a write is handed to the log of its slot, and its answer comes at once or later.
//!
//! With a single copy no agreement is needed: a write is applied and answered at once.
//!
//! Invariant: no answer to a write leaves before the write is as durable as configured. [`Slots::settle`]
//! ensures this, or returns the sync that the answer has to wait for. A read may have seen that write, so its
//! answer waits as well.

mod expiring;
mod forgetting;
mod others;
mod watching;

use crate::clock::{Clock, Now};
use crate::keyspaces::Keyspaces;
use crate::metrics::Metrics;
use crate::options::Persistence;
use crate::replicated_slots::ReplicatedSlots;
use crate::room::{Lack, NAME_BYTES, Room};
use crate::shares::Shares;
use crate::syncer::Rounds;
use crate::watches::{Touched, Watches};
use crate::{NodeError, failures};
use atoll_engine::{Durability, Engine, Tree, WriteBatch};
use atoll_errors::ErrorKind;
use atoll_keyspace::{Applied, KeyspaceError, ReadOutcome, ScanPage};
use atoll_replica::{Slot, Ticket};
use atoll_resp::{Command, Keys, Protocol, ReplyWriter, Request, ScanRequest};
use mio::{Registry, Waker};
use std::sync::Arc;

/// The slots of one loop.
pub(crate) struct Slots {
    home: Home,
    engine: Engine,
    persistence: Persistence,
    metrics: Arc<Metrics>,
    /// A write to this tree makes all earlier writes as durable as itself.
    barrier: Tree,
    /// Whether anything was written since the last such write.
    is_unsettled: bool,
    /// Syncs of rounds, if replies wait for a sync and no other node has copies.
    rounds: Option<Rounds>,
    room: Room,
    /// Which user holds how many of the places for clients in slots that remember many.
    shares: Shares,
    /// Answers that came later, each with its ticket.
    answers: Vec<(Ticket, Vec<u8>)>,
    watches: Watches,
    /// What was written here, if this node is the whole ring.
    touched: Touched,
}

/// Which nodes take part in what happens to slots.
enum Home {
    /// This node is the whole ring.
    Alone(Box<Keyspaces>),
    /// Other nodes have copies.
    Replicated(Box<ReplicatedSlots>),
}

impl Home {
    fn keyspaces(&self) -> &Keyspaces {
        match self {
            Self::Alone(keyspaces) => keyspaces,
            Self::Replicated(replicated) => &replicated.copies.keyspaces,
        }
    }

    fn keyspaces_mut(&mut self) -> &mut Keyspaces {
        match self {
            Self::Alone(keyspaces) => keyspaces,
            Self::Replicated(replicated) => &mut replicated.copies.keyspaces,
        }
    }
}

/// When a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Answer {
    /// It has been answered.
    Now,
    /// Under its ticket, once its write is committed.
    Later,
}

/// A request about keys of one slot.
pub(crate) struct Asking<'a, 'r> {
    pub(crate) slot: Slot,
    pub(crate) now: Now,
    pub(crate) command: &'a Command<'r>,
    /// The request as it came, and where its keys are.
    pub(crate) request: &'a Request<'r>,
    pub(crate) keys: Keys,
    /// The ticket for an answer that comes later.
    pub(crate) ticket: Ticket,
}

/// Where and how a reply is written.
pub(crate) struct Reply<'a> {
    pub(crate) target: &'a mut Vec<u8>,
    pub(crate) protocol: Protocol,
}

impl Slots {
    /// Opens the slots that this engine holds, for a node that is the whole ring.
    pub(crate) fn open(
        engine: &Engine,
        persistence: Persistence,
        memory_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NodeError> {
        let home = Home::Alone(Box::new(Keyspaces::open(engine, persistence)?));
        Self::at_home(engine, home, persistence, memory_bytes_max, metrics)
    }

    /// Makes the slots of a node of several.
    pub(crate) fn replicated(
        engine: &Engine,
        replicated: ReplicatedSlots,
        persistence: Persistence,
        memory_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NodeError> {
        Self::at_home(engine, Home::Replicated(Box::new(replicated)), persistence, memory_bytes_max, metrics)
    }

    fn at_home(
        engine: &Engine,
        home: Home,
        persistence: Persistence,
        memory_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NodeError> {
        let barrier = engine.tree("barrier")?;
        Ok(Self {
            home,
            engine: engine.clone(),
            persistence,
            metrics,
            barrier,
            is_unsettled: false,
            rounds: None,
            room: Room::new(engine, persistence, memory_bytes_max),
            shares: Shares::default(),
            answers: Vec::new(),
            watches: Watches::default(),
            touched: Touched::default(),
        })
    }

    /// Prefetches what requests about these keys of a keyspace will touch in memory.
    pub(crate) fn bring_nearer(&mut self, keyspace: u8, keys: &[&[u8]]) {
        if keys.len() > 1
            && let Some(keyspace) = self.home.keyspaces_mut().get_mut(keyspace)
        {
            keyspace.bring_nearer(keys);
        }
    }

    /// Hands a write to the log of its slot.
    pub(crate) fn write(&mut self, asking: &Asking<'_, '_>, reply: &mut Reply<'_>) -> Answer {
        let (time_ms, protocol) = (asking.now.date_ms, reply.protocol);
        let keyspaces = match &mut self.home {
            Home::Alone(keyspaces) => keyspaces,
            Home::Replicated(replicated) => {
                replicated.ask(asking, true, protocol);
                return Answer::Later;
            }
        };
        let next = next(keyspaces, asking.slot);
        self.is_unsettled = true;
        let (keyspace, number) = keyspaces.of_mut(asking.slot);
        let applied = keyspace.apply(number, next, time_ms, asking.command, protocol, reply.target);
        let keys = asking.keys.places(asking.request.len()).filter_map(|place| asking.request.get(place));
        self.touched.wrote(asking.slot, (keyspace, number, time_ms), asking.command, keys);
        if let Err(error) = applied {
            self.fail(&error, reply);
        }
        self.answered(asking.ticket);
        Answer::Now
    }

    /// Reads. Expired keys that it meets are deleted first, through the log.
    pub(crate) fn read(&mut self, asking: &Asking<'_, '_>, reply: &mut Reply<'_>) -> Answer {
        if let Home::Replicated(replicated) = &mut self.home {
            replicated.ask(asking, false, reply.protocol);
            return Answer::Later;
        }
        let (slot, now_ms) = (asking.slot, asking.now.date_ms);
        // After the first attempt no key is expired any more, so the reply is of one state at one date.
        for _ in 0..2 {
            let (keyspace, number) = self.home.keyspaces().of(slot);
            match keyspace.read(number, now_ms, asking.command, reply.protocol, reply.target) {
                Ok(ReadOutcome::Answered) => return Answer::Now,
                Ok(ReadOutcome::Expired(overdue)) => {
                    if let Err(error) = self.expire(slot, &overdue, asking.now) {
                        self.fail(&error, reply);
                        return Answer::Now;
                    }
                }
                Err(error) => {
                    self.fail(&error, reply);
                    return Answer::Now;
                }
            }
        }
        let internal = ErrorKind::Internal.names().resp;
        ReplyWriter::new(reply.target, reply.protocol).error(internal, "a key did not stay deleted");
        Answer::Now
    }

    /// A page of the keys of these slots of a keyspace.
    pub(crate) fn scan(
        &self,
        now: Now,
        request: &ScanRequest<'_>,
        keyspace: u8,
        held: impl Fn(u16) -> bool,
    ) -> Result<ScanPage, KeyspaceError> {
        let keyspace = self.home.keyspaces().get(keyspace);
        keyspace.map_or_else(|| Ok(ScanPage::default()), |keyspace| keyspace.scan(now.date_ms, request, held))
    }

    /// The first keys of a slot.
    pub(crate) fn keys_of_slot(&self, slot: Slot, most: usize) -> Result<Vec<Vec<u8>>, KeyspaceError> {
        let (keyspace, number) = self.home.keyspaces().of(slot);
        keyspace.keys_of_slot(number, most)
    }

    /// What there is too little of for a write: one that adds this many bytes, or any.
    #[inline]
    pub(crate) fn lack_for(&mut self, adds: Option<usize>) -> Option<Lack> {
        let lack = adds.and_then(|more| self.room.lack_for(more));
        let is_full = matches!(&self.home, Home::Replicated(replicated) if replicated.copies.is_full());
        lack.or(is_full.then_some(Lack::Disk))
    }

    /// What there is too little of for a write that adds nothing except its name: a client that is new to the
    /// slot is remembered there.
    pub(crate) fn lack_for_name(&mut self, slot: Slot, client: u128) -> Option<Lack> {
        let lack = self.room.lack_for(NAME_BYTES);
        if lack.is_some() {
            let (keyspace, number) = self.home.keyspaces().of(slot);
            let is_new = !keyspace.remembers(number, client);
            return lack.filter(|_| is_new && !self.room.takes_name()).or_else(|| self.lack_for(None));
        }
        self.lack_for(None)
    }

    /// Measures the room and checks some places, as time passes.
    pub(crate) fn look_at_room(&mut self, now: Now) {
        self.room.tick(now.moment);
        self.look_at_places();
        let lack = self.room.lack().or_else(|| self.lack_for(None));
        self.metrics.out_of_space.set(u64::from(lack == Some(Lack::Disk)));
    }

    /// From here on replies wait for syncs, if they must not leave before one. The waker is the loop's.
    pub(crate) fn sync_in_rounds(&mut self, clock: Arc<dyn Clock>, waker: Arc<Waker>) -> std::io::Result<()> {
        if matches!((&self.home, self.persistence), (Home::Alone(_), Persistence::Always)) {
            self.rounds = Some(Rounds::begin(self.engine.clone(), clock, waker)?);
        }
        Ok(())
    }

    /// Makes what was written as durable as configured. If that takes a sync that is not done yet, returns
    /// the number that all replies have to wait for.
    pub(crate) fn settle(&mut self, now: Now, registry: &Registry) -> Result<Option<u64>, NodeError> {
        if let Home::Replicated(replicated) = &mut self.home {
            replicated.settle(now, registry)?;
            let answers = replicated.take_answers();
            answers.iter().for_each(|(ticket, _)| self.answered(*ticket));
            self.answers.extend(answers);
            return Ok(None);
        }
        let is_unsettled = std::mem::take(&mut self.is_unsettled);
        if let Some(rounds) = &mut self.rounds {
            return Ok(rounds.settle(now.moment, is_unsettled));
        }
        if !is_unsettled {
            return Ok(None);
        }
        let durability = match self.persistence {
            // Nothing is made durable, but a half-failed write ends this node as it ends others.
            Persistence::Off => return Ok(self.engine.check_answers().map(|()| None)?),
            Persistence::EverySecond => Durability::Flushed,
            Persistence::Always => Durability::Synced,
        };
        let mut batch = WriteBatch::new();
        batch.put(&self.barrier, b"0", b"");
        match self.engine.write(&batch, durability) {
            // There is no room for another write, but the earlier ones have theirs.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => self.engine.sync()?,
            written => drop(written?),
        }
        Ok(None)
    }

    /// Whether a sync waits until the loop has nothing else to do.
    pub(crate) fn sync_waits(&self) -> bool {
        self.rounds.as_ref().is_some_and(Rounds::waits_for_loop)
    }

    /// Does the sync that waits. To be called when the loop has nothing else to do.
    pub(crate) fn sync_here(&mut self) -> Result<(), NodeError> {
        self.rounds.as_mut().map_or(Ok(()), Rounds::sync_here)
    }

    /// The number of the last sync that is done.
    pub(crate) fn synced(&mut self) -> Result<u64, NodeError> {
        self.rounds.as_mut().map_or(Ok(0), Rounds::synced)
    }

    /// Returns the answers since the last call, each once.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Vec<u8>)> {
        let mut answers = std::mem::take(&mut self.answers);
        answers.extend(self.watches.take_answers());
        answers
    }

    /// How many keys a slot holds.
    pub(crate) fn keys_in(&self, slot: Slot) -> u64 {
        let (keyspace, number) = self.home.keyspaces().of(slot);
        keyspace.keys_in(number)
    }

    /// Whether a slot remembers any client's writes.
    pub(crate) fn remembers(&self, slot: Slot) -> bool {
        let (keyspace, number) = self.home.keyspaces().of(slot);
        keyspace.sessions_in(number) > 0
    }

    /// Adds keyspaces until there are as many.
    pub(crate) fn grow(&mut self, keyspaces: usize) -> Result<(), NodeError> {
        self.home.keyspaces_mut().grow(keyspaces)
    }

    /// Whether this node is the whole ring.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.home, Home::Alone(_))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Replies that the store failed.
    pub(crate) fn fail(&self, error: &KeyspaceError, reply: &mut Reply<'_>) {
        self.metrics.failures.add(1);
        failures::write(error, &mut ReplyWriter::new(reply.target, reply.protocol));
    }
}

/// The position of the next entry of a slot's log.
fn next(keyspaces: &Keyspaces, slot: Slot) -> Applied {
    let (keyspace, number) = keyspaces.of(slot);
    let last = keyspace.applied(number);
    Applied { epoch: last.epoch.max(1), sequence: last.sequence + 1 }
}

//! The slots of one loop: a write is handed to the log of its slot, and its answer comes at once or later.
//!
//! With a single copy no agreement is needed: a write is applied and answered at once.
//!
//! Invariant: no answer to a write leaves before the write is as durable as its keyspace asks for.
//! [`Slots::settle`] ensures this, or returns the sync that the answer has to wait for. A read may have seen
//! that write, so its answer waits as well; what saw nothing of a keyspace that is synced does not wait.

mod expiring;
mod forgetting;
mod others;
mod rewriting;
mod settling;
mod watching;

use crate::clock::{Clock, Now};
use crate::keyspaces::{Keyspaces, slot_at};
use crate::metrics::Metrics;
use crate::options::Persistence;
use crate::replicated_slots::ReplicatedSlots;
use crate::room::{Lack, NAME_BYTES, Room};
use crate::shares::Shares;
use crate::syncer::Rounds;
use crate::watches::{Touched, Watches};
use crate::{NodeError, failures};
use atoll_engine::{Engine, Tree};
use atoll_errors::ErrorKind;
use atoll_keyspace::{Applied, KeyspaceError, ReadOutcome, ScanPage};
use atoll_replica::{KeyspaceRules, Slot, Ticket};
use atoll_resp::{Command, Keys, Protocol, ReplyWriter, Request, ScanRequest};
use mio::Waker;
use settling::{Touches, Unsettled};
use std::sync::Arc;

/// The slots of one loop.
pub(crate) struct Slots {
    home: Home,
    engine: Engine,
    metrics: Arc<Metrics>,
    /// A write to this tree makes all earlier writes as durable as itself.
    barrier: Tree,
    /// What was written since the last such write.
    unsettled: Unsettled,
    /// Which classes of keyspaces were touched since that was last asked.
    touches: Touches,
    /// What is needed to sync in rounds, once replies may wait for that and no other node has copies.
    in_rounds: Option<(Arc<dyn Clock>, Arc<Waker>)>,
    /// Syncs of rounds, once a keyspace asks for them.
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
    /// Most bytes of values that it returns, if it is a write: see [`Slots::returned_by`].
    pub(crate) returned: usize,
}

/// Where and how a reply is written.
pub(crate) struct Reply<'a> {
    pub(crate) target: &'a mut Vec<u8>,
    pub(crate) protocol: Protocol,
}

impl Slots {
    /// Opens the slots that this engine holds, for a node that is the whole ring. `keeps` says whether
    /// anything can outlive the process.
    pub(crate) fn open(
        engine: &Engine,
        (persistence, keeps): (Persistence, bool),
        memory_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NodeError> {
        let home = Home::Alone(Box::new(Keyspaces::open(engine, persistence)?));
        Self::at_home(engine, home, keeps, memory_bytes_max, metrics)
    }

    /// Makes the slots of a node of several.
    pub(crate) fn replicated(
        engine: &Engine,
        replicated: ReplicatedSlots,
        keeps: bool,
        memory_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NodeError> {
        Self::at_home(engine, Home::Replicated(Box::new(replicated)), keeps, memory_bytes_max, metrics)
    }

    fn at_home(
        engine: &Engine,
        home: Home,
        keeps: bool,
        memory_bytes_max: u64,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NodeError> {
        let barrier = engine.tree("barrier")?;
        Ok(Self {
            home,
            engine: engine.clone(),
            metrics,
            barrier,
            unsettled: Unsettled::default(),
            touches: Touches::default(),
            in_rounds: None,
            rounds: None,
            room: Room::new(engine, keeps, memory_bytes_max),
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
        let class = keyspaces.class_of(asking.slot);
        self.unsettled.note(class);
        self.touches.note(class);
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
        self.touch(slot);
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
        self.touch(slot_at(keyspace, 0));
        let keyspace = self.home.keyspaces().get(keyspace);
        keyspace.map_or_else(|| Ok(ScanPage::default()), |keyspace| keyspace.scan(now.date_ms, request, held))
    }

    /// The first keys of a slot.
    pub(crate) fn keys_of_slot(&self, slot: Slot, most: usize) -> Result<Vec<Vec<u8>>, KeyspaceError> {
        self.touch(slot);
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
        if lack.is_none() {
            self.room.forget_rewritten();
        }
        self.metrics.out_of_space.set(u64::from(lack == Some(Lack::Disk)));
    }

    /// Returns the answers since the last call, each once.
    pub(crate) fn take_answers(&mut self) -> Vec<(Ticket, Vec<u8>)> {
        let mut answers = std::mem::take(&mut self.answers);
        answers.extend(self.watches.take_answers());
        answers
    }

    /// How many keys a slot holds.
    pub(crate) fn keys_in(&self, slot: Slot) -> u64 {
        self.touch(slot);
        let (keyspace, number) = self.home.keyspaces().of(slot);
        keyspace.keys_in(number)
    }

    /// Whether a slot remembers any client's writes.
    pub(crate) fn remembers(&self, slot: Slot) -> bool {
        let (keyspace, number) = self.home.keyspaces().of(slot);
        keyspace.sessions_in(number) > 0
    }

    /// Opens the keyspaces with these rules, which are all but the first one.
    pub(crate) fn follow(&mut self, rules: &[KeyspaceRules]) -> Result<(), NodeError> {
        self.home.keyspaces_mut().follow(rules)
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

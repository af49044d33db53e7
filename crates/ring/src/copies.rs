//! The copies of slots on this node, and the driver that keeps them equal to those on other nodes:
//! [`Replica`] decides, this module performs.
//!
//! Invariant: effects are performed in the order in which they were decided; an answer may rely on those
//! before it.
//! Invariant: a copy that cannot perform an effect ends with its node, or waits if only its disk is full. It
//! never goes on with less.

mod answering;
mod applying;
mod arrivals;
mod body;
mod contradictions;
mod early;
mod expected;
mod expiring;
mod full;
mod in_place;
mod listing;
mod moves;
mod queue;
mod refusals;
mod returning;
mod waiting;

use crate::NodeError;
use crate::clock::Now;
use crate::dates::Dates;
use crate::group::GroupMember;
use crate::keyspaces::Keyspaces;
use crate::log::{SlotLog, position_of};
use crate::peer::{Peers, Spoken};
use crate::syncer::Logged;
use crate::watches::{Touched, Watch};
use atoll_keyspace::Applied;
use atoll_replica::{
    Change, Effect, Entry, Incarnation, Input, LogRun, Message, Moment, NodeId, Options, Position, Proposal,
    Refusal, Replica, Slot, SlotMessage, Survived, Ticket,
};
use atoll_resp::{Protocol, Request, RequestParser};
use body::Body;
use contradictions::Contradictions;
use full::Full;
use mio::Registry;
use moves::Moves;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use waiting::{Waiting, WaitingList};

pub(crate) use arrivals::GatheringRoom;
pub(crate) use returning::WriteExtra;
pub(crate) use waiting::RETURNED_BYTES_MAX;

/// The copies of this node.
pub(crate) struct Copies {
    pub(crate) keyspaces: Keyspaces,
    pub(crate) peers: Peers,
    pub(crate) dates: Dates,
    replica: Replica,
    /// None if nothing can outlive the process.
    log: Option<SlotLog>,
    group: Option<Box<dyn GroupMember>>,
    waiting: WaitingList,
    /// Replies that are ready, by ticket, and their total bytes.
    answers: Vec<(Ticket, Vec<u8>)>,
    answer_bytes: usize,
    /// How many requests the store failed at.
    failures: u64,
    /// What copies here did not take from other nodes.
    pub(crate) contradictions: Contradictions,
    /// Slots in which expired keys are being deleted, and how often such a deletion was refused.
    expiring: HashSet<Slot>,
    refused_expiries: u64,
    /// Watches that may begin, or the reason why not.
    watched: Vec<(Watch, Option<String>)>,
    /// What was written.
    pub(crate) touched: Touched,
    /// What was handed to the log and is not yet as durable as its keyspace asks for.
    handed: Logged,
    inputs: VecDeque<Input>,
    /// Requests that came before the clock of this node was known to be right.
    early: VecDeque<Input>,
    /// Length of the longest write among them, or more.
    early_longest: usize,
    effects: Vec<Effect>,
    moves: Moves,
    /// Work that waits while the disk is full.
    full: Option<Full>,
    /// Proposals to the group, sent together at the end of the round.
    proposals: Vec<Proposal>,
    parser: RequestParser,
    /// The last ticket of this node's own, for which no client waits.
    own_tickets: u64,
}

/// Most bytes of replies that wait together, and of those that writes will have. Further reads that become
/// ready are refused.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Tickets from here on are this node's own.
const OWN_TICKETS: u64 = 1 << 63;

impl Copies {
    pub(crate) fn new(
        me: NodeId,
        options: Options,
        keyspaces: Keyspaces,
        log: Option<SlotLog>,
        peers: Peers,
        waiting_bytes_max: usize,
        gathering: GatheringRoom,
    ) -> Self {
        Self {
            keyspaces,
            peers,
            dates: Dates::default(),
            replica: Replica::new(me, options),
            log,
            group: None,
            waiting: WaitingList::with_room(waiting_bytes_max),
            answers: Vec::new(),
            answer_bytes: 0,
            failures: 0,
            contradictions: Contradictions::of(me),
            expiring: HashSet::new(),
            refused_expiries: 0,
            watched: Vec::new(),
            touched: Touched::default(),
            handed: Vec::new(),
            inputs: VecDeque::new(),
            early: VecDeque::new(),
            early_longest: 0,
            effects: Vec::new(),
            moves: Moves::with_room(gathering),
            full: None,
            proposals: Vec::new(),
            parser: RequestParser::new(body::LIMITS),
            own_tickets: OWN_TICKETS,
        }
    }

    /// What this node may claim to have kept: what it judged to be there, once its whole log was read.
    pub(crate) fn survived(
        log: &mut SlotLog,
        keyspaces: &Keyspaces,
        judged: Survived,
    ) -> Result<Survived, NodeError> {
        log.found(applied(keyspaces))?;
        Ok(judged)
    }

    /// Begins an incarnation, which the configuration group assigned, in the ring with this number.
    pub(crate) fn begin(
        &mut self,
        now: Now,
        (incarnation, ring): (Incarnation, u64),
        registry: &Registry,
    ) -> Result<(), NodeError> {
        let found = match &mut self.log {
            Some(log) => log.found(applied(&self.keyspaces))?,
            None => Vec::new(),
        };
        self.replica.begin(now.moment, incarnation, found);
        self.peers.begin(incarnation, ring, registry);
        self.dates.begin(now.moment);
        Ok(())
    }

    /// Sets the connection to the configuration group.
    pub(crate) fn set_group(&mut self, group: Box<dyn GroupMember>) {
        self.group = Some(group);
    }

    /// Reports that the loop is alive. The group's own thread cannot: it would go on reporting while the loop
    /// hangs.
    pub(crate) fn at_work(&self, now: Moment) {
        if let Some(group) = &self.group {
            group.at_work(now);
        }
    }

    /// Asks the configuration group for changes. Their effect shows in the next table.
    pub(crate) fn ask_group(&self, changes: Vec<Change>) {
        if let Some(group) = &self.group {
            group.ask(changes);
        }
    }

    /// Sends the proposals since the last call to the group, in one entry of its log: a slot that is being
    /// handed over takes no writes until that is decided, and often many slots are handed over at once.
    pub(crate) fn propose(&mut self) {
        if let Some(group) = self.group.as_ref().filter(|_| !self.proposals.is_empty()) {
            group.propose(std::mem::take(&mut self.proposals));
        }
    }

    /// Takes a client's write; the answer comes under its ticket.
    pub(crate) fn write(
        &mut self,
        slot: Slot,
        now: Now,
        request: &Request<'_>,
        keys: impl Iterator<Item = usize>,
        (ticket, protocol): (Ticket, Protocol),
        extra: WriteExtra,
    ) -> Result<(), NodeError> {
        let bytes = request.bytes();
        let has_room = self.waiting.has_room(bytes) && self.waiting.has_room_to_return(extra.returned);
        self.waiting.insert(ticket, Waiting::Write { slot, protocol, bytes, extra });
        if self.is_full() || !has_room {
            self.refuse(ticket, Refusal::Busy);
            return Ok(());
        }
        let input = Input::Write {
            slot,
            ticket,
            time_ms: now.date_ms,
            body: Body::of_request(request),
            keys: keys.filter_map(|place| request.get(place)).map(number_of).collect(),
        };
        self.enter(now, input)
    }

    /// Takes a client's read; the answer comes under its ticket.
    pub(crate) fn read(
        &mut self,
        slot: Slot,
        now: Now,
        request: &Request<'_>,
        keys: impl Iterator<Item = usize>,
        (ticket, protocol): (Ticket, Protocol),
    ) -> Result<(), NodeError> {
        let keys = keys.filter_map(|place| request.get(place)).map(number_of).collect();
        let request = Body::request_bytes(request);
        let has_room = self.waiting.has_room(request.len());
        self.waiting.insert(ticket, Waiting::Read { slot, request, protocol, lists_since: None });
        if !has_room {
            self.refuse(ticket, Refusal::Busy);
            return Ok(());
        }
        self.enter(now, Input::Read { slot, ticket, keys })
    }

    /// Asks to watch a field. Whether the watch may begin comes with [`Copies::take_watched`].
    pub(crate) fn watch(&mut self, slot: Slot, now: Now, watch: Watch) -> Result<(), NodeError> {
        self.own_tickets += 1;
        let (ticket, keys) = (Ticket(self.own_tickets), vec![number_of(watch.key())]);
        let has_room = self.waiting.has_room(watch.bytes());
        self.waiting.insert(ticket, Waiting::Watch { slot, watch: Box::new(watch) });
        if !has_room {
            self.refuse(ticket, Refusal::Busy);
            return Ok(());
        }
        self.enter(now, Input::Read { slot, ticket, keys })
    }

    /// Returns, each once, the watches that may begin, or why not.
    pub(crate) fn take_watched(&mut self) -> Vec<(Watch, Option<String>)> {
        std::mem::take(&mut self.watched)
    }

    /// Handles a message of another node.
    pub(crate) fn hear(
        &mut self,
        now: Now,
        from: NodeId,
        incarnation: Incarnation,
        spoken: Spoken,
    ) -> Result<(), NodeError> {
        match spoken {
            Spoken::Message(message) if self.is_beyond_room(&message) => Ok(()),
            Spoken::Message(message) if !self.is_understood(&message) => {
                tracing::warn!(%from, "entries of a node that are invalid here were not accepted");
                Ok(())
            }
            Spoken::Message(message) => {
                if let Message::Slot { about: SlotMessage::Append { entries, .. }, .. } = &message {
                    self.dates.count_ahead(entries, from, now);
                }
                self.step(now, Input::Message { from, incarnation, message })
            }
            // Only members of the ring have a say about the time, and their number is bounded.
            Spoken::Date(_) if self.replica.table().incarnation(from) != Some(incarnation) => Ok(()),
            Spoken::Date(date_ms) => {
                self.dates.take_report(from, date_ms, now.moment);
                Ok(())
            }
            // A piece of another incarnation may belong to a branch that was given up.
            Spoken::Piece(_) if self.replica.table().incarnation(from) != Some(incarnation) => Ok(()),
            Spoken::Piece(piece) => self.take_piece(now, from, piece),
        }
    }

    /// Whether all entries of a message can be applied here. An entry that is logged and cannot be applied
    /// would end this node at every start.
    fn is_understood(&mut self, message: &Message) -> bool {
        let Message::Slot { about: SlotMessage::Append { entries, .. }, .. } = message else { return true };
        entries.iter().all(|entry| body::is_understood(&entry.body, &mut self.parser))
    }

    /// Feeds an input to the replica, and performs all that follows from it.
    pub(crate) fn step(&mut self, now: Now, input: Input) -> Result<(), NodeError> {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let mut effects = std::mem::take(&mut self.effects);
            self.replica.step(now.moment, input, &mut effects);
            self.end_overtaken()?;
            for effect in effects.drain(..) {
                self.perform(now, effect)?;
            }
            self.forget()?;
            self.record_branches();
            self.effects = effects;
        }
        Ok(())
    }

    fn perform(&mut self, now: Now, effect: Effect) -> Result<(), NodeError> {
        if let Effect::Log { .. } | Effect::Apply { .. } | Effect::Read { .. } | Effect::Transfer { .. } =
            effect
        {
            // The effect may read or write a slot that an earlier effect says to forget.
            self.forget()?;
            self.end_before(&effect)?;
        }
        match effect {
            Effect::Send { to, message } => self.say(to, &message)?,
            Effect::Log { slot, after, entries, run } => self.hand_to_log(slot, after, &entries, run)?,
            Effect::Apply { slot, entry, ticket } => self.apply_or_wait(slot, &entry, ticket)?,
            Effect::Read { ticket } => self.answer_read(now, ticket)?,
            Effect::Refuse { ticket, refusal } => self.refuse(ticket, refusal),
            Effect::Unknown { ticket } => self.answer(ticket, refusals::unknown),
            Effect::Transfer { slot, to } => self.moves.outgoing.add(slot, to, now.moment),
            Effect::Propose(proposal) => self.proposals.push(proposal),
            Effect::FetchTable => self.group.iter().for_each(|group| group.fetch_table()),
            Effect::Forget { slot } => self.moves.forgotten.push(slot),
            Effect::Branch { slot, branch } => {
                self.moves.branches.insert(slot, branch);
            }
            Effect::NotTaken { slot, from, contradiction } => {
                self.contradictions.record(now.moment, (slot, from), contradiction);
            }
        }
        Ok(())
    }

    fn hand_to_log(
        &mut self,
        slot: Slot,
        after: Position,
        entries: &[Entry],
        run: LogRun,
    ) -> Result<(), NodeError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        log.append(slot, after, entries);
        let is_long = log.is_long();
        if let Some(last) = entries.last() {
            self.handed.push((slot, last.position, run));
        }
        if is_long {
            self.write_log()?;
        }
        Ok(())
    }

    /// Writes what was handed to the log since the last call. Returns whether the disk had room.
    pub(crate) fn write_log(&mut self) -> Result<bool, NodeError> {
        if self.is_full() {
            return Ok(false);
        }
        let done = self.log.as_mut().map_or(Ok(()), SlotLog::write);
        self.unless_full(done.map_err(NodeError::from))
    }

    /// What was handed to the log since the last call.
    pub(crate) fn take_handed(&mut self) -> Logged {
        std::mem::take(&mut self.handed)
    }

    /// Reports that these entries are as durable as their keyspaces ask for.
    pub(crate) fn logged(&mut self, now: Now, entries: Logged) -> Result<(), NodeError> {
        for (slot, position, run) in entries {
            self.step(now, Input::Logged { slot, position, run })?;
        }
        Ok(())
    }

    /// How many entries each other node lacks of the slots that this node leads.
    pub(crate) fn behind(&self) -> BTreeMap<NodeId, u64> {
        self.replica.behind()
    }

    /// Whether requests about a slot are to be handed to the copies of this node.
    pub(crate) fn takes(&self, slot: Slot) -> bool {
        self.replica.takes(slot)
    }

    /// Whether keys of a slot may be listed from its cells, under the same conditions as a read.
    pub(crate) fn may_read(&self, slot: Slot, now: Now) -> bool {
        self.may_read_since(slot, self.replica.coming_round(), now)
    }

    /// The same for what came before this round of questions.
    pub(crate) fn may_read_since(&self, slot: Slot, round: u64, now: Now) -> bool {
        // Which keys have expired is unknown until the clock of this node is known to be right.
        let is_dated = !self.dates.is_early(now.moment);
        is_dated && !self.lacks_cells(slot) && self.replica.may_read_since(slot, round, now.moment)
    }

    /// The next round of questions to the other copies.
    pub(crate) fn coming_round(&self) -> u64 {
        self.replica.coming_round()
    }

    /// How long a read waits for other copies before it is refused, in microseconds.
    pub(crate) fn read_wait_us(&self) -> u64 {
        self.replica.read_wait_us()
    }

    /// Whether writes of a slot are, or may be, under way to its cells.
    pub(crate) fn is_under_way(&self, slot: Slot) -> bool {
        !self.early.is_empty() || self.replica.is_under_way(slot)
    }

    pub(crate) fn is_superseded(&self) -> bool {
        self.replica.is_superseded()
    }
}

fn applied(keyspaces: &Keyspaces) -> impl Iterator<Item = (Slot, Applied, u64)> + '_ {
    let each = keyspaces.slots().map(|slot| {
        let (keyspace, number) = keyspaces.of(slot);
        (slot, keyspace.applied(number), keyspace.time_ms(number))
    });
    each.filter(|(_, applied, _)| applied.epoch > 0)
}

fn number_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The last applied position of a slot, in the terms of the protocol.
fn applied_position(keyspaces: &Keyspaces, slot: Slot) -> Position {
    let (keyspace, number) = keyspaces.of(slot);
    position_of(keyspace.applied(number))
}

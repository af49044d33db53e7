//! Clients. Each has one operation under way, looks for the node that leads the slot, and gives up after a
//! while.
//!
//! Invariant: a write is repeated only if the answer was that nothing happened.

use crate::case::Flaw;
use crate::cells::{CELLS, WORD_CELL};
use crate::network::chance;
use crate::operation::{Operation, OperationEnd, Work};
use crate::queue::{Event, ToNode};
use crate::settings::{Settings, one_of};
use crate::world::{Phase, World, say};
use atoll_linearizability::{Action, Answer};
use atoll_replica::{NodeId, Refusal, Sequence, Slot};
use fastrand::Rng;
use std::collections::BTreeMap;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// The node that it is next to; it reaches what that node reaches. Without one it reaches every node.
    home: Option<NodeId>,
    /// Whether it nearly always reads, with short pauses.
    reads: bool,
    /// The node that it takes for the primary of each slot.
    primaries: Vec<NodeId>,
    current: Option<Current>,
    /// The value that it saw last in each cell.
    seen: BTreeMap<(Slot, u8), Option<String>>,
}

/// The operation that a client waits for.
#[derive(Clone, Copy, Debug)]
struct Current {
    operation: usize,
    attempt: u32,
    /// Whether a node may be working on it.
    is_asked: bool,
}

/// A node's reply to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClientReply {
    /// An answer, and the last place of the slot that it is based on.
    Answer(Answer, Sequence),
    Refused(Refusal),
    /// No process listens at that address.
    NobodyListens,
    /// The connection broke.
    Lost,
}

/// After this long a read may be sent to another node.
const HURRY_US: u64 = 80_000;

/// How many attempts follow each other without a pause.
const TRIES_AT_ONCE: u32 = 6;

/// The longest pause of a client that reads.
const READER_US: u64 = 20_000;

/// The words that the word cell may hold.
const WORDS: [&str; 3] = ["on", "off", "so"];

impl Client {
    pub(crate) fn new(settings: &Settings, random: &mut Rng) -> Self {
        let any = |random: &mut Rng| NodeId(random.u32(1..=settings.nodes));
        Self {
            home: (random.u8(..3) > 0).then(|| any(random)),
            reads: random.u8(..3) == 0,
            primaries: (0..settings.slots).map(|_| any(random)).collect(),
            current: None,
            seen: BTreeMap::new(),
        }
    }
}

impl World {
    /// When a message between a client and a node arrives, if it does.
    pub(crate) fn client_link(&mut self, client: usize, node: NodeId, is_request: bool) -> Option<u64> {
        let home = self.clients[client].home.unwrap_or(node);
        let (from, to) = if is_request { (home, node) } else { (node, home) };
        let is_open = from == to || self.network.is_open(from, to);
        let loss_ppm = if self.phase == Phase::Chaos { self.settings.loss_ppm / 8 } else { 0 };
        let is_lost = chance(&mut self.random, loss_ppm);
        let near_us = self.random.u64(20..=200);
        (is_open && !is_lost).then(|| self.now + near_us + if from == to { 0 } else { 2 * near_us })
    }

    pub(crate) fn client_begins(&mut self, client: usize) {
        if self.phase == Phase::Quiet || self.clients[client].current.is_some() {
            return;
        }
        let slot = Slot(self.random.u32(..self.settings.slots));
        let work = self.draw_work(client, slot);
        let patience = self.settings.patience_us;
        self.begin_operation(client, slot, work, patience);
    }

    /// Begins an operation of a client, which waits `patience_us` for the answer.
    pub(crate) fn begin_operation(
        &mut self,
        client: usize,
        slot: Slot,
        work: Work,
        patience_us: u64,
    ) -> usize {
        let operation = self.operations.len();
        let called = self.next_moment();
        self.counts.bump("operations");
        self.counts.bump(work.name());
        say!(self, "client {client}: operation {operation} in slot {}: {work:?}", slot.0);
        self.operations.push(Operation {
            slot,
            work,
            called,
            took: (self.now, None),
            ended: None,
            place: None,
            applied: None,
        });
        self.begun += 1;
        self.clients[client].current = Some(Current { operation, attempt: 0, is_asked: false });
        self.after(patience_us, Event::GiveUp { client, operation });
        self.client_asks(client);
        operation
    }

    fn draw_work(&mut self, client: usize, slot: Slot) -> Work {
        let operation = self.operations.len();
        let cell = self.random.u8(..CELLS);
        let word = one_of(&mut self.random, &WORDS).to_owned();
        let value = if cell == WORD_CELL { word.clone() } else { format!("{operation}") };
        let put = |cells, value| Work::Write { action: Action::Put(cells, value), lifetime_us: None };
        let write = |action| Work::Write { action, lifetime_us: None };
        let kind = if self.clients[client].reads { self.random.u8(..50) } else { self.random.u8(..100) };
        match kind {
            0..=33 => Work::Read(Action::Get(cell)),
            34..=39 => Work::Read(Action::Scan),
            40..=59 => put(vec![cell], value),
            60..=69 => write(Action::Append(cell, format!("+{operation}"))),
            70..=75 => put(vec![0, 1 + self.random.u8(..2)], format!("{operation}")),
            76..=85 => {
                let seen = self.clients[client].seen.get(&(slot, cell)).cloned().unwrap_or_default();
                write(Action::Swap(cell, seen, value))
            }
            86..=90 => write(Action::Delete(cell)),
            91..=94 => {
                let lifetime_us = Some(self.random.u64(20_000..600_000));
                Work::Write { action: Action::Put(vec![cell], value), lifetime_us }
            }
            _ => Work::Wait { cell: WORD_CELL, value: word },
        }
    }

    /// Sends the client's operation to the node that it takes for the primary.
    fn client_asks(&mut self, client: usize) {
        let Some(current) = &mut self.clients[client].current else { return };
        current.attempt += 1;
        current.is_asked = true;
        let (operation, attempt) = (current.operation, current.attempt);
        let slot = self.operations[operation].slot;
        let node = self.clients[client].primaries[slot.0 as usize];
        if let Some(at) = self.client_link(client, node, true) {
            self.queue.push(at, Event::ToNode { node, what: ToNode::Request { client, operation, attempt } });
        }
        if matches!(self.operations[operation].work, Work::Read(_)) {
            let hurry = self.random.u64(HURRY_US / 2..HURRY_US);
            self.after(hurry, Event::Hurry { client, operation, attempt });
        }
    }

    /// Sends a read that is not answered soon to another node; it does no harm at the first one.
    pub(crate) fn client_hurries(&mut self, client: usize, operation: usize, attempt: u32) {
        let is_current = |current: &Current| {
            current.operation == operation && current.attempt == attempt && current.is_asked
        };
        if self.clients[client].current.as_ref().is_some_and(is_current) && self.random.bool() {
            self.try_another(client, None);
        }
    }

    pub(crate) fn client_asks_again(&mut self, client: usize, operation: usize) {
        let is_current = |current: &Current| current.operation == operation && !current.is_asked;
        if self.clients[client].current.as_ref().is_some_and(is_current) {
            self.client_asks(client);
        }
    }

    /// A client receives a reply.
    pub(crate) fn client_hears(&mut self, client: usize, operation: usize, attempt: u32, told: ClientReply) {
        let is_current = |current: &Current| current.operation == operation && current.attempt == attempt;
        if !self.clients[client].current.as_ref().is_some_and(is_current) {
            return;
        }
        match told {
            ClientReply::Answer(answer, seen) => {
                let this = &mut self.operations[operation];
                if !this.work.is_write() {
                    this.place = Some(seen);
                }
                self.client_ends(client, OperationEnd::Told(answer));
            }
            ClientReply::Lost if !self.operations[operation].work.is_write() => {
                self.try_another(client, None)
            }
            ClientReply::Lost if self.flaw == Some(Flaw::WrittenAgain) => self.try_another(client, None),
            ClientReply::Lost => self.client_ends(client, OperationEnd::Unknown),
            ClientReply::Refused(Refusal::Moved { to }) => self.try_another(client, Some(to)),
            ClientReply::Refused(_) | ClientReply::NobodyListens => self.try_another(client, None),
        }
    }

    /// Nothing happened: the client asks the node that was named, or any other.
    fn try_another(&mut self, client: usize, named: Option<NodeId>) {
        let Some(current) = &mut self.clients[client].current else { return };
        current.is_asked = false;
        let (operation, attempt) = (current.operation, current.attempt);
        let slot = self.operations[operation].slot;
        let any = self.any_node();
        // Where nothing fails, a client that was not redirected asks for the table and gets it.
        let told = self.is_planned.then(|| self.council.authority.table().slot(slot).primary).flatten();
        let named = named.or(told);
        let near = self.clients[client].home.filter(|_| self.random.bool()).unwrap_or(any);
        self.clients[client].primaries[slot.0 as usize] = named.unwrap_or(near);
        self.counts.bump("tries_elsewhere");
        match named {
            Some(_) if attempt < TRIES_AT_ONCE => self.client_asks(client),
            _ => {
                let pause = self.random.u64(2_000..40_000);
                self.after(pause, Event::Again { client, operation });
            }
        }
    }

    pub(crate) fn client_gives_up(&mut self, client: usize, operation: usize) {
        let Some(current) = self.clients[client].current.filter(|current| current.operation == operation)
        else {
            return;
        };
        let slot = self.operations[operation].slot;
        self.clients[client].primaries[slot.0 as usize] = self.any_node();
        let ended = if current.is_asked { OperationEnd::Unknown } else { OperationEnd::Refused };
        self.client_ends(client, ended);
    }

    fn client_ends(&mut self, client: usize, ended: OperationEnd) {
        let Some(current) = self.clients[client].current.take() else { return };
        let moment = self.next_moment();
        self.counts.bump(match &ended {
            OperationEnd::Told(Answer::Conflict(_)) => "ended_in_conflict",
            OperationEnd::Told(_) => "ended_well",
            OperationEnd::Refused => "ended_refused",
            OperationEnd::Unknown => "ended_unknown",
        });
        say!(self, "client {client}: operation {} ends: {ended:?}", current.operation);
        self.digest.add(current.operation as u64 ^ moment << 32);
        let operation = &mut self.operations[current.operation];
        if let (
            Work::Read(Action::Get(cell)) | Work::Wait { cell, .. },
            OperationEnd::Told(Answer::Value(value)),
        ) = (&operation.work, &ended)
        {
            self.clients[client].seen.insert((operation.slot, *cell), value.clone());
        }
        operation.ended = Some((moment, ended));
        operation.took.1 = Some(self.now);
        let most = if self.clients[client].reads { READER_US } else { self.settings.thinking_us };
        let thinking = self.random.u64(..=most);
        self.after(thinking, Event::Begin { client });
    }
}

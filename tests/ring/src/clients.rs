//! Clients: each has one operation under way, looks for the node that has the slot, and gives up after a
//! while.
//!
//! Invariant: a write is sent again only where the answer was that nothing happened.

use crate::case::Flaw;
use crate::cells::{CELLS, WORD_CELL};
use crate::network::chance;
use crate::operation::{Ended, Operation, Work};
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
    /// The node beside which it sits; it reaches what that node reaches. Without one it reaches all.
    home: Option<NodeId>,
    /// Whether it reads nearly always, and does not think much.
    reads: bool,
    /// Which node it takes for the primary of each slot.
    primaries: Vec<NodeId>,
    current: Option<Current>,
    /// What it saw last in each cell.
    seen: BTreeMap<(Slot, u8), Option<String>>,
}

/// What a client waits for.
#[derive(Clone, Copy, Debug)]
struct Current {
    operation: usize,
    attempt: u32,
    /// Whether a node may be at it.
    is_asked: bool,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// An answer, and the last place of the slot that it rests on.
    Answer(Answer, Sequence),
    Refused(Refusal),
    /// Nobody listens at that address.
    NobodyListens,
    /// The connection is gone.
    Lost,
}

/// After so long a read may be asked elsewhere.
const HURRY_US: u64 = 80_000;

/// So many tries follow each other at once.
const TRIES_AT_ONCE: u32 = 6;

/// How long a client that reads thinks at most.
const READER_US: u64 = 20_000;

/// What a word cell may hold.
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
    /// When something between a client and a node arrives, if it does.
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

    /// A client asks for something, and waits so long for the answer.
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

    /// Sends what is under way to the node that seems right.
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

    /// A read that is not answered soon may be asked elsewhere: it does no harm where it was.
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

    /// A client is told something.
    pub(crate) fn client_hears(&mut self, client: usize, operation: usize, attempt: u32, told: Told) {
        let is_current = |current: &Current| current.operation == operation && current.attempt == attempt;
        if !self.clients[client].current.as_ref().is_some_and(is_current) {
            return;
        }
        match told {
            Told::Answer(answer, seen) => {
                let this = &mut self.operations[operation];
                if !this.work.is_write() {
                    this.place = Some(seen);
                }
                self.client_ends(client, Ended::Told(answer));
            }
            Told::Lost if !self.operations[operation].work.is_write() => self.try_another(client, None),
            Told::Lost if self.flaw == Some(Flaw::WrittenAgain) => self.try_another(client, None),
            Told::Lost => self.client_ends(client, Ended::Unknown),
            Told::Refused(Refusal::Moved { to }) => self.try_another(client, Some(to)),
            Told::Refused(_) | Told::NobodyListens => self.try_another(client, None),
        }
    }

    /// Nothing happened: the client asks the node that was named, or any.
    fn try_another(&mut self, client: usize, named: Option<NodeId>) {
        let Some(current) = &mut self.clients[client].current else { return };
        current.is_asked = false;
        let (operation, attempt) = (current.operation, current.attempt);
        let slot = self.operations[operation].slot;
        let any = self.any_node();
        // Where nothing fails a client that was sent nowhere asks who has what, and is told.
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
        let ended = if current.is_asked { Ended::Unknown } else { Ended::Refused };
        self.client_ends(client, ended);
    }

    fn client_ends(&mut self, client: usize, ended: Ended) {
        let Some(current) = self.clients[client].current.take() else { return };
        let moment = self.next_moment();
        self.counts.bump(match &ended {
            Ended::Told(Answer::Conflict(_)) => "ended_in_conflict",
            Ended::Told(_) => "ended_well",
            Ended::Refused => "ended_refused",
            Ended::Unknown => "ended_unknown",
        });
        say!(self, "client {client}: operation {} ends: {ended:?}", current.operation);
        self.digest.add(current.operation as u64 ^ moment << 32);
        let operation = &mut self.operations[current.operation];
        if let (Work::Read(Action::Get(cell)) | Work::Wait { cell, .. }, Ended::Told(Answer::Value(value))) =
            (&operation.work, &ended)
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

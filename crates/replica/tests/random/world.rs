//! Nodes, their logs and clocks, the network between them and the configuration group, driven by events in
//! the order of true time.

mod clients;
mod council;
mod processes;

use crate::faults::{Counts, Faults};
use crate::history::{Ended, History};
use crate::schedule::Scheduled;
use atoll_replica::{
    Change, Effect, Entry, Group, GroupOptions, Incarnation, Input, LogRun, Message, Moment, NodeId, Options,
    Position, Replica, Slot, Survived, Table, Ticket,
};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

const SLOT: Slot = Slot(0);
/// The configuration group, as an endpoint of links.
const GROUP: NodeId = NodeId(0);
const SECOND: u64 = 1_000_000;

pub enum Event {
    Message { from: NodeId, incarnation: Incarnation, to: NodeId, message: Message },
    Tick { node: NodeId, life: u64 },
    Logged { node: NodeId, life: u64, written: usize },
    Table { node: NodeId, table: Arc<Table> },
    Ask { node: NodeId, change: Change },
    Fetch { node: NodeId },
    Beat { node: NodeId, life: u64, asked_at: Moment },
    Heard { node: NodeId, life: u64, asked_at: Moment },
    Registered { node: NodeId, life: u64, incarnation: Incarnation },
    Cells { node: NodeId, applied: Vec<Entry> },
    Request { client: u64 },
    TimeOut { client: u64, number: u64 },
    Fault,
    GroupLooks,
    Restart { node: NodeId },
    Resume { node: NodeId },
}

struct Node {
    replica: Replica,
    /// Counts the node's processes.
    life: u64,
    incarnation: Option<Incarnation>,
    survived: Survived,
    is_up: bool,
    paused_until: u64,
    held: Vec<Event>,
    clock_offset: u64,
    clock_rate: f64,
    /// What is written to the log; `synced` is how much of it is.
    log: Vec<Entry>,
    synced: usize,
    /// The writes to the log in order: the last entry of each, and its run.
    writes: Vec<(Position, LogRun)>,
    applied: Vec<Entry>,
    checkpoint: usize,
}

pub struct World {
    random: fastrand::Rng,
    now: u64,
    order: u64,
    events: BinaryHeap<Scheduled<Event>>,
    nodes: BTreeMap<NodeId, Node>,
    group: Group,
    heard_at: BTreeMap<NodeId, u64>,
    cut: BTreeSet<(NodeId, NodeId)>,
    options: Options,
    survives: bool,
    clients: BTreeMap<u64, u64>,
    next_number: u64,
    history: History,
    /// All entries that were ever applied, by place.
    book: BTreeMap<u64, Entry>,
    is_calm: bool,
    traces: bool,
    loss: f64,
    /// The group declares a node failed after this much silence.
    silence_us: u64,
    pub counts: Counts,
    wrong: Option<String>,
}

const CLIENTS: u64 = 5;
const CHAOS_US: u64 = 30 * SECOND;
const CALM_US: u64 = 15 * SECOND;

impl World {
    pub fn new(seed: u64, faults: &Faults, traces: bool) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.u32(3..=5);
        let copies = random.usize(2..=3);
        let options = Options {
            reads: faults.reads,
            rate_error_ppm: faults.rate_error_ppm,
            in_sync_min: random.usize(1..=2),
            kept_entries: random.usize(1..20),
            message_bytes_max: random.usize(10..400),
            nearly_caught_up: random.u64(0..10),
            ..Options::default()
        };
        let loss = [0.0, 0.01, 0.1][random.usize(..3)];
        let silence_us = random.u64(SECOND / 4..3 * SECOND / 2);
        let mut world = Self {
            now: SECOND,
            order: 0,
            events: BinaryHeap::new(),
            nodes: BTreeMap::new(),
            group: Group::new(GroupOptions { slots: 1, copies }),
            heard_at: BTreeMap::new(),
            cut: BTreeSet::new(),
            options,
            survives: faults.survives,
            clients: BTreeMap::new(),
            next_number: 0,
            history: History::default(),
            book: BTreeMap::new(),
            is_calm: false,
            traces,
            loss,
            silence_us,
            counts: Counts::default(),
            wrong: None,
            random,
        };
        for node in 1..=nodes {
            let error = world.random.i64(-(faults.clock_ppm as i64)..=faults.clock_ppm as i64);
            let (clock_offset, clock_rate) = (world.random.u64(..1000 * SECOND), 1.0 + error as f64 / 1e6);
            world.nodes.insert(
                NodeId(node),
                Node {
                    replica: Replica::new(NodeId(node), world.options.clone()),
                    life: 0,
                    incarnation: None,
                    survived: Survived::Nothing,
                    is_up: false,
                    paused_until: 0,
                    held: Vec::new(),
                    clock_offset,
                    clock_rate,
                    log: Vec::new(),
                    synced: 0,
                    writes: Vec::new(),
                    applied: Vec::new(),
                    checkpoint: 0,
                },
            );
            world.at(0, Event::Restart { node: NodeId(node) });
        }
        world.at(SECOND, Event::Fault);
        world.at(SECOND / 5, Event::GroupLooks);
        for client in 0..CLIENTS {
            world.at(SECOND / 2, Event::Request { client });
        }
        world
    }

    /// Runs the whole schedule; an error says what went wrong.
    pub fn run(&mut self) -> Result<(), String> {
        self.run_until(self.now + CHAOS_US)?;
        self.heal();
        self.run_until(self.now + CALM_US)?;
        self.judge()
    }

    fn run_until(&mut self, end: u64) -> Result<(), String> {
        while let Some(scheduled) = self.events.pop() {
            self.now = scheduled.at.max(self.now);
            if self.now >= end {
                self.events.push(scheduled);
                return Ok(());
            }
            self.happen(scheduled.event);
            if let Some(wrong) = self.wrong.take() {
                return Err(wrong);
            }
        }
        Ok(())
    }

    fn at(&mut self, after: u64, event: Event) {
        self.order += 1;
        self.events.push(Scheduled { at: self.now + after, order: self.order, event });
    }

    fn trace(&self, text: impl FnOnce() -> String) {
        if self.traces {
            println!("{:>9.3} ms  {}", self.now as f64 / 1000.0, text());
        }
    }

    fn clock(&self, node: NodeId) -> Moment {
        let node = &self.nodes[&node];
        Moment(node.clock_offset + (self.now as f64 * node.clock_rate) as u64)
    }

    fn delay(&mut self) -> u64 {
        match self.random.u8(..20) {
            _ if self.is_calm => self.random.u64(100..2_000),
            0 => self.random.u64(..SECOND),
            1 | 2 => self.random.u64(..100_000),
            _ => self.random.u64(100..2_000),
        }
    }

    fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// How many times a message arrives.
    fn travels(&mut self, from: NodeId, to: NodeId) -> usize {
        if !self.is_open(from, to) {
            return 0;
        }
        if self.is_calm {
            return 1;
        }
        if self.random.f64() < self.loss {
            self.counts.count("lost");
            return 0;
        }
        if self.random.u8(..100) == 0 {
            self.counts.count("doubled");
            return 2;
        }
        1
    }

    fn happen(&mut self, event: Event) {
        let event = match self.for_whom(&event) {
            Some(node) if self.nodes[&node].paused_until > self.now => {
                self.nodes.get_mut(&node).unwrap().held.push(event);
                return;
            }
            _ => event,
        };
        match event {
            Event::Message { from, incarnation, to, message } => {
                self.give(to, Input::Message { from, incarnation, message });
            }
            Event::Tick { node, life } => self.tick(node, life),
            Event::Logged { node, life, written } => self.synced(node, life, written),
            Event::Table { node, table } => self.give(node, Input::Table(table)),
            Event::Ask { node, change } => self.decide(node, change),
            Event::Fetch { node } => self.send_table(node),
            Event::Beat { node, life, asked_at } => self.beat(node, life, asked_at),
            Event::Heard { node, life, asked_at } if self.is_life(node, life) => {
                self.give(node, Input::GroupHeard { asked_at });
            }
            Event::Registered { node, life, incarnation } if self.is_life(node, life) => {
                self.begin(node, incarnation)
            }
            Event::Cells { node, applied } => self.install(node, applied),
            Event::Request { client } => self.request(client),
            Event::TimeOut { client, number } => self.time_out(client, number),
            Event::Fault => self.fault(),
            Event::GroupLooks => self.group_looks(),
            Event::Restart { node } => self.restart(node),
            Event::Resume { node } => {
                let held = std::mem::take(&mut self.nodes.get_mut(&node).unwrap().held);
                held.into_iter().for_each(|event| self.happen(event));
            }
            Event::Heard { .. } | Event::Registered { .. } => {}
        }
    }

    fn for_whom(&self, event: &Event) -> Option<NodeId> {
        match event {
            Event::Message { to, .. } => Some(*to),
            Event::Tick { node, .. }
            | Event::Logged { node, .. }
            | Event::Table { node, .. }
            | Event::Heard { node, .. }
            | Event::Registered { node, .. }
            | Event::Cells { node, .. } => Some(*node),
            _ => None,
        }
    }

    fn is_life(&self, node: NodeId, life: u64) -> bool {
        self.nodes[&node].is_up && self.nodes[&node].life == life
    }

    fn give(&mut self, node: NodeId, input: Input) {
        let now = self.clock(node);
        let there = self.nodes.get_mut(&node).unwrap();
        if !there.is_up || there.incarnation.is_none() {
            return;
        }
        let mut effects = Vec::new();
        let leads = there.replica.leads(SLOT);
        there.replica.step(now, input, &mut effects);
        if !leads && there.replica.leads(SLOT) {
            self.counts.count("led by another");
            self.trace(|| format!("{node} leads"));
        }
        if self.nodes[&node].replica.is_superseded() {
            self.counts.count("superseded");
            self.crash(node);
            return self.at(1_000, Event::Restart { node });
        }
        effects.into_iter().for_each(|effect| self.perform(node, effect));
    }

    fn perform(&mut self, node: NodeId, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                let incarnation = self.nodes[&node].incarnation.unwrap();
                for _ in 0..self.travels(node, to) {
                    let delay = self.delay();
                    if delay > 100_000 {
                        self.counts.count("late");
                    }
                    let message = message.clone();
                    self.at(delay, Event::Message { from: node, incarnation, to, message });
                }
            }
            Effect::Log { after, entries, run, .. } => self.log(node, (after, entries), run),
            Effect::Apply { entry, ticket, .. } => self.apply(node, entry, ticket),
            Effect::Read { ticket } => {
                let list = self.nodes[&node].applied.iter().map(number_of).collect();
                self.end(ticket.0, Ended::Read(list));
            }
            Effect::Refuse { ticket, .. } => self.end(ticket.0, Ended::Refused),
            Effect::Unknown { ticket } => self.end(ticket.0, Ended::Unknown),
            Effect::Transfer { to, .. } => self.transfer(node, to),
            Effect::Propose(proposal) => self.ask_group(node, Change::Propose(proposal)),
            Effect::FetchTable => {
                if self.travels(node, GROUP) > 0 {
                    let delay = self.delay();
                    self.at(delay, Event::Fetch { node });
                }
            }
            Effect::Forget { .. } => {
                let there = self.nodes.get_mut(&node).unwrap();
                (there.log, there.applied, there.writes) = Default::default();
                (there.synced, there.checkpoint) = (0, 0);
            }
            // No loss is ever accepted here.
            Effect::Branch { .. } => {}
            Effect::NotTaken { from, contradiction, .. } => {
                self.wrong = Some(format!("{node} does not take what {from} sent: {contradiction}"));
            }
        }
    }

    fn log(&mut self, node: NodeId, (after, entries): (Position, Vec<Entry>), run: LogRun) {
        let there = self.nodes.get_mut(&node).unwrap();
        let before = there.log.len();
        there.log.retain(|entry| entry.position.sequence <= after.sequence);
        if there.log.len() < before {
            self.counts.count("truncated");
        }
        there.synced = there.synced.min(there.log.len());
        there.log.extend(entries);
        there.writes.push((there.log.last().unwrap().position, run));
        let (written, life) = (there.writes.len(), there.life);
        let delay = if self.survives { self.random.u64(100..5_000) } else { 0 };
        self.at(delay, Event::Logged { node, life, written });
    }

    /// A sync has completed that covers the first `written` writes.
    fn synced(&mut self, node: NodeId, life: u64, written: usize) {
        if !self.is_life(node, life) {
            return;
        }
        let there = self.nodes.get_mut(&node).unwrap();
        let Some(&(position, run)) = there.writes.get(written - 1) else { return };
        if let Some(at) = there.log.iter().position(|entry| entry.position == position) {
            there.synced = there.synced.max(at + 1);
        }
        self.give(node, Input::Logged { slot: SLOT, position, run });
    }

    fn apply(&mut self, node: NodeId, entry: Entry, ticket: Option<Ticket>) {
        let sequence = entry.position.sequence.0;
        match self.book.get(&sequence) {
            Some(known) if *known != entry => {
                self.wrong = Some(format!("{node} applied {} where {} was", entry.position, known.position));
            }
            _ => drop(self.book.insert(sequence, entry.clone())),
        }
        let there = self.nodes.get_mut(&node).unwrap();
        if there.applied.last().map_or(0, |last| last.position.sequence.0) + 1 != sequence {
            self.wrong = Some(format!("{node} applied {} out of order", entry.position));
        }
        there.applied.push(entry);
        if self.random.u8(..4) == 0 {
            there.checkpoint = there.applied.len();
        }
        if let Some(ticket) = ticket {
            self.end(ticket.0, Ended::Written);
        }
    }

    fn transfer(&mut self, node: NodeId, to: NodeId) {
        self.counts.count("transfer");
        let applied = self.nodes[&node].applied.clone();
        if let Some(last) = applied.last() {
            self.give(node, Input::TransferBegan { slot: SLOT, to, position: last.position });
        }
        if self.travels(node, to) > 0 {
            let delay = self.delay() + 1_000;
            self.at(delay, Event::Cells { node: to, applied });
        }
        self.give(node, Input::TransferEnded { slot: SLOT, to });
    }

    fn install(&mut self, node: NodeId, applied: Vec<Entry>) {
        let Some(last) = applied.last().cloned() else { return };
        let there = self.nodes.get_mut(&node).unwrap();
        if there.incarnation.is_none() || !there.replica.would_install(SLOT, last.position) {
            return;
        }
        (there.log, there.synced) = (applied.clone(), applied.len());
        there.checkpoint = applied.len();
        there.applied = applied;
        self.give(node, Input::Installed { slot: SLOT, position: last.position, time_ms: last.time_ms });
        let run = self.nodes[&node].replica.log_run(SLOT);
        self.give(node, Input::Logged { slot: SLOT, position: last.position, run });
    }

    fn tick(&mut self, node: NodeId, life: u64) {
        if !self.is_life(node, life) {
            return;
        }
        self.give(node, Input::Tick);
        self.at(20_000, Event::Tick { node, life });
        if self.random.u8(..5) == 0 && self.travels(node, GROUP) > 0 {
            let (delay, asked_at) = (self.delay(), self.clock(node));
            self.at(delay, Event::Beat { node, life, asked_at });
        }
    }
}

fn number_of(entry: &Entry) -> u64 {
    u64::from_be_bytes(entry.body[..].try_into().unwrap())
}

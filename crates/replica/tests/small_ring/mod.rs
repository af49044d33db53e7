//! A ring of a few nodes with one slot, on a network that delivers in order unless told otherwise.

#![allow(dead_code, reason = "not every test needs all of it")]

use atoll_replica::{
    Change, Contradiction, Decision, Effect, Entry, Found, Group, GroupOptions, Incarnation, Input, LogRun,
    Message, Moment, NodeId, Options, PlacementHints, Position, Refusal, Replica, Slot, SlotMessage,
    Survived, Ticket, Version,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub const SLOT: Slot = Slot(0);

/// A node with its log, whose writes complete when the test says so.
pub struct Node {
    pub replica: Replica,
    pub incarnation: Incarnation,
    pub log: Vec<Entry>,
    pub unlogged: VecDeque<(Position, LogRun)>,
    pub applied: Vec<Entry>,
    /// The branch of the slot that was recorded last.
    pub branch: Version,
    pub is_dead: bool,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Written,
    Read(usize),
    Refused(Refusal),
    Unknown,
}

/// More messages than this without time passing mean that nodes answer each other without end.
const SPOKEN_MAX: usize = 10_000;

pub struct Ring {
    pub group: Group,
    pub nodes: BTreeMap<NodeId, Node>,
    pub network: VecDeque<(NodeId, Incarnation, NodeId, Message)>,
    pub cut: BTreeSet<(NodeId, NodeId)>,
    pub now: Moment,
    pub told: BTreeMap<Ticket, Outcome>,
    /// Whether writes to logs complete at once.
    pub logs_at_once: bool,
    pub hears_group: bool,
    pub proposals: Vec<Change>,
    pub transfers: Vec<(NodeId, NodeId)>,
    /// How many entries nodes have sent to each other.
    pub entries_sent: usize,
    /// Which nodes did not take entries of which primaries, and why.
    pub not_taken: Vec<(NodeId, NodeId, Contradiction)>,
}

impl Ring {
    pub fn of(nodes: u32, copies: usize, options: &Options) -> Self {
        let group = Group::new(GroupOptions { slots: 1, copies });
        let mut ring = Self {
            group,
            nodes: BTreeMap::new(),
            network: VecDeque::new(),
            cut: BTreeSet::new(),
            now: Moment(1_000_000),
            told: BTreeMap::new(),
            logs_at_once: true,
            hears_group: true,
            proposals: Vec::new(),
            transfers: Vec::new(),
            entries_sent: 0,
            not_taken: Vec::new(),
        };
        (1..=nodes).for_each(|node| ring.start(NodeId(node), options, Survived::Nothing));
        ring.place();
        ring
    }

    pub fn start(&mut self, node: NodeId, options: &Options, survived: Survived) {
        let nonce = self.now.0 + u64::from(node.0);
        let address = format!("127.0.0.{}", node.0);
        let change = Change::Register {
            node,
            nonce,
            address,
            hints: PlacementHints::default(),
            survived: survived.clone(),
        };
        let Decision::Registered { incarnation } = self.group.apply(change) else { panic!("no life") };
        let mut replica = Replica::new(node, options.clone());
        let before = self.nodes.remove(&node);
        let (log, branch) = match (survived, before) {
            (Survived::Everything, Some(before)) => (before.log, before.branch),
            _ => Default::default(),
        };
        let (base, entries) = (Position::default(), log.clone());
        let found = Found { slot: SLOT, base, base_time_ms: 0, branch, entries };
        replica.begin(self.now, incarnation, if log.is_empty() { Vec::new() } else { vec![found] });
        let (unlogged, applied) = (VecDeque::new(), Vec::new());
        let there = Node { replica, incarnation, log, unlogged, applied, branch, is_dead: false };
        self.nodes.insert(node, there);
        self.publish();
    }

    pub fn place(&mut self) {
        for change in self.group.plan(&[]) {
            self.group.apply(change);
        }
        self.publish();
    }

    pub fn decide(&mut self, change: Change) {
        self.group.apply(change);
        self.publish();
    }

    /// Gives the group's table to every node that hears the group.
    pub fn publish(&mut self) {
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.give(node, Input::Table(self.group.table()));
        }
    }

    pub fn give(&mut self, node: NodeId, input: Input) {
        let now = self.now;
        let there = self.nodes.get_mut(&node).unwrap();
        if there.is_dead {
            return;
        }
        let mut effects = Vec::new();
        there.replica.step(now, input, &mut effects);
        effects.into_iter().for_each(|effect| self.perform(node, effect));
    }

    pub fn perform(&mut self, node: NodeId, effect: Effect) {
        let there = self.nodes.get_mut(&node).unwrap();
        match effect {
            Effect::Send { to, message } => {
                if let Message::Slot { about: SlotMessage::Append { entries, .. }, .. } = &message {
                    self.entries_sent += entries.len();
                }
                self.network.push_back((node, there.incarnation, to, message));
            }
            Effect::Log { after, entries, run, .. } => {
                there.log.truncate(after.sequence.0 as usize);
                there.unlogged.push_back((entries.last().unwrap().position, run));
                there.log.extend(entries);
            }
            Effect::Apply { entry, ticket, .. } => {
                there.applied.push(entry);
                ticket.map(|ticket| self.told.insert(ticket, Outcome::Written));
            }
            Effect::Read { ticket } => drop(self.told.insert(ticket, Outcome::Read(there.applied.len()))),
            Effect::Refuse { ticket, refusal } => drop(self.told.insert(ticket, Outcome::Refused(refusal))),
            Effect::Unknown { ticket } => drop(self.told.insert(ticket, Outcome::Unknown)),
            Effect::Transfer { to, .. } => self.transfers.push((node, to)),
            Effect::Propose(proposal) => self.proposals.push(Change::Propose(proposal)),
            Effect::FetchTable => {}
            Effect::Forget { .. } => (there.log, there.unlogged, there.applied) = Default::default(),
            Effect::Branch { branch, .. } => there.branch = branch,
            Effect::NotTaken { from, contradiction, .. } => {
                self.not_taken.push((node, from, contradiction));
            }
        }
    }

    /// Delivers messages until none are left.
    pub fn settle(&mut self) {
        let mut spoken = 0;
        loop {
            spoken += 1;
            assert!(spoken < SPOKEN_MAX, "messages answer each other without end: {:?}", self.network);
            if self.logs_at_once {
                self.log_all();
            }
            let Some((from, incarnation, to, message)) = self.network.pop_front() else { break };
            if !self.cut.contains(&(from, to)) && self.nodes.contains_key(&to) {
                self.give(to, Input::Message { from, incarnation, message });
            }
        }
    }

    pub fn log_all(&mut self) {
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            while let Some((position, run)) = self.nodes.get_mut(&node).unwrap().unlogged.pop_front() {
                self.give(node, Input::Logged { slot: SLOT, position, run });
            }
        }
    }

    /// Lets time pass, with everything that follows; the group decides on its proposals.
    pub fn pass(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds / 20 {
            self.now = self.now.after(20_000);
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                if self.hears_group {
                    self.give(node, Input::GroupHeard { asked_at: self.now });
                }
                self.give(node, Input::Tick);
            }
            self.settle();
            for (from, to) in std::mem::take(&mut self.transfers) {
                self.transfer(from, to);
            }
            for change in std::mem::take(&mut self.proposals) {
                self.decide(change);
            }
            self.settle();
        }
    }

    /// Lets some time pass and delivers messages; nothing is decided and no cells arrive.
    pub fn tick(&mut self) {
        self.now = self.now.after(20_000);
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.give(node, Input::GroupHeard { asked_at: self.now });
            self.give(node, Input::Tick);
        }
        self.settle();
    }

    pub fn transfer(&mut self, from: NodeId, to: NodeId) {
        let applied = self.nodes[&from].applied.clone();
        let last = applied.last().unwrap();
        let (position, time_ms) = (last.position, last.time_ms);
        let there = self.nodes.get_mut(&to).unwrap();
        if there.replica.would_install(SLOT, position) {
            there.log = applied.clone();
            there.applied = applied;
            let run = there.replica.log_run(SLOT);
            there.unlogged.push_back((position, run));
            self.give(to, Input::Installed { slot: SLOT, position, time_ms });
        }
    }

    pub fn write(&mut self, node: u32, ticket: u64) {
        let body: Arc<[u8]> = ticket.to_be_bytes().into();
        let (ticket, keys) = (Ticket(ticket), vec![7]);
        self.give(NodeId(node), Input::Write { slot: SLOT, ticket, time_ms: 5, body, keys });
    }

    pub fn read(&mut self, node: u32, ticket: u64) {
        self.give(NodeId(node), Input::Read { slot: SLOT, ticket: Ticket(ticket), keys: vec![7] });
    }

    pub fn told(&self, ticket: u64) -> Option<Outcome> {
        self.told.get(&Ticket(ticket)).copied()
    }

    pub fn kill(&mut self, node: u32) {
        self.nodes.get_mut(&NodeId(node)).unwrap().is_dead = true;
    }

    pub fn fail(&mut self, node: u32) {
        let incarnation = self.nodes[&NodeId(node)].incarnation;
        self.decide(Change::Fail { node: NodeId(node), incarnation });
    }

    pub fn isolate(&mut self, node: u32) {
        let others: Vec<_> = self.nodes.keys().copied().filter(|other| other.0 != node).collect();
        for other in others {
            self.cut.insert((NodeId(node), other));
            self.cut.insert((other, NodeId(node)));
        }
    }

    pub fn primary(&self) -> NodeId {
        self.group.table().slot(SLOT).primary.unwrap()
    }

    pub fn applied(&self, node: u32) -> Vec<u64> {
        let bodies = self.nodes[&NodeId(node)].applied.iter();
        bodies.map(|entry| u64::from_be_bytes(entry.body[..].try_into().unwrap())).collect()
    }
}

pub fn three() -> Ring {
    let mut ring = Ring::of(3, 3, &Options::default());
    ring.pass(100);
    assert_eq!(ring.primary(), NodeId(1));
    ring
}

//! The world of one seed: its whole state, and the event loop.
//!
//! Invariant: events happen in the order of true time; all random numbers come from one generator.

use crate::book::Book;
use crate::case::{Case, Flaw};
use crate::cells::Digest;
use crate::clients::Client;
use crate::clock::Clock;
use crate::council::Council;
use crate::counts::Counts;
use crate::holding::draw_slacks;
use crate::importing::draw_lengths;
use crate::losses::{GivenUp, draw_impatience};
use crate::network::Network;
use crate::node::Node;
use crate::operation::Operation;
use crate::queue::{Event, Queue, ToNode};
use crate::settings::Settings;
use atoll_replica::{Change, Effect, Group, GroupOptions, NodeId, Slot, Version};
use fastrand::Rng;
use std::collections::BTreeMap;

/// Adds a line to the trace, if there is one.
macro_rules! say {
    ($world:expr, $($words:tt)*) => {
        if $world.trace.is_some() {
            let line = format!($($words)*);
            $world.tell(&line);
        }
    };
}
pub(crate) use say;

/// The phases of a run: faults occur in the first, and not in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Chaos,
    Calm,
    /// Clients begin nothing new.
    Quiet,
}

/// The whole state.
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) flaw: Option<Flaw>,
    /// Whether nothing fails, and slots move on an operator's request.
    pub(crate) is_planned: bool,
    pub(crate) random: Rng,
    pub(crate) now: u64,
    pub(crate) queue: Queue,
    pub(crate) phase: Phase,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<Node>,
    pub(crate) council: Council,
    pub(crate) clients: Vec<Client>,
    /// The latency that each client tolerates, if any.
    pub(crate) slacks: Vec<Option<u64>>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) books: Vec<Book>,
    /// How many operations clients began.
    pub(crate) begun: usize,
    /// How many events have happened.
    happened: u64,
    /// Counts everything that is observed from outside.
    pub(crate) moment: u64,
    pub(crate) tickets: u64,
    /// Counts faults of links.
    pub(crate) link_faults: u64,
    /// Buffer for the effects of a step.
    pub(crate) effects: Vec<Effect>,
    /// The node that ends before all effects of an input are performed.
    pub(crate) dying: Option<NodeId>,
    pub(crate) counts: Counts,
    pub(crate) digest: Digest,
    pub(crate) trace: Option<Vec<String>>,
    /// Slots that got another primary, and when.
    pub(crate) moves: Vec<(Slot, u64)>,
    /// Whether slots have too many cells to be replaced at once.
    pub(crate) has_long_slots: bool,
    /// Counts imports of such slots.
    pub(crate) imports: u64,
    /// Whether losses are accepted while faults are active, and for which slots that was done.
    pub(crate) is_impatient: bool,
    pub(crate) given_up: BTreeMap<Slot, GivenUp>,
    /// For each slot, several copies that were in sync together, and up to which table.
    pub(crate) former_in_sync: BTreeMap<Slot, Vec<(Version, Vec<NodeId>)>>,
    /// The first promise that was broken.
    pub(crate) broken: Option<String>,
}

/// The time at which everything begins, so that no clock has to show a time before it started.
const BEGINNING_US: u64 = 1_000_000;

/// The most events in one run; some ten thousand are usual.
const HAPPENED_MAX: u64 = 3_000_000;

impl World {
    pub(crate) fn new(seed: u64, case: &Case, is_traced: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let settings = Settings::draw(&mut random, case).mixed(seed, case);
        let mut group = Group::new(GroupOptions { slots: settings.slots_each(), copies: settings.copies });
        for rules in settings.keyspaces() {
            group.apply(Change::Keyspace(rules));
        }
        let mut world = Self {
            network: Network::new(&settings, &mut random),
            nodes: (0..settings.nodes).map(|_| new_node(&settings, &mut random)).collect(),
            council: Council::new(Box::new(group)),
            clients: (0..settings.clients).map(|_| Client::new(&settings, &mut random)).collect(),
            books: (0..settings.slots).map(|_| Book::default()).collect(),
            slacks: draw_slacks(seed, settings.clients, case.is_planned),
            flaw: case.flaw,
            is_planned: case.is_planned,
            now: BEGINNING_US,
            queue: Queue::default(),
            phase: Phase::Chaos,
            operations: Vec::new(),
            begun: 0,
            happened: 0,
            moment: 0,
            tickets: 0,
            link_faults: 0,
            effects: Vec::new(),
            dying: None,
            counts: Counts::default(),
            digest: Digest::default(),
            trace: is_traced.then(Vec::new),
            moves: Vec::new(),
            has_long_slots: draw_lengths(seed),
            imports: 0,
            is_impatient: draw_impatience(seed) && !case.is_planned,
            given_up: BTreeMap::new(),
            former_in_sync: BTreeMap::new(),
            broken: None,
            settings,
            random,
        };
        if case.is_planned {
            world.begin_in_peace();
        } else {
            world.begin_everything();
        }
        world
    }

    fn begin_everything(&mut self) {
        say!(self, "seed begins: {:?}", self.settings);
        if self.settings.is_mixed() {
            self.counts.bump("worlds_of_mixed_durability");
        }
        let late = (self.settings.nodes > 3 && self.random.u8(..3) == 0).then_some(self.settings.nodes);
        for node in 1..=self.settings.nodes {
            let is_late = late == Some(node);
            let after = if is_late { self.random.u64(500_000..4_000_000) } else { self.random.u64(..20_000) };
            if is_late {
                self.counts.bump("nodes_that_joined_late");
            }
            self.after(after, Event::Start { node: NodeId(node) });
        }
        self.after(30_000, Event::GroupLooks);
        self.after(150_000, Event::Fault);
        for client in 0..self.clients.len() {
            self.after(50_000, Event::Begin { client });
        }
    }

    /// Lets events happen until `end`, or until a promise is broken.
    pub(crate) fn run_until(&mut self, end: u64) -> Result<(), String> {
        while let Some((at, event)) = self.queue.pop_before(end) {
            self.now = self.now.max(at);
            self.digest.add(self.now);
            self.happen(event);
            self.happened += 1;
            if self.happened > HAPPENED_MAX {
                return Err(format!(
                    "{HAPPENED_MAX} things happened by {} us: messages answer each other",
                    self.now
                ));
            }
            if let Some(broken) = self.broken.take() {
                return Err(broken);
            }
        }
        self.now = self.now.max(end);
        Ok(())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::ToNode { node, what } => self.reach(node, what),
            Event::ToGroup { from, what } => self.ask_council(from, what),
            Event::ToClient { client, operation, attempt, told } => {
                self.client_hears(client, operation, attempt, told);
            }
            Event::Begin { client } => self.client_begins(client),
            Event::Again { client, operation } => self.client_asks_again(client, operation),
            Event::Hurry { client, operation, attempt } => self.client_hurries(client, operation, attempt),
            Event::GiveUp { client, operation } => self.client_gives_up(client, operation),
            Event::GroupLooks => self.council_looks(),
            Event::Fault => self.something_breaks(),
            Event::Mend { faults } => {
                if faults == self.link_faults && self.phase == Phase::Chaos {
                    say!(self, "all links are whole");
                    self.network.mend();
                }
            }
            Event::Start { node } => self.start(node),
            Event::Left { node } => self.stop_who_left(node),
            Event::Operator => self.operator_acts(),
            Event::Resume { node, pause } => {
                if self.node(node).pauses == pause {
                    self.resume(node);
                }
            }
        }
    }

    /// A message reaches a machine.
    fn reach(&mut self, node: NodeId, what: ToNode) {
        match &mut self.node_mut(node).pause {
            Some(pause) => pause.held.push(what),
            None => self.node_hears(node, what),
        }
    }

    pub(crate) fn after(&mut self, us: u64, event: Event) {
        self.queue.push(self.now + us, event);
    }

    pub(crate) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[node.0 as usize - 1]
    }

    pub(crate) fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.0 as usize - 1]
    }

    pub(crate) fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.settings.nodes).map(NodeId)
    }

    pub(crate) fn slot_ids(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.settings.slots).map(Slot)
    }

    pub(crate) fn any_node(&mut self) -> NodeId {
        NodeId(self.random.u32(1..=self.settings.nodes))
    }

    /// The next moment that can be observed from outside.
    pub(crate) fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Records a broken promise; the first one counts.
    pub(crate) fn break_promise(&mut self, what: String) {
        say!(self, "BROKEN: {what}");
        self.broken.get_or_insert(what);
    }

    pub(crate) fn tell(&mut self, line: &str) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} ms  {line}", self.now as f64 / 1000.0));
        }
    }
}

fn new_node(settings: &Settings, random: &mut Rng) -> Node {
    let most = i64::from(settings.clock_error_ppm);
    // Clocks with the largest allowed error find the most bugs.
    let rate_ppm = match random.u8(..3) {
        0 => most,
        1 => -most,
        _ => random.i64(-most..=most),
    };
    let mut clock = Clock::new(random.u64(..5_000_000), rate_ppm);
    clock.date_error_ms = random.i64(-20_000..=20_000);
    Node::new(clock)
}

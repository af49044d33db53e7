//! The model: nodes and clients that share processors, and messages between them, event by event.
//!
//! Each client asks one node after the other, drawn at random, and waits for the answer. A node that runs takes all that has
//! come, and answers one by one. Whoever has something to do waits for a processor of its host in the order of coming.
//!
//! Invariant: the same machine and seed give the same figures; nothing here looks at a clock.

use super::FITTED_MOST;
use super::costs::{AT_HAND, Costs};
use super::network::Network;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// What is modelled.
#[derive(Clone, Debug)]
pub struct Machine {
    pub costs: Costs,
    /// Nodes that there are.
    pub nodes: usize,
    /// Nodes that are played message by message; all others do the same.
    pub played: usize,
    /// Whether all share one host, or each has one of its own.
    pub is_shared: bool,
    /// Processors of a host.
    pub processors: usize,
    /// Between hosts.
    pub network: Option<Network>,
    /// The share of operations for which a connection is made.
    pub connecting_share: f64,
    /// The share of operations that are sent on by a node that has the slot no more.
    pub stale_share: f64,
}

impl Machine {
    /// As many nodes and clients on one host.
    pub fn shared(costs: Costs, nodes: usize, processors: usize) -> Self {
        Self {
            costs,
            nodes,
            played: nodes,
            is_shared: true,
            processors,
            network: None,
            connecting_share: 0.0,
            stale_share: 0.0,
        }
    }
}

impl Machine {
    /// Nodes beside each other, as far as it is known what these use while nobody asks; on hosts of their own, no more than were
    /// measured for the fit.
    fn beside(&self) -> usize {
        if self.is_shared { self.nodes } else { self.nodes.min(FITTED_MOST) }
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Outcome {
    /// Operations a second, of all nodes that there are.
    pub throughput: f64,
    /// Mean microseconds of an operation.
    pub latency_us: f64,
    /// One in a hundred takes longer.
    pub p99_us: f64,
    /// How often a node got a processor that others had, for each operation.
    pub node_cold_share: f64,
    /// The same of clients.
    pub client_cold_share: f64,
    /// Of the processors of all hosts that are played.
    pub busy_share: f64,
}

/// How often ticks of a node come.
const TICK_NS: u64 = 1_000_000;
/// The share of the time that does not count.
const WARM_SHARE: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Something for a thread comes.
    Comes { thread: usize, message: Message },
    /// A thread has done what it took.
    Ends { thread: usize },
    /// Ticks of a node.
    Ticks { thread: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Message {
    Request { client: usize, is_stale: bool, connects: bool },
    Answer { is_stale: bool },
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waiting,
    Running { processor: usize },
}

struct Thread {
    host: usize,
    state: State,
    inbox: VecDeque<Message>,
}

#[derive(Clone, Default)]
struct Processor {
    is_busy: bool,
    /// Who ran last, the last one first.
    at_hand: VecDeque<usize>,
}

#[derive(Default)]
struct Host {
    waiting: VecDeque<usize>,
    processors: Vec<Processor>,
}

struct Play<'a> {
    machine: &'a Machine,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, What)>>,
    count: u64,
    /// Nodes first, then as many clients.
    threads: Vec<Thread>,
    hosts: Vec<Host>,
    asked_at: Vec<u64>,
    random: fastrand::Rng,
    counts_from: u64,
    latencies: Vec<u32>,
    cold: [u64; 2],
    busy_ns: u64,
}

/// Plays for so many seconds of the model's time.
pub fn run(machine: &Machine, seconds: f64, seed: u64) -> Outcome {
    let mut play = Play::new(machine, (seconds * 1e9 * WARM_SHARE) as u64, seed);
    let until = (seconds * 1e9) as u64;
    play.begin();
    while let Some(Reverse((at, _, what))) = play.events.pop() {
        if at > until {
            break;
        }
        play.now = at;
        play.happen(what);
    }
    play.outcome(until)
}

impl<'a> Play<'a> {
    fn new(machine: &'a Machine, counts_from: u64, seed: u64) -> Self {
        let played = machine.played;
        let hosts = if machine.is_shared { 1 } else { played };
        let thread =
            |at: usize| Thread { host: at % played % hosts, state: State::Idle, inbox: VecDeque::new() };
        let host = || Host { processors: vec![Processor::default(); machine.processors], ..Host::default() };
        Self {
            machine,
            now: 0,
            events: BinaryHeap::new(),
            count: 0,
            threads: (0..2 * played).map(thread).collect(),
            hosts: (0..hosts).map(|_| host()).collect(),
            asked_at: vec![0; played],
            random: fastrand::Rng::with_seed(seed),
            counts_from,
            latencies: Vec::new(),
            cold: [0; 2],
            busy_ns: 0,
        }
    }

    fn begin(&mut self) {
        for at in 0..self.machine.played {
            let spread = self.random.u64(..100_000);
            self.after(
                spread,
                What::Comes { thread: self.machine.played + at, message: Message::Answer { is_stale: true } },
            );
            let spread = self.random.u64(..TICK_NS);
            self.after(spread, What::Ticks { thread: at });
        }
    }

    fn after(&mut self, nanoseconds: u64, what: What) {
        self.count += 1;
        self.events.push(Reverse((self.now + nanoseconds, self.count, what)));
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Comes { thread, message } => self.come(thread, message),
            What::Ticks { thread } => {
                self.after(TICK_NS, What::Ticks { thread });
                self.come(thread, Message::Tick);
            }
            What::Ends { thread } => self.end(thread),
        }
    }

    fn come(&mut self, thread: usize, message: Message) {
        let of = &mut self.threads[thread];
        of.inbox.push_back(message);
        if of.state != State::Idle {
            return;
        }
        of.state = State::Waiting;
        let host = of.host;
        self.hosts[host].waiting.push_back(thread);
        self.dispatch(host, us(self.machine.costs.wake_us));
    }

    /// Gives processors that are free to who waits.
    fn dispatch(&mut self, host: usize, wake_ns: u64) {
        loop {
            let Host { waiting, processors } = &mut self.hosts[host];
            let Some(&next) = waiting.front() else { return };
            let is_free = |processor: &usize| !processors[*processor].is_busy;
            // Rather where it ran before.
            let last = (0..processors.len()).filter(is_free).max_by_key(|&at| {
                let place = processors[at].at_hand.iter().position(|&one| one == next);
                (Reverse(place.unwrap_or(AT_HAND)), Reverse(at))
            });
            let Some(processor) = last else { return };
            waiting.pop_front();
            self.run_on(host, processor, next, wake_ns);
        }
    }

    fn run_on(&mut self, host: usize, processor: usize, thread: usize, wake_ns: u64) {
        let at_hand = &mut self.hosts[host].processors[processor];
        at_hand.is_busy = true;
        let place = at_hand.at_hand.iter().position(|&one| one == thread);
        let is_cold = place.is_none() && at_hand.at_hand.len() >= AT_HAND;
        place.map(|place| at_hand.at_hand.remove(place));
        at_hand.at_hand.push_front(thread);
        at_hand.at_hand.truncate(AT_HAND);
        self.threads[thread].state = State::Running { processor };
        let is_node = thread < self.machine.played;
        let costs = self.machine.costs;
        let cold = if is_node { costs.node_cold_us } else { costs.client_cold_us };
        let cold = if is_cold { us(cold) } else { 0 };
        if is_cold && self.now >= self.counts_from {
            self.cold[usize::from(!is_node)] += 1;
        }
        let took =
            if is_node { self.serve(thread, wake_ns + cold) } else { self.ask(thread, wake_ns + cold) };
        if self.now >= self.counts_from {
            self.busy_ns += took - wake_ns;
        }
        self.after(took, What::Ends { thread });
    }

    /// A node takes all that came; how long that takes.
    fn serve(&mut self, node: usize, first_ns: u64) -> u64 {
        let costs = self.machine.costs;
        let mut took = first_ns;
        for message in std::mem::take(&mut self.threads[node].inbox) {
            let Message::Request { client, is_stale, connects } = message else {
                took += (costs.idle_of_one(self.machine.beside()) * TICK_NS as f64) as u64;
                continue;
            };
            took += us(costs.node_warm_us + if connects { costs.connect_us.0 } else { 0.0 });
            let message = Message::Answer { is_stale };
            let way = self.way(node, client - self.machine.played, false);
            self.after(took + way, What::Comes { thread: client, message });
        }
        took
    }

    /// A client takes its answer, and asks again; how long that takes.
    fn ask(&mut self, client: usize, first_ns: u64) -> u64 {
        let costs = self.machine.costs;
        let place = client - self.machine.played;
        let answer = self.threads[client].inbox.pop_front();
        let was_stale = answer == Some(Message::Answer { is_stale: true });
        // An answer that names another node is followed as part of the same operation.
        if !was_stale {
            if self.asked_at[place] >= self.counts_from {
                let latency = self.now + first_ns - self.asked_at[place];
                self.latencies.push(u32::try_from(latency).unwrap_or(u32::MAX));
            }
            self.asked_at[place] = self.now + first_ns;
        } else if self.asked_at[place] == 0 {
            self.asked_at[place] = self.now + 1;
        }
        let node = self.random.usize(..self.machine.played);
        let connects = self.random.f64() < self.machine.connecting_share;
        let is_stale = !was_stale && self.random.f64() < self.machine.stale_share;
        let mut took = first_ns + us(costs.client_warm_us + if connects { costs.connect_us.1 } else { 0.0 });
        let mut way = self.way(node, place, true);
        if connects {
            // A question and an answer of the systems alone come first.
            way += self.way(node, place, true) + self.way(node, place, false);
        }
        let message = Message::Request { client, is_stale, connects };
        self.after(took + way, What::Comes { thread: node, message });
        took = took.max(1);
        took
    }

    fn way(&mut self, node: usize, client: usize, is_request: bool) -> u64 {
        match &self.machine.network {
            // Whoever is played asks nodes that are as far away as any of those that there are.
            Some(network) if node != client || self.machine.played < self.machine.nodes => {
                us(network.way_us(is_request, &mut self.random))
            }
            _ => 0,
        }
    }

    fn end(&mut self, thread: usize) {
        let of = &mut self.threads[thread];
        let (host, State::Running { processor }) = (of.host, of.state) else { return };
        self.hosts[host].processors[processor].is_busy = false;
        if of.inbox.is_empty() {
            of.state = State::Idle;
        } else {
            of.state = State::Waiting;
            self.hosts[host].waiting.push_back(thread);
        }
        self.dispatch(host, 0);
    }

    fn outcome(mut self, until: u64) -> Outcome {
        let seconds = (until - self.counts_from) as f64 / 1e9;
        let operations = self.latencies.len().max(1) as f64;
        self.latencies.sort_unstable();
        let sum: f64 = self.latencies.iter().map(|&latency| f64::from(latency)).sum();
        let p99 = self.latencies.get(self.latencies.len() * 99 / 100).copied().unwrap_or(0);
        let latency_us = sum / operations / 1e3;
        let processors = (self.hosts.len() * self.machine.processors) as f64;
        Outcome {
            // Clients always wait for one operation: what is played stands for all.
            throughput: operations / seconds * self.machine.nodes as f64 / self.machine.played as f64,
            latency_us,
            p99_us: f64::from(p99) / 1e3,
            node_cold_share: self.cold[0] as f64 / operations,
            client_cold_share: self.cold[1] as f64 / operations,
            busy_share: self.busy_ns as f64 / 1e9 / seconds / processors,
        }
    }
}

fn us(microseconds: f64) -> u64 {
    (microseconds * 1e3) as u64
}

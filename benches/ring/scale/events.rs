//! The model: nodes and clients that share processors, and messages between them, event by event.
//!
//! Each client asks one node after the other, drawn at random, and waits for the answer. A node that runs
//! takes all that has come, and answers one by one. Whoever has something to do waits for its own processor,
//! in the order of coming: a system leaves a thread where it ran last, even if another processor is idle, and
//! moves it only now and then.
//!
//! Invariant: the same machine and seed give the same figures; nothing here looks at a clock.

use super::FITTED_MOST;
use super::costs::Costs;
use super::network::Network;
use super::processor::{Left, Processor};
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
    /// Nodes beside each other, as far as it is known what these use while nobody asks; on hosts of their
    /// own, no more than were measured for the fit.
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
    /// Microseconds that nodes took to get back what others had pushed out, for each operation.
    pub node_cold_us: f64,
    /// The same of clients.
    pub client_cold_us: f64,
    /// How often a node woke a processor that was idle, for each operation.
    pub node_wakes: f64,
    /// The same of clients.
    pub client_wakes: f64,
    /// Of the processors of all hosts that are played.
    pub busy_share: f64,
}

/// How often ticks of a node come.
const TICK_NS: u64 = 1_000_000;
/// How often the system spreads threads anew over the processors of a host. By traces it does about once a
/// second; more often here, so that every way to spread them is played.
const SPREAD_NS: u64 = 20_000_000;
/// The share of the time that does not count.
const WARM_SHARE: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Something for a thread comes, of another one if it is not its own tick.
    Comes { thread: usize, of: usize, message: Message },
    /// A thread has done what it took.
    Ends { thread: usize },
    /// Ticks of a node.
    Ticks { thread: usize },
    /// Threads of all hosts are spread.
    Spreads,
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
    /// The processor that it waits for.
    home: usize,
    space: usize,
    left: Left,
    state: State,
    inbox: VecDeque<Message>,
}

#[derive(Clone)]
struct Host {
    processors: Vec<Processor>,
    /// How often nodes ran on them.
    nodes_ran: u64,
}

/// What nodes did, and the same of clients.
#[derive(Clone, Copy, Default)]
struct Tally {
    cold_ns: u64,
    wakes: u64,
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
    tallies: [Tally; 2],
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
        let thread = |at: usize| Thread {
            host: at % played % hosts,
            home: 0,
            // Clients of one host are threads of one process.
            space: if at < played { at } else { played + at % played % hosts },
            left: Left::default(),
            state: State::Idle,
            inbox: VecDeque::new(),
        };
        Self {
            machine,
            now: 0,
            events: BinaryHeap::new(),
            count: 0,
            threads: (0..2 * played).map(thread).collect(),
            hosts: vec![
                Host { processors: vec![Processor::default(); machine.processors], nodes_ran: 0 };
                hosts
            ],
            asked_at: vec![0; played],
            random: fastrand::Rng::with_seed(seed),
            counts_from,
            latencies: Vec::new(),
            tallies: [Tally::default(); 2],
            busy_ns: 0,
        }
    }

    fn begin(&mut self) {
        self.spread();
        for at in 0..self.machine.played {
            let spread = self.random.u64(..100_000);
            let client = self.machine.played + at;
            let message = Message::Answer { is_stale: true };
            self.after(spread, What::Comes { thread: client, of: client, message });
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
            What::Comes { thread, of, message } => self.come(thread, of, message),
            What::Ticks { thread } => {
                self.after(TICK_NS, What::Ticks { thread });
                self.come(thread, thread, Message::Tick);
            }
            What::Ends { thread } => self.end(thread),
            What::Spreads => self.spread(),
        }
    }

    /// As many threads for each processor of a host, whichever they are. Who waits or runs does so to the
    /// end.
    ///
    /// A node and a client that have a host for themselves are on any: of two that wake each other one
    /// sleeps, so that the system sees nothing to balance. A client alone was seen to take 25 us on one
    /// processor and 74 on two, from second to second.
    fn spread(&mut self) {
        self.after(SPREAD_NS, What::Spreads);
        let processors = self.machine.processors;
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        self.random.shuffle(&mut order);
        let mut placed = vec![self.random.usize(..processors); self.hosts.len()];
        for thread in order {
            let thread = &mut self.threads[thread];
            placed[thread.host] += if self.machine.is_shared { 1 } else { self.random.usize(..processors) };
            thread.home = placed[thread.host] % processors;
        }
    }

    /// A message of another thread, or of a clock.
    fn come(&mut self, thread: usize, of: usize, message: Message) {
        let waker = &self.threads[of];
        let waker = match waker.state {
            State::Running { processor } if of != thread => Some((waker.host, processor)),
            _ => None,
        };
        let comes_to = &mut self.threads[thread];
        comes_to.inbox.push_back(message);
        if comes_to.state != State::Idle {
            return;
        }
        comes_to.state = State::Waiting;
        let (host, home) = (comes_to.host, comes_to.home);
        let processor = &mut self.hosts[host].processors[home];
        processor.waiting.push_back(thread);
        if processor.is_busy {
            return;
        }
        if let Some((_, wakes)) = waker.filter(|(of_host, _)| *of_host == host) {
            self.hosts[host].processors[wakes].owed_ns += us(self.machine.costs.waking_us);
            if self.now >= self.counts_from {
                self.tallies[usize::from(of >= self.machine.played)].wakes += 1;
            }
        }
        self.dispatch(host, home, us(self.machine.costs.wake_us));
    }

    /// Gives a processor that is free to who waits for it.
    fn dispatch(&mut self, host: usize, place: usize, wake_ns: u64) {
        let Host { processors, nodes_ran } = &mut self.hosts[host];
        let processor = &mut processors[place];
        let Some(thread) = processor.waiting.pop_front() else { return };
        processor.is_busy = true;
        let costs = &self.machine.costs;
        let runs = &mut self.threads[thread];
        runs.state = State::Running { processor: place };
        let is_node = thread < self.machine.played;
        let found = processor.runs(place, nodes_ran, (runs.space, is_node), &mut runs.left);
        let only_ticks = runs.inbox.iter().all(|message| *message == Message::Tick);
        // What ticks take was measured where everything else had run meanwhile.
        let cold_ns = if only_ticks { 0 } else { us(costs.cold_us(is_node, found)) };
        let first_ns = wake_ns + cold_ns;
        let took = if is_node { self.serve(thread, first_ns) } else { self.ask(thread, first_ns) };
        if self.now >= self.counts_from {
            self.tallies[usize::from(!is_node)].cold_ns += cold_ns;
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
            took += us(costs.node_us + if connects { costs.connect_us.0 } else { 0.0 });
            let message = Message::Answer { is_stale };
            let way = self.way(node, client - self.machine.played, false);
            self.after(took + way, What::Comes { thread: client, of: node, message });
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
        let mut took = first_ns + us(costs.client_us + if connects { costs.connect_us.1 } else { 0.0 });
        let mut way = self.way(node, place, true);
        if connects {
            // A question and an answer of the systems alone come first.
            way += self.way(node, place, true) + self.way(node, place, false);
        }
        let message = Message::Request { client, is_stale, connects };
        self.after(took + way, What::Comes { thread: node, of: client, message });
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
        let (host, State::Running { processor: place }) = (of.host, of.state) else { return };
        let processor = &mut self.hosts[host].processors[place];
        let owed_ns = std::mem::take(&mut processor.owed_ns);
        if owed_ns > 0 {
            if self.now >= self.counts_from {
                self.busy_ns += owed_ns;
            }
            return self.after(owed_ns, What::Ends { thread });
        }
        processor.is_busy = false;
        if of.inbox.is_empty() {
            of.state = State::Idle;
        } else {
            of.state = State::Waiting;
            processor.waiting.push_back(thread);
        }
        self.dispatch(host, place, 0);
    }

    fn outcome(mut self, until: u64) -> Outcome {
        let seconds = (until - self.counts_from) as f64 / 1e9;
        let operations = self.latencies.len().max(1) as f64;
        self.latencies.sort_unstable();
        let sum: f64 = self.latencies.iter().map(|&latency| f64::from(latency)).sum();
        let p99 = self.latencies.get(self.latencies.len() * 99 / 100).copied().unwrap_or(0);
        let latency_us = sum / operations / 1e3;
        let processors = (self.hosts.len() * self.machine.processors) as f64;
        let [nodes, clients] = self.tallies;
        Outcome {
            // Clients always wait for one operation: what is played stands for all.
            throughput: operations / seconds * self.machine.nodes as f64 / self.machine.played as f64,
            latency_us,
            p99_us: f64::from(p99) / 1e3,
            node_cold_us: nodes.cold_ns as f64 / 1e3 / operations,
            client_cold_us: clients.cold_ns as f64 / 1e3 / operations,
            node_wakes: nodes.wakes as f64 / operations,
            client_wakes: clients.wakes as f64 / operations,
            busy_share: self.busy_ns as f64 / 1e9 / seconds / processors,
        }
    }
}

fn us(microseconds: f64) -> u64 {
    (microseconds * 1e3) as u64
}

//! The model: a discrete event simulation of nodes and clients that share processors and exchange messages.
//!
//! Each client sends requests to nodes drawn at random, one at a time, and waits for the answer. A running
//! node takes everything that has arrived, and answers one request after the other. A thread with work
//! waits for its own processor in order of arrival: an operating system leaves a thread where it ran last,
//! even if another processor is idle, and moves it only occasionally.
//!
//! Invariant: the same machine and seed give the same figures; nothing here reads a clock.

use super::FITTED_MOST;
use super::costs::Costs;
use super::network::Network;
use super::processor::{Left, Processor};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The parameters of the model.
#[derive(Clone, Debug)]
pub struct Machine {
    pub costs: Costs,
    /// How many nodes exist.
    pub nodes: usize,
    /// How many nodes are simulated message by message; all others behave alike.
    pub played: usize,
    /// Whether all share one host; otherwise each has its own.
    pub is_shared: bool,
    /// Processors per host.
    pub processors: usize,
    /// The network between hosts.
    pub network: Option<Network>,
    /// The share of operations for which a connection is made.
    pub connecting_share: f64,
    /// The share of operations that are redirected by a node that does not have the slot any more.
    pub stale_share: f64,
}

impl Machine {
    /// This many nodes and clients on one host.
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
    /// The number of nodes on one host as far as their idle usage is known; on hosts of their own, at most
    /// as many as were measured for the fit.
    fn beside(&self) -> usize {
        if self.is_shared { self.nodes } else { self.nodes.min(FITTED_MOST) }
    }
}

/// The results.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Outcome {
    /// Operations a second, of all nodes together.
    pub throughput: f64,
    /// Mean microseconds of an operation.
    pub latency_us: f64,
    /// One operation in a hundred takes longer.
    pub p99_us: f64,
    /// Microseconds per operation that nodes took to load evicted data again.
    pub node_cold_us: f64,
    /// The same for clients.
    pub client_cold_us: f64,
    /// How often per operation a node woke an idle processor.
    pub node_wakes: f64,
    /// The same for clients.
    pub client_wakes: f64,
    /// The busy share of the processors of all simulated hosts.
    pub busy_share: f64,
}

/// The interval of a node's ticks.
const TICK_NS: u64 = 1_000_000;
/// How often the system redistributes threads over the processors of a host. Traces show about once a
/// second; more often here, so that every distribution is simulated.
const SPREAD_NS: u64 = 20_000_000;
/// The share of the simulated time that does not count.
const WARM_SHARE: f64 = 0.2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A message arrives for a thread, from another one unless it is its own tick.
    Comes { thread: usize, of: usize, message: Message },
    /// A thread has finished its work.
    Ends { thread: usize },
    /// A tick of a node.
    Ticks { thread: usize },
    /// The threads of all hosts are redistributed.
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
    /// How often nodes ran on the host.
    nodes_ran: u64,
}

/// The activity of nodes; the same for clients.
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
    /// The nodes, followed by as many clients.
    threads: Vec<Thread>,
    hosts: Vec<Host>,
    asked_at: Vec<u64>,
    random: fastrand::Rng,
    counts_from: u64,
    latencies: Vec<u32>,
    tallies: [Tally; 2],
    busy_ns: u64,
}

/// Simulates this many seconds of the model's time.
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
            // Clients on one host are threads of one process.
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

    /// Distributes the threads of a host evenly over its processors, at random. Threads that wait or run
    /// continue where they are.
    ///
    /// A node and a client with a host of their own may be on any processor: of two threads that wake each
    /// other one always sleeps, so the system sees nothing to balance. A single client was measured at 25
    /// us on one processor and 74 on two, changing from second to second.
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

    /// A message of another thread arrives, or of a clock.
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

    /// Gives a free processor to the next thread that waits for it.
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
        // The cost of ticks was measured after everything else had run meanwhile.
        let cold_ns = if only_ticks { 0 } else { us(costs.cold_us(is_node, found)) };
        let first_ns = wake_ns + cold_ns;
        let took = if is_node { self.serve(thread, first_ns) } else { self.ask(thread, first_ns) };
        if self.now >= self.counts_from {
            self.tallies[usize::from(!is_node)].cold_ns += cold_ns;
            self.busy_ns += took - wake_ns;
        }
        self.after(took, What::Ends { thread });
    }

    /// A node handles everything that has arrived; returns how long that takes.
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

    /// A client takes its answer and sends the next request; returns how long that takes.
    fn ask(&mut self, client: usize, first_ns: u64) -> u64 {
        let costs = self.machine.costs;
        let place = client - self.machine.played;
        let answer = self.threads[client].inbox.pop_front();
        let was_stale = answer == Some(Message::Answer { is_stale: true });
        // A redirection is followed as part of the same operation.
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
            // A round trip between the two systems precedes it.
            way += self.way(node, place, true) + self.way(node, place, false);
        }
        let message = Message::Request { client, is_stale, connects };
        self.after(took + way, What::Comes { thread: node, of: client, message });
        took = took.max(1);
        took
    }

    fn way(&mut self, node: usize, client: usize, is_request: bool) -> u64 {
        match &self.machine.network {
            // A simulated client uses nodes at the distances of the whole network.
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
            // Each client always waits for one operation: the simulated ones stand for all.
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

//! The load: every connection sends a batch, waits for replies to all or some of it, and sends more, until
//! the time is over.
//!
//! Invariant: counted requests were sent and answered between two moments; the time before is for warming up.
//! Invariant: a server that stops answering ends the load with an error, never with a figure.

use super::connection::{Connection, Shared};
use super::content::{Model, Pieces};
use super::histogram::Histogram;
use super::protocol::{Malformed, Operation, Protocol};
use crate::machine::process_cpu_seconds;
use crate::machine::{MachineShare, MachineTime};
use mio::{Events, Interest, Poll, Token};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server that is silent for this long is not measured any further.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const SCRATCH_BYTES: usize = 64 << 10;
/// Longer than any load that ends by itself.
const ENDLESS: Duration = Duration::from_secs(3600);

/// Which keys are used, and for how long.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// Keys drawn uniformly at random, for a fixed time.
    Random {
        /// The time that does not count.
        warm: Duration,
        /// The time that counts.
        measured: Duration,
    },
    /// Every key once.
    EachOnce,
}

/// When a connection sends more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// When its whole batch is answered, like a client that pipelines.
    WhenAllAnswered,
    /// As answers arrive, as many requests as one receive brought answers: like clients that share a
    /// connection and each wait for their own answer.
    AsAnswered,
}

/// A load on a server.
#[derive(Clone, Debug)]
pub struct Work {
    /// Where the server listens.
    pub address: SocketAddr,
    /// The server's protocol.
    pub protocol: Protocol,
    /// The operation that is requested.
    pub operation: Operation,
    /// How many connections send requests.
    pub connections: u32,
    /// The most requests that a connection has under way.
    pub depth: usize,
    /// When it sends more of them.
    pub refill: Refill,
    /// Which keys, and for how long.
    pub choice: Choice,
    /// The process ids of the server, for its CPU time.
    pub processes: Vec<u32>,
    /// Only these keys, in this order; all keys if there is no list.
    pub only: Option<Arc<[u32]>>,
    /// The seed of the order of keys.
    pub seed: u64,
}

/// The result of a load.
pub struct Outcome {
    /// How many requests were answered in the counted time.
    pub operations: u64,
    /// The length of the counted time.
    pub seconds: f64,
    /// The time from sending a request, with its batch, until it was answered.
    pub latency: Histogram,
    /// How many replies were wrong, at any time.
    pub wrong: u64,
    /// A description of the first wrong reply.
    pub first_wrong: Option<String>,
    /// CPU time of the server, if the system reports it.
    pub server_cpu_seconds: Option<f64>,
    /// CPU time of this client.
    pub client_cpu_seconds: Option<f64>,
    /// The load of the machine meanwhile.
    pub machine: MachineShare,
}

impl Outcome {
    /// The outcome of a tally over `seconds`, with the resources used meanwhile.
    pub fn of(used: Used, tally: Tally, seconds: f64) -> Self {
        Self {
            operations: tally.operations,
            seconds,
            latency: tally.latency,
            wrong: tally.wrong,
            first_wrong: tally.first_wrong,
            server_cpu_seconds: used.server,
            client_cpu_seconds: used.client,
            machine: used.machine,
        }
    }

    /// Thousands of operations a second.
    pub fn kilo_operations_per_second(&self) -> f64 {
        self.operations as f64 / self.seconds / 1000.0
    }
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The server does not accept connections.
    #[error("cannot connect to {address}")]
    Connect {
        /// Its address.
        address: SocketAddr,
        #[source]
        /// The cause.
        source: io::Error,
    },
    /// The server closed a connection.
    #[error("the server closed a connection")]
    Closed,
    /// A connection broke.
    #[error("a connection broke")]
    Broken {
        #[source]
        /// The cause.
        source: io::Error,
    },
    /// Polling the sockets failed.
    #[error("cannot wait for sockets")]
    Wait {
        #[source]
        /// The cause.
        source: io::Error,
    },
    /// The server answered with an error.
    #[error("the server refused a request: {words}")]
    Refused {
        /// The server's message.
        words: String,
    },
    /// The server answered something that is not the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The server sent a reply without a request.
    #[error("the server sent a reply to nothing")]
    Unasked,
    /// The server did not answer.
    #[error("the server said nothing for {0:?}")]
    Silent(Duration),
}

/// Counts between two moments.
pub struct Tally {
    from: Instant,
    until: Instant,
    operations: u64,
    latency: Histogram,
    wrong: u64,
    first_wrong: Option<String>,
}

impl Tally {
    /// An empty tally between two moments.
    pub fn new(from: Instant, until: Instant) -> Self {
        let latency = Histogram::default();
        Self { from, until, operations: 0, latency, wrong: 0, first_wrong: None }
    }

    /// An empty tally between two moments; without them, it counts everything from now on.
    pub fn between(times: Option<(Instant, Instant)>) -> Self {
        let (from, until) = times.unwrap_or_else(|| {
            let now = Instant::now();
            (now, now + ENDLESS)
        });
        Self::new(from, until)
    }

    /// How long it has counted.
    pub fn seconds(&self) -> f64 {
        Instant::now().min(self.until).saturating_duration_since(self.from).as_secs_f64()
    }

    /// Counts `requests` requests that were sent at one moment and answered at another.
    pub fn count(&mut self, sent_at: Instant, now: Instant, requests: u64) {
        if requests > 0 && now >= self.from && now < self.until {
            self.operations += requests;
            self.latency.add((now - sent_at).as_nanos() as u64, requests);
        }
    }

    /// Adds another tally of the same period.
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.latency.add_all(&other.latency);
        self.wrong += other.wrong;
        self.first_wrong = self.first_wrong.take().or(other.first_wrong);
    }

    /// Counts a wrong reply.
    pub fn wrong(&mut self, words: impl FnOnce() -> String) {
        self.wrong += 1;
        self.first_wrong.get_or_insert_with(words);
    }
}

/// Runs the load to its end; `model` has the expected contents of the server, and is updated.
pub fn run(work: &Work, pieces: &Pieces, model: &mut Model) -> Result<Outcome, LoadError> {
    run_at(work, &[work.address], pieces, model)
}

/// Runs a load whose connections go to these servers in turn; each server gets only requests about the keys
/// that [`shared_out`] assigned to it.
pub fn run_at(
    work: &Work,
    addresses: &[SocketAddr],
    pieces: &Pieces,
    model: &mut Model,
) -> Result<Outcome, LoadError> {
    let mut poll = Poll::new().map_err(|source| LoadError::Wait { source })?;
    let mut connections = connected(work, addresses, &poll)?;
    let start = Instant::now();
    let (from, until) = match work.choice {
        Choice::Random { warm, measured } => (start + warm, start + warm + measured),
        Choice::EachOnce => (start, start + ENDLESS),
    };
    let random = fastrand::Rng::with_seed(work.seed);
    let mut shared = Shared { work, pieces, model, tally: Tally::new(from, until), random };
    let mut busy = 0;
    for connection in &mut connections {
        busy += usize::from(connection.send(Instant::now(), &mut shared)?);
    }
    let mut usage = Usage::now(&work.processes);
    let mut is_warm = from == start;
    let mut events = Events::with_capacity(connections.len().max(1));
    let mut scratch = vec![0; SCRATCH_BYTES];
    while busy > 0 {
        wait(&mut poll, &mut events)?;
        if !is_warm && Instant::now() >= from {
            is_warm = true;
            usage = Usage::now(&work.processes);
        }
        for event in &events {
            let connection = &mut connections[event.token().0];
            if event.is_writable() {
                connection.flush()?;
            }
            let Some(now) = connection.read(&mut scratch, &mut shared)? else { continue };
            let asks_on = now < until && connection.send(now, &mut shared)?;
            busy -= usize::from(!asks_on && !connection.is_waiting());
        }
    }
    let seconds = shared.tally.seconds();
    Ok(Outcome::of(usage.since(&work.processes), shared.tally, seconds))
}

/// Orders keys for [`Work::only`] such that each of `connections` uses only keys of its own server; `home`
/// is the index of a key's server among `servers`. Keys beyond a whole turn of all connections are left
/// out.
pub fn shared_out(
    keys: u32,
    (connections, servers): (u32, usize),
    home: impl Fn(u32) -> usize,
) -> Arc<[u32]> {
    let mut at_home: Vec<Vec<u32>> = vec![Vec::new(); servers];
    (0..keys).rev().for_each(|key| at_home[home(key)].push(key));
    let mut order = Vec::with_capacity(keys as usize);
    loop {
        let whole = order.len();
        for connection in 0..connections as usize {
            let Some(key) = at_home[connection % servers].pop() else {
                order.truncate(whole);
                return order.into();
            };
            order.push(key);
        }
    }
}

fn connected(work: &Work, addresses: &[SocketAddr], poll: &Poll) -> Result<Vec<Connection>, LoadError> {
    let address = |number: u32| addresses[number as usize % addresses.len()];
    let connect = |number: u32| -> io::Result<Connection> {
        let stream = std::net::TcpStream::connect_timeout(&address(number), CONNECT_TIME_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut connection = Connection::new(mio::net::TcpStream::from_std(stream), number);
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(connection.stream(), Token(number as usize), interest)?;
        Ok(connection)
    };
    let told = |number: u32, source| LoadError::Connect { address: address(number), source };
    (0..work.connections).map(|number| connect(number).map_err(|source| told(number, source))).collect()
}

fn wait(poll: &mut Poll, events: &mut Events) -> Result<(), LoadError> {
    loop {
        match poll.poll(events, Some(SILENCE_MAX)) {
            Ok(()) if events.is_empty() => return Err(LoadError::Silent(SILENCE_MAX)),
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(LoadError::Wait { source }),
        }
    }
}

/// Resource usage up to a moment.
pub struct Usage {
    server: Option<f64>,
    client: Option<f64>,
    machine: MachineTime,
}

/// Resource usage between two moments.
pub struct Used {
    server: Option<f64>,
    client: Option<f64>,
    machine: MachineShare,
}

impl Usage {
    /// The usage of these servers up to now.
    pub fn now(servers: &[u32]) -> Self {
        // Without servers the usage is unknown, not zero.
        let all = servers.iter().map(|&process| process_cpu_seconds(process));
        let server = all.sum::<Option<f64>>().filter(|_| !servers.is_empty());
        Self { server, client: process_cpu_seconds(std::process::id()), machine: MachineTime::now() }
    }

    /// The usage since this moment, of the same servers.
    pub fn since(&self, servers: &[u32]) -> Used {
        let now = Self::now(servers);
        let since = |now: Option<f64>, then: Option<f64>| now.zip(then).map(|(now, then)| now - then);
        Used {
            server: since(now.server, self.server),
            client: since(now.client, self.client),
            machine: self.machine.until_now(),
        }
    }
}

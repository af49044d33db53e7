//! Clients as ZHT has them: each sends one request after the other to the node that has the key, and waits
//! for the answer.
//!
//! Keys of 15 bytes are inserted with 132 bytes, looked up a little later, and removed a little later
//! still. A client has a connection to every node, or makes one for each operation.
//!
//! Invariant: an answer that is not exactly the right one ends the measurement with an error.

use super::ScaleError;
use crate::client::{Histogram, Operation, Pieces, Protocol};
use crate::cut::slot_of;
use crate::machine::{MachineTime, own_cpu_seconds, processors};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// How many keys later a key is looked up; after as many more it is removed.
const BEHIND: u32 = 50;
/// The number of keys reserved for each client.
const KEYS_OF_ONE: u32 = 10_000_000;
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The results of all clients.
#[derive(Default)]
pub struct ClientTotals {
    pub operations: u64,
    pub seconds: f64,
    pub latency_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub node_seconds: f64,
    pub client_seconds: f64,
    /// How many processors were in use by anything.
    pub machine_busy: f64,
}

/// The states of the clients.
const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const OVER: u8 = 2;

/// How clients connect to a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ConnectionMode {
    /// On an existing connection.
    Kept,
    /// On a connection that is made for the operation, and ends with it.
    Made,
}

/// Runs as many clients as there are nodes.
pub fn all(
    nodes: &[SocketAddr],
    leaders: &[usize],
    lines: ConnectionMode,
    node_seconds: impl Fn() -> f64,
    (warm, measured): (Duration, Duration),
    seed: u64,
) -> Result<ClientTotals, ScaleError> {
    let state = AtomicU8::new(WARMING);
    let pieces = Pieces::seeded(seed);
    // Clients that make connections have keys of their own.
    let first = if lines == ConnectionMode::Made { nodes.len() + 1 } else { 0 };
    let clients: Vec<Client<'_>> = (first..first + nodes.len())
        .map(|number| Client::new(number as u32, nodes, leaders, lines, &pieces))
        .collect::<Result<_, _>>()?;
    std::thread::scope(|scope| {
        let state = &state;
        let threads: Vec<_> =
            clients.into_iter().map(|mut client| scope.spawn(move || client.ask_until(state))).collect();
        std::thread::sleep(warm);
        let (from, machine) = (Instant::now(), MachineTime::now());
        let before = (node_seconds(), own_cpu_seconds());
        state.store(COUNTING, Ordering::SeqCst);
        std::thread::sleep(measured);
        state.store(OVER, Ordering::SeqCst);
        let seconds = from.elapsed().as_secs_f64();
        let after = (node_seconds(), own_cpu_seconds());
        let machine_busy = machine.until_now().busy * processors() as f64;
        let mut latency = Histogram::default();
        let mut sum = Tally::default();
        for thread in threads {
            let of_one = thread.join().map_err(|_| ScaleError::ClientEnded)??;
            latency.add_all(&of_one.latency);
            sum.operations += of_one.operations;
            sum.nanoseconds += of_one.nanoseconds;
        }
        let at = |share| latency.microseconds_at(share).unwrap_or(f64::NAN);
        Ok(ClientTotals {
            operations: sum.operations,
            seconds,
            latency_us: sum.nanoseconds as f64 / 1000.0 / sum.operations.max(1) as f64,
            p50_us: at(0.5),
            p99_us: at(0.99),
            node_seconds: after.0 - before.0,
            client_seconds: after.1 - before.1,
            machine_busy,
        })
    })
}

/// Microseconds of an operation of a single client, on existing connections, without any other load.
pub fn alone_us(
    nodes: &[SocketAddr],
    leaders: &[usize],
    measured: Duration,
    seed: u64,
) -> Result<f64, ScaleError> {
    let pieces = Pieces::seeded(seed);
    // Its keys are not those of any later client.
    let mut client = Client::new(nodes.len() as u32, nodes, leaders, ConnectionMode::Kept, &pieces)?;
    let tally = client.ask_for(measured)?;
    Ok(tally.nanoseconds as f64 / 1000.0 / tally.operations.max(1) as f64)
}

#[derive(Default)]
struct Tally {
    operations: u64,
    nanoseconds: u64,
    latency: Histogram,
}

impl Tally {
    fn count(&mut self, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        self.operations += 1;
        self.nanoseconds += nanoseconds;
        self.latency.add(nanoseconds, 1);
    }
}

struct Client<'a> {
    nodes: &'a [SocketAddr],
    leaders: &'a [usize],
    pieces: &'a Pieces,
    /// A connection to each node, or none.
    lines: Vec<TcpStream>,
    first: u32,
    asked: u32,
    out: Vec<u8>,
    heard: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(
        number: u32,
        nodes: &'a [SocketAddr],
        leaders: &'a [usize],
        lines: ConnectionMode,
        pieces: &'a Pieces,
    ) -> Result<Self, ScaleError> {
        let kept = if lines == ConnectionMode::Kept { nodes } else { &[] };
        let lines = kept.iter().map(line).collect::<io::Result<_>>();
        let lines = lines.map_err(ScaleError::io("connect a client"))?;
        let first = number * KEYS_OF_ONE;
        Ok(Self { nodes, leaders, pieces, lines, first, asked: 0, out: Vec::new(), heard: vec![0; 1024] })
    }

    fn ask_until(&mut self, state: &AtomicU8) -> Result<Tally, ScaleError> {
        let mut tally = Tally::default();
        loop {
            let took = self.ask()?;
            match state.load(Ordering::Relaxed) {
                WARMING => {}
                COUNTING => tally.count(took),
                _ => return Ok(tally),
            }
        }
    }

    fn ask_for(&mut self, time: Duration) -> Result<Tally, ScaleError> {
        let (start, mut tally) = (Instant::now(), Tally::default());
        while start.elapsed() < time {
            tally.count(self.ask()?);
        }
        Ok(tally)
    }

    /// Performs the next operation; returns how long it took.
    fn ask(&mut self) -> Result<Duration, ScaleError> {
        let (turn, what) = (self.asked / 3, self.asked % 3);
        self.asked += 1;
        let Some(turn) = turn.checked_sub(what * BEHIND) else { return self.ask() };
        let number = self.first + turn % KEYS_OF_ONE;
        let key = Pieces::key(number);
        let piece = self.pieces.piece(number, 0);
        self.out.clear();
        let expected: &[&[u8]] = match what {
            0 => {
                Protocol::Resp.write(Operation::Set, &key, &piece, &mut self.out);
                &[b"+OK\r\n"]
            }
            1 => {
                Protocol::Resp.write(Operation::Get, &key, b"", &mut self.out);
                &[b"$132\r\n", &piece, b"\r\n"]
            }
            _ => {
                self.out.extend_from_slice(b"*2\r\n$3\r\nDEL\r\n$15\r\n");
                self.out.extend_from_slice(&key);
                self.out.extend_from_slice(b"\r\n");
                &[b":1\r\n"]
            }
        };
        let at = self.leaders[slot_of(&key)];
        let begin = Instant::now();
        let mut made;
        let line = match self.lines.get_mut(at) {
            Some(kept) => kept,
            None => {
                made = line(&self.nodes[at]).map_err(ScaleError::io("connect a client"))?;
                &mut made
            }
        };
        let length =
            exchange(line, &self.out, expected, &mut self.heard).map_err(ScaleError::io("ask a node"))?;
        let took = begin.elapsed();
        if self.heard[..length] != expected.concat() {
            let heard = String::from_utf8_lossy(&self.heard[..length]).into_owned();
            return Err(ScaleError::Wrong { key: String::from_utf8_lossy(&key).into_owned(), heard });
        }
        Ok(took)
    }
}

fn line(node: &SocketAddr) -> io::Result<TcpStream> {
    let line = TcpStream::connect(node)?;
    line.set_nodelay(true)?;
    line.set_read_timeout(Some(SILENCE_MAX))?;
    Ok(line)
}

/// Sends a request and reads as much as is expected, or an error; returns the length.
fn exchange(line: &mut TcpStream, out: &[u8], expected: &[&[u8]], heard: &mut [u8]) -> io::Result<usize> {
    line.write_all(out)?;
    let wanted: usize = expected.iter().map(|part| part.len()).sum();
    let mut length = 0;
    while length < wanted && !(length > 0 && heard[0] == b'-') {
        match line.read(&mut heard[length..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => length += count,
        }
    }
    Ok(length)
}

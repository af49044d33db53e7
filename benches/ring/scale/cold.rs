//! The additional cost of an operation when other work ran on its processor meanwhile, and what that
//! evicted from the caches has to be loaded again.
//!
//! For this, nodes and clients share one processor, and the first client uses the first node. Between two
//! of its operations one of four things happens: another client uses another node, or several do, which
//! then have their data in the caches; or a given amount of memory is written; or small processes are
//! woken, which leave the caches alone but whose address translations replace those of the node.
//!
//! Invariant: at most as many nodes as the model is fitted on take part.

use super::pinned::{Pinned, own_seconds};
use super::real::threads_seconds;
use super::{FITTED_MOST, ScaleError, middle};
use crate::client::{Operation, Pieces, Protocol};
use crate::cut::slot_of;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Small processes: together with a node and the client they exceed the six whose translations Linux keeps
/// apart on x86-64 (`TLB_NR_DYN_ASIDS` in `arch/x86/include/asm/tlbflush.h`).
const LITTLE: usize = 8;
/// The most other nodes that are used between two operations: all that there are.
pub const OTHERS: usize = FITTED_MOST - 1;
/// How many operations are measured before the next kind of interference.
const IN_A_ROW: usize = 100;
/// Memory that is written between two operations, in KiB: from more than a processor's own caches hold to
/// more than neighbours leave of the shared one.
pub const TOUCHED_KB: [usize; 4] = [4096, 8192, 16_384, 32_768];
const LINE_BYTES: usize = 64;
/// The same where the interference takes long, as writing memory does.
const IN_A_LONG_ROW: usize = 20;
const WALKS: usize = 200;
/// How many keys each node has.
const KEYS: usize = 64;

/// Microseconds of processor time of one operation, for its node and for its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SideCosts {
    pub node_us: f64,
    pub client_us: f64,
}

impl SideCosts {
    /// The mean without the slowest tenth of the turns, in which the machine did something else.
    fn mean(turns: &[Self]) -> Self {
        let of = |side: fn(&Self) -> f64| {
            let mut all: Vec<f64> = turns.iter().map(side).collect();
            all.sort_by(f64::total_cmp);
            all.truncate((all.len() * 9).div_ceil(10));
            all.iter().sum::<f64>() / all.len().max(1) as f64
        };
        Self { node_us: of(|turn| turn.node_us), client_us: of(|turn| turn.client_us) }
    }

    fn more_than(self, other: Self) -> Self {
        Self {
            node_us: (self.node_us - other.node_us).max(0.0),
            client_us: (self.client_us - other.client_us).max(0.0),
        }
    }
}

/// The costs of eviction for an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cold {
    /// An operation without eviction; kept for information.
    pub warm: SideCosts,
    /// The additional cost after other address spaces replaced its own.
    pub spaces: SideCosts,
    /// The additional cost after one other node ran, two, and so on.
    pub asked: [SideCosts; OTHERS],
    /// The additional cost after each amount of memory in [`TOUCHED_KB`] was written.
    pub touched: [SideCosts; TOUCHED_KB.len()],
    /// How much memory of others an operation evicts from the caches of a processor, in KiB.
    pub pushed_kb: f64,
}

/// What happens between two operations.
#[derive(Clone, Copy, PartialEq)]
enum Interference {
    Nothing,
    /// One small process is woken, as often as there are small processes.
    OneLittle,
    AllLittle,
    Asked(usize),
    Touched(usize),
}

/// All kinds: nothing, address spaces, [`OTHERS`] and [`TOUCHED_KB`].
const ALL: [Interference; 3 + OTHERS + TOUCHED_KB.len()] = [
    Interference::Nothing,
    Interference::OneLittle,
    Interference::AllLittle,
    Interference::Asked(1),
    Interference::Asked(2),
    Interference::Asked(3),
    Interference::Touched(TOUCHED_KB[0]),
    Interference::Touched(TOUCHED_KB[1]),
    Interference::Touched(TOUCHED_KB[2]),
    Interference::Touched(TOUCHED_KB[3]),
];

/// The kinds after which memory is walked over: after the last of these, nothing of it is left in the
/// processor's own caches.
const WALKED_BEHIND: [Interference; 3] =
    [Interference::Nothing, Interference::Asked(1), Interference::Touched(TOUCHED_KB[0])];

/// Measures for the given time.
pub fn measure(
    nodes: &[(SocketAddr, u32)],
    leaders: &[usize],
    (idle_of_one, time): (f64, Duration),
) -> Result<Cold, ScaleError> {
    let io = ScaleError::io("measure what it costs to be pushed out");
    let pinned = Pinned::to_one(nodes.iter().map(|node| node.1));
    let found = pinned.and_then(|_pinned| Bench::new(nodes, leaders, idle_of_one)?.measure(time));
    found.map_err(io)
}

struct Bench<'a> {
    nodes: &'a [(SocketAddr, u32)],
    idle_of_one: f64,
    first: Client,
    others: Vec<Other>,
    little: Vec<Child>,
    memory: Vec<u8>,
}

/// A client of one node.
struct Client {
    line: TcpStream,
    keys: Vec<u32>,
    asked: usize,
    pieces: Pieces,
}

/// A client that sends a request when it is told to.
struct Other {
    go: SyncSender<()>,
    done: Receiver<io::Result<()>>,
}

impl<'a> Bench<'a> {
    fn new(nodes: &'a [(SocketAddr, u32)], leaders: &[usize], idle_of_one: f64) -> io::Result<Self> {
        let client = |place: usize| Client::new(nodes[place].0, place, leaders);
        Ok(Self {
            nodes,
            idle_of_one,
            first: client(0)?,
            others: (1..nodes.len())
                .map(|place| Ok(Other::start(client(place)?)))
                .collect::<io::Result<_>>()?,
            little: (0..LITTLE).map(|_| little()).collect::<io::Result<_>>()?,
            memory: vec![1; TOUCHED_KB[TOUCHED_KB.len() - 1] << 10],
        })
    }

    fn measure(&mut self, time: Duration) -> io::Result<Cold> {
        let mut turns = ALL.map(|_| Vec::new());
        let (start, mut is_warm) = (Instant::now(), false);
        // All kinds take turns: a machine that is slower for a while is slower for all of them.
        while start.elapsed() < time || turns[0].is_empty() {
            for (between, turns) in ALL.into_iter().zip(&mut turns) {
                let of_turn = self.turn(between)?;
                turns.extend(is_warm.then_some(of_turn));
            }
            is_warm = true;
        }
        let [warm, one_little, all_little, rest @ ..] = turns.map(|turns| SideCosts::mean(&turns));
        let more = |at: usize| rest[at].more_than(warm);
        Ok(Cold {
            warm,
            spaces: all_little.more_than(one_little),
            asked: std::array::from_fn(more),
            touched: std::array::from_fn(|at| more(OTHERS + at)),
            pushed_kb: self.pushed_kb()?,
        })
    }

    /// Measured by a walk over half of what the cache holds: how much longer it takes after an operation
    /// than after none, relative to when everything was evicted.
    fn pushed_kb(&mut self) -> io::Result<f64> {
        let walked_kb = own_kb() / 2;
        let walk = Walk::new(walked_kb);
        let mut times = WALKED_BEHIND.map(|_| Vec::new());
        for _ in 0..WALKS {
            for (between, times) in WALKED_BEHIND.into_iter().zip(&mut times) {
                walk.time();
                self.happen(between)?;
                times.push(walk.time());
            }
        }
        let [nothing, asked, everything] = times.map(|times| middle(&times, |one| *one).unwrap_or(0.0));
        // Every cache line of an operation replaces one that was walked over or one that was not.
        Ok(2.0 * walked_kb as f64 * ((asked - nothing) / (everything - nothing)).clamp(0.0, 1.0))
    }

    /// The mean cost of one operation.
    fn turn(&mut self, between: Interference) -> io::Result<SideCosts> {
        let node = self.nodes[0].1;
        let seconds = || threads_seconds(node).unwrap_or(0.0);
        let (start, before) = (Instant::now(), seconds());
        let mut client_seconds = 0.0;
        let in_a_row = if matches!(between, Interference::Touched(_)) { IN_A_LONG_ROW } else { IN_A_ROW };
        for _ in 0..in_a_row {
            self.happen(between)?;
            let before = own_seconds();
            self.first.ask()?;
            client_seconds += own_seconds() - before;
        }
        let ticks = self.idle_of_one * start.elapsed().as_secs_f64();
        let each_us = |seconds: f64| seconds * 1e6 / in_a_row as f64;
        Ok(SideCosts { node_us: each_us(seconds() - before - ticks), client_us: each_us(client_seconds) })
    }

    fn happen(&mut self, between: Interference) -> io::Result<()> {
        match between {
            Interference::Nothing => {}
            Interference::OneLittle => (0..LITTLE).try_for_each(|_| wake(&mut self.little[0]))?,
            Interference::AllLittle => self.little.iter_mut().try_for_each(wake)?,
            Interference::Touched(kibibytes) => {
                let touched = &mut self.memory[..kibibytes << 10];
                touched.iter_mut().step_by(LINE_BYTES).for_each(|byte| *byte = byte.wrapping_add(1));
                std::hint::black_box(touched);
            }
            Interference::Asked(others) => self.others[..others].iter().try_for_each(Other::ask)?,
        }
        Ok(())
    }
}

impl Client {
    fn new(node: SocketAddr, place: usize, leaders: &[usize]) -> io::Result<Self> {
        let line = TcpStream::connect(node)?;
        line.set_nodelay(true)?;
        let is_led = |key: &u32| leaders[slot_of(&Pieces::key(*key))] == place;
        let keys = (0..).filter(is_led).take(KEYS).collect();
        Ok(Self { line, keys, asked: 0, pieces: Pieces::seeded(1) })
    }

    /// Sets a key of the node, or gets the value that was set.
    fn ask(&mut self) -> io::Result<()> {
        let turn = self.asked;
        self.asked += 1;
        let number = self.keys[turn / 2 % KEYS];
        let (key, piece) = (Pieces::key(number), self.pieces.piece(number, 0));
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        if turn.is_multiple_of(2) {
            Protocol::Resp.write(Operation::Set, &key, &piece, &mut out);
            expected.extend_from_slice(b"+OK\r\n");
        } else {
            Protocol::Resp.write(Operation::Get, &key, b"", &mut out);
            expected.extend_from_slice(b"$132\r\n");
            expected.extend_from_slice(&piece);
            expected.extend_from_slice(b"\r\n");
        }
        self.line.write_all(&out)?;
        let mut heard = vec![0; expected.len()];
        self.line.read_exact(&mut heard)?;
        if heard != expected {
            return Err(io::Error::other(String::from_utf8_lossy(&heard).into_owned()));
        }
        Ok(())
    }
}

impl Other {
    /// Starts it on the processor of the calling thread.
    fn start(mut client: Client) -> Self {
        let (go, told) = sync_channel(1);
        let (says, done) = sync_channel(1);
        std::thread::spawn(move || while told.recv().is_ok() && says.send(client.ask()).is_ok() {});
        Self { go, done }
    }

    fn ask(&self) -> io::Result<()> {
        let gone = || io::Error::other("a client ended by itself");
        self.go.send(()).map_err(|_| gone())?;
        self.done.recv().map_err(|_| gone())?
    }
}

/// Memory whose lines are read one after the other in random order, each of which names the next.
struct Walk(Vec<[u32; LINE_BYTES / 4]>);

impl Walk {
    fn new(kibibytes: usize) -> Self {
        let mut order: Vec<u32> = (0..(kibibytes << 10) as u32 / LINE_BYTES as u32).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut order);
        let mut lines = vec![[0; LINE_BYTES / 4]; order.len()];
        for (&one, &next) in order.iter().zip(order.iter().cycle().skip(1)) {
            lines[one as usize][0] = next;
        }
        Self(lines)
    }

    fn time(&self) -> f64 {
        let (start, mut at) = (Instant::now(), 0);
        for _ in 0..self.0.len() {
            at = self.0[at as usize][0];
        }
        std::hint::black_box(at);
        start.elapsed().as_secs_f64()
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        for child in &mut self.little {
            drop(child.stdin.take());
            // It ends when its input closes; if it does not, it ends with the bench.
            let _ = child.wait();
        }
    }
}

/// The size of the largest cache of a single processor in KiB, as the system reports it; a mebibyte where
/// it does not.
fn own_kb() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size");
    text.ok().and_then(|text| text.trim().strip_suffix('K')?.parse().ok()).unwrap_or(1024)
}

/// A process with its own address space that echoes its input.
fn little() -> io::Result<Child> {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

fn wake(little: &mut Child) -> io::Result<()> {
    let (Some(input), Some(output)) = (&mut little.stdin, &mut little.stdout) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    input.write_all(b"x")?;
    output.read_exact(&mut [0])
}

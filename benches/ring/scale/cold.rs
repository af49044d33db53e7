//! What an operation costs more when others ran on its processor meanwhile: what they pushed out of it has to
//! come back.
//!
//! Nodes and clients share one processor for this, and the first client asks the first node. Between two
//! operations another one asks another node, or several do, which then have their things in the caches; or so
//! much memory is written to; or little processes are woken, which leave the caches alone, but whose
//! translations of addresses take the place of the node's.
//!
//! Invariant: no more nodes than the model is fitted on take part.

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

/// Little processes: with a node and the client more than the six whose translations Linux keeps apart on
/// x86-64 (`TLB_NR_DYN_ASIDS` in `arch/x86/include/asm/tlbflush.h`).
const LITTLE: usize = 8;
/// Other nodes that are asked between two operations, at most: all that there are.
pub const OTHERS: usize = FITTED_MOST - 1;
/// Operations before something else happens between them.
const IN_A_ROW: usize = 100;
/// Memory that is written to between two operations, in KiB: from more than a processor's own caches hold to
/// more than neighbours leave of the one that all share.
pub const TOUCHED_KB: [usize; 4] = [4096, 8192, 16_384, 32_768];
const LINE_BYTES: usize = 64;
/// Fewer operations before something else happens, as writing takes long.
const IN_A_LONG_ROW: usize = 20;
const WALKS: usize = 200;
/// Keys of each node.
const KEYS: usize = 64;

/// Microseconds of processor time of one operation, of its node and of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Both {
    pub node_us: f64,
    pub client_us: f64,
}

impl Both {
    /// The mean without the tenth of the turns that took longest: the machine did something else there.
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

/// What pushing out costs an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cold {
    /// An operation when nothing was pushed out: kept to be looked at.
    pub warm: Both,
    /// More when other address spaces took the place of its own.
    pub spaces: Both,
    /// More when one other node ran, two, and so on.
    pub asked: [Both; OTHERS],
    /// More when so much memory as [`TOUCHED_KB`] says was written to.
    pub touched: [Both; TOUCHED_KB.len()],
    /// How much memory of others an operation pushes out of the caches of a processor, in KiB.
    pub pushed_kb: f64,
}

/// What happens between two operations.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    Nothing,
    /// One little process is woken as often as there are any.
    OneLittle,
    AllLittle,
    Asked(usize),
    Touched(usize),
}

/// All that is tried: nothing, address spaces, [`OTHERS`] and [`TOUCHED_KB`].
const ALL: [Between; 3 + OTHERS + TOUCHED_KB.len()] = [
    Between::Nothing,
    Between::OneLittle,
    Between::AllLittle,
    Between::Asked(1),
    Between::Asked(2),
    Between::Asked(3),
    Between::Touched(TOUCHED_KB[0]),
    Between::Touched(TOUCHED_KB[1]),
    Between::Touched(TOUCHED_KB[2]),
    Between::Touched(TOUCHED_KB[3]),
];

/// Behind what memory is walked over: behind the last of these nothing of it is left in the processor's own
/// caches.
const WALKED_BEHIND: [Between; 3] = [Between::Nothing, Between::Asked(1), Between::Touched(TOUCHED_KB[0])];

/// Measures for so long.
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

/// Asks one node.
struct Client {
    line: TcpStream,
    keys: Vec<u32>,
    asked: usize,
    pieces: Pieces,
}

/// A client that asks when it is told to.
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
        // All have their turn again and again: a machine that is slower for a while is so for all.
        while start.elapsed() < time || turns[0].is_empty() {
            for (between, turns) in ALL.into_iter().zip(&mut turns) {
                let of_turn = self.turn(between)?;
                turns.extend(is_warm.then_some(of_turn));
            }
            is_warm = true;
        }
        let [warm, one_little, all_little, rest @ ..] = turns.map(|turns| Both::mean(&turns));
        let more = |at: usize| rest[at].more_than(warm);
        Ok(Cold {
            warm,
            spaces: all_little.more_than(one_little),
            asked: std::array::from_fn(more),
            touched: std::array::from_fn(|at| more(OTHERS + at)),
            pushed_kb: self.pushed_kb()?,
        })
    }

    /// By a walk over half of what the cache holds: how much longer it takes behind one operation than behind
    /// none, beside one for which everything was pushed out.
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
        // Every line of an operation takes the place of one that was walked over or of one that was not.
        Ok(2.0 * walked_kb as f64 * ((asked - nothing) / (everything - nothing)).clamp(0.0, 1.0))
    }

    /// Of one operation, on average.
    fn turn(&mut self, between: Between) -> io::Result<Both> {
        let node = self.nodes[0].1;
        let seconds = || threads_seconds(node).unwrap_or(0.0);
        let (start, before) = (Instant::now(), seconds());
        let mut client_seconds = 0.0;
        let in_a_row = if matches!(between, Between::Touched(_)) { IN_A_LONG_ROW } else { IN_A_ROW };
        for _ in 0..in_a_row {
            self.happen(between)?;
            let before = own_seconds();
            self.first.ask()?;
            client_seconds += own_seconds() - before;
        }
        let ticks = self.idle_of_one * start.elapsed().as_secs_f64();
        let each_us = |seconds: f64| seconds * 1e6 / in_a_row as f64;
        Ok(Both { node_us: each_us(seconds() - before - ticks), client_us: each_us(client_seconds) })
    }

    fn happen(&mut self, between: Between) -> io::Result<()> {
        match between {
            Between::Nothing => {}
            Between::OneLittle => (0..LITTLE).try_for_each(|_| wake(&mut self.little[0]))?,
            Between::AllLittle => self.little.iter_mut().try_for_each(wake)?,
            Between::Touched(kibibytes) => {
                let touched = &mut self.memory[..kibibytes << 10];
                touched.iter_mut().step_by(LINE_BYTES).for_each(|byte| *byte = byte.wrapping_add(1));
                std::hint::black_box(touched);
            }
            Between::Asked(others) => self.others[..others].iter().try_for_each(Other::ask)?,
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

    /// Sets a key of the node, or gets what was set.
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
    /// On the processor of the thread that calls.
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

/// Memory whose lines are read one after the other in no order, each of which says which one is next.
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
            // It ends with its input; should it not, the end of the bench ends it.
            let _ = child.wait();
        }
    }
}

/// What the largest cache of one processor alone holds, in KiB, as the system says; a mebibyte where it says
/// nothing.
fn own_kb() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size");
    text.ok().and_then(|text| text.trim().strip_suffix('K')?.parse().ok()).unwrap_or(1024)
}

/// A process with an address space of its own that says what it hears.
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

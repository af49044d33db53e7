//! No reply leaves before the sync that it waits for, the loop goes on during a slow sync, and a failed sync
//! ends it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod half_way;
mod mixed;
mod quick;
mod turns;
mod unreadable;

use super::*;
use crate::address::NodeName;
use crate::clock::{Clock, SystemClock};
use crate::loop_state::{Choices, Shared};
use crate::options::{ConnectionLimits, Persistence};
use crate::slots::Slots;
use crate::table::SlotTable;
use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
use atoll_engine::{Engine, Options};
use atoll_keyspace::SLOTS;
use atoll_replica::{Configuration, Copies, Epoch, KeyspaceRules, Member, NodeId, Table};
use std::io::Read;
use std::net::TcpStream as Socket;
use std::sync::Arc;
use std::sync::{Condvar, Mutex};
use std::thread::{JoinHandle, ThreadId};

/// How the syncs of a disk behave.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Shut,
    Broken,
}

/// A disk whose syncs wait for a gate to open.
struct Gated {
    disk: Arc<MemoryDisk>,
    is_unreadable: AtomicBool,
    gate: Mutex<(Gate, u64)>,
    changed: Condvar,
    /// The thread that synced last.
    synced_by: Mutex<Option<ThreadId>>,
    /// Called during a sync.
    meanwhile: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Relay for Gated {
    fn inner(&self) -> &dyn Disk {
        &*self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if self.is_unreadable.load(Ordering::Acquire) {
            return Err(broken(Operation::Read));
        }
        self.disk.read_at(offset, target)
    }

    fn sync(&self) -> Result<(), DiskError> {
        *self.synced_by.lock().unwrap() = Some(std::thread::current().id());
        if let Some(meanwhile) = &*self.meanwhile.lock().unwrap() {
            meanwhile();
        }
        let mut state = self.gate.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let state = self.changed.wait_while(state, |(gate, _)| *gate == Gate::Shut).unwrap();
        match state.0 {
            Gate::Broken => Err(broken(Operation::Sync)),
            _ => self.disk.sync(),
        }
    }
}

fn broken(operation: Operation) -> DiskError {
    DiskError { operation, name: "gated".to_owned(), offset: 0, source: io::Error::other("broken") }
}

impl Gated {
    fn set(&self, gate: Gate) {
        self.gate.lock().unwrap().0 = gate;
        self.changed.notify_all();
    }

    /// How many syncs have begun.
    fn syncs(&self) -> u64 {
        self.gate.lock().unwrap().1
    }

    /// Waits until more syncs than these have begun.
    fn wait_behind(&self, syncs: u64) {
        drop(self.changed.wait_while(self.gate.lock().unwrap(), |(_, begun)| *begun <= syncs).unwrap());
    }
}

/// A loop whose writes are synced before they are acknowledged.
struct Running {
    disk: Arc<Gated>,
    metrics: Arc<crate::metrics::Metrics>,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
    thread: JoinHandle<Result<(), NodeError>>,
}

/// A table in which one node has all slots.
fn table(address: SocketAddr) -> SlotTable {
    table_with(address, &[])
}

/// The same with keyspaces.
fn table_with(address: SocketAddr, rules: &[KeyspaceRules]) -> SlotTable {
    let name = NodeName::random().unwrap();
    let mut table = Table::empty(SLOTS.into());
    table.keyspaces = rules.into();
    table.slots.grow(u32::from(SLOTS) * table.keyspace_count() as u32);
    let address = crate::address::NodeAddress { name, peers: address.into(), clients: address.into() };
    let member = Member::new(address.to_string().into());
    table.members.insert(NodeId(1), member);
    let in_sync = Copies::of(&[NodeId(1)]);
    let all =
        Configuration { epoch: Epoch(1), primary: Some(NodeId(1)), in_sync, ..Configuration::default() };
    table.slots.change_each(|_, slot| *slot = all);
    SlotTable::of(Arc::new(table), NodeId(1))
}

/// A loop that is not running yet, with its disk, counters, address and waker.
struct Ready {
    event_loop: EventLoop,
    disk: Arc<Gated>,
    metrics: Arc<crate::metrics::Metrics>,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

fn ready(clock: Arc<dyn Clock>, limits: ConnectionLimits) -> Ready {
    ready_on(Arc::default(), clock, limits)
}

fn ready_on(disk: Arc<MemoryDisk>, clock: Arc<dyn Clock>, limits: ConnectionLimits) -> Ready {
    let chosen = |address| Choices { limits, ..Choices::of_test(clock, address) };
    ready_with(disk, chosen, &[])
}

/// The same with these choices, and with keyspaces beside the first one.
fn ready_with(
    disk: Arc<MemoryDisk>,
    chosen: impl FnOnce(SocketAddr) -> Choices,
    rules: &[KeyspaceRules],
) -> Ready {
    let gate = Mutex::new((Gate::Open, 0));
    let (is_unreadable, changed) = (AtomicBool::default(), Condvar::new());
    let (synced_by, meanwhile) = (Mutex::new(None), Mutex::new(None));
    let disk = Arc::new(Gated { disk, is_unreadable, gate, changed, synced_by, meanwhile });
    let options = Options { background: false, ..Options::default() };
    let engine = Engine::open(disk.clone(), options).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared::new(chosen(address), table_with(address, rules)));
    let metrics = shared.metrics.clone();
    let class = (shared.chosen.persistence, shared.chosen.keeps);
    let mut slots = Slots::open(&engine, class, 1 << 30, metrics.clone()).unwrap();
    slots.follow(rules).unwrap();
    let (waiting, waker) = EventLoop::poll().unwrap();
    let stop = Arc::<AtomicBool>::default();
    let here = LoopState::new(shared, slots);
    let event_loop = EventLoop::new(waiting, Some(listener), here, stop.clone()).unwrap();
    Ready { event_loop, disk, metrics, address, stop, waker }
}

fn run() -> Running {
    run_ready(ready(Arc::new(SystemClock), ConnectionLimits::default()))
}

fn run_ready(ready: Ready) -> Running {
    let Ready { event_loop, disk, metrics, address, stop, waker } = ready;
    let thread = std::thread::spawn(move || event_loop.run());
    Running { disk, metrics, address, stop, waker, thread }
}

impl Running {
    fn connect(&self) -> Socket {
        Socket::connect(self.address).unwrap()
    }

    /// Waits until this many commands have been executed.
    fn wait_for_commands(&self, count: u64) {
        while self.metrics.commands.get() < count {
            std::thread::yield_now();
        }
    }

    fn end(self) -> Result<(), NodeError> {
        self.disk.set(Gate::Open);
        self.stop.store(true, Ordering::Release);
        self.waker.wake().unwrap();
        self.thread.join().unwrap()
    }
}

fn say(socket: &mut Socket, words: &str) {
    socket.write_all(format!("{words}\r\n").as_bytes()).unwrap();
}

/// The next bytes that arrive, this many of them.
fn hear(socket: &mut Socket, len: usize) -> String {
    let mut heard = vec![0; len];
    socket.read_exact(&mut heard).unwrap();
    String::from_utf8(heard).unwrap()
}

/// Whether nothing has arrived although the loop had time for some rounds.
fn is_silent(running: &Running, socket: &mut Socket) -> bool {
    let rounds = running.metrics.rounds.get();
    while running.metrics.rounds.get() < rounds + 2 {
        running.waker.wake().unwrap();
    }
    socket.set_nonblocking(true).unwrap();
    let is_silent = socket.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    is_silent
}

#[test]
fn nobody_is_told_of_a_write_before_its_sync_and_the_loop_goes_on_meanwhile() {
    let running = run();
    let [mut writer, mut reader, mut late] = [running.connect(), running.connect(), running.connect()];
    let before = running.disk.syncs();
    running.disk.set(Gate::Shut);
    say(&mut writer, "SET a 1");
    running.disk.wait_behind(before);
    // The loop does not wait for the disk: other requests are executed and see the write, but get no reply.
    say(&mut reader, "GET a");
    say(&mut late, "SET b 2");
    running.wait_for_commands(3);
    for socket in [&mut writer, &mut reader, &mut late] {
        assert!(is_silent(&running, socket));
    }
    assert_eq!(running.disk.syncs(), before + 1, "one sync at a time");
    running.disk.set(Gate::Open);
    assert_eq!(hear(&mut writer, 5), "+OK\r\n");
    assert_eq!(hear(&mut reader, 7), "$1\r\n1\r\n");
    assert_eq!(hear(&mut late, 5), "+OK\r\n");
    assert!(running.disk.syncs() > before + 1, "what came during a sync waits for the next one");
    // When everything is synced, a read does not wait for the disk.
    running.disk.set(Gate::Shut);
    say(&mut reader, "GET b");
    assert_eq!(hear(&mut reader, 7), "$1\r\n2\r\n");
    running.end().unwrap();
}

#[test]
fn what_a_held_connection_asks_meanwhile_is_answered_behind_it() {
    let running = run();
    let mut client = running.connect();
    let before = running.disk.syncs();
    running.disk.set(Gate::Shut);
    say(&mut client, "APPEND a x");
    running.disk.wait_behind(before);
    for _ in 0..20 {
        say(&mut client, "APPEND a y");
        assert!(is_silent(&running, &mut client));
    }
    running.disk.set(Gate::Open);
    let lengths: String = (1..=21).map(|length| format!(":{length}\r\n")).collect();
    assert_eq!(hear(&mut client, lengths.len()), lengths);
    running.end().unwrap();
}

#[test]
fn who_takes_the_place_of_a_held_connection_waits_for_its_own_sync() {
    let running = run();
    let (mut first, before) = (running.connect(), running.disk.syncs());
    running.disk.set(Gate::Shut);
    say(&mut first, "SET a 1");
    running.disk.wait_behind(before);
    drop(first);
    let mut second = running.connect();
    say(&mut second, "SET a 2");
    running.wait_for_commands(2);
    assert!(is_silent(&running, &mut second));
    running.disk.set(Gate::Open);
    assert_eq!(hear(&mut second, 5), "+OK\r\n");
    running.end().unwrap();
}

#[test]
fn after_a_sync_that_failed_nobody_is_told_anything() {
    let running = run();
    let mut client = running.connect();
    say(&mut client, "SET a 1");
    assert_eq!(hear(&mut client, 5), "+OK\r\n");
    running.disk.set(Gate::Broken);
    say(&mut client, "SET a 2");
    let mut heard = Vec::new();
    // The connection may end by a reset, because it has unread bytes.
    drop(client.read_to_end(&mut heard));
    assert!(heard.is_empty(), "{}", heard.escape_ascii());
    assert!(running.thread.join().unwrap().is_err());
}

//! A node whose disk is full answers reads, frees room, and accepts writes again. So does a node of several,
//! while its ring goes on.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod lifetimes;
mod long_slots;

use super::*;
use crate::group::{GroupDoor, GroupMember, Joining, LocalGroup};
use crate::options::Persistence;
use crate::others::Others;
use crate::room::RESERVE_BYTES;
use atoll_disk::{FaultPlan, SimDisk};
use atoll_keyspace::slot_of;
use atoll_replica::{Change, GroupOptions, Moment, NodeId, Proposal};
use atoll_resp::{Limits, ReplyParser, Value, write_request};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A client that follows redirections.
struct Client {
    address: SocketAddr,
    sockets: BTreeMap<SocketAddr, TcpStream>,
    /// Bytes received behind the last reply.
    received: Vec<u8>,
}

impl Client {
    fn of(node: &Node) -> Self {
        Self { address: node.address(), sockets: BTreeMap::new(), received: Vec::new() }
    }

    fn once(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.receive()
    }

    fn send(&mut self, words: &[&str]) {
        let mut request = Vec::new();
        write_request(&mut request, words);
        let connect = || {
            let socket = TcpStream::connect(self.address).unwrap();
            socket.set_read_timeout(Some(LONG)).unwrap();
            socket
        };
        self.sockets.entry(self.address).or_insert_with(connect).write_all(&request).unwrap();
    }

    fn receive(&mut self) -> String {
        let socket = self.sockets.get_mut(&self.address).unwrap();
        let mut parser = ReplyParser::new(Limits::default());
        loop {
            let (read, reply) = parser.parse(&self.received).unwrap();
            self.received.drain(..read);
            match reply {
                Some(Value::Error(text)) => return format!("-{}", String::from_utf8(text).unwrap()),
                Some(Value::Integer(number)) => return number.to_string(),
                Some(reply) => {
                    return String::from_utf8(reply.bytes().unwrap_or_default().to_vec()).unwrap();
                }
                None => {}
            }
            let mut room = [0; 4096];
            match socket.read(&mut room).unwrap() {
                0 => panic!("the node ended the connection"),
                count => self.received.extend_from_slice(&room[..count]),
            }
        }
    }

    /// Asks until the reply is neither a redirection nor a request to try again.
    fn ask(&mut self, words: &[&str]) -> String {
        let began = Instant::now();
        loop {
            let reply = self.once(words);
            let moved = reply.strip_prefix("-MOVED ").and_then(|rest| rest.split(' ').nth(1));
            if let Some(address) = moved {
                self.address = address.parse().unwrap();
            } else if !["-CLUSTERDOWN", "-LOADING", "-TRYAGAIN", "-UNKNOWN"]
                .iter()
                .any(|word| reply.starts_with(word))
            {
                return reply;
            }
            assert!(began.elapsed() < LONG, "{words:?}: {reply}");
        }
    }
}

fn start(disk: &SimDisk, others: Option<Others>) -> Node {
    start_of(Persistence::default(), disk, others, GatheringRoom::default())
}

fn start_of(
    persistence: Persistence,
    disk: &SimDisk,
    others: Option<Others>,
    gathering: GatheringRoom,
) -> Node {
    let listen = "127.0.0.1:0".parse().unwrap();
    start_at(listen, persistence, disk, others, gathering)
}

/// Starts a node that clients reach at this address: a store without the name of the one that had its number
/// gets the number in the same place alone.
fn start_at(
    listen: SocketAddr,
    persistence: Persistence,
    disk: &SimDisk,
    others: Option<Others>,
    gathering: GatheringRoom,
) -> Node {
    let memory_bytes = 64 << 20;
    let options = Options { memory_bytes, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
    let place = SlotStorage::Folder("simulated".into());
    Node::start_on(
        (engine, None),
        NodeOptions { listen, place, persistence, others, memory_bytes, ..NodeOptions::default() },
        gathering,
    )
    .unwrap()
}

fn others(group: &LocalGroup, me: u32, suspect_us: u64) -> Others {
    Others {
        me: NodeId(me),
        listen: "127.0.0.1:0".parse().unwrap(),
        group: Arc::new(group.clone()),
        options: atoll_replica::Options { suspect_us, ..atoll_replica::Options::default() },
    }
}

fn leave(disk: &SimDisk, space_left: Option<u64>) {
    disk.set_plan(FaultPlan { space_left, ..FaultPlan::default() });
}

/// A group that counts how often its member reports to be at work.
struct Attentive(LocalGroup, Arc<AtomicU64>);

struct AttentiveMember(Box<dyn GroupMember>, Arc<AtomicU64>);

impl GroupDoor for Attentive {
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError> {
        Ok(Box::new(AttentiveMember(self.0.join(joining)?, Arc::clone(&self.1))))
    }
}

impl GroupMember for AttentiveMember {
    fn propose(&self, proposals: Vec<Proposal>) {
        self.0.propose(proposals);
    }

    fn ask(&self, changes: Vec<Change>) {
        self.0.ask(changes);
    }

    fn fetch_table(&self) {
        self.0.fetch_table();
    }

    fn at_work(&self, _now: Moment) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

/// A ring of three nodes that all have a copy of everything.
struct Three {
    group: LocalGroup,
    /// How often each node has reported to be at work.
    at_work: [Arc<AtomicU64>; 3],
    disks: Vec<SimDisk>,
    nodes: Vec<Node>,
}

impl Three {
    /// Starts the ring with this time after which a silent copy counts as lost.
    fn start(suspect_us: u64) -> Self {
        let shape = GroupOptions { slots: SLOTS.into(), copies: 3 };
        let group = LocalGroup::start(shape, Duration::from_millis(300)).unwrap();
        let disks: Vec<_> = (1..=3).map(SimDisk::seeded).collect();
        let at_work: [Arc<AtomicU64>; 3] = Default::default();
        let others = |me, at_work: &Arc<AtomicU64>| {
            let group_told = Arc::new(Attentive(group.clone(), Arc::clone(at_work)));
            Others { group: group_told, ..others(&group, me, suspect_us) }
        };
        let each = (1..).zip(&disks).zip(&at_work);
        let nodes = each.map(|((me, disk), at_work)| start(disk, Some(others(me, at_work)))).collect();
        let ring = Self { group, at_work, disks, nodes };
        ring.wait_for_copies();
        ring
    }

    fn at_work(&self, at: usize) -> u64 {
        self.at_work[at].load(Ordering::SeqCst)
    }

    fn wait_for_copies(&self) {
        let all_have_three = |table: &Table| table.slots.iter().all(|slot| slot.in_sync.len() == 3);
        assert!(self.group.wait(LONG, all_have_three), "{:?}", self.group.table().members);
    }

    fn wait_for_copies_of_the_first(&self) {
        let has_three =
            |table: &Table| table.slots.iter().take(SLOTS.into()).all(|slot| slot.in_sync.len() == 3);
        assert!(self.group.wait(LONG, has_three), "{:?}", self.group.table().members);
    }

    fn stop(self) {
        self.nodes.into_iter().for_each(|node| node.stop().unwrap());
    }
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

/// Sets keys from this number on until one is refused; returns the number of that key.
fn fill(client: &mut Client, from: u32, value: &str) -> u32 {
    let refused = (from..from + 10_000).find(|number| {
        let reply = client.ask(&["set", &format!("key{number}"), value]);
        assert!(reply == "OK" || reply.starts_with("-OOM"), "{reply}");
        reply != "OK"
    });
    refused.unwrap()
}

#[test]
fn a_node_whose_disk_is_nearly_full_takes_what_makes_room_and_then_writes_again() {
    let disk = SimDisk::seeded(1);
    let node = start(&disk, None);
    let mut client = Client::of(&node);
    leave(&disk, Some(96 << 20));
    let value = "x".repeat(100_000);
    let refused = fill(&mut client, 0, &value);
    assert!(disk.counters().out_of_space == 0, "something is left");
    for number in 0..refused {
        assert_eq!(client.ask(&["get", &format!("key{number}")]).len(), value.len(), "{number}");
    }
    wait_for("it says so", || node.metrics_text().contains("atoll_ring_out_of_space 1"));
    for number in 0..refused {
        assert_eq!(client.ask(&["del", &format!("key{number}")]), "1", "{number}");
    }
    wait_for("there is room again", || client.ask(&["set", "key", &value]) == "OK");
    assert_eq!(client.ask(&["flushall"]), "OK");
    node.stop().unwrap();
}

#[test]
fn a_node_whose_first_keyspace_outlives_nothing_measures_the_disk_that_its_slots_are_on() {
    let shape = GroupOptions { slots: SLOTS.into(), copies: 1 };
    let group = LocalGroup::start(shape, Duration::from_millis(300)).unwrap();
    let options = atoll_replica::Options { in_sync_min: 1, ..atoll_replica::Options::default() };
    let of_ring = Others { options, ..others(&group, 1, 1_000_000) };
    for others in [None, Some(of_ring)] {
        let disk = SimDisk::seeded(3);
        let node = start_of(Persistence::Off, &disk, others, GatheringRoom::default());
        let mut client = Client::of(&node);
        assert_eq!(client.ask(&["set", "key", "value"]), "OK");
        // Less than what is kept free, and far more than what these writes take.
        leave(&disk, Some(RESERVE_BYTES / 4));
        wait_for("it says so", || node.metrics_text().contains("atoll_ring_out_of_space 1"));
        assert!(client.ask(&["set", "key", "other"]).starts_with("-OOM"));
        assert_eq!(client.ask(&["get", "key"]), "value");
        leave(&disk, None);
        wait_for("there is room again", || client.ask(&["set", "key", "other"]) == "OK");
        node.stop().unwrap();
    }
}

#[test]
fn a_node_whose_disk_is_full_reads_and_writes_again_when_there_is_room() {
    let disk = SimDisk::seeded(2);
    let node = start(&disk, None);
    let mut client = Client::of(&node);
    leave(&disk, Some(0));
    // Some writes still fit into what the log has reserved.
    let refused = fill(&mut client, 0, &"x".repeat(10_000));
    // Deletions are accepted to the very end.
    wait_for("nothing more is taken", || client.ask(&["del", "first", "{first}other"]).starts_with("-OOM"));
    for _ in 0..100 {
        assert!(client.ask(&["del", "other"]).starts_with("-OOM"));
    }
    for number in 0..refused {
        assert_eq!(client.ask(&["strlen", &format!("key{number}")]), "10000", "{number}");
    }
    leave(&disk, None);
    wait_for("there is room again", || client.ask(&["set", "key", "value"]) == "OK");
    node.stop().unwrap();
}

#[test]
fn a_ring_goes_on_without_a_node_whose_disk_is_full_and_has_it_back_when_there_is_room() {
    let ring = Three::start(1_000_000);
    let Three { disks, nodes, .. } = &ring;
    leave(&disks[1], Some(0));
    let (mut client, mut full) = (Client::of(&nodes[0]), Client::of(&nodes[1]));
    let value = "x".repeat(100_000);
    // It still leads some slots, which it can only read.
    let keys = (0..40).map(|number| format!("{{{}}}key{number}", number % 8));
    let taken: Vec<_> = keys.filter(|key| client.ask(&["set", key, &value]) == "OK").collect();
    assert!(taken.len() >= 10, "{}", taken.len());
    for key in &taken {
        assert_eq!(client.ask(&["get", key]).len(), value.len(), "{key}");
    }
    assert!(full.once(&["info", "persistence"]).contains("aof_last_write_status:err"));
    assert!(disks[1].counters().out_of_space > 0);
    leave(&disks[1], None);
    wait_for("it takes writes again", || {
        full.once(&["info", "persistence"]).contains("aof_last_write_status:ok")
    });
    ring.wait_for_copies();
    for key in &taken {
        assert_eq!(client.ask(&["get", key]).len(), value.len(), "{key}");
        // On a busy machine a copy may count as lost for a while.
        wait_for("it is written", || client.ask(&["set", key, "short"]) == "OK");
    }
    ring.stop();
}

#[test]
fn requests_of_many_slots_that_wait_for_a_copy_are_bounded_together() {
    let ring = Three::start(5_000_000);
    leave(&ring.disks[1], Some(0));
    let mut client = Client::of(&ring.nodes[0]);
    let (table, value) = (ring.group.table(), "x".repeat(1 << 20));
    let leads = |key: &String| {
        table.slot(atoll_replica::Slot(slot_of(key.as_bytes()).into())).primary == Some(NodeId(1))
    };
    let keys: Vec<_> = (0..).map(|number| format!("key{number}")).filter(leads).take(30).collect();
    // 16 of them fill the quarter of the memory that waiting requests may take.
    keys.iter().for_each(|key| client.send(&["set", key, &value]));
    let replies: Vec<_> = keys.iter().map(|_| client.receive()).collect();
    let done = replies.iter().filter(|reply| *reply == "OK").count();
    let refused = replies.iter().filter(|reply| reply.starts_with("-TRYAGAIN")).count();
    assert!((5..=17).contains(&done) && refused + done == 30, "{replies:?}");
    assert_eq!(client.ask(&["set", &keys[0], "value"]), "OK");
    leave(&ring.disks[1], None);
    ring.stop();
}

#[test]
fn a_node_whose_disk_has_no_room_for_a_keyspace_goes_on_and_has_it_when_there_is_room() {
    let ring = Three::start(1_000_000);
    let (mut client, mut full) = (Client::of(&ring.nodes[0]), Client::of(&ring.nodes[1]));
    let engine = &ring.nodes[1].engine;
    leave(&ring.disks[1], Some(0));
    // The log first uses up what it has reserved, to the last bytes.
    for bytes in [30_000, 1_000, 50, 5] {
        let mut names = (0..).map(|number: u32| format!("{number:0bytes$}"));
        wait_for("nothing more is taken", || engine.tree(&names.next().unwrap()).is_err());
    }
    let created = client.once(&["at.keyspace", "create", "scratch", "copies", "1"]);
    assert_eq!(created, "OK");
    wait_for("another one has it", || client.once(&["select", "1"]) == "OK");
    let refused = ring.disks[1].counters().out_of_space;
    wait_for("it was tried", || ring.disks[1].counters().out_of_space > refused);
    assert!(full.once(&["select", "1"]).starts_with('-'));
    assert_eq!(full.once(&["ping"]), "PONG");
    let mut said = 0;
    wait_for("it is silent to the group while that is tried", || {
        said = ring.at_work(1);
        let refused = ring.disks[1].counters().out_of_space;
        wait_for("it was tried again", || ring.disks[1].counters().out_of_space > refused + 5);
        ring.at_work(1) == said
    });
    leave(&ring.disks[1], None);
    wait_for("it is at work again", || ring.at_work(1) > said);
    wait_for("it has it as well", || full.once(&["select", "1"]) == "OK");
    ring.wait_for_copies_of_the_first();
    ring.stop();
}

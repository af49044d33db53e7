//! Whatever arrives at the address for nodes, from strangers and from peers that know the secret, no node
//! ends, memory stays bounded, and clients are served.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

#[path = "strangers/frames.rs"]
mod frames;
mod support;

use atoll_replica::{GroupOptions, NodeId, Options, Slot};
use atoll_ring::{LocalGroup, Node, NodeAddress, NodeOptions, Others, Token};
use fastrand::Rng;
use frames::{TOKEN, damaged, framed, greeting, said};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::Client;

/// The number of a ring whose group is of one process.
const RING: u64 = 0;

const LONG: Duration = Duration::from_secs(60);

/// Memory is measured for the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

struct Ring {
    group: LocalGroup,
    nodes: Vec<Option<Node>>,
    _alone: MutexGuard<'static, ()>,
}

impl Ring {
    fn start() -> Self {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let options = GroupOptions { slots: 16_384, copies: 3 };
        let group = LocalGroup::start(options, Duration::from_millis(300)).unwrap();
        let mut ring = Self { group, nodes: vec![None, None, None], _alone };
        (1..=3).for_each(|node| ring.begin(node));
        ring.wait_for_three();
        ring
    }

    fn begin(&mut self, node: u32) {
        let listen = "127.0.0.1:0".parse().unwrap();
        let group = Arc::new(self.group.clone());
        // A store in memory is another one each time: its node is known by where clients reach it.
        let table = self.group.table();
        let before = table.members.get(&NodeId(node));
        let for_clients = before.map_or(listen, |member| member.address.for_clients().parse().unwrap());
        // A machine that is busy with other tests must not make a copy count as lost.
        let options = Options { suspect_us: 20_000_000, ..Options::default() };
        let others = Others { me: NodeId(node), listen, group, options };
        let token = Token::new(TOKEN);
        let others = Some(others);
        let options = NodeOptions { listen: for_clients, token, others, ..NodeOptions::default() };
        self.nodes[node as usize - 1] = Some(Node::start(options).unwrap());
    }

    fn wait_for_three(&self) {
        let are_there = self.group.wait(LONG, |table| {
            table.slots.iter().all(|slot| slot.in_sync.len() == 3 && slot.primary.is_some())
        });
        assert!(are_there, "{:?}", self.group.table().members);
    }

    /// A connection dialled as by another node, on which nothing was sent yet.
    fn dial(&self, node: u32) -> TcpStream {
        let address: NodeAddress = self.group.table().members[&NodeId(node)].address.parse().unwrap();
        let socket = TcpStream::connect((address.peers.host.as_str(), address.peers.port)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }

    /// A greeting to one node in the name of another one, with that one's incarnation.
    fn greeting_of(&self, node: u32, to: u32) -> Vec<u8> {
        greeting(node, self.life_of(node), RING, to, TOKEN)
    }

    fn life_of(&self, node: u32) -> u64 {
        self.group.table().incarnation(NodeId(node)).unwrap().0
    }

    /// Each node answers, and a write and a read of a key succeed.
    fn serves(&self, key: &str) {
        for node in self.nodes.iter().flatten() {
            let mut client = Client::connect(node.address());
            assert_eq!(client.say(&format!("AUTH {}", std::str::from_utf8(TOKEN).unwrap())), "OK");
            assert_eq!(client.say("PING"), "PONG");
        }
        let leads = self.group.table().slot(slot_of(key)).primary.unwrap().0;
        let address = self.nodes[leads as usize - 1].as_ref().unwrap().address();
        let mut client = Client::connect(address);
        client.say(&format!("AUTH {}", std::str::from_utf8(TOKEN).unwrap()));
        assert_eq!(
            (client.say(&format!("SET {key} 1")), client.say(&format!("GET {key}"))),
            ("OK".into(), "1".into())
        );
    }
}

fn slot_of(key: &str) -> Slot {
    Slot(atoll_keyspace::slot_of(key.as_bytes()).into())
}

/// Whether the other side ends the connection without sending anything.
fn is_ended(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 16]) {
        Ok(count) => count == 0,
        Err(error) => matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
    }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn who_does_not_greet_as_a_node_of_the_ring_is_not_listened_to() {
    let ring = Ring::start();
    let right = ring.greeting_of(2, 1);
    let mut huge = framed(&right);
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    for (what, bytes) in [
        ("no frame", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(4)),
        ("a frame of gigabytes", huge),
        ("a frame that is too long for a greeting", framed(&[7; 4096])),
        ("a message before the greeting", framed(&said(0)[0])),
        ("no token", framed(&greeting(2, 1, RING, 1, b""))),
        ("a token that is nearly right", framed(&greeting(2, 1, RING, 1, b"0123456789abcdeg"))),
        ("a token with something behind it", framed(&greeting(2, 1, RING, 1, b"0123456789abcdef0"))),
        ("the number of the node itself", framed(&ring.greeting_of(1, 1))),
        ("one who means another node", framed(&ring.greeting_of(2, 3))),
        ("one of another ring", framed(&greeting(2, ring.life_of(2), 77, 1, TOKEN))),
        ("another version", framed(&[b"ATOLLPR2", &right[8..]].concat())),
        ("the last version", framed(&[b"ATOLLPR3", &right[8..20], TOKEN].concat())),
    ] {
        let mut socket = ring.dial(1);
        // The node may have ended it already.
        let _ = socket.write_all(&bytes);
        assert!(is_ended(&mut socket), "{what}");
        ring.serves("k");
    }
}

#[test]
fn a_thousand_who_say_nothing_or_little_keep_no_node_out_and_are_let_go() {
    let mut ring = Ring::start();
    let before = resident_bytes();
    let greeting = framed(&ring.greeting_of(2, 1));
    let mut silent = Vec::new();
    for at in 0..1_000 {
        let mut socket = ring.dial(1);
        if at % 2 == 0 {
            // Half a greeting, and then silence.
            let _ = socket.write_all(&greeting[..at % greeting.len()]);
        }
        // Connections that the node has dropped need not be kept here.
        silent.push(socket);
        if silent.len() > 200 {
            assert!(is_ended(&mut silent.remove(0)), "the first of too many is let go");
        }
    }
    ring.serves("k");
    ring.nodes[2].take().unwrap().stop().unwrap();
    ring.begin(3);
    ring.wait_for_three();
    ring.serves("l");
    silent.iter_mut().for_each(|socket| assert!(is_ended(socket), "who says nothing is let go in time"));
    let grown = resident_bytes().saturating_sub(before);
    println!("1,000 silent connections: {grown} bytes more are resident");
    assert!(grown < 128 << 20, "{grown}");
}

#[test]
fn lengths_of_gigabytes_and_counts_of_billions_from_one_who_knows_the_secret_take_no_memory() {
    let ring = Ring::start();
    // The beginning of the longest possible frame, the rest of which never comes.
    let longest = framed(&vec![0; (80 << 20) - 24])[..1_000].to_vec();
    let before = resident_bytes();
    for round in 0..50 {
        let mut socket = ring.dial(1);
        socket.write_all(&framed(&ring.greeting_of(2, 1))).unwrap();
        let bytes = if round % 2 == 0 {
            longest.clone()
        } else {
            let (mut claims, count_at) = (said(round)[0].clone(), 1 + 4 + 8 + 16 + 8);
            claims[count_at..count_at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            framed(&claims)
        };
        let _ = socket.write_all(&bytes);
        if round % 2 == 1 {
            assert!(is_ended(&mut socket), "a count of billions");
        }
    }
    ring.serves("k");
    let grown = resident_bytes().saturating_sub(before);
    println!("50 claims of gigabytes: {grown} bytes more are resident");
    assert!(grown < 128 << 20, "{grown}");
}

#[test]
fn nonsense_of_one_who_knows_the_secret_ends_no_node() {
    let ring = Ring::start();
    let before = resident_bytes();
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let (from, to) = [(1, 2), (2, 1), (3, 1)][random.usize(..3)];
        let mut bytes = framed(&ring.greeting_of(from, to));
        let table = ring.group.table();
        // False messages are about slots that are not read below.
        let mut slots = (0..100).filter(|slot| table.slot(Slot(*slot)).primary == Some(NodeId(from)));
        let slot = slots.nth(random.usize(..5)).unwrap_or(random.u32(..));
        for message in said(slot.into()) {
            bytes.extend(framed(&damaged(message, &mut random)));
        }
        let mut socket = ring.dial(to);
        let _ = socket.write_all(&bytes);
        drop(socket);
        if seed % 50 == 49 {
            println!("seed {seed}");
            ring.serves("k");
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("300 liars: {grown} bytes more are resident");
    assert!(grown < 128 << 20, "{grown}");
}

//! Three nodes in one process, with real sockets between them: acknowledged writes survive the death of any
//! node.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use atoll_replica::{GroupOptions, NodeId, Options};
use atoll_resp::{Limits, ReplyParser, Value, write_request};
use atoll_ring::{ConnectionLimits, LocalGroup, Node, NodeOptions, Others, Persistence, SlotStorage};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Three nodes at a time are enough for two processors.
static ALONE: Mutex<()> = Mutex::new(());

/// A client that follows redirections.
struct Client {
    connections: BTreeMap<String, TcpStream>,
    address: String,
    seeds: Vec<String>,
    /// The request with which each connection begins.
    greeting: Option<[&'static str; 2]>,
}

impl Client {
    fn new(seeds: impl Iterator<Item = SocketAddr>) -> Self {
        let seeds: Vec<_> = seeds.map(|address| address.to_string()).collect();
        Self { connections: BTreeMap::new(), address: seeds[0].clone(), seeds, greeting: None }
    }

    /// A client in another keyspace, which the nodes may not know of yet.
    fn entering(keyspace: &'static str, seeds: impl Iterator<Item = SocketAddr>) -> Self {
        Self { greeting: Some(["SELECT", keyspace]), ..Self::new(seeds) }
    }

    fn once(&mut self, address: &str, arguments: &[&str]) -> std::io::Result<Value> {
        if !self.connections.contains_key(address) {
            let socket = TcpStream::connect(address)?;
            socket.set_read_timeout(Some(LONG))?;
            self.connections.insert(address.to_owned(), socket);
            if let Some(greeting) = self.greeting.take() {
                let greeted = self.once(address, &greeting);
                self.greeting = Some(greeting);
                if !matches!(greeted?, Value::Simple(_)) {
                    return Err(std::io::ErrorKind::NotConnected.into());
                }
            }
        }
        let socket = self.connections.get_mut(address).unwrap();
        let mut request = Vec::new();
        write_request(&mut request, arguments);
        socket.write_all(&request)?;
        let (mut parser, mut received) = (ReplyParser::new(Limits::default()), Vec::new());
        loop {
            let (read, reply) = parser.parse(&received).expect("a reply");
            received.drain(..read);
            if let Some(reply) = reply {
                return Ok(reply);
            }
            let mut room = [0; 4096];
            match socket.read(&mut room)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                count => received.extend_from_slice(&room[..count]),
            }
        }
    }

    /// Asks until a node answers. The caller has to consider that the request may be done twice.
    fn ask(&mut self, arguments: &[&str]) -> Value {
        let started = std::time::Instant::now();
        loop {
            let address = self.address.clone();
            let reply = self.once(&address, arguments);
            match reply {
                Ok(Value::Error(text)) => {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    match text.strip_prefix("MOVED ").and_then(|rest| rest.split(' ').nth(1)) {
                        Some(address) => self.address = address.to_owned(),
                        None if ["CLUSTERDOWN", "UNKNOWN", "LOADING"]
                            .iter()
                            .any(|word| text.starts_with(word)) =>
                        {
                            std::thread::yield_now();
                        }
                        None => return Value::Error(text.into_bytes()),
                    }
                }
                Ok(reply) => return reply,
                Err(_) => {
                    self.connections.remove(&address);
                    self.seeds.rotate_left(1);
                    self.address = self.seeds[0].clone();
                }
            }
            assert!(started.elapsed() < LONG, "nobody answers {arguments:?}");
        }
    }
}

struct Ring {
    group: LocalGroup,
    nodes: BTreeMap<u32, Node>,
    places: BTreeMap<u32, SlotStorage>,
    persistence: Persistence,
    memory_bytes: u64,
    limits: ConnectionLimits,
    _alone: MutexGuard<'static, ()>,
}

impl Ring {
    fn start(places: Vec<SlotStorage>, persistence: Persistence) -> Self {
        Self::start_with(places, persistence, 64 << 20, ConnectionLimits::default())
    }

    fn start_with(
        places: Vec<SlotStorage>,
        persistence: Persistence,
        memory_bytes: u64,
        limits: ConnectionLimits,
    ) -> Self {
        let options = GroupOptions { slots: 16_384, copies: 3 };
        let group = LocalGroup::start(options, Duration::from_millis(300)).unwrap();
        let places = (1..).zip(places).collect();
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = BTreeMap::new();
        let mut ring = Self { group, nodes, places, persistence, memory_bytes, limits, _alone };
        (1..=3).for_each(|node| ring.begin(node));
        ring.wait_for_copies(3);
        ring
    }

    fn begin(&mut self, node: u32) {
        let others = Others {
            me: NodeId(node),
            listen: "127.0.0.1:0".parse().unwrap(),
            group: Arc::new(self.group.clone()),
            // A machine that is busy with other tests must not make a copy count as lost.
            options: Options { suspect_us: 20_000_000, ..Options::default() },
        };
        // A store in memory is another one each time: its node is known by where clients reach it.
        let place = self.places[&node].clone();
        let table = self.group.table();
        let before = table.members.get(&NodeId(node)).filter(|_| matches!(place, SlotStorage::Memory));
        let listen = before.map_or("127.0.0.1:0".to_owned(), |member| member.address.for_clients());
        let options = NodeOptions {
            listen: listen.parse().unwrap(),
            place,
            persistence: self.persistence,
            memory_bytes: self.memory_bytes,
            limits: self.limits.clone(),
            others: Some(others),
            metrics: Some("127.0.0.1:0".parse().unwrap()),
            ..NodeOptions::default()
        };
        self.nodes.insert(node, Node::start(options).unwrap());
    }

    /// Waits until every slot has this many in-sync copies and a primary.
    fn wait_for_copies(&self, copies: usize) {
        let there = self.group.wait(LONG, |table| {
            table.slots.iter().all(|slot| slot.in_sync.len() == copies && slot.primary.is_some())
        });
        let table = self.group.table();
        assert!(there, "{:?} {:?}", table.members, table.slots.get(0));
    }

    fn wait_for(&self, is_there: impl Fn(&atoll_replica::Table) -> bool) {
        assert!(self.group.wait(LONG, is_there), "{:?}", self.group.table().members);
    }

    fn client(&self) -> Client {
        Client::new(self.nodes.values().map(Node::address))
    }

    fn end(&mut self, node: u32) {
        self.nodes.remove(&node).unwrap().stop().unwrap();
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(bytes) | Value::Simple(bytes) | Value::Error(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        other => format!("{other:?}"),
    }
}

fn fill(client: &mut Client, from: u32, to: u32) {
    for number in from..to {
        let (key, value) = (format!("key{number}"), format!("value{number}"));
        assert_eq!(text(&client.ask(&["set", &key, &value])), "OK");
    }
}

fn check(client: &mut Client, to: u32) {
    for number in 0..to {
        let reply = client.ask(&["get", &format!("key{number}")]);
        assert_eq!(text(&reply), format!("value{number}"), "key{number}");
    }
}

/// Does a write once, however often it has to be sent. Returns the reply.
fn once_of_all(client: &mut Client, number: u32, write: &[&str]) -> Value {
    let reply = client.ask(&[&["at.id", "a", &(number + 1).to_string(), "0"], write].concat());
    match reply {
        Value::Array(told) if told.len() == 2 => told[1].clone(),
        other => panic!("{write:?}: {}", text(&other)),
    }
}

#[test]
fn what_was_acknowledged_is_there_when_a_node_is_gone_and_when_it_is_back() {
    let mut ring = Ring::start(vec![SlotStorage::Memory; 3], Persistence::Off);
    let mut client = ring.client();
    fill(&mut client, 0, 300);
    ring.end(2);
    let mut client = ring.client();
    check(&mut client, 300);
    fill(&mut client, 300, 400);
    ring.begin(2);
    ring.wait_for_copies(3);
    ring.end(1);
    let mut client = ring.client();
    check(&mut client, 400);
}

#[test]
fn a_key_is_counted_by_the_node_that_leads_it_and_waiting_tells_how_many_more_have_it() {
    let ring = Ring::start(vec![SlotStorage::Memory; 3], Persistence::Off);
    let mut client = ring.client();
    for number in 0..50 {
        assert_eq!(text(&client.ask(&["set", &format!("key{number}"), "value"])), "OK");
    }
    let asked = |words: &[&str]| -> Vec<String> {
        let reply = |node: &Node| text(&Client::new([node.address()].into_iter()).ask(words));
        ring.nodes.values().map(reply).collect()
    };
    let number = |reply: &String| -> u64 {
        reply.trim_matches(|letter: char| !letter.is_ascii_digit()).parse().unwrap()
    };
    // While slots change hands, two nodes or none may count one.
    let started = std::time::Instant::now();
    while asked(&["dbsize"]).iter().map(number).sum::<u64>() != 50 {
        assert!(started.elapsed() < LONG, "{:?}", asked(&["dbsize"]));
    }
    assert_eq!(
        asked(&["wait", "1", "100"]),
        ["Integer(1)"; 3],
        "of two copies at least one is another node's"
    );
    let once = client.ask(&["at.keyspace", "create", "once", "copies", "1"]);
    assert_eq!(text(&once), "OK");
    let mut client = Client::entering("1", ring.nodes.values().map(Node::address));
    assert_eq!(text(&client.ask(&["wait", "1", "100"])), "Integer(0)");
}

/// The nodes to which a node has no connection, by its own report.
fn unreached_by(node: &Node) -> Vec<i64> {
    let mut client = Client::new([node.address()].into_iter());
    let Value::Array(status) = client.ask(&["at.ring", "status"]) else { panic!("no status") };
    let place = status.iter().position(|name| text(name) == "unreached").unwrap();
    let Value::Array(nodes) = &status[place + 1] else { panic!("{:?}", status[place + 1]) };
    let number = |node: &Value| match node {
        Value::Integer(node) => *node,
        other => panic!("{other:?}"),
    };
    nodes.iter().map(number).collect()
}

#[test]
fn the_version_of_the_table_that_one_node_names_is_the_same_at_all_of_them() {
    let mut ring = Ring::start(vec![SlotStorage::Memory; 3], Persistence::Off);
    for left in [vec![1_u32, 2, 3], vec![2, 3]] {
        let nodes: Vec<String> = left.iter().map(|node| ring.nodes[node].address().to_string()).collect();
        let mut client = ring.client();
        let mut ask = |node: &str, arguments: &[&str]| match client.once(node, arguments).unwrap() {
            Value::Array(pairs) => pairs,
            other => panic!("{other:?}"),
        };
        let started = std::time::Instant::now();
        // While the table changes, one node knows more than another, and at first nobody leads anything.
        loop {
            let told = ask(&nodes[0], &["AT.TABLE"]);
            let version = text(&told[1]);
            let others: Vec<_> = nodes[1..].iter().map(|node| ask(node, &["AT.TABLE", &version])).collect();
            let is_known = |pairs: &Vec<Value>| pairs[1] == told[1] && pairs[3] == Value::Null;
            if told[5] != Value::Array(Vec::new()) && others.iter().all(is_known) {
                break;
            }
            assert!(started.elapsed() < LONG, "{told:?} {others:?}");
        }
        if left.len() == 3 {
            ring.end(1);
            ring.wait_for_copies(2);
        }
    }
}

#[test]
fn a_node_says_to_whom_it_has_no_connection() {
    let mut ring = Ring::start(vec![SlotStorage::Memory; 3], Persistence::Off);
    let started = std::time::Instant::now();
    // Empty slots have their copies before any node has talked to another.
    while !unreached_by(&ring.nodes[&1]).is_empty() || !unreached_by(&ring.nodes[&3]).is_empty() {
        assert!(started.elapsed() < LONG, "{:?}", unreached_by(&ring.nodes[&1]));
    }
    // The metrics are at most a second old, and may be from before the nodes talked.
    let tells_of = |ring: &Ring, node: u8| {
        let told = format!("atoll_ring_node_unreached{{node=\"{node}\"}} 1");
        ring.nodes[&1].metrics_text().contains(&told)
    };
    while tells_of(&ring, 2) || tells_of(&ring, 3) {
        assert!(started.elapsed() < LONG, "{}", ring.nodes[&1].metrics_text());
    }
    ring.end(2);
    let started = std::time::Instant::now();
    while unreached_by(&ring.nodes[&1]) != [2] || unreached_by(&ring.nodes[&3]) != [2] {
        assert!(started.elapsed() < LONG, "{:?}", unreached_by(&ring.nodes[&1]));
    }
    while !tells_of(&ring, 2) {
        assert!(started.elapsed() < LONG, "{}", ring.nodes[&1].metrics_text());
    }
    assert!(!tells_of(&ring, 3));
}

#[test]
fn a_total_outage_loses_nothing_that_was_acknowledged_and_outlives_the_process() {
    for persistence in [Persistence::Always, Persistence::EverySecond] {
        let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let places = folders.iter().map(|folder| SlotStorage::Folder(folder.path().to_owned())).collect();
        let mut ring = Ring::start(places, persistence);
        fill(&mut ring.client(), 0, 100);
        (1..=3).for_each(|node| ring.end(node));
        (1..=3).for_each(|node| ring.begin(node));
        ring.wait_for_copies(3);
        let mut client = ring.client();
        check(&mut client, 100);
        fill(&mut client, 100, 120);
        check(&mut client, 120);
    }
}

#[test]
fn the_largest_value_and_the_largest_request_are_written_and_end_no_node() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let places = folders.iter().map(|folder| SlotStorage::Folder(folder.path().to_owned())).collect();
    let limits = ConnectionLimits::default();
    let mut ring = Ring::start_with(places, Persistence::EverySecond, 256 << 20, limits);
    let mut client = ring.client();
    // The largest value of the contract, as `ring://` writes it: the entry of the log is longer than a value.
    let largest = "v".repeat(64 << 20);
    let write = ["at.batch", "{k}hash", "put", "field", &largest];
    assert_eq!(text(&once_of_all(&mut client, 0, &write)), "OK");
    // All arguments together may have somewhat more than 72 MiB, of which the longest one has 64 MiB.
    let rest = Limits::AUTHENTICATED.total_bytes - 64 - largest.len();
    let request = ["mset", "{k}one", &largest[9..], "{k}two", &largest[..rest]];
    assert_eq!(text(&client.ask(&request)), "OK");
    let check = |client: &mut Client| {
        assert_eq!(client.ask(&["hstrlen", "{k}hash", "field"]), Value::Integer(64 << 20));
        assert_eq!(client.ask(&["strlen", "{k}one"]), Value::Integer((64 << 20) - 9));
        assert_eq!(client.ask(&["strlen", "{k}two"]), Value::Integer(rest as i64));
        assert_eq!(text(&client.ask(&["getrange", "{k}one", "-3", "-1"])), "vvv");
    };
    check(&mut client);
    // A node that had ended would say so here.
    (1..=3).for_each(|node| ring.end(node));
    (1..=3).for_each(|node| ring.begin(node));
    ring.wait_for_copies(3);
    check(&mut ring.client());
}

#[test]
fn after_a_total_outage_each_keyspace_has_what_its_own_writes_survive() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let places = folders.iter().map(|folder| SlotStorage::Folder(folder.path().to_owned())).collect();
    // What the nodes do for the first keyspace outlives nothing.
    let mut ring = Ring::start(places, Persistence::Off);
    let mut first = ring.client();
    for (name, class) in [("flushed", "flushed"), ("synced", "synced")] {
        assert_eq!(text(&first.ask(&["at.keyspace", "create", name, "durability", class])), "OK");
    }
    let is_whole = |table: &atoll_replica::Table, slots: std::ops::Range<u32>| {
        let mut slots = slots.map(|slot| table.slot(atoll_replica::Slot(slot)));
        slots.all(|slot| slot.in_sync.len() == 3 && slot.primary.is_some())
    };
    ring.wait_for(|table| table.keyspace_count() == 3 && is_whole(table, 0..3 * 16_384));
    let entering = |ring: &Ring, keyspace: &'static str| {
        let addresses: Vec<_> = ring.nodes.values().map(Node::address).collect();
        Client::entering(keyspace, addresses.into_iter())
    };
    fill(&mut first, 0, 30);
    fill(&mut entering(&ring, "1"), 0, 30);
    fill(&mut entering(&ring, "2"), 0, 30);
    (1..=3).for_each(|node| ring.end(node));
    (1..=3).for_each(|node| ring.begin(node));
    ring.wait_for(|table| is_whole(table, 16_384..3 * 16_384));
    check(&mut entering(&ring, "1"), 30);
    check(&mut entering(&ring, "2"), 30);
    fill(&mut entering(&ring, "2"), 30, 40);
    let table = ring.group.table();
    let is_down = |slot: &u32| table.slot(atoll_replica::Slot(*slot)).primary.is_none();
    assert!((0..16_384).all(|slot| is_down(&slot)), "of the first one nobody has anything");
}

#[test]
fn appends_and_counters_happen_once_on_every_copy_whoever_leads() {
    let mut ring = Ring::start(vec![SlotStorage::Memory; 3], Persistence::Off);
    let mut client = ring.client();
    for number in 0..50 {
        let first = 3 * number;
        once_of_all(&mut client, first, &["incr", "counter"]);
        once_of_all(&mut client, first + 1, &["append", "{counter}text", "x"]);
        once_of_all(&mut client, first + 2, &["hset", "{counter}hash", "field", "value"]);
    }
    for node in [1, 2] {
        ring.end(node);
        ring.wait_for_copies(3 - node as usize);
        let mut client = ring.client();
        // With one copy left, writes are refused and everything can be read.
        assert_eq!(text(&client.ask(&["get", "counter"])), "50");
        assert_eq!(text(&client.ask(&["getex", "counter"])), "50", "it only reads");
        assert_eq!(client.ask(&["strlen", "{counter}text"]), Value::Integer(50));
        assert_eq!(text(&client.ask(&["hget", "{counter}hash", "field"])), "value");
    }
    let refused = ring.client().ask(&["set", "key", "value"]);
    assert!(text(&refused).contains("NOREPLICAS"), "{}", text(&refused));
}

/// Sends requests to the node that answered last, which leads the slot of all their keys, and reads what it
/// answers only then.
fn assert_answered(client: &mut Client, requests: &[u8], expected: &[Value]) {
    let socket = client.connections.get_mut(&client.address).unwrap();
    socket.write_all(requests).unwrap();
    let (mut parser, mut received) = (ReplyParser::new(Limits::default()), Vec::new());
    let (mut count, mut room) = (0, vec![0; 64 << 10]);
    while let Some(expected) = expected.get(count) {
        let (read, reply) = parser.parse(&received).expect("a reply");
        received.drain(..read);
        if let Some(reply) = reply {
            assert!(reply == *expected, "reply {count}");
            count += 1;
            continue;
        }
        let more = socket.read(&mut room).unwrap();
        assert!(more > 0, "the node closed the connection after {count} replies");
        received.extend_from_slice(&room[..more]);
    }
}

#[test]
fn what_many_writes_return_together_reaches_a_client_that_reads_it() {
    const KEYS: u32 = 64;
    let (unsent_bytes_pause, unsent_bytes_max) = (64 << 10, 2 << 20);
    let limits = ConnectionLimits { unsent_bytes_pause, unsent_bytes_max, ..ConnectionLimits::default() };
    let ring = Ring::start_with(vec![SlotStorage::Memory; 3], Persistence::Off, 256 << 20, limits);
    let mut client = ring.client();
    let value = "v".repeat(256 << 10);
    let mut requests = Vec::new();
    for number in 0..KEYS {
        let key = format!("{{k}}{number}");
        assert_eq!(text(&client.ask(&["set", &key, &value])), "OK");
        write_request(&mut requests, &["getdel", &key]);
    }
    let expected = vec![Value::String(value.into_bytes()); KEYS as usize];
    assert_answered(&mut client, &requests, &expected);
}

#[test]
fn what_many_reads_that_waited_answer_together_reaches_a_client_that_reads_it() {
    const KEYS: u32 = 64;
    let (unsent_bytes_pause, unsent_bytes_max) = (64 << 10, 2 << 20);
    let limits = ConnectionLimits { unsent_bytes_pause, unsent_bytes_max, ..ConnectionLimits::default() };
    let ring = Ring::start_with(vec![SlotStorage::Memory; 3], Persistence::Off, 256 << 20, limits);
    let mut client = ring.client();
    let value = "v".repeat(256 << 10);
    let mut requests = Vec::new();
    for number in 0..KEYS {
        let key = format!("{{k}}{number}");
        assert_eq!(client.ask(&["hset", &key, "a", &value]), Value::Integer(1));
        // Each read waits for the write before it, and all writes are committed together.
        write_request(&mut requests, &["hset", &key, "b", "1"]);
        write_request(&mut requests, &["hgetall", &key]);
    }
    let string = |text: &str| Value::String(text.as_bytes().to_vec());
    let hash = Value::Array(["a", &value, "b", "1"].map(string).to_vec());
    let expected: Vec<Value> = (0..KEYS).flat_map(|_| [Value::Integer(1), hash.clone()]).collect();
    assert_answered(&mut client, &requests, &expected);
}

#[test]
fn keys_go_when_their_time_is_over_on_every_copy() {
    let mut ring = Ring::start(vec![SlotStorage::Memory; 3], Persistence::Off);
    let mut client = ring.client();
    assert_eq!(text(&client.ask(&["set", "short", "value", "px", "1"])), "OK");
    assert_eq!(text(&client.ask(&["set", "long", "value", "ex", "1000"])), "OK");
    while client.ask(&["exists", "short"]) != Value::Integer(0) {}
    ring.end(1);
    let mut client = ring.client();
    assert_eq!(client.ask(&["exists", "short"]), Value::Integer(0));
    assert_eq!(text(&client.ask(&["get", "long"])), "value");
}

#[test]
fn batches_of_the_contract_are_the_same_on_every_copy() {
    let mut ring = Ring::start(vec![SlotStorage::Memory; 3], Persistence::Off);
    let mut client = ring.client();
    for number in 0..50 {
        let write = ["at.batch", "hash", "append", "log", "x", "put", &format!("{number:02}"), "v"];
        assert_eq!(text(&once_of_all(&mut client, number, &write)), "OK");
    }
    let refused = client.ask(&["at.batch", "hash", "ifabsent", "07", "delrange", "-", "+"]);
    let value = Value::String(b"v".to_vec());
    assert_eq!(refused, Value::Array(vec![Value::Integer(0), value, Value::Integer(1)]));
    ring.end(1);
    let mut client = ring.client();
    assert_eq!(text(&client.ask(&["at.get", "hash", "log"])), "x".repeat(50));
    let Value::Array(page) = client.ask(&["at.range", "hash", "-", "+", "rev", "limit", "20"]) else {
        panic!()
    };
    assert!(
        matches!(&page[..], [Value::Integer(1), Value::Array(entries)] if entries.len() == 60),
        "{page:?}"
    );
}

#[test]
fn keyspaces_have_copies_of_their_own_and_share_nothing() {
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let places = folders.iter().map(|folder| SlotStorage::Folder(folder.path().to_owned())).collect();
    let mut ring = Ring::start(places, Persistence::Always);
    let mut first = ring.client();
    fill(&mut first, 0, 50);
    assert_eq!(text(&first.ask(&["at.keyspace", "create", "scratch", "copies", "1"])), "OK");
    assert_eq!(text(&first.ask(&["at.keyspace", "create", "wide", "copies", "3", "minsync", "3"])), "OK");
    let copies = |of: &atoll_replica::Table, keyspace: u32| {
        let slots = (keyspace * 16_384..(keyspace + 1) * 16_384).map(atoll_replica::Slot);
        slots
            .map(|slot| of.slot(slot))
            .filter(|slot| slot.primary.is_some())
            .map(|slot| slot.in_sync.len())
            .min()
    };
    let there = ring.group.wait(LONG, |table| {
        table.keyspace_count() == 3 && (copies(table, 1), copies(table, 2)) == (Some(1), Some(3))
    });
    assert!(there, "{:?}", ring.group.table().keyspaces);
    let addresses: Vec<_> = ring.nodes.values().map(Node::address).collect();
    let mut scratch = Client::entering("1", addresses.iter().copied());
    let mut wide = Client::entering("2", addresses.iter().copied());
    assert_eq!(text(&scratch.ask(&["set", "key1", "scratch"])), "OK");
    assert_eq!(text(&wide.ask(&["set", "key1", "wide"])), "OK");
    check(&mut first, 50);
    // Two copies are enough in the first keyspace, and too few in the one where all three have to be in sync.
    ring.end(3);
    ring.wait_for(|table| copies(table, 0) == Some(2) && copies(table, 2) == Some(2));
    let addresses: Vec<_> = ring.nodes.values().map(Node::address).collect();
    let mut wide = Client::entering("2", addresses.iter().copied());
    let refused = wide.ask(&["set", "key1", "more"]);
    assert!(text(&refused).contains("NOREPLICAS"), "{}", text(&refused));
    // A node that had not learned of the end yet reports an unknown outcome, and the write is repeated.
    let left = text(&wide.ask(&["get", "key1"]));
    assert!(left == "wide" || left == "more", "{left}");
    fill(&mut ring.client(), 50, 60);
    // Everything is there when all nodes begin again.
    (1..=2).for_each(|node| ring.end(node));
    (1..=3).for_each(|node| ring.begin(node));
    ring.wait_for(|table| (0..3).map(|keyspace| copies(table, keyspace)).eq([Some(3), Some(1), Some(3)]));
    check(&mut ring.client(), 60);
    let addresses: Vec<_> = ring.nodes.values().map(Node::address).collect();
    assert_eq!(text(&Client::entering("1", addresses.iter().copied()).ask(&["get", "key1"])), "scratch");
    assert_eq!(text(&Client::entering("2", addresses.iter().copied()).ask(&["get", "key1"])), left);
}

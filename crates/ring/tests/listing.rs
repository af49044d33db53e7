//! Commands about many keys on a node of several: what they list is what a read would find, and what they
//! delete stays deleted. And waits there, once reads are refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod support;

use atoll_replica::{GroupOptions, NodeId, Options, Reads};
use atoll_resp::write_request;
use atoll_ring::{GroupDoor, GroupMember, Joining, LocalGroup, Node, NodeError, NodeOptions, Others};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::{Client, options, show};

const LONG: Duration = Duration::from_secs(60);

/// A group whose events do not reach one of its nodes once that is cut off.
struct Door {
    group: LocalGroup,
    is_cut_off: Arc<AtomicBool>,
}

impl GroupDoor for Door {
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError> {
        let (is_cut_off, on_event) = (Arc::clone(&self.is_cut_off), joining.on_event);
        let on_event = Arc::new(move |event| {
            if !is_cut_off.load(Ordering::SeqCst) {
                on_event(event);
            }
        });
        self.group.join(Joining { on_event, ..joining })
    }
}

/// Three nodes at a time are enough for two processors.
static ALONE: Mutex<()> = Mutex::new(());

struct Ring {
    nodes: Vec<Node>,
    is_first_cut_off: Arc<AtomicBool>,
    _alone: MutexGuard<'static, ()>,
}

fn three() -> Ring {
    three_by(Reads::default())
}

fn three_by(reads: Reads) -> Ring {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let group =
        LocalGroup::start(GroupOptions { slots: 16_384, copies: 3 }, Duration::from_secs(10)).unwrap();
    let is_first_cut_off = Arc::new(AtomicBool::new(false));
    let begin = |node: u32| {
        let is_cut_off = if node == 1 { Arc::clone(&is_first_cut_off) } else { Arc::default() };
        let others = Others {
            me: NodeId(node),
            listen: "127.0.0.1:0".parse().unwrap(),
            group: Arc::new(Door { group: group.clone(), is_cut_off }),
            // A machine that is busy with other tests must not make a copy count as lost.
            options: Options { suspect_us: 20_000_000, reads, ..Options::default() },
        };
        Node::start(NodeOptions { others: Some(others), memory_bytes: 64 << 20, ..options() }).unwrap()
    };
    let nodes = (1..=3).map(begin).collect();
    let is_there = group
        .wait(LONG, |table| table.slots.iter().all(|slot| slot.in_sync.len() == 3 && slot.primary.is_some()));
    assert!(is_there);
    Ring { nodes, is_first_cut_off, _alone }
}

/// A client of a node, and some keys that the node has accepted from it.
fn filled(node: &Node) -> (Client, Vec<String>) {
    let (mut client, started) = (Client::connect(node.address()), Instant::now());
    let mut taken = Vec::new();
    for number in 0.. {
        let key = format!("key{number}");
        let told = client.say(&format!("SET {key} value"));
        if told == "OK" {
            taken.push(key);
        }
        if taken.len() == 3 {
            break;
        }
        assert!(started.elapsed() < LONG, "{told}");
    }
    until_it_lists(&mut client);
    (client, taken)
}

/// Waits until a node lists all slots that it leads. Right after the start it may wait for promises of the
/// others in some of them.
fn until_it_lists(client: &mut Client) {
    let started = Instant::now();
    loop {
        let told = client.say("SCAN 0 COUNT 1000");
        if !told.starts_with('-') {
            return;
        }
        assert!(started.elapsed() < LONG, "{told}");
    }
}

fn slot_of(client: &mut Client, key: &str) -> String {
    client.say(&format!("CLUSTER KEYSLOT {key}"))
}

/// Requests that list keys, all but the first one those of a slot.
fn listings(slot: &str) -> [String; 4] {
    [
        "SCAN 0 COUNT 1000".to_owned(),
        format!("AT.SCAN {} COUNT 1000", slot.parse::<u64>().unwrap() << 32),
        format!("CLUSTER COUNTKEYSINSLOT {slot}"),
        format!("CLUSTER GETKEYSINSLOT {slot} 10"),
    ]
}

#[test]
fn a_node_that_is_cut_off_lists_no_keys() {
    let mut ring = three();
    let (mut client, keys) = filled(&ring.nodes[0]);
    let slot = slot_of(&mut client, &keys[0]);
    let asked = listings(&slot);
    for request in &asked {
        let told = client.say(request);
        assert!(!told.starts_with('-'), "{request}: {told}");
    }
    ring.is_first_cut_off.store(true, Ordering::SeqCst);
    ring.nodes.drain(1..).for_each(|node| node.stop().unwrap());
    // A read waits for the other copies, and is refused in the end.
    let started = Instant::now();
    while !client.say(&format!("GET {}", keys[0])).starts_with("-CLUSTERDOWN") {
        assert!(started.elapsed() < LONG);
    }
    for request in &asked {
        let told = client.say(request);
        assert!(told.starts_with("-CLUSTERDOWN"), "{request}: {told}");
    }
}

/// A key of a slot that a node leads, of a ring without keys.
fn led_key(client: &mut Client) -> String {
    let started = Instant::now();
    let mut numbers = 0..;
    loop {
        let key = format!("key{}", numbers.next().unwrap());
        let told = client.say(&format!("GET {key}"));
        if told == "nil" {
            return key;
        }
        assert!(started.elapsed() < LONG, "{told}");
    }
}

#[test]
fn a_node_without_keys_that_is_cut_off_says_neither_that_there_are_none_nor_that_it_deleted_all() {
    for reads in [Reads::Leases, Reads::Confirmed] {
        let mut ring = three_by(reads);
        let mut client = Client::connect(ring.nodes[0].address());
        let key = led_key(&mut client);
        until_it_lists(&mut client);
        let started = Instant::now();
        // With nothing to delete it makes sure of that, which may fail on a busy machine.
        while client.say("FLUSHALL") != "OK" {
            assert!(started.elapsed() < LONG);
        }
        ring.is_first_cut_off.store(true, Ordering::SeqCst);
        ring.nodes.drain(1..).for_each(|node| node.stop().unwrap());
        let started = Instant::now();
        while !client.say(&format!("GET {key}")).starts_with("-CLUSTERDOWN") {
            assert!(started.elapsed() < LONG);
        }
        let told = client.say("SCAN 0");
        assert!(told.starts_with("-CLUSTERDOWN"), "{reads:?}: {told}");
        // It may wait for the others for as long as a write does.
        client.send(&["FLUSHALL"]);
        client.socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut first = [0];
        let is_told = client.socket.peek(&mut first).is_ok_and(|count| count > 0);
        assert!(!is_told || first == *b"-", "{reads:?}: {}", char::from(first[0]));
        assert!(is_told || reads == Reads::Leases, "a question ends in time");
    }
}

#[test]
fn a_node_that_trusts_no_clock_lists_keys_as_soon_as_the_others_confirm_it_and_not_before() {
    let mut ring = three_by(Reads::Confirmed);
    let (mut client, keys) = filled(&ring.nodes[0]);
    let slot = slot_of(&mut client, &keys[0]);
    let asked = listings(&slot);
    for (place, request) in asked.iter().enumerate() {
        let started = Instant::now();
        // On a busy machine the others may not answer for a while.
        let told = loop {
            let told = client.say(request);
            if !told.starts_with("-CLUSTERDOWN") {
                break told;
            }
            assert!(started.elapsed() < LONG, "{request}: {told}");
        };
        let lists = match place {
            0 => !told.starts_with('-'),
            2 => told.parse::<u64>().is_ok_and(|count| count > 0),
            _ => told.contains(&keys[0]),
        };
        assert!(lists, "{request}: {told}");
    }
    // Each reply stays in its place, and behind the writes that came before it.
    let mut requests = Vec::new();
    write_request(&mut requests, &["SET", &keys[0], "other"]);
    write_request(&mut requests, &["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
    write_request(&mut requests, &["PING"]);
    client.socket.write_all(&requests).unwrap();
    let told: Vec<_> = (0..3).map(|_| show(&client.reply().unwrap())).collect();
    assert_eq!((told[0].as_str(), told[2].as_str()), ("OK", "PONG"), "{told:?}");
    ring.is_first_cut_off.store(true, Ordering::SeqCst);
    ring.nodes.drain(1..).for_each(|node| node.stop().unwrap());
    for request in &asked {
        let told = client.say(request);
        assert!(told.starts_with("-CLUSTERDOWN"), "{request}: {told}");
    }
}

#[test]
fn a_wait_at_a_node_that_is_cut_off_ends_as_a_read_would() {
    for reads in [Reads::Leases, Reads::Confirmed] {
        let mut ring = three_by(reads);
        let (mut client, keys) = filled(&ring.nodes[0]);
        let mut waits = Client::connect(ring.nodes[0].address());
        let wait = |waits: &mut Client, value: &str| {
            waits.send(&["AT.WAIT", "86400000", &keys[0], "AS", "STRING", "EQ", value]);
        };
        wait(&mut waits, "other");
        ring.is_first_cut_off.store(true, Ordering::SeqCst);
        if reads == Reads::Confirmed {
            // Longer than reads wait for copies that do not answer. These do, if not at once.
            std::thread::sleep(Duration::from_secs(7));
        }
        assert_eq!(client.say(&format!("SET {} other", keys[0])), "OK");
        assert_eq!(show(&waits.reply().unwrap()), "[1 other]");
        wait(&mut waits, "never");
        ring.nodes.drain(1..).for_each(|node| node.stop().unwrap());
        let told = show(&waits.reply().unwrap());
        assert!(told.starts_with("-CLUSTERDOWN the other copies"), "{told}");
    }
}

#[test]
fn what_is_written_right_before_all_is_deleted_is_deleted() {
    let ring = three();
    let (mut client, keys) = filled(&ring.nodes[0]);
    assert_eq!(client.say("FLUSHALL"), "OK");
    for key in &keys {
        let mut requests = Vec::new();
        write_request(&mut requests, &["SET", key, "value"]);
        write_request(&mut requests, &["FLUSHALL"]);
        write_request(&mut requests, &["GET", key]);
        client.socket.write_all(&requests).unwrap();
        let told: Vec<_> = (0..3).map(|_| show(&client.reply().unwrap())).collect();
        assert_eq!(told, ["OK", "OK", "nil"]);
    }
}

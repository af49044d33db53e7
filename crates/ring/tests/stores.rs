//! Acknowledged writes survive a stop, and the killing of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

mod support;

use atoll_errors::ErrorKind;
use atoll_replica::{Change, GroupOptions, Incarnation, NodeId, Options, Slot, Table};
use atoll_ring::{LocalGroup, Node, NodeError, NodeOptions, Others, Persistence, SlotStorage};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use support::{Client, options};

/// A free port of this machine.
const ANY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

fn on(folder: &Path, persistence: Persistence) -> NodeOptions {
    NodeOptions { place: SlotStorage::Folder(folder.to_owned()), persistence, ..options() }
}

#[test]
fn a_node_that_stopped_has_its_name_and_its_slots_again() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(on(folder.path(), Persistence::EverySecond)).unwrap();
    let name = node.name();
    let mut client = Client::connect(node.address());
    client.say("MSET {t}a 1 {t}b 2");
    client.say("HSET h f v");
    client.say("SET later 1 PX 100000000");
    node.stop().unwrap();
    assert!(client.is_ended());
    let node = Node::start(on(folder.path(), Persistence::EverySecond)).unwrap();
    assert_eq!(node.name(), name);
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("MGET {t}a {t}b {t}c"), "[1 2 nil]");
    assert_eq!(client.say("HGETALL h"), "[f v]");
    assert_eq!(client.say("DBSIZE"), "4");
    assert!(client.say("PTTL later").parse::<u64>().unwrap() > 90_000_000);
    assert_ne!(Node::start(options()).unwrap().name(), name);
}

#[test]
fn a_folder_has_one_node_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::start(on(folder.path(), Persistence::Always)).unwrap();
    let second = Node::start(on(folder.path(), Persistence::Always)).err().unwrap();
    assert!(matches!(second, NodeError::InUse { .. }), "{second}");
    assert_eq!(second.kind(), ErrorKind::Unavailable);
    drop(node);
    Node::start(on(folder.path(), Persistence::Always)).unwrap().stop().unwrap();
    // Nor the folder of a store of another kind, in which nothing is left behind.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("store.atoll"), "").unwrap();
    let refused = Node::start(on(&other, Persistence::Always)).err().unwrap();
    assert!(matches!(refused, NodeError::OfStore { .. }), "{refused}");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
    // A file is not a folder.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(Node::start(on(&file, Persistence::Always)), Err(NodeError::Folder { .. })));
}

#[test]
fn what_is_buffered_is_gone_with_the_node_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let lives = [Persistence::Off, Persistence::Off, Persistence::EverySecond, Persistence::EverySecond];
    for (life, persistence) in lives.into_iter().enumerate() {
        let node = Node::start(on(folder.path(), persistence)).unwrap();
        let mut client = Client::connect(node.address());
        let kept = if life == 3 { "v" } else { "nil" };
        assert_eq!(client.say("GET k"), kept, "life {life}");
        assert_eq!(client.say("DBSIZE"), if life == 3 { "1" } else { "0" }, "life {life}");
        client.say("SET k v");
        assert_eq!(client.say("SCAN 0"), "[0 [k]]", "life {life}");
        node.stop().unwrap();
    }
    let refused = Node::start(on(folder.path(), Persistence::Off)).err().unwrap();
    assert!(matches!(refused, NodeError::Kept), "{refused}");
    assert!(refused.hint().unwrap().contains("--durability flushed"));
}

#[test]
fn a_folder_of_a_node_alone_is_of_no_ring_and_one_of_a_ring_is_never_opened_alone() {
    let alone = tempfile::tempdir().unwrap();
    let options = |folder: &Path, is_of_ring: bool| {
        let shape = GroupOptions { slots: 16_384, copies: 1 };
        let group = LocalGroup::start(shape, Duration::from_millis(500)).unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let others = Others { me: NodeId(1), listen, group: Arc::new(group), options: Options::default() };
        NodeOptions { others: is_of_ring.then_some(others), ..on(folder, Persistence::EverySecond) }
    };
    let node = Node::start(options(alone.path(), false)).unwrap();
    assert_eq!(Client::connect(node.address()).say("APPEND k v"), "1");
    node.stop().unwrap();
    let refused = Node::start(options(alone.path(), true)).err().unwrap();
    assert!(matches!(refused, NodeError::OfNoRing), "{refused}");
    assert!(refused.hint().unwrap().contains("atoll kv export"));
    let node = Node::start(options(alone.path(), false)).unwrap();
    assert_eq!(Client::connect(node.address()).say("GET k"), "v");
    let of_ring = tempfile::tempdir().unwrap();
    Node::start(options(of_ring.path(), true)).unwrap().stop().unwrap();
    let refused = Node::start(options(of_ring.path(), false)).err().unwrap();
    assert!(matches!(refused, NodeError::OfRing { kept: 1 }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    Node::start(options(of_ring.path(), true)).unwrap().stop().unwrap();
}

/// The reply, once the slot is served.
fn until_served(node: &Node, words: &str) -> String {
    let mut client = Client::connect(node.address());
    loop {
        let said = client.say(words);
        if !["CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS"].iter().any(|refused| said.contains(refused)) {
            return said;
        }
    }
}

fn ring() -> Arc<LocalGroup> {
    let shape = GroupOptions { slots: 16_384, copies: 1 };
    Arc::new(LocalGroup::start(shape, Duration::from_millis(500)).unwrap())
}

/// The only node of a ring, at this address for clients.
fn start_at(listen: SocketAddr, group: &Arc<LocalGroup>, folder: &Path) -> Result<Node, NodeError> {
    start_as(1, listen, group, folder)
}

/// A node of a ring with this number.
fn start_as(
    number: u32,
    listen: SocketAddr,
    group: &Arc<LocalGroup>,
    folder: &Path,
) -> Result<Node, NodeError> {
    let group = Arc::clone(group);
    let options = Options { in_sync_min: 1, ..Options::default() };
    let others = Others { me: NodeId(number), listen: ANY, group, options };
    Node::start(NodeOptions { listen, others: Some(others), ..on(folder, Persistence::EverySecond) })
}

/// The only node of a ring, where it was before.
fn start_in(group: &Arc<LocalGroup>, folder: &Path) -> Result<Node, NodeError> {
    let table = group.table();
    let before = table.members.get(&NodeId(1));
    start_at(before.map_or(ANY, |member| member.address.for_clients().parse().unwrap()), group, folder)
}

#[test]
fn a_folder_of_a_node_of_one_ring_is_refused_in_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = ring();
    for expected in ["1", "2"] {
        let node = start_in(&first, folder.path()).unwrap();
        assert_eq!(until_served(&node, "APPEND k v"), expected);
        node.stop().unwrap();
    }
    let another = ring();
    let refused = start_in(&another, folder.path()).err().expect("it is of the first one");
    assert!(matches!(refused, NodeError::OtherRing), "{refused}");
    assert!(refused.hint().unwrap().contains("another folder"));
    assert!(another.table().members.is_empty(), "it has said nothing of what it has");
    let node = start_in(&first, folder.path()).unwrap();
    assert_eq!(until_served(&node, "GET k"), "vv");
    node.stop().unwrap();
}

#[test]
fn a_node_whose_folder_is_gone_does_not_say_that_it_has_everything() {
    let (folder, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let group = ring();
    let node = start_in(&group, folder.path()).unwrap();
    assert_eq!(until_served(&node, "APPEND k v"), "1");
    node.stop().unwrap();
    // Whoever is elsewhere and has no data of that node is another one, though it names the same number.
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = start_at(ANY, &group, elsewhere.path()).err().expect("it is of the first one");
    assert!(matches!(refused, NodeError::NumberTaken { number: 1, .. }), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.hint().unwrap().contains("atoll ring leave"));
    assert_eq!(group.table().incarnation(NodeId(1)), Some(Incarnation(1)));
    let node = start_in(&group, fresh.path()).unwrap();
    let is_back = |table: &Table| table.incarnation(NodeId(1)) == Some(Incarnation(2));
    assert!(group.wait(Duration::from_secs(20), is_back));
    assert!(group.table().slots.iter().all(|slot| slot.primary.is_none()), "nobody has what was there");
    node.stop().unwrap();
    // Once it is found, the loss of the rest may be accepted.
    let node = start_in(&group, folder.path()).unwrap();
    assert!(
        group.wait(Duration::from_secs(20), |table| table.incarnation(NodeId(1)) == Some(Incarnation(3)))
    );
    let slot = Client::connect(node.address()).say("CLUSTER KEYSLOT k").parse().unwrap();
    group.change(Change::Recover { slot: Slot(slot), seen: group.table().version });
    assert_eq!(until_served(&node, "GET k"), "v");
    node.stop().unwrap();
}

#[test]
fn a_new_node_that_comes_second_starts_again_under_the_next_number() {
    let (first, later) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let group = ring();
    let node = start_in(&group, first.path()).unwrap();
    let refused = start_at(ANY, &group, later.path()).err().expect("the first one has the number");
    assert!(matches!(refused, NodeError::NumberTaken { number: 1, .. }), "{refused}");
    let second = start_as(2, ANY, &group, later.path()).unwrap();
    // It has begun when it answers.
    assert_eq!(Client::connect(second.address()).say("PING"), "PONG");
    assert_eq!(group.table().incarnation(NodeId(2)), Some(Incarnation(1)));
    second.stop().unwrap();
    let refused = start_as(3, ANY, &group, later.path()).err().expect("it is that of node 2 by now");
    assert!(matches!(refused, NodeError::OtherNode { kept: 2, asked: 3 }), "{refused}");
    start_as(2, ANY, &group, later.path()).unwrap().stop().unwrap();
    node.stop().unwrap();
}

#[test]
fn an_address_that_is_taken_is_told() {
    let node = Node::start(options()).unwrap();
    let error = Node::start(NodeOptions { listen: node.address(), ..options() }).err().unwrap();
    assert!(matches!(error, NodeError::Listen { .. }), "{error}");
    assert!(error.hint().unwrap().contains("another port"));
}

/// The process that the test below starts and kills.
#[test]
fn a_node_to_be_killed() {
    // Without a folder it runs as an ordinary test, and has nothing to do.
    let Ok(folder) = std::env::var("RING_FOLDER") else { return };
    let persistence = match std::env::var("RING_PERSISTENCE").unwrap().as_str() {
        "always" => Persistence::Always,
        _ => Persistence::EverySecond,
    };
    let node = Node::start(on(Path::new(&folder), persistence)).unwrap();
    println!("\nLISTENS {}", node.address());
    loop {
        std::thread::park();
    }
}

fn start(folder: &Path, persistence: &str) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_node_to_be_killed", "--nocapture"])
        .env("RING_FOLDER", folder)
        .env("RING_PERSISTENCE", persistence)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address =
        lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("LISTENS ")?.parse().unwrap()));
    (child, address.unwrap())
}

#[test]
fn what_was_acknowledged_survives_the_process_being_killed() {
    for persistence in ["everysec", "always"] {
        let folder = tempfile::tempdir().unwrap();
        let mut last = 0;
        for round in 0..5 {
            let (mut child, address) = start(folder.path(), persistence);
            let mut client = Client::connect(address);
            let found: u64 = match client.say("GET count").as_str() {
                "nil" => 0,
                count => count.parse().unwrap(),
            };
            assert!(found >= last, "{persistence}, round {round}: {found} of {last}");
            for _ in 0..200 {
                last = client.say("INCR count").parse().unwrap();
            }
            // Half a pipeline is under way when it is killed.
            for _ in 0..50 {
                client.send(&["INCR", "count"]);
            }
            child.kill().unwrap();
            // One that ended by itself before is no kill.
            let ended = child.wait().unwrap();
            assert_eq!(ended.signal(), Some(9), "{persistence}, round {round}: {ended}");
        }
    }
}

#[test]
fn each_keyspace_survives_the_process_being_killed_as_its_own_durability_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut last = [0; 3];
    for round in 0..4 {
        let (mut child, address) = start(folder.path(), "everysec");
        let mut client = Client::connect(address);
        for rules in ["synced DURABILITY synced", "buffered DURABILITY buffered"] {
            assert_eq!(client.say(&format!("AT.KEYSPACE CREATE {rules}")), "OK");
        }
        for (keyspace, last) in last.iter_mut().enumerate() {
            assert_eq!(client.say(&format!("SELECT {keyspace}")), "OK");
            let found: u64 = match client.say("GET count").as_str() {
                "nil" => 0,
                count => count.parse().unwrap(),
            };
            match keyspace {
                2 => assert_eq!(found, 0, "round {round}: what was buffered is gone"),
                _ => assert!(found >= *last, "round {round}, keyspace {keyspace}: {found} of {last}"),
            }
            for _ in 0..50 {
                *last = client.say("INCR count").parse().unwrap();
            }
        }
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.signal(), Some(9), "round {round}: {ended}");
    }
}

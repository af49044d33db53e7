//! What clients of a cluster learn: which node has which slots, and where the others are.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod support;

use atoll_keyspace::{SLOTS, slot_of};
use atoll_replica::{Configuration, Copies, Epoch, Member, NodeId, Table, Version};
use atoll_ring::{
    GroupDoor, GroupEvent, GroupMember, HostPort, Joining, LocalGroup, Node, NodeAddress, NodeError,
    NodeName, NodeOptions, Others, RingOptions, RingShape, SlotTable,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Client, node};

#[test]
fn a_node_alone_has_all_slots() {
    let node = node();
    let (name, port) = (node.name(), node.address().port());
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("CLUSTER MYID"), name.as_str());
    assert_eq!(client.say("CLUSTER SLOTS"), format!("[[0 16383 [127.0.0.1 {port} {name} []]]]"));
    assert_eq!(
        client.say("CLUSTER NODES"),
        format!("{name} 127.0.0.1:{port}@{port} myself,master - 0 0 1 connected 0-16383\\n")
    );
    let shards = client.say("CLUSTER SHARDS");
    assert!(shards.starts_with("[[slots [0 16383] nodes [[id "), "{shards}");
    let info = client.say("CLUSTER INFO");
    assert!(info.starts_with("cluster_state:ok\\r\\ncluster_slots_assigned:16384\\r\\n"), "{info}");
    assert_eq!(client.say("CLUSTER KEYSLOT foo"), "12182");
    assert_eq!(client.say("CLUSTER COUNTKEYSINSLOT 12182"), "0");
    client.say("SET foo 1");
    client.say("HSET {foo}h a 1 b 2");
    assert_eq!(client.say("CLUSTER COUNTKEYSINSLOT 12182"), "2");
    assert!(client.say("CLUSTER COUNTKEYSINSLOT 16384").starts_with("-ERR Invalid "));
    assert_eq!(client.say("DBSIZE"), "2");
    assert!(client.say("INFO keyspace").contains("db0:keys=2"));
    assert!(client.say("INFO").contains("cluster_enabled:1"));
    assert_eq!(client.say("CLUSTER GETKEYSINSLOT 12182 10"), "[foo {foo}h]");
    assert_eq!(client.say("CLUSTER GETKEYSINSLOT 12182 1"), "[foo]");
    assert_eq!(client.say("SCAN 0 TYPE hash"), "[0 [{foo}h]]");
    assert_eq!(client.say("FLUSHALL"), "OK");
    assert_eq!(client.say("DBSIZE"), "0");
    assert_eq!(client.say("GET foo"), "nil");
    assert_eq!(client.say("ASKING"), "OK");
}

/// This node has the lower half of all slots, another one the upper half except the last slot.
fn halves(own: NodeAddress, version: u64) -> Table {
    let mut table = Table::empty(SLOTS.into());
    table.version = Version(version);
    let other = NodeAddress {
        name: NodeName::new(&[b'7'; 40]).unwrap(),
        clients: HostPort { host: "10.1.2.3".to_owned(), port: 7000 },
        peers: HostPort { host: "10.1.2.3".to_owned(), port: 17000 },
    };
    for (id, address) in [(1, own), (2, other)] {
        let member = Member::new(address.to_string().into());
        table.members.insert(NodeId(id), member);
    }
    table.slots.change_each(|slot, configuration| {
        let slots = u32::from(SLOTS);
        let primary = (slot.0 < slots - 1).then_some(NodeId(1 + u32::from(slot.0 >= slots / 2)));
        let in_sync = Copies::of(primary.as_slice());
        *configuration = Configuration { epoch: Epoch(3), primary, in_sync, ..Configuration::default() };
    });
    table
}

#[test]
fn requests_for_slots_of_another_node_are_sent_there() {
    let node = node();
    let own = HostPort::from(node.address());
    let own = NodeAddress { name: node.name(), clients: own.clone(), peers: own };
    let mut client = Client::connect(node.address());
    assert_eq!(client.say("SET foo 1"), "OK");
    node.set_table(SlotTable::of(Arc::new(halves(own.clone(), 5)), NodeId(1)));
    for request in ["GET foo", "SET foo 2", "MGET {foo}a {foo}b", "HSET foo f v", "DEL foo", "TTL foo"] {
        assert_eq!(client.say(request), "-MOVED 12182 10.1.2.3:7000", "{request}");
    }
    assert!(slot_of(b"bar") < SLOTS / 2);
    assert_eq!(client.say("SET bar 1"), "OK");
    assert_eq!(client.say("MGET foo bar"), "-CROSSSLOT Keys in request don\\'t hash to the same slot");
    let orphan = (0..).map(|at| at.to_string()).find(|key| slot_of(key.as_bytes()) == SLOTS - 1).unwrap();
    assert_eq!(client.say(&format!("GET {orphan}")), "-CLUSTERDOWN Hash slot not served");
    assert!(
        client
            .say("CLUSTER SLOTS")
            .ends_with(&format!("[8192 16382 [10.1.2.3 7000 {} []]]]", "7".repeat(40)))
    );
    // An older table changes nothing.
    node.set_table(SlotTable::of(Arc::new(halves(own, 4)), NodeId(2)));
    assert_eq!(client.say("GET bar"), "1");
    assert!(client.say("INFO stats").contains("moved_replies:6"));
}

/// What a client is told that has the table at hand, or a later one.
fn nothing_new(version: &str) -> String {
    format!("[version {version} nodes nil slots nil]")
}

/// The version in what a node tells of its table.
fn version_of(told: &str) -> &str {
    told.strip_prefix("[version ").unwrap().split(' ').next().unwrap()
}

#[test]
fn who_has_the_table_at_hand_is_not_told_of_it_again() {
    let node = node();
    let port = node.address().port();
    let own = HostPort::from(node.address());
    let own = NodeAddress { name: node.name(), clients: own.clone(), peers: own };
    node.set_table(SlotTable::of(Arc::new(halves(own.clone(), 5)), NodeId(1)));
    let mut client = Client::connect(node.address());
    let told = client.say("AT.TABLE");
    let (of, number) = version_of(&told).rsplit_once('.').unwrap();
    assert_eq!(number, "5");
    let whole = |number: u64| {
        let nodes = format!("[[127.0.0.1 {port}] [10.1.2.3 7000]]");
        format!("[version {of}.{number} nodes {nodes} slots [0 8191 0 8192 16382 1]]")
    };
    assert_eq!(told, whole(5));
    assert_eq!(client.say(&format!("AT.TABLE {of}.5")), nothing_new(&format!("{of}.5")));
    assert_eq!(client.say(&format!("AT.TABLE {of}.4")), whole(5));
    // A client that has seen a later table does not go back to this one.
    assert_eq!(client.say(&format!("AT.TABLE {of}.6")), nothing_new(&format!("{of}.5")));
    node.set_table(SlotTable::of(Arc::new(halves(own, 6)), NodeId(1)));
    assert_eq!(client.say(&format!("AT.TABLE {of}.5")), whole(6));
    assert_eq!(client.say(&format!("AT.TABLE {of}.6")), nothing_new(&format!("{of}.6")));
    assert!(client.say("AT.TABLE 6").starts_with("-ERR a version is what AT.TABLE returned"));
    assert!(client.say("HELLO 3").contains("proto: 3"));
    assert_eq!(
        client.say(&format!("AT.TABLE {of}.6")),
        format!("{{version: {of}.6, nodes: nil, slots: nil}}")
    );
}

#[test]
fn a_version_of_another_ring_or_keyspace_says_nothing_about_this_table() {
    let (node, other) = (node(), node());
    let (mut client, mut stranger) = (Client::connect(node.address()), Client::connect(other.address()));
    client.say("AT.KEYSPACE CREATE scratch");
    stranger.say("AT.KEYSPACE CREATE scratch");
    let [here, there] = [client.say("AT.TABLE"), stranger.say("AT.TABLE")];
    let [(ring, number), (other_ring, same)] =
        [&here, &there].map(|told| version_of(told).rsplit_once('.').unwrap());
    assert!(ring != other_ring && number == same, "{here} {there}");
    assert_eq!(client.say(&format!("AT.TABLE {}", version_of(&here))), nothing_new(version_of(&here)));
    assert_eq!(client.say(&format!("AT.TABLE {}", version_of(&there))), here);
    assert_eq!(client.say("SELECT 1"), "OK");
    let scratch = client.say(&format!("AT.TABLE {}", version_of(&here)));
    assert!(scratch.ends_with(" slots [0 16383 0]]"), "{scratch}");
    assert_eq!(version_of(&scratch), format!("{}.1.{number}", ring.strip_suffix(".0").unwrap()));
}

#[test]
fn a_scan_meets_every_key_and_none_that_is_elsewhere() {
    let node = node();
    let mut client = Client::connect(node.address());
    let mut expected: Vec<String> = (0..3000).map(|at| format!("key-{at}")).collect();
    for key in &expected {
        client.send(&["SET", key, "1"]);
    }
    (0..3000).for_each(|_| drop(client.reply().unwrap()));
    let all = |client: &mut Client| {
        let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let page = client.say(&format!("SCAN {cursor} MATCH key-* COUNT 100"));
            let (next, some) = page.trim_start_matches('[').split_once(" [").unwrap();
            keys.extend(
                some.trim_end_matches(']').split(' ').filter(|key| !key.is_empty()).map(str::to_owned),
            );
            cursor = next.to_owned();
            if cursor == "0" {
                keys.sort_unstable();
                return keys;
            }
        }
    };
    expected.sort_unstable();
    assert_eq!(all(&mut client), expected);
    let own = HostPort::from(node.address());
    let own = NodeAddress { name: node.name(), clients: own.clone(), peers: own };
    node.set_table(SlotTable::of(Arc::new(halves(own, 5)), NodeId(1)));
    expected.retain(|key| slot_of(key.as_bytes()) < SLOTS / 2);
    assert_eq!(all(&mut client), expected);
}

#[test]
fn keys_go_when_their_time_is_over_whether_anybody_asks_for_them_or_not() {
    let node = node();
    let mut client = Client::connect(node.address());
    for at in 0..2000 {
        client.send(&["SET", &format!("key-{at}"), "1", "PX", "50"]);
    }
    (0..2000).for_each(|_| drop(client.reply().unwrap()));
    client.say("SET stays 1 PX 1000000");
    while client.say("DBSIZE") != "1" {}
    assert_eq!(client.say("GET stays"), "1");
    assert_eq!(client.say("SET soon 1 PX 1"), "OK");
    while client.say("GET soon") != "nil" {}
    let expired = client.say("INFO stats");
    assert!(expired.contains("expired_keys:2001"), "{expired}");
}

/// A group that sends a node these events as soon as it joins.
struct Saying(LocalGroup, &'static [GroupEvent]);

impl GroupDoor for Saying {
    fn join(&self, joining: Joining) -> Result<Box<dyn GroupMember>, NodeError> {
        let on_event = joining.on_event.clone();
        let joined = self.0.join(joining);
        self.1.iter().for_each(|event| on_event(event.clone()));
        joined
    }
}

#[test]
fn a_node_whose_part_in_the_configuration_failed_says_so_until_it_begins_again() {
    let group = LocalGroup::start(RingShape { slots: 16_384, copies: 1 }, Duration::from_secs(1)).unwrap();
    let start = |door: Arc<dyn GroupDoor>| {
        let any = "127.0.0.1:0".parse().unwrap();
        let others = Others { me: NodeId(1), listen: any, group: door, options: RingOptions::default() };
        // A store in memory is another one each time: its node is known by where clients reach it.
        let table = group.table();
        let before = table.members.get(&NodeId(1));
        let listen = before.map_or(any, |member| member.address.for_clients().parse().unwrap());
        let (others, metrics) = (Some(others), Some(any));
        Node::start(NodeOptions { listen, others, metrics, ..support::options() }).unwrap()
    };
    for (said, told) in [
        (&[GroupEvent::SeatLost][..], 1),
        (&[GroupEvent::SeatWaits(true)], 1),
        (&[GroupEvent::SeatWaits(true), GroupEvent::SeatWaits(false)], 0),
        (&[], 0),
    ] {
        let node = start(Arc::new(Saying(group.clone(), said)));
        let mut client = Client::connect(node.address());
        let began = Instant::now();
        // The event comes from another thread, and the metrics are at most a second old.
        let is_there = |client: &mut Client| {
            client.say("INFO cluster").contains(&format!("group_seat_lost:{told}"))
                && client.say("AT.RING STATUS").contains(&format!("group_seat_lost {told}"))
                && node.metrics_text().contains(&format!("atoll_ring_group_seat_lost {told}"))
        };
        while !is_there(&mut client) {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", client.say("AT.RING STATUS"));
        }
    }
}

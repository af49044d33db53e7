//! Watches at a node of several, where a watch begins as late as a read would be answered.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use atoll_replica::{GroupOptions, NodeId, Options};
use atoll_ring::{LocalGroup, Node, NodeOptions, Others};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Client, options, show};

const LONG: Duration = Duration::from_secs(60);

/// The only node so far of a ring that may have more of them, once it leads everything.
fn node() -> Node {
    let shape = GroupOptions { slots: 16_384, copies: 1 };
    let group = LocalGroup::start(shape, LONG).unwrap();
    let others = Others {
        me: NodeId(1),
        listen: "127.0.0.1:0".parse().unwrap(),
        group: Arc::new(group.clone()),
        options: Options { in_sync_min: 1, ..Options::default() },
    };
    let node = Node::start(NodeOptions { others: Some(others), ..options() }).unwrap();
    assert!(group.wait(LONG, |table| table.slots.iter().all(|slot| slot.primary.is_some())));
    let (mut client, asked_at) = (Client::connect(node.address()), Instant::now());
    while client.say("HSET k leads 1").starts_with('-') {
        assert!(asked_at.elapsed() < LONG, "the node does not lead");
    }
    node
}

/// Waits until the node has no watches.
fn wait_for_none(client: &mut Client) {
    let asked_at = Instant::now();
    while !client.say("INFO clients").contains("blocked_clients:0\\r") {
        assert!(asked_at.elapsed() < LONG, "a watch is left");
    }
}

#[test]
fn a_watch_is_ended_before_it_has_begun_and_the_next_one_with_its_id_is_not() {
    let node = node();
    let (mut waits, mut writes) = (Client::connect(node.address()), Client::connect(node.address()));
    assert!(waits.say("HELLO 3").contains("proto: 3"));
    for round in 0..20 {
        // In one packet: the first watch has not begun when it is ended.
        let lines = format!(
            "AT.WATCH 1 86400000 k f EQ a{round}\r\nAT.UNWATCH 1\r\nAT.WATCH 1 60000 k g EQ b{round}\r\n\
             AT.WATCH 2 86400000 k g EQ none\r\nAT.WATCH 2 86400000 k g EQ none\r\nAT.UNWATCH 2\r\n\
             AT.UNWATCH 2\r\n"
        );
        waits.socket.write_all(lines.as_bytes()).unwrap();
        for told in ["OK", "1", "OK", "OK", "OK", "2", "0"] {
            assert_eq!(show(&waits.reply().unwrap()), told);
        }
        writes.say(&format!("HSET k f a{round}"));
        writes.say(&format!("HSET k g b{round}"));
        assert_eq!(show(&waits.reply().unwrap()), format!("[at.watch 1 1 b{round}]"));
    }
    assert_eq!(waits.say("PING"), "PONG");
    wait_for_none(&mut writes);
}

#[test]
fn who_goes_back_to_a_version_without_pushes_has_no_watch_that_begins_late() {
    let node = node();
    let (mut waits, mut writes) = (Client::connect(node.address()), Client::connect(node.address()));
    assert!(waits.say("HELLO 3").contains("proto: 3"));
    let lines = b"AT.WATCH 1 60000 k f PRESENT\r\nHELLO 2\r\nHELLO 3\r\nAT.UNWATCH 1\r\n";
    waits.socket.write_all(lines).unwrap();
    let told: Vec<_> = (0..4).map(|_| show(&waits.reply().unwrap())).collect();
    assert_eq!((told[0].as_str(), told[3].as_str()), ("OK", "0"), "{told:?}");
    writes.say("HSET k f v");
    assert_eq!(waits.say("PING"), "PONG");
    wait_for_none(&mut writes);
}

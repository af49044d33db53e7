//! Watches on fields at one node.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod support;

use atoll_ring::{Node, NodeOptions, SlotStorage};
use std::io::Write;
use std::time::{Duration, Instant};
use support::{Client, node, show};

struct Pair {
    _node: Node,
    waits: Client,
    writes: Client,
}

fn pair() -> Pair {
    let node = node();
    let (waits, writes) = (Client::connect(node.address()), Client::connect(node.address()));
    Pair { _node: node, waits, writes }
}

impl Pair {
    /// The next reply or push to the waiting client.
    fn told(&mut self) -> String {
        show(&self.waits.reply().unwrap())
    }

    fn send(&mut self, words: &str) {
        self.waits.send(&words.split(' ').collect::<Vec<_>>());
    }

    /// Waits until the node has this many watches.
    fn watched(&mut self, count: usize) {
        while !self.writes.say("INFO clients").contains(&format!("blocked_clients:{count}\\r")) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn what_is_so_already_is_told_at_once() {
    let mut pair = pair();
    pair.writes.say("HSET k f v");
    assert_eq!(pair.waits.say("AT.WAIT 0 k f EQ v"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k f NE w"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k f PRESENT"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k g ABSENT"), "[1 nil]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k g NE v"), "[1 nil]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k f EQ w"), "[0 nil]");
    assert_eq!(pair.waits.say("AT.WAIT 1 k g PRESENT"), "[0 nil]");
}

#[test]
fn whoever_waits_is_told_by_the_write_and_by_no_other() {
    let mut pair = pair();
    for (begins, waits, not_yet, write, told) in [
        ("DEL k", "AT.WAIT 60000 k f EQ 2", "HSET k f 1", "HSET k f 2", "[1 2]"),
        ("HSET k f 2", "AT.WAIT 60000 k f NE 2", "HSET k g 1", "AT.BATCH k IFEQ f 2 PUT f 3", "[1 3]"),
        ("HSET k f 2", "AT.WAIT 60000 k f ABSENT", "HSET k f 3", "FLUSHALL", "[1 nil]"),
        (
            "DEL k",
            "AT.WAIT 60000 k f PRESENT",
            "HSET other f 3",
            "AT.ID 1 1 0 AT.BATCH k APPEND f x",
            "[1 x]",
        ),
        ("HSET k f 1", "AT.WAIT 60000 k f ABSENT", "EXPIRE k 9999", "PEXPIRE k 1", "[1 nil]"),
        ("HSET k f 1", "AT.WAIT 60000 k f ABSENT", "HDEL k g", "HDEL k f", "[1 nil]"),
        (
            "HSET k f 1 g 1",
            "AT.WAIT 60000 k f ABSENT",
            "AT.BATCH k DEL g",
            "AT.BATCH k DELRANGE - +",
            "[1 nil]",
        ),
        ("DEL k", "AT.WAIT 60000 k f PRESENT", "HSETNX k g 1", "HSETNX k f 1", "[1 1]"),
        ("DEL k", "AT.WAIT 60000 k f EQ 5", "HINCRBY k f 4", "HINCRBY k f 1", "[1 5]"),
    ] {
        pair.writes.say(begins);
        pair.send(waits);
        pair.watched(1);
        pair.writes.say(not_yet);
        pair.watched(1);
        pair.writes.say(write);
        assert_eq!(pair.told(), told, "{waits}");
        pair.watched(0);
    }
}

#[test]
fn pushes_name_their_watch_and_come_between_answers() {
    let mut pair = pair();
    assert!(pair.waits.say("AT.WATCH 7 60000 k f PRESENT").contains("HELLO 3"));
    pair.waits.say("HELLO 3");
    assert_eq!(pair.waits.say("AT.WATCH 7 60000 k f PRESENT"), "OK");
    assert_eq!(pair.waits.say("AT.WATCH 8 60000 k f EQ 2"), "OK");
    assert_eq!(pair.waits.say("AT.WATCH 9 1 k f EQ 9"), "OK");
    assert_eq!(pair.told(), "[at.watch 9 0 nil]");
    assert_eq!(pair.waits.say("AT.WATCH 10 60000 k f EQ 9"), "OK");
    assert_eq!(pair.waits.say("AT.UNWATCH 10"), "1");
    assert_eq!(pair.waits.say("AT.UNWATCH 10"), "0");
    pair.watched(2);
    pair.writes.say("HSET k f 1");
    assert_eq!(pair.told(), "[at.watch 7 1 1]");
    pair.writes.say("HSET k f 2");
    assert_eq!(pair.told(), "[at.watch 8 1 2]");
    assert_eq!(pair.waits.say("PING"), "PONG");
    pair.writes.say("SET s v");
    pair.send("AT.WATCH 11 60000 s f PRESENT");
    assert_eq!(pair.told(), "OK");
    assert!(pair.told().starts_with("[at.watch 11 -1 WRONGTYPE"));
}

#[test]
fn who_goes_back_to_a_version_without_pushes_is_told_nothing_by_them() {
    let mut pair = pair();
    pair.waits.say("HELLO 3");
    assert_eq!(pair.waits.say("AT.WATCH 7 60000 k f PRESENT"), "OK");
    pair.watched(1);
    assert!(pair.waits.say("HELLO 2").contains("proto 2"));
    pair.watched(0);
    pair.writes.say("HSET k f 1");
    assert_eq!(pair.waits.say("PING"), "PONG");
    // Repeating the same protocol version ends no watch.
    pair.waits.say("HELLO 3");
    assert_eq!(pair.waits.say("AT.WATCH 8 60000 k g PRESENT"), "OK");
    pair.waits.say("HELLO 3");
    pair.watched(1);
}

#[test]
fn watches_end_with_their_connection() {
    let mut pair = pair();
    for number in 0..50 {
        pair.send(&format!("AT.WAIT 60000 k{} f PRESENT", number % 7));
    }
    pair.watched(50);
    pair.waits = Client::connect(pair.waits.socket.peer_addr().unwrap());
    pair.watched(0);
    pair.writes.say("HSET k1 f 1");
    assert_eq!(pair.waits.say("PING"), "PONG");
}

#[test]
fn who_ends_while_it_waits_waits_no_more() {
    for ends in [&b"QUIT\r\n"[..], b"*no number\r\n"] {
        let mut pair = pair();
        pair.send("AT.WAIT 60000 k f PRESENT");
        pair.watched(1);
        pair.waits.socket.write_all(ends).unwrap();
        assert_eq!(pair.told(), "[0 nil]");
        let last = pair.told();
        assert!(last == "OK" || last.starts_with("-ERR"), "{last}");
        assert!(pair.waits.is_ended());
        pair.watched(0);
    }
}

#[test]
fn what_is_no_watch_is_refused() {
    let mut pair = pair();
    for (words, told) in [
        ("AT.WAIT 1 k f", "wrong number of arguments"),
        ("AT.WAIT 1 k f EQ", "syntax error"),
        ("AT.WAIT 1 k f IS v", "syntax error"),
        ("AT.WAIT x k f ABSENT", "not an integer"),
        ("AT.WAIT -1 k f ABSENT", "not an integer"),
        ("AT.UNWATCH x", "not an integer"),
    ] {
        let answer = pair.waits.say(words);
        assert!(answer.contains(told), "{words}: {answer}");
    }
    let long = "x".repeat((1 << 20) + 1);
    assert!(pair.waits.say(&format!("AT.WAIT 1 k f EQ {long}")).starts_with("-LIMIT"));
    pair.writes.say(&format!("HSET k f {long}"));
    assert_eq!(pair.waits.say("AT.WAIT 1 k f PRESENT"), "[2 nil]", "it is to be read");
}

#[test]
fn a_write_that_is_told_of_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let place = SlotStorage::Folder(folder.path().to_owned());
    let options = NodeOptions { place, persistence: atoll_ring::Persistence::Always, ..support::options() };
    let node = Node::start(options).unwrap();
    let (mut waits, mut writes) = (Client::connect(node.address()), Client::connect(node.address()));
    waits.send(&["AT.WAIT", "60000", "k", "f", "PRESENT"]);
    writes.say("HSET k f v");
    let start = Instant::now();
    assert_eq!(show(&waits.reply().unwrap()), "[1 v]");
    assert!(start.elapsed() < Duration::from_secs(10));
}

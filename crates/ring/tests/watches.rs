//! Watches on fields and strings at one node.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod support;

use atoll_ring::{ConnectionLimits, Node, NodeOptions, Persistence, SlotStorage};
use std::io::Write;
use std::time::{Duration, Instant};
use support::{Client, node, options, show};

struct Pair {
    _node: Node,
    waits: Client,
    writes: Client,
}

fn pair() -> Pair {
    pair_at(node())
}

fn pair_at(node: Node) -> Pair {
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
fn a_string_that_is_so_already_is_told_at_once() {
    let mut pair = pair();
    pair.writes.say("SET k v");
    assert_eq!(pair.waits.say("AT.WAIT 0 k AS STRING EQ v"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k as string NE w"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k AS STRING PRESENT"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 none AS STRING ABSENT"), "[1 nil]");
    assert_eq!(pair.waits.say("AT.WAIT 0 none AS STRING NE v"), "[1 nil]");
    assert_eq!(pair.waits.say("AT.WAIT 0 k AS STRING EQ w"), "[0 nil]");
    assert_eq!(pair.waits.say("AT.WAIT 1 none AS STRING PRESENT"), "[0 nil]");
    pair.writes.ask(&["SET", "empty", ""]);
    assert_eq!(pair.waits.say("AT.WAIT 0 empty AS STRING PRESENT"), "[1 ]", "it is there");
    // What a value, a field or a key is called changes nothing.
    pair.writes.say("SET AS PRESENT");
    assert_eq!(pair.waits.say("AT.WAIT 0 AS AS STRING EQ PRESENT"), "[1 PRESENT]");
    assert_eq!(pair.waits.say("AT.WAIT 0 AS AS STRING NE PRESENT"), "[0 nil]");
    pair.writes.say("HSET h AS v EQ w");
    assert_eq!(pair.waits.say("AT.WAIT 0 h AS EQ v"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 h AS PRESENT"), "[1 v]");
    assert_eq!(pair.waits.say("AT.WAIT 0 h EQ PRESENT"), "[1 w]");
    assert_eq!(pair.waits.say("AT.WAIT 0 h EQ NE v"), "[1 w]");
}

#[test]
fn whoever_waits_for_a_string_is_told_by_the_write_and_by_no_other() {
    let mut pair = pair();
    for (begins, waits, not_yet, write, told) in [
        ("DEL k", "EQ 2", "SET k 1", "SET k 2", "[1 2]"),
        ("DEL k", "PRESENT", "SET other 3", "AT.ID 1 1 0 SET k x", "[1 x]"),
        ("DEL k", "EQ 7", "MSET k 6", "MSET k 7", "[1 7]"),
        ("SET k 2", "NE 2", "SET k 2", "APPEND k 3", "[1 23]"),
        ("SET k 4", "EQ 6", "INCR k", "INCR k", "[1 6]"),
        ("SET k 2", "ABSENT", "SET k 3", "DEL k", "[1 nil]"),
        ("SET k 2", "NE 2", "DEL other", "DEL k", "[1 nil]"),
        ("SET k 2", "ABSENT", "GETEX k", "GETDEL k", "[1 nil]"),
        ("SET k 2", "ABSENT", "DELIFEQ k 3", "DELIFEQ k 2", "[1 nil]"),
        ("SET k 2", "ABSENT", "SET k 3", "FLUSHALL", "[1 nil]"),
        ("SET k 1", "ABSENT", "EXPIRE k 9999", "PEXPIRE k 1", "[1 nil]"),
        ("SET k 1", "NE 1", "SET k 1 EX 9999", "SET k 1 PX 1", "[1 nil]"),
    ] {
        pair.writes.say(begins);
        pair.send(&format!("AT.WAIT 60000 k AS STRING {waits}"));
        pair.watched(1);
        pair.writes.say(not_yet);
        pair.watched(1);
        pair.writes.say(write);
        assert_eq!(pair.told(), told, "{begins}, {waits}");
        pair.watched(0);
    }
}

#[test]
fn whoever_waits_for_a_string_is_told_that_the_key_is_a_hash() {
    let mut pair = pair();
    pair.writes.say("HSET h f v");
    for condition in ["EQ v", "NE v", "ABSENT", "PRESENT"] {
        let told = pair.waits.say(&format!("AT.WAIT 60000 h AS STRING {condition}"));
        assert!(told.starts_with("-WRONGTYPE"), "{condition}: {told}");
    }
    for (key, write) in [("a", "HSET a f v"), ("b", "HSETNX b f v"), ("c", "AT.BATCH c PUT f v")] {
        pair.send(&format!("AT.WAIT 60000 {key} AS STRING EQ v"));
        pair.watched(1);
        pair.writes.say(write);
        let told = pair.told();
        assert!(told.starts_with("-WRONGTYPE"), "{write}: {told}");
    }
    // The other way round as well.
    pair.send("AT.WAIT 60000 s f EQ v");
    pair.watched(1);
    pair.writes.say("SET s v");
    assert!(pair.told().starts_with("-WRONGTYPE"));
    pair.watched(0);
}

#[test]
fn a_string_is_told_by_pushes_to_all_that_watch_it() {
    let mut pair = pair();
    assert!(pair.waits.say("AT.WATCH 1 60000 k AS STRING EQ 2").contains("HELLO 3"));
    pair.waits.say("HELLO 3");
    for id in 1..=3 {
        assert_eq!(pair.waits.say(&format!("AT.WATCH {id} 60000 k AS STRING EQ 2")), "OK");
    }
    assert_eq!(pair.waits.say("AT.WATCH 4 60000 h f EQ 2"), "OK");
    assert_eq!(pair.waits.say("AT.WATCH 5 1 k AS STRING EQ 2"), "OK");
    assert_eq!(pair.told(), "[at.watch 5 0 nil]");
    assert_eq!(pair.waits.say("AT.UNWATCH 2"), "1");
    pair.writes.say("SET k 1");
    pair.watched(3);
    pair.writes.say("SET k 2");
    assert_eq!(pair.told(), "[at.watch 1 1 2]");
    assert_eq!(pair.told(), "[at.watch 3 1 2]");
    assert_eq!(pair.waits.say("AT.WATCH 6 60000 k AS STRING ABSENT"), "OK");
    pair.watched(2);
    pair.writes.say("PEXPIRE k 1");
    assert_eq!(pair.told(), "[at.watch 6 1 nil]");
    pair.writes.say("HSET h f 2");
    assert_eq!(pair.told(), "[at.watch 4 1 2]");
    pair.send("AT.WATCH 7 60000 h AS STRING PRESENT");
    assert_eq!(pair.told(), "OK");
    assert!(pair.told().starts_with("[at.watch 7 -1 WRONGTYPE"));
    pair.watched(0);
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
fn values_that_are_waited_for_beyond_what_may_be_unsent_are_told_of_and_left_out() {
    const FIELDS: usize = 28;
    let (unsent_bytes_pause, unsent_bytes_max) = (64 << 10, 2 << 20);
    let limits = ConnectionLimits { unsent_bytes_pause, unsent_bytes_max, ..ConnectionLimits::default() };
    let mut pair = pair_at(Node::start(NodeOptions { limits, ..options() }).unwrap());
    let value = "v".repeat(256 << 10);
    let pairs: String = (0..FIELDS).map(|number| format!(" f{number} {value}")).collect();
    pair.waits.say("HELLO 3");
    for (key, begins) in [("waits", "["), ("watches", "[at.watch ")] {
        for number in 0..FIELDS {
            match key {
                "waits" => pair.send(&format!("AT.WAIT 60000 {key} f{number} PRESENT")),
                _ => {
                    pair.send(&format!("AT.WATCH {number} 60000 {key} f{number} PRESENT"));
                    assert_eq!(pair.told(), "OK");
                }
            }
        }
        pair.watched(FIELDS);
        // All of them are met at once, before anything is read.
        assert_eq!(pair.writes.say(&format!("HSET {key}{pairs}")), FIELDS.to_string());
        let told: Vec<String> = (0..FIELDS).map(|_| pair.told()).collect();
        assert!(told.iter().all(|one| one.starts_with(begins)), "{key}");
        let has_value =
            |one: &&String| one.ends_with(&format!(" 1 {value}]")) || **one == format!("[1 {value}]");
        let is_left_out = |one: &&String| one.ends_with(" 2 nil]") || *one == "[2 nil]";
        let (sent, left_out) = (told.iter().filter(has_value), told.iter().filter(is_left_out));
        let (sent, left_out) = (sent.count(), left_out.count());
        assert!((1..=4).contains(&sent) && sent + left_out == FIELDS, "{key}: {sent} and {left_out}");
        assert_eq!(pair.waits.say("PING"), "PONG");
        // The rest can be read.
        assert_eq!(pair.waits.say(&format!("HSTRLEN {key} f27")), value.len().to_string());
    }
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
        ("AT.WAIT 1 k AS", "wrong number of arguments"),
        ("AT.WAIT 1 k PRESENT", "wrong number of arguments"),
        ("AT.WAIT 1 k AS STRING", "syntax error"),
        ("AT.WAIT 1 k AS STRING EQ", "syntax error"),
        ("AT.WAIT 1 k AS STRING ABSENT v", "syntax error"),
        ("AT.WAIT 1 run:7 EQ done", "a field or AS STRING"),
        ("AT.WAIT x k AS STRING ABSENT", "not an integer"),
    ] {
        let answer = pair.waits.say(words);
        assert!(answer.contains(told), "{words}: {answer}");
    }
    let long = "x".repeat((1 << 20) + 1);
    assert!(pair.waits.say(&format!("AT.WAIT 1 k f EQ {long}")).starts_with("-LIMIT"));
    assert!(pair.waits.say(&format!("AT.WAIT 1 s AS STRING EQ {long}")).starts_with("-LIMIT"));
    pair.writes.say(&format!("HSET k f {long}"));
    assert_eq!(pair.waits.say("AT.WAIT 1 k f PRESENT"), "[2 nil]", "it is to be read");
    pair.writes.say(&format!("SET s {long}"));
    assert_eq!(pair.waits.say("AT.WAIT 1 s AS STRING PRESENT"), "[2 nil]", "it is to be read");
}

#[test]
fn a_write_that_is_told_of_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let place = SlotStorage::Folder(folder.path().to_owned());
    let options = NodeOptions { place, persistence: Persistence::Always, ..options() };
    let node = Node::start(options).unwrap();
    let (mut waits, mut writes) = (Client::connect(node.address()), Client::connect(node.address()));
    waits.send(&["AT.WAIT", "60000", "k", "f", "PRESENT"]);
    writes.say("HSET k f v");
    let start = Instant::now();
    assert_eq!(show(&waits.reply().unwrap()), "[1 v]");
    assert!(start.elapsed() < Duration::from_secs(10));
}

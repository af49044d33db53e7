//! `atoll ring`: a node that runs until it is told to stop, and says clearly why it does not start.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use support::Place;

/// A node, and where it listens.
fn served(place: &Place, arguments: &[&str]) -> (Child, String) {
    let all = [&["--json", "ring", "serve", "--listen", "127.0.0.1:0"], arguments].concat();
    let mut node = place.spawn(&all);
    let mut line = String::new();
    BufReader::new(node.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let started: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| {
        let mut told = String::new();
        node.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        panic!("{told}")
    });
    assert_eq!(started["pid"], node.id());
    (node, started["listening"].as_str().unwrap().to_owned())
}

fn say(address: &str, lines: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(format!("{lines}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut replies = String::new();
    socket.read_to_string(&mut replies).unwrap();
    replies
}

fn end(mut node: Child, signal: Signal) {
    kill_process(Pid::from_child(&node), signal).unwrap();
    let mut told = String::new();
    node.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!((node.wait().unwrap().code(), told.as_str()), (Some(0), ""));
}

#[test]
fn a_node_keeps_what_it_was_given_when_a_signal_ends_it() {
    let place = Place::new();
    let kept = ["--store", "kept"];
    let (node, address) = served(&place, &kept);
    assert_eq!(say(&address, "SET a 1"), "+OK\r\n+OK\r\n");
    // Somebody who says nothing holds nobody up.
    let _idle = TcpStream::connect(&address).unwrap();
    end(node, Signal::TERM);
    let (node, address) = served(&place, &kept);
    assert_eq!(say(&address, "GET a"), "$1\r\n1\r\n+OK\r\n");
    let second = place.run(&["ring", "serve", "--listen", "127.0.0.1:0", "--store", "kept"]);
    assert_eq!(second.exit, Some(16), "{}", second.stderr);
    assert!(second.stderr.contains("another process uses"), "{}", second.stderr);
    end(node, Signal::INT);
}

#[test]
fn a_token_is_made_and_asked_for() {
    let place = Place::new();
    let (node, address) = served(&place, &["--memory", "--token-file", "token"]);
    assert!(say(&address, "GET a").starts_with("-NOAUTH "));
    let token = String::from_utf8(place.read("token")).unwrap();
    assert_eq!(say(&address, &format!("AUTH {}\r\nGET a", token.trim())), "+OK\r\n$-1\r\n+OK\r\n");
    end(node, Signal::TERM);
}

#[test]
fn a_node_that_cannot_start_says_why_and_what_helps() {
    let place = Place::new();
    for (arguments, exit, told) in [
        (&["--memory", "--listen", "0.0.0.0:0"][..], 12, "--token-file"),
        (&["--memory", "--listen", "203.0.113.1:7379", "--token-file", "token"], 12, "203.0.113.1:7379"),
        (&[], 2, "--memory"),
        (&["--store", "cassandra://127.0.0.1/keyspace"], 14, "--store ./ring"),
        (&["--memory", "--loops", "0"], 12, "loops"),
        (&["--memory", "--memory-budget", "much"], 2, "much"),
        (&["--memory", "--token-file", "no/such/token"], 10, "no/such/token"),
    ] {
        let failed = place.run(&[&["ring", "serve"], arguments].concat());
        assert_eq!(failed.exit, Some(exit), "{arguments:?}: {}", failed.stderr);
        assert!(failed.stderr.contains(told), "{arguments:?}: {}", failed.stderr);
    }
}

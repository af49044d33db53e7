//! A node has ten thousand clients at a time: each is answered, one more is told that there are enough, and
//! all together take little memory.
//!
//! The node runs in a process of its own: what it takes is not mixed with what the clients take, and each
//! process has one end of every connection.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]

mod support;

use atoll_ring::Node;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use support::{Client, options, show};

/// As many as a node accepts unless another number is configured.
const COUNT: usize = 10_000;

/// Connections that are made before they are used: fewer than may wait to be accepted.
const TOGETHER: usize = 100;

/// Files that each of the two processes needs. The node keeps about a thousand for other uses.
const FILES: u64 = 11_100;

/// Most memory that the node may have taken from the system for all of them, in bytes: six times the 1 KiB
/// that each may take while it is idle. One buffer kept for each would be far more.
const GROWTH_BYTES_MAX: usize = 64 << 20;

/// Set for the process in which the node runs.
const FILLED: &str = "RING_FILLED";

/// The process that the test below starts.
#[test]
fn a_node_to_be_filled() {
    // On its own it runs as an ordinary test, and has nothing to do.
    if std::env::var_os(FILLED).is_none() {
        return;
    }
    let node = Node::start(options()).unwrap();
    println!("\nLISTENS {}", node.address());
    // Until the other process ends this one, or has ended itself.
    drop(std::io::stdin().read_to_string(&mut String::new()));
}

fn start() -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_node_to_be_filled", "--nocapture"])
        .env(FILLED, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address =
        lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("LISTENS ")?.parse().unwrap()));
    (child, address.unwrap())
}

/// A number that the node reports.
fn info(client: &mut Client, section: &str, name: &str) -> usize {
    let text = client.say(&format!("INFO {section}"));
    let value = text.split("\\r\\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().parse().unwrap()
}

/// Whether each is answered a request that it sends in two pieces.
fn are_answered(clients: &mut [Client]) -> bool {
    for piece in [&b"*2\r\n$4\r\nECHO\r\n$5\r\nhe"[..], b"llo\r\n"] {
        clients.iter_mut().for_each(|client| client.socket.write_all(piece).unwrap());
    }
    clients.iter_mut().all(|client| show(&client.reply().unwrap()) == "hello")
}

#[test]
fn ten_thousand_clients_are_answered_and_one_more_is_told_that_there_are_enough() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if maximum.is_some_and(|most| most < FILES) {
        println!("SKIPPED [many-files] the hard limit of open files is below {FILES}");
        return;
    }
    if current.is_some_and(|files| files < FILES) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum }).unwrap();
    }
    let (mut node, address) = start();
    let (mut clients, mut before) = (Vec::with_capacity(COUNT), 0);
    while clients.len() < COUNT {
        let from = clients.len();
        clients.extend((0..TOGETHER).map(|_| Client::connect(address)));
        assert!(are_answered(&mut clients[from..]), "one behind {from}");
        if from == 0 {
            before = info(&mut clients[0], "memory", "used_memory_rss");
        }
    }
    let mut refused = Client::connect(address);
    assert_eq!(show(&refused.reply().unwrap()), "-ERR max number of clients reached");
    assert!(refused.is_ended());
    assert!(are_answered(&mut clients), "one that was there already");
    let asks = &mut clients[0];
    assert_eq!(info(asks, "clients", "connected_clients"), COUNT);
    assert_eq!(info(asks, "stats", "rejected_connections"), 1);
    assert_eq!(info(asks, "stats", "dropped_connections"), 0);
    let each = info(asks, "clients", "clients_memory") / COUNT;
    assert!(each < 1024, "{each} bytes for each idle connection");
    let growth = info(asks, "memory", "used_memory_rss").saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes for {COUNT} connections");
    // The node ends first, so that none of these ports stays in use.
    node.kill().unwrap();
    node.wait().unwrap();
    drop(clients);
}

//! Nodes of a ring whose clients ask for much, vanish, or let many keys expire: memory, connections and work
//! stay bounded.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "support/ring.rs"]
mod three;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};
use support::{Workspace, free_port};
use three::Ring;

const PATIENCE: Duration = Duration::from_secs(60);

/// A node that ends with the test.
struct Node {
    process: Child,
    address: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Node {
    /// A node that serves alone.
    fn alone(place: &Workspace, more: &[&str]) -> Self {
        Self::begin(place, &[&["ring", "serve", "--listen"][..], more])
    }

    /// A node that founds a ring with copies, as its only member.
    fn of_a_ring(place: &Workspace, more: &[&str]) -> Self {
        Self::begin(place, &[&["ring", "serve", "--copies", "1", "--nodes"][..], more])
    }

    fn begin(place: &Workspace, [verb, more]: &[&[&str]; 2]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let listen = if verb.contains(&"--nodes") { vec!["--listen", &address] } else { Vec::new() };
        let mut process = place.spawn(&[&["--json"], *verb, &[&address], &listen, *more].concat());
        support::started(&mut process);
        let node = Self { process, address };
        node.wait_until("every slot is served", || node.say("CLUSTER INFO").contains("cluster_state:ok"));
        node
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    fn say(&self, line: &str) -> String {
        let mut socket = self.connect();
        socket.write_all(format!("{line}\r\nQUIT\r\n").as_bytes()).unwrap();
        let mut replies = String::new();
        socket.read_to_string(&mut replies).unwrap();
        replies
    }

    /// A field of `INFO`.
    fn figure(&self, name: &str) -> u64 {
        let told = self.say("INFO");
        let line = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap().parse().unwrap()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The peak of its resident memory, in bytes.
    fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }
}

#[test]
fn long_answers_that_are_asked_for_at_once_are_not_all_made_at_once() {
    const BYTES: usize = 4 << 20;
    const TIMES: usize = 300;
    let place = Workspace::new();
    let node = Node::of_a_ring(&place, &["--memory"]);
    let mut socket = node.connect();
    let head = format!("*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n${BYTES}\r\n");
    socket.write_all(&[head.as_bytes(), &vec![b'x'; BYTES], b"\r\n"].concat()).unwrap();
    let mut answer = [0; 5];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    let before = node.peak_bytes();
    socket.write_all(&b"GET big\r\n".repeat(TIMES)).unwrap();
    let each = format!("${BYTES}\r\n").len() + BYTES + 2;
    let (mut left, mut room) = (TIMES * each, vec![0; 1 << 20]);
    while left > 0 {
        let count = socket.read(&mut room).unwrap();
        assert!(count > 0, "it was ended with {left} bytes to go");
        left -= count;
    }
    let more = node.peak_bytes() - before;
    assert!(more < 64 << 20, "{more} bytes more, of {} that were told", TIMES * each);
}

#[test]
fn clients_that_vanish_while_they_wait_leave_no_connection_behind() {
    let place = Workspace::new();
    for node in [Node::alone(&place, &["--memory"]), Node::of_a_ring(&place, &["--memory"])] {
        for waits in [1, 1024, 3000] {
            let mut socket = node.connect();
            socket.write_all(&b"AT.WAIT 86400000 key field PRESENT\r\n".repeat(waits)).unwrap();
            drop(socket);
        }
        let ended = || node.figure("connected_clients") == 1;
        node.wait_until("connections of clients that are gone have ended", ended);
    }
}

#[test]
fn a_key_whose_time_is_over_is_deleted_once() {
    const KEYS: u64 = 3000;
    let place = Workspace::new();
    let node = Node::of_a_ring(&place, &["--store", "kept", "--durability", "synced"]);
    let mut socket = node.connect();
    let sets: String = (0..KEYS).map(|key| format!("SET key:{key} v PX 300\r\n")).collect();
    socket.write_all(sets.as_bytes()).unwrap();
    let mut answers = vec![0; KEYS as usize * 5];
    socket.read_exact(&mut answers).unwrap();
    node.wait_until("all keys are gone", || node.say("DBSIZE").starts_with(":0\r\n"));
    assert_eq!(node.figure("expired_keys"), KEYS);
}

#[test]
fn keys_that_run_out_while_too_few_copies_are_there_are_refused_and_hang_nobody() {
    const LIFETIME: Duration = Duration::from_secs(4);
    let place = Workspace::new();
    let mut ring = Ring::start(&place, free_port(), "flushed");
    let url = format!("ring://127.0.0.1:{}/?token-file=ring/token", ring.port);
    let create = ["ring", "keyspace", "create", "two", "--copies", "2", "--min-sync", "2", "--store", &url];
    place.run(&create).text();
    let lines = |line: &dyn Fn(u32) -> String| {
        (0..60).fold("SELECT 1".to_owned(), |lines, key| format!("{lines}\r\n{}", line(key)))
    };
    let mut told_by = |node: u16, lines: &str| {
        ring.asked = node;
        ring.once(lines).unwrap()
    };
    let sets = lines(&|key| format!("SET k{key} v PX {}", LIFETIME.as_millis()));
    let started = Instant::now();
    // All are sent again until each is accepted by one node: on a busy machine a copy may count as lost for a
    // while.
    while (0..3).map(|node| told_by(node, &sets).matches("+OK\r\n").count() - 1).sum::<usize>() != 60 {
        assert!(started.elapsed() < Duration::from_secs(60), "keys are refused");
    }
    let (began, gets) = (Instant::now(), lines(&|key| format!("GET k{key}")));
    ring.kill(2);
    std::thread::sleep(LIFETIME.saturating_sub(began.elapsed()));
    let mut refused = 0;
    for node in 0..2 {
        ring.asked = node;
        // All keys have expired; where that cannot be logged on enough copies, the read is refused.
        let told = loop {
            let told = ring.once(&gets).unwrap();
            if !told.contains("-TRYAGAIN") {
                break told;
            }
        };
        refused += told.matches("-NOREPLICAS").count();
        let sent_on = told.matches("-MOVED").count() + told.matches("-CLUSTERDOWN").count();
        assert_eq!(
            told.matches("$-1\r\n").count() + told.matches("-NOREPLICAS").count() + sent_on,
            60,
            "{told}"
        );
    }
    assert!(refused > 0, "all copies were there, so this showed nothing");
}

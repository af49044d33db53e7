//! What a client may rely on: each request gets its reply, in order, however the bytes arrive.
#![allow(clippy::unwrap_used)]

mod support;

use atoll_resp::write_request;
use std::io::Write;
use support::{Client, node, show};

#[test]
fn a_node_answers() {
    let node = node();
    let mut client = Client::connect(node.address());
    for (request, reply) in [
        ("PING", "PONG"),
        ("PING hallo", "hallo"),
        ("ECHO hallo", "hallo"),
        ("SET a 1", "OK"),
        ("GET a", "1"),
        ("GET b", "nil"),
        ("INCR a", "2"),
        ("APPEND a 0", "2"),
        ("MSET {t}a 1 {t}b 2", "OK"),
        ("MGET {t}a {t}b {t}c", "[1 2 nil]"),
        ("MGET a b", "-CROSSSLOT Keys in request don\\'t hash to the same slot"),
        ("HSET h f v", "1"),
        ("GET h", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("DEL a", "1"),
        ("NOSUCH", "-ERR unknown command \\'NOSUCH\\', with args beginning with: "),
        ("GET", "-ERR wrong number of arguments for \\'get\\' command"),
        ("QUIT", "OK"),
    ] {
        assert_eq!(client.say(request), reply, "{request}");
    }
    assert!(client.is_ended());
    node.stop().unwrap();
}

#[test]
fn requests_are_answered_in_order_whatever_the_pieces_they_come_in() {
    let node = node();
    let mut random = fastrand::Rng::with_seed(11);
    for round in 0..20 {
        let mut client = Client::connect(node.address());
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        for at in 0..random.usize(1..300) {
            let most = 1 << random.u32(..16);
            let value = "x".repeat(random.usize(..most));
            let key = format!("key-{round}-{}", at % 7);
            write_request(&mut bytes, &["SET", &key, &value]);
            write_request(&mut bytes, &["GET", &key]);
            expected.extend(["OK".to_owned(), value]);
            if random.u8(..8) == 0 {
                bytes.extend_from_slice(b"PING\r\n\r\n");
                expected.push("PONG".to_owned());
            }
        }
        let mut socket = client.socket.try_clone().unwrap();
        let most = 1 << random.u32(3..18);
        let mut cuts = random.fork();
        let sender = std::thread::spawn(move || {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let piece = cuts.usize(1..=most).min(rest.len());
                socket.write_all(&rest[..piece]).unwrap();
                rest = &rest[piece..];
            }
        });
        for (at, expected) in expected.iter().enumerate() {
            let reply = show(&client.reply().unwrap());
            assert!(reply == *expected, "round {round}, reply {at}: {} bytes", reply.len());
        }
        sender.join().unwrap();
    }
}

#[test]
fn flushes_in_one_pipeline_leave_others_their_turns() {
    const FLUSHES: usize = 100;
    let node = node();
    let mut client = Client::connect(node.address());
    let rounds = || {
        let text = node.metrics_text();
        let behind = text.split("\natoll_ring_loop_rounds_total ").nth(1).unwrap();
        behind.lines().next().unwrap().parse::<usize>().unwrap()
    };
    let (before, mut bytes) = (rounds(), Vec::new());
    (0..FLUSHES).for_each(|_| write_request(&mut bytes, &["FLUSHALL"]));
    client.socket.write_all(&bytes).unwrap();
    (0..FLUSHES).for_each(|_| assert_eq!(show(&client.reply().unwrap()), "OK"));
    assert!(rounds() >= before + FLUSHES, "{} rounds", rounds() - before);
}

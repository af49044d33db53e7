//! Whatever a client sends, a node answers or ends the connection, and serves the others.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod support;

use atoll_resp::{COMMANDS, Limits, ReplyParser, write_request};
use fastrand::Rng;
use std::io::{Read, Write};
use std::net::Shutdown;
use support::{Client, node};

/// Bytes that look like requests, mostly.
fn noise(random: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.usize(1..20) {
        let name = COMMANDS[random.usize(..COMMANDS.len())].name;
        let words: Vec<Vec<u8>> = std::iter::once(name.as_bytes().to_vec())
            .chain((0..random.usize(..5)).map(|_| word(random)))
            .collect();
        match name {
            // It would end the connection before the rest.
            "quit" => {}
            _ => write_request(&mut bytes, &words),
        }
    }
    for _ in 0..random.usize(..4) {
        let at = random.usize(..bytes.len().max(1)).min(bytes.len());
        match random.u8(..4) {
            0 if at < bytes.len() => bytes[at] = random.u8(..),
            1 => bytes.insert(at, random.u8(..)),
            2 => bytes.truncate(at),
            _ => bytes.splice(at..at, word(random)).for_each(drop),
        }
    }
    bytes
}

fn word(random: &mut Rng) -> Vec<u8> {
    let words: [&[u8]; 16] = [
        b"",
        b"a",
        b"{a}b",
        b"0",
        b"-1",
        b"9223372036854775807",
        b"GET",
        b"NX",
        b"EX",
        b"100",
        b"*3\r\n",
        b"$-1\r\n",
        b"\r\n",
        b"INFO",
        b"SLOTS",
        b"3",
    ];
    match random.u8(..8) {
        0 => (0..random.usize(..300)).map(|_| random.u8(..)).collect(),
        _ => words[random.usize(..words.len())].to_vec(),
    }
}

#[test]
fn noise_is_answered_or_ended_and_harms_nobody() {
    let node = node();
    let mut other = Client::connect(node.address());
    other.say("SET safe 1");
    for seed in 0..400 {
        let mut random = Rng::with_seed(seed);
        let bytes = noise(&mut random);
        let mut client = Client::connect(node.address());
        for piece in bytes.chunks(random.usize(1..2000)) {
            // The node may have ended it already.
            let _ = client.socket.write_all(piece);
        }
        let _ = client.socket.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        let ended = client.socket.read_to_end(&mut replies);
        let was_reset = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(ended.as_ref().map_or_else(was_reset, |_| true), "seed {seed}: {ended:?}");
        // Only complete replies came, in one protocol or the other.
        let (mut parser, mut rest) = (ReplyParser::new(Limits::default()), replies.as_slice());
        while !rest.is_empty() {
            let parsed = parser.parse(rest);
            let (used, value) = parsed.unwrap_or_else(|error| unreachable!("seed {seed}: {error}"));
            assert!(value.is_some(), "seed {seed}: half a reply: {}", rest.escape_ascii());
            rest = &rest[used..];
        }
        assert_eq!(other.say("PING"), "PONG", "seed {seed}");
    }
}

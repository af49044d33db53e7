//! The commands of the store contract, over a socket.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use atoll_resp::Value;
use support::{Client, node, show};

#[test]
fn batches_and_pages_are_answered_over_a_socket() {
    let node = node();
    let mut client = Client::connect(node.address());
    for (line, answer) in [
        ("AT.BATCH k IFABSENT a PUT a one PUT b two", "OK"),
        ("AT.BATCH k IFABSENT c IFEQ a other PUT c three", "[1 one 3]"),
        ("AT.BATCH k IFABSENT b PUT c three", "[0 two 3]"),
        ("at.batch k APPEND a more DELRANGE [b (c", "OK"),
        ("AT.GET k a", "onemore"),
        ("AT.GET k a 3 2", "mo"),
        ("AT.GET k b", "nil"),
        ("AT.GET nothing b", "nil"),
        ("AT.BATCH k PUT b 2", "OK"),
        ("AT.RANGE k - +", "[0 [a onemore 7 b 2 1]]"),
        ("AT.RANGE k - + REV LIMIT 1 KEYS", "[1 [b nil 1]]"),
        ("AT.RANGE k (a + BYTES 0 5", "[0 [b 2 1]]"),
        ("HGETALL k", "[a onemore b 2]"),
        ("AT.BATCH k PUT", "-ERR syntax error"),
        ("AT.BATCH k DELRANGE - +", "OK"),
        ("EXISTS k", "0"),
        ("SET s v", "OK"),
        ("AT.GET s a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("AT.EXPIRE s 5", "0"),
        ("GET s", "v"),
        ("COMMAND GETKEYS AT.BATCH k PUT a b", "[k]"),
        ("COMMAND GETKEYS AT.EXPIRE k 1 l 2", "[k l]"),
    ] {
        assert_eq!(client.say(line), answer, "{line}");
    }
}

#[test]
fn bytes_of_any_kind_are_fields_and_values() {
    let node = node();
    let mut client = Client::connect(node.address());
    let (key, field, value) = (b"\r\n\0".as_slice(), b"".as_slice(), vec![0xff; 1 << 20]);
    assert_eq!(show(&client.ask(&[b"AT.BATCH".as_slice(), key, b"PUT", field, &value])), "OK");
    assert_eq!(client.ask(&[b"AT.GET".as_slice(), key, field]), Value::String(value));
}

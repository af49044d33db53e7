//! The answers of commands, one after the other.
#![allow(clippy::unwrap_used)]

mod common;

use atoll_keyspace::{KeyspaceError, Part, ReadOutcome};
use atoll_resp::{Command, Limits, Protocol, RequestParser};
use common::Subject;

/// Each line is a command and its expected answer.
fn check(subject: &mut Subject, lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        assert_eq!(subject.ask(line), *expected, "{line}");
    }
}

#[test]
fn strings_are_set_read_and_counted_up() {
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let lines = [
        ("GET a", "nil"),
        ("SET a 1", "+OK"),
        ("GET a", "\"1\""),
        ("INCRBY a 41", "42"),
        ("APPEND a x", "3"),
        ("GET a", "\"42x\""),
        ("INCR a", "-ERR value is not an integer or out of range"),
        ("STRLEN a", "3"),
        ("SET b 9223372036854775807", "+OK"),
        ("INCR b", "-ERR increment or decrement would overflow"),
        ("EXISTS a a b c", "3"),
        ("MSET c 1 c 2 d 3", "+OK"),
        ("MGET a c d e", "[\"42x\" \"2\" \"3\" nil]"),
        ("HSET h f 1 f 2 g 3", "2"),
        ("SET h 1", wrong),
        ("MSET x 1 h 2", wrong),
        ("EXISTS x", "0"),
        ("HGETALL h", "{\"f\"=\"2\" \"g\"=\"3\"}"),
        ("DEL a a h", "2"),
        ("EXISTS a h c", "1"),
    ];
    let mut subject = Subject::new();
    check(&mut subject, &lines);
    assert_eq!(subject.keyspace.keys_in(common::SLOT), 3);
}

#[test]
fn a_getex_that_changes_nothing_is_a_read() {
    let mut subject = Subject::new();
    subject.ask("SET a 12345 PX 100");
    subject.ask("HSET h f v");
    let read = |line: &str| {
        let (mut parser, mut reply) = (RequestParser::new(Limits::default()), Vec::new());
        let line = format!("{line}\r\n");
        let request = parser.parse(line.as_bytes()).unwrap().unwrap();
        let command = Command::of(&request).unwrap();
        let (now_ms, protocol) = (subject.now_ms, Protocol::Resp2);
        let outcome = subject.keyspace.read(common::SLOT, now_ms, &command, protocol, &mut reply);
        outcome.map(|outcome| (outcome, String::from_utf8(reply).unwrap()))
    };
    let answered = |reply: &str| (ReadOutcome::Answered, reply.to_owned());
    assert_eq!(read("GETEX a").unwrap(), answered("$5\r\n12345\r\n"));
    assert_eq!(read("GETEX b").unwrap(), answered("$-1\r\n"));
    assert!(read("GETEX h").unwrap().1.starts_with("-WRONGTYPE "));
    assert!(matches!(read("GETEX a PERSIST"), Err(KeyspaceError::Write)));
}

#[test]
fn bytes_of_a_string_are_read_and_an_absent_key_is_no_empty_string() {
    let mut subject = Subject::new();
    let read = |subject: &Subject, key: &str, offset, len| {
        let (asked, mut reply) = ((key.as_bytes(), Part { offset, len }), Vec::new());
        let outcome =
            subject.keyspace.read_string(common::SLOT, subject.now_ms, asked, Protocol::Resp3, &mut reply);
        match outcome.unwrap() {
            ReadOutcome::Answered => common::told(&common::value(&reply)),
            ReadOutcome::Expired(overdue) => format!("{} expired, {} bytes", overdue.len(), reply.len()),
        }
    };
    assert_eq!(read(&subject, "a", 0, 10), "nil");
    subject.ask("SET a 12345 PX 100");
    for (offset, len, bytes) in
        [(0, 3, "\"123\""), (0, u64::MAX, "\"12345\""), (4, 3, "\"5\""), (5, 3, "\"\"")]
    {
        assert_eq!(read(&subject, "a", offset, len), bytes, "{offset} {len}");
    }
    subject.ask_words(&[b"SET".as_slice(), b"empty", b""]);
    assert_eq!(read(&subject, "empty", 0, 10), "\"\"");
    subject.ask("HSET h f v");
    assert_eq!(
        read(&subject, "h", 0, 10),
        "-WRONGTYPE Operation against a key holding the wrong kind of value"
    );
    subject.now_ms += 100;
    assert_eq!(read(&subject, "a", 0, 10), "1 expired, 0 bytes");
}

#[test]
fn what_only_later_servers_have_compares_and_then_sets_or_deletes() {
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    let lines = [
        ("SET a 1 IFEQ 1", "nil"),
        ("SET a 1", "+OK"),
        ("SET a 2 IFEQ 2", "nil"),
        ("SET a 2 IFEQ 1", "+OK"),
        ("SET a 3 IFEQ 1 GET", "\"2\""),
        ("SET a 3 IFEQ 2 GET PX 100", "\"2\""),
        ("PTTL a", "100"),
        ("DELIFEQ a 2", "0"),
        ("DELEX a IFEQ 3", "1"),
        ("DELIFEQ a 3", "0"),
        ("DELEX a", "0"),
        ("HSET h f 1", "1"),
        ("DELIFEQ h 1", wrong),
        ("SET h 1 IFEQ 1", wrong),
        ("SET h 1 NX", "nil"),
        ("SETNX h 1", "0"),
        ("SET h 1 NX GET", wrong),
        ("DELEX h", "1"),
    ];
    let mut subject = Subject::new();
    check(&mut subject, &lines);
    assert_eq!(subject.keyspace.keys_in(common::SLOT), 0);
}

#[test]
fn what_is_too_long_is_refused_with_nothing_done() {
    let mut subject = Subject::new();
    let (key, longer) = ("k".repeat(16 << 10), "k".repeat((16 << 10) + 1));
    let refused = |what: &str| format!("-LIMIT {what}: 16385; allowed are 16384");
    assert_eq!(subject.ask(&format!("SET {key} v")), "+OK");
    assert_eq!(subject.ask(&format!("HSET h {key} v")), "1");
    assert_eq!(subject.ask(&format!("GET {key}")), "\"v\"");
    for line in ["SET KEY v", "GET KEY", "MSET a v KEY v", "DEL a KEY", "HGET KEY f", "HSET KEY f v"] {
        assert_eq!(subject.ask(&line.replace("KEY", &longer)), refused("a key"), "{line}");
    }
    for line in ["HSET h a v KEY v", "HGET h KEY", "HDEL h KEY", "HINCRBY h KEY 1"] {
        assert_eq!(subject.ask(&line.replace("KEY", &longer)), refused("a field"), "{line}");
    }
    assert_eq!(subject.ask("EXISTS a"), "0");
    let most = atoll_keyspace::STRING_BYTES_MAX;
    let (long, too_long) = (vec![b'x'; most], vec![b'x'; most + 1]);
    let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(common::told(&subject.ask_words(&[b"set", b"s", &too_long])), refused);
    assert_eq!(common::told(&subject.ask_words(&[b"set", b"s", &long])), "+OK");
    assert_eq!(subject.ask("APPEND s x"), refused);
    assert_eq!(subject.ask("PEXPIRE s 100"), "1");
    assert_eq!(subject.ask("STRLEN s"), most.to_string());
    assert_eq!(subject.ask("GETRANGE s -2 -1"), "\"xx\"");
}

#[test]
fn a_failed_request_leaves_its_place_in_the_log_and_nothing_else() {
    let mut subject = Subject::new();
    subject.ask("HSET h f v");
    let keys = subject.keyspace.keys_in(common::SLOT);
    for line in ["MSET a 1 b 2 h 3", "INCR h", "HINCRBY h f 1", "GETDEL h"] {
        let before = subject.keyspace.applied(common::SLOT);
        assert!(subject.ask(line).starts_with('-'), "{line}");
        assert_eq!(subject.keyspace.applied(common::SLOT).sequence, before.sequence + 1);
        assert_eq!(subject.keyspace.keys_in(common::SLOT), keys);
        subject.keyspace.verify(common::SLOT).unwrap();
    }
    assert_eq!(subject.ask("EXISTS a b"), "0");
}

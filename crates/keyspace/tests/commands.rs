//! What commands answer, one after the other.
#![allow(clippy::unwrap_used)]

mod common;

use common::Subject;

/// Each line is a command and what it answers.
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

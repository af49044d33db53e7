//! Replies of both versions, complete, in pieces and damaged, compared with another implementation.

use super::*;
use crate::fuzz::replies;
use crate::{Protocol, ReplyWriter};
use redis_protocol::resp3::types::OwnedFrame;

fn one(input: &[u8]) -> Value {
    let (found, error) = replies(input, 1 << 20);
    assert_eq!((found.len(), error), (1, None), "{}", input.escape_ascii());
    found.into_iter().next().unwrap()
}

fn string(text: &str) -> Value {
    Value::String(text.as_bytes().to_vec())
}

#[test]
fn every_type_of_both_versions_is_read() {
    let cases: [(&[u8], Value); 22] = [
        (b"+OK\r\n", Value::Simple(b"OK".to_vec())),
        (b"-MOVED 1 h:1\r\n", Value::Error(b"MOVED 1 h:1".to_vec())),
        (b"!5\r\nE a\r\n\r\n", Value::Error(b"E a\r\n".to_vec())),
        (b":-12\r\n", Value::Integer(-12)),
        (b":+12\r\n", Value::Integer(12)),
        (b"$3\r\na\r\n\r\n", string("a\r\n")),
        (b"$0\r\n\r\n", string("")),
        (b"$-1\r\n", Value::Null),
        (b"*-1\r\n", Value::Null),
        (b"_\r\n", Value::Null),
        (b"#t\r\n", Value::Boolean(true)),
        (b",1.5e3\r\n", Value::Double(1500.0)),
        (b",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
        (b"(-349289348290483\r\n", Value::BigNumber(b"-349289348290483".to_vec())),
        (b"=6\r\ntxt:hi\r\n", Value::Text(*b"txt", b"hi".to_vec())),
        (
            b"*2\r\n:1\r\n*1\r\n+a\r\n",
            Value::Array(vec![Value::Integer(1), Value::Array(vec![Value::Simple(b"a".to_vec())])]),
        ),
        (b"*0\r\n", Value::Array(vec![])),
        (b"~1\r\n:1\r\n", Value::Set(vec![Value::Integer(1)])),
        (b"%1\r\n+k\r\n:2\r\n", Value::Map(vec![(Value::Simple(b"k".to_vec()), Value::Integer(2))])),
        (b">1\r\n+m\r\n", Value::Push(vec![Value::Simple(b"m".to_vec())])),
        (b"|1\r\n+ttl\r\n:3\r\n:7\r\n", Value::Integer(7)),
        (
            b"*2\r\n|1\r\n+a\r\n*1\r\n:1\r\n:5\r\n:6\r\n",
            Value::Array(vec![Value::Integer(5), Value::Integer(6)]),
        ),
    ];
    for (input, expected) in cases {
        assert_eq!(one(input), expected, "{}", input.escape_ascii());
    }
    assert!(matches!(one(b",nan\r\n"), Value::Double(number) if number.is_nan()));
}

#[test]
fn what_is_no_reply_is_an_error() {
    let cases: [(&[u8], &str); 17] = [
        (b"?\r\n", "a reply cannot begin with '?'"),
        (b":01\r\n", "'01' is no integer"),
        (b":+-1\r\n", "'+-1' is no integer"),
        (b"#x\r\n", "'x' is no truth value"),
        (b",a\r\n", "'a' is no double"),
        (b",1.5x\r\n", "'1.5x' is no double"),
        (b",infinity\r\n", "'infinity' is no double"),
        (b"(1.5\r\n", "'1.5' is no big number"),
        (b"_x\r\n", "'x' is no null"),
        (b"=3\r\ntxt\r\n", "'txt' is no text"),
        (b"$-2\r\n", "invalid bulk length"),
        (b"$61\r\n", "invalid bulk length"),
        (b"$1\r\nab\r\n", "expected CRLF"),
        (b"*-2\r\n", "invalid multibulk length"),
        (b"*40\r\n", "a reply of more than 40 elements"),
        (b"%20\r\n", "a reply of more than 40 elements"),
        (b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", "a reply of more than 4 levels"),
    ];
    for (input, expected) in cases {
        let (found, error) = replies(input, 1 << 20);
        let error = error.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error.strip_prefix("Protocol error: "), Some(expected), "{}", input.escape_ascii());
        assert!(found.is_empty());
    }
}

#[test]
fn many_small_aggregates_are_counted_too() {
    let (_, error) = replies(&[b"*39\r\n".as_slice(), &b"*0\r\n".repeat(39)].concat(), 1 << 20);
    assert_eq!(error, None);
    let (_, error) = replies(&[b"*39\r\n".as_slice(), &b"*1\r\n:1\r\n".repeat(39)].concat(), 1 << 20);
    assert_eq!(error, Some(ProtocolError::LargeReply { what: "elements", limit: 40 }));
    let strings =
        [b"*4\r\n".as_slice(), &[b"$60\r\n".as_slice(), &[b'a'; 60], b"\r\n"].concat().repeat(4)].concat();
    assert_eq!(replies(&strings, 1 << 20).1, Some(ProtocolError::LargeReply { what: "bytes", limit: 200 }));
}

#[test]
fn limits_are_about_one_reply() {
    let one =
        [b"*2\r\n".as_slice(), &[b"$50\r\n".as_slice(), &[b'a'; 50], b"\r\n"].concat().repeat(2)].concat();
    let (found, error) = replies(&one.repeat(30), 64);
    assert_eq!((found.len(), error), (30, None));
}

/// Writes a random reply in either version; returns it in the form of the other implementation.
fn write(
    random: &mut fastrand::Rng,
    writer: &mut ReplyWriter<'_>,
    room: &mut usize,
    depth: usize,
) -> OwnedFrame {
    let attributes = None;
    *room = room.saturating_sub(1);
    let bytes: Vec<u8> =
        (0..random.usize(..12)).map(|_| *random.choice(b"\r\n$*:-0a\0\xff").unwrap()).collect();
    match random.u8(..if depth == 0 { 5 } else { 7 }) {
        0 => {
            writer.simple("as it is");
            OwnedFrame::SimpleString { data: b"as it is".to_vec(), attributes }
        }
        1 => {
            writer.error("ERR", "wrong");
            OwnedFrame::SimpleError { data: "ERR wrong".to_owned(), attributes }
        }
        2 => {
            let data = random.i64(..) >> random.u8(..63);
            writer.integer(data);
            OwnedFrame::Number { data, attributes }
        }
        3 => {
            writer.null();
            OwnedFrame::Null
        }
        4 => {
            writer.string(&bytes);
            OwnedFrame::BlobString { data: bytes, attributes }
        }
        5 if *room > 6 => {
            let data = random.bool();
            writer.array(2);
            writer.boolean(data);
            writer.double(2.5);
            let data = vec![
                OwnedFrame::Boolean { data, attributes: None },
                OwnedFrame::Double { data: 2.5, attributes: None },
            ];
            OwnedFrame::Array { data, attributes }
        }
        _ => {
            let len = random.usize(..(*room / 2).clamp(1, 5));
            writer.array(len);
            let data = (0..len).map(|_| write(random, writer, room, depth - 1)).collect();
            OwnedFrame::Array { data, attributes }
        }
    }
}

fn is_same(ours: &Value, theirs: &OwnedFrame) -> bool {
    match (ours, theirs) {
        (Value::Simple(ours), OwnedFrame::SimpleString { data, .. }) => ours == data,
        (Value::Error(ours), OwnedFrame::SimpleError { data, .. }) => ours == data.as_bytes(),
        (Value::Integer(ours), OwnedFrame::Number { data, .. }) => ours == data,
        (Value::Boolean(ours), OwnedFrame::Boolean { data, .. }) => ours == data,
        (Value::Double(ours), OwnedFrame::Double { data, .. }) => ours == data,
        (Value::String(ours), OwnedFrame::BlobString { data, .. }) => ours == data,
        (Value::Null, OwnedFrame::Null) => true,
        (Value::Array(ours), OwnedFrame::Array { data, .. }) => {
            ours.len() == data.len() && ours.iter().zip(data).all(|(ours, theirs)| is_same(ours, theirs))
        }
        _ => false,
    }
}

#[test]
fn replies_are_what_another_implementation_reads_too() {
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::new();
        let expected = write(&mut random, &mut ReplyWriter::new(&mut bytes, Protocol::Resp3), &mut 30, 3);
        let told = bytes.escape_ascii().to_string();
        let (theirs, taken) = redis_protocol::resp3::decode::complete::decode(&bytes).unwrap().unwrap();
        assert_eq!((theirs, taken), (expected.clone(), bytes.len()), "seed {seed}: {told}");
        for piece in [1, 3, bytes.len()] {
            let (found, error) = replies(&bytes, piece);
            assert_eq!((found.len(), error), (1, None), "seed {seed}, pieces of {piece}: {told}");
            assert!(is_same(&found[0], &expected), "seed {seed}: {found:?}, {expected:?}");
        }
    }
}

#[test]
fn damaged_replies_end_the_same_way_however_they_are_cut() {
    let (mut wrong, mut right) = (0, 0);
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = Vec::new();
        write(&mut random, &mut ReplyWriter::new(&mut bytes, Protocol::Resp3), &mut 30, 3);
        let at = random.usize(..bytes.len());
        bytes[at] = if random.bool() { random.u8(..) } else { *random.choice(b"\r\n$*9-|%").unwrap() };
        let whole = replies(&bytes, bytes.len());
        for piece in [1, 2, 5] {
            assert_eq!(format!("{:?}", replies(&bytes, piece)), format!("{whole:?}"), "seed {seed}");
        }
        *(if whole.1.is_some() { &mut wrong } else { &mut right }) += 1;
    }
    assert!(wrong > 500 && right > 500, "{wrong} were wrong and {right} right");
}

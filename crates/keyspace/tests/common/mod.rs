//! Commands as text, and their answers.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

pub mod random;
pub mod redis;

use atoll_engine::{Engine, Options};
use atoll_keyspace::{Applied, Keyspace, ReadOutcome};
use atoll_resp::{
    Command, Limits, Protocol, ReplyParser, RequestParser, Specification, Value, find, write_request,
};

/// The slot of all keys in tests that name none.
pub const SLOT: u16 = 7;

/// A keyspace in memory, and its time.
pub struct Subject {
    pub keyspace: Keyspace,
    pub now_ms: u64,
    pub applied: Applied,
}

impl Subject {
    pub fn new() -> Self {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let keyspace = Keyspace::open(&engine, "keys").unwrap();
        Self { keyspace, now_ms: 1_000_000, applied: Applied { epoch: 1, sequence: 0 } }
    }

    /// The answer to a command, in readable form.
    pub fn ask(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        told(&self.ask_words(&words))
    }

    /// Writes, and the deletion of expired keys, are applied at once as log entries.
    pub fn ask_words(&mut self, words: &[&[u8]]) -> Value {
        let mut bytes = Vec::new();
        write_request(&mut bytes, words);
        let mut parser = RequestParser::new(Limits::default());
        let request = parser.parse(&bytes).unwrap().unwrap();
        let command = match Command::of(&request) {
            Ok(command) => command,
            Err(error) => return Value::Error(format!("{} {error}", error.word()).into_bytes()),
        };
        let mut reply = Vec::new();
        if find(words[0]).is_some_and(Specification::is_write) {
            self.applied.sequence += 1;
            let (now, applied) = (self.now_ms, self.applied);
            self.keyspace.apply(SLOT, applied, now, &command, Protocol::Resp3, &mut reply).unwrap();
        } else {
            while let ReadOutcome::Expired(overdue) =
                self.keyspace.read(SLOT, self.now_ms, &command, Protocol::Resp3, &mut reply).unwrap()
            {
                assert!(reply.is_empty());
                self.expire(&overdue);
            }
        }
        value(&reply)
    }

    /// Forgets at most `most` clients; returns how many.
    pub fn forget(&mut self, most: u64) -> i64 {
        self.applied.sequence += 1;
        let (now, applied, mut reply) = (self.now_ms, self.applied, Vec::new());
        self.keyspace.apply_forgetting(SLOT, applied, now, most, Protocol::Resp3, &mut reply).unwrap();
        let Value::Integer(count) = value(&reply) else { panic!("no number") };
        count
    }

    /// Deletes expired keys; returns how many.
    pub fn expire(&mut self, overdue: &[atoll_keyspace::Overdue]) -> i64 {
        self.applied.sequence += 1;
        let keys: Vec<_> =
            overdue.iter().map(|overdue| (overdue.key.as_slice(), overdue.deadline_ms)).collect();
        let (now, applied) = (self.now_ms, self.applied);
        let mut reply = Vec::new();
        self.keyspace.apply_expiry(SLOT, applied, now, &keys, Protocol::Resp3, &mut reply).unwrap();
        let Value::Integer(count) = value(&reply) else { panic!("no number") };
        count
    }
}

/// The answer to a command from the log.
pub fn apply(keyspace: &mut Keyspace, slot: u16, applied: Applied, time_ms: u64, words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_request(&mut bytes, words);
    let mut parser = RequestParser::new(Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let (command, mut reply) = (Command::of(&request).unwrap(), Vec::new());
    keyspace.apply(slot, applied, time_ms, &command, Protocol::Resp3, &mut reply).unwrap();
    reply
}

/// The only reply in these bytes.
pub fn value(reply: &[u8]) -> Value {
    let (taken, value) = ReplyParser::new(Limits::default()).parse(reply).unwrap();
    assert_eq!(taken, reply.len(), "more than one reply: {:?}", String::from_utf8_lossy(reply));
    value.unwrap()
}

/// A reply in readable form.
pub fn told(value: &Value) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let list = |values: &[Value]| values.iter().map(told).collect::<Vec<_>>().join(" ");
    match value {
        Value::Simple(bytes) => format!("+{}", text(bytes)),
        Value::Error(bytes) => format!("-{}", text(bytes)),
        Value::Integer(number) => number.to_string(),
        Value::String(bytes) => format!("\"{}\"", text(bytes)),
        Value::Null => "nil".to_owned(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| format!("{}={}", told(key), told(value))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        other => panic!("{other:?}"),
    }
}

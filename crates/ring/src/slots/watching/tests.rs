//! A watch that meets an expired key, at a node that is the whole ring.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::address::{HostPort, NodeName};
use crate::alone;
use crate::keyspaces::slot_at;
use crate::options::Persistence;
use crate::slots::{Answer, Asking};
use crate::watches::Waiter;
use atoll_engine::{Engine, Options};
use atoll_keyspace::slot_of;
use atoll_replica::{Moment, Ticket};
use atoll_resp::{Command, Expected, Limits, RequestParser, WatchRequest, find, write_request};
use std::sync::Arc;

const KEY: &[u8] = b"key";

fn at(date_ms: u64) -> Now {
    Now { moment: Moment(1), date_ms }
}

/// A node without background work: nothing deletes what has expired unless it is asked for.
fn node() -> (Slots, SlotTable) {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let clients = HostPort { host: "127.0.0.1".to_owned(), port: 7379 };
    let table = alone::table(NodeName::random().unwrap(), clients, &engine).unwrap();
    let slots = Slots::open(&engine, (Persistence::Off, false), 1 << 30, Arc::default()).unwrap();
    (slots, alone::seen(table))
}

impl Slots {
    /// Executes a write to the key.
    fn done(&mut self, now: Now, words: &[&str]) {
        let mut bytes = Vec::new();
        write_request(&mut bytes, words);
        let mut parser = RequestParser::new(Limits::default());
        let request = parser.parse(&bytes).unwrap().unwrap();
        let command = Command::of(&request).unwrap();
        let keys = find(words[0].as_bytes()).unwrap().keys_of(&request);
        let (slot, ticket) = (slot_at(0, slot_of(KEY)), Ticket(1));
        let asking = Asking { slot, now, command: &command, request: &request, keys, ticket, returned: 0 };
        let mut target = Vec::new();
        let answer = self.write(&asking, &mut Reply { target: &mut target, protocol: Protocol::Resp2 });
        assert!(answer == Answer::Now && !target.starts_with(b"-"), "{}", target.escape_ascii());
    }

    /// Waits for the absence of a field, or of the string, under this ticket.
    fn wait_for_absence(&mut self, now: Now, ticket: u64, milliseconds: u64, field: Option<&[u8]>) {
        let (ticket, protocol) = (Ticket(ticket), Protocol::Resp2);
        let waiter = Waiter { ticket, connection: 0, session: 1, users: 0, protocol, id: None };
        let expected = Expected::Equals(None);
        let request = WatchRequest { id: None, milliseconds, key: KEY, field, expected };
        self.watch(slot_at(0, slot_of(KEY)), now, Watch::new(&request, 0, waiter, now));
    }

    /// The answers of the end of a round, by their tickets.
    fn told(&mut self, now: Now, table: &SlotTable) -> Vec<(u64, String)> {
        self.look_at_watches(now, table);
        let answers = self.take_answers().into_iter();
        let mut told: Vec<_> =
            answers.map(|(ticket, reply)| (ticket.0, reply.escape_ascii().to_string())).collect();
        told.sort();
        told
    }
}

const HASH: [&[&str]; 2] = [&["HSET", "key", "f", "v"], &["PEXPIREAT", "key", "50"]];
const STRING: [&[&str]; 2] = [&["SET", "key", "v"], &["PEXPIREAT", "key", "50"]];

fn is_so(ticket: u64) -> (u64, String) {
    (ticket, r"*2\r\n:1\r\n$-1\r\n".to_owned())
}

#[test]
fn who_waits_for_no_time_is_told_of_a_key_that_has_expired_and_is_still_there() {
    for (writes, field) in [(HASH, Some(b"f".as_slice())), (STRING, None), (HASH, None)] {
        let (mut slots, table) = node();
        writes.into_iter().for_each(|words| slots.done(at(1), words));
        slots.wait_for_absence(at(100), 1, 0, field);
        assert_eq!(slots.told(at(100), &table), vec![is_so(1)], "{writes:?}, {field:?}");
    }
}

#[test]
fn whoever_waits_for_longer_is_told_as_well_when_another_watch_has_an_expired_key_deleted() {
    for (writes, field) in [(HASH, Some(b"f".as_slice())), (STRING, None)] {
        let (mut slots, table) = node();
        writes.into_iter().for_each(|words| slots.done(at(1), words));
        slots.wait_for_absence(at(2), 1, 60_000, field);
        assert!(slots.told(at(2), &table).is_empty());
        slots.wait_for_absence(at(100), 2, 0, field);
        assert_eq!(slots.told(at(100), &table), vec![is_so(1), is_so(2)], "{writes:?}");
    }
}

#[test]
fn a_watch_deletes_no_key_before_its_time() {
    let (mut slots, table) = node();
    STRING.into_iter().for_each(|words| slots.done(at(1), words));
    slots.wait_for_absence(at(49), 1, 0, None);
    assert_eq!(slots.told(at(49), &table), vec![(1, r"*2\r\n:0\r\n$-1\r\n".to_owned())]);
    assert_eq!(slots.keys_in(slot_at(0, slot_of(KEY))), 1);
}

//! Expired keys: how reads and writes treat them, and how they are found.
#![allow(clippy::unwrap_used)]

mod common;

use atoll_disk::{FaultPlan, SimDisk};
use atoll_engine::{Engine, Options};
use atoll_keyspace::{Applied, Keyspace, Overdue, ReadOutcome};
use atoll_resp::{Command, Protocol};
use common::{SLOT, Subject};
use std::sync::Arc;

const BEGIN_MS: u64 = 1_000_000;

fn overdue(key: &str, deadline_ms: u64) -> Overdue {
    Overdue { slot: SLOT, key: key.as_bytes().to_vec(), deadline_ms }
}

fn read(subject: &Subject, command: &Command<'_>) -> (ReadOutcome, Vec<u8>) {
    let mut reply = b"kept".to_vec();
    let outcome = subject.keyspace.read(SLOT, subject.now_ms, command, Protocol::Resp2, &mut reply).unwrap();
    (outcome, reply)
}

#[test]
fn a_read_answers_up_to_the_deadline_and_from_then_on_tells_it() {
    let mut subject = Subject::new();
    subject.ask("SET a v PX 100");
    subject.ask("HSET h f v");
    subject.ask("PEXPIRE h 100");
    subject.ask("SET b v");
    let at = BEGIN_MS + 100;
    let all = [b"a".as_slice(), b"b", b"h"];
    let reads: [(Command<'_>, Vec<Overdue>); 9] = [
        (Command::Get(b"a"), vec![overdue("a", at)]),
        (Command::Length(b"a"), vec![overdue("a", at)]),
        (Command::Type(b"h"), vec![overdue("h", at)]),
        (Command::HashGet { key: b"h", field: b"f" }, vec![overdue("h", at)]),
        (Command::HashCount(b"h"), vec![overdue("h", at)]),
        (Command::HashAll { key: b"h", fields: true, values: true }, vec![overdue("h", at)]),
        (Command::GetMany(all.to_vec()), vec![overdue("a", at), overdue("h", at)]),
        (Command::Exists(all.to_vec()), vec![overdue("a", at), overdue("h", at)]),
        // Refused as well, but that is not certain while the key may have expired.
        (Command::HashGet { key: b"a", field: b"f" }, vec![overdue("a", at)]),
    ];
    for (command, expected) in reads {
        subject.now_ms = at - 1;
        let (outcome, reply) = read(&subject, &command);
        assert_eq!(outcome, ReadOutcome::Answered, "{command:?}");
        assert!(reply.len() > 4 && reply != b"kept$-1\r\n", "{command:?}");
        subject.now_ms = at;
        let (outcome, reply) = read(&subject, &command);
        assert_eq!(outcome, ReadOutcome::Expired(expected), "{command:?}");
        assert_eq!(reply, b"kept", "{command:?}");
    }
}

#[test]
fn a_write_counts_as_absent_what_is_over_at_its_time() {
    for (setup, line, before, after, value) in [
        ("SET k 5 PX 100", "INCR k", "6", "1", "\"1\""),
        ("SET k 5 PX 100", "APPEND k x", "2", "1", "\"x\""),
        ("SET k 5 PX 100", "SETNX k 7", "0", "1", "\"7\""),
        ("SET k 5 PX 100", "SET k 7 XX", "+OK", "nil", "nil"),
        ("SET k 5 PX 100", "SET k 7 IFEQ 5", "+OK", "nil", "nil"),
        ("SET k 5 PX 100", "SET k 7 KEEPTTL GET", "\"5\"", "nil", "\"7\""),
        ("SET k 5 PX 100", "DEL k k", "1", "0", "nil"),
        ("SET k 5 PX 100", "PEXPIRE k 900", "1", "0", "nil"),
        ("SET k 5 PX 100", "PERSIST k", "1", "0", "nil"),
        ("SET k 5 PX 100", "GETDEL k", "\"5\"", "nil", "nil"),
    ] {
        for (now_ms, expected) in [(BEGIN_MS + 99, before), (BEGIN_MS + 100, after)] {
            let mut subject = Subject::new();
            subject.ask(setup);
            subject.now_ms = now_ms;
            assert_eq!(subject.ask(line), expected, "{line} at {now_ms}");
            if expected == after {
                assert_eq!(subject.ask("GET k"), value, "{line}");
            }
            subject.keyspace.verify(SLOT).unwrap();
        }
    }
}

#[test]
fn a_hash_whose_time_is_over_leaves_no_field_behind() {
    let mut subject = Subject::new();
    subject.ask("HSET h a 1 b 2");
    subject.ask("PEXPIRE h 100");
    assert_eq!(subject.ask("HSET h c 3"), "1");
    assert_eq!(subject.ask("PTTL h"), "100");
    subject.now_ms += 100;
    assert_eq!(subject.ask("HSET h a 9 d 4"), "2");
    assert_eq!(subject.ask("HGETALL h"), "{\"a\"=\"9\" \"d\"=\"4\"}");
    assert_eq!(subject.ask("PTTL h"), "-1");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn what_a_write_counted_as_absent_no_earlier_clock_brings_back() {
    let mut subject = Subject::new();
    subject.ask("SET a v PX 100");
    subject.now_ms += 100;
    subject.ask("SET b v");
    subject.now_ms -= 50;
    assert_eq!(subject.ask("SETNX a w"), "1");
    let mut subject = Subject::new();
    subject.ask("SET a v PX 100");
    subject.now_ms += 100;
    subject.ask("SET b v");
    subject.now_ms -= 50;
    assert_eq!(
        read(&subject, &Command::Get(b"a")).0,
        ReadOutcome::Expired(vec![overdue("a", BEGIN_MS + 100)])
    );
}

#[test]
fn only_a_key_that_still_has_the_deadline_is_deleted_for_it() {
    let mut subject = Subject::new();
    subject.ask("SET a v PX 100");
    subject.ask("SET b v PX 100");
    subject.ask("SET c v PX 100");
    subject.now_ms += 50;
    subject.ask("PEXPIRE b 100");
    subject.ask("PERSIST c");
    let at = BEGIN_MS + 100;
    subject.now_ms = at;
    let met = [overdue("a", at), overdue("b", at), overdue("c", at), overdue("a", at), overdue("d", at)];
    assert_eq!(subject.expire(&met), 1);
    assert_eq!(subject.ask("MGET a b c"), "[nil \"v\" \"v\"]");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn keys_whose_time_is_over_are_found_a_few_at_a_time_and_of_all_slots_in_turn() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let mut keyspace = Keyspace::open(&engine, "keys").unwrap();
    let mut sequence = 0;
    let mut set = |keyspace: &mut Keyspace, slot, key: &str, lifetime: &str| {
        sequence += 1;
        let words: [&[u8]; 5] = [b"set", key.as_bytes(), b"v", b"px", lifetime.as_bytes()];
        let reply = common::apply(keyspace, slot, Applied { epoch: 1, sequence }, 0, &words);
        assert_eq!(reply, b"+OK\r\n");
    };
    for number in 0..100 {
        set(&mut keyspace, 3, &format!("many{number:02}"), "100");
    }
    set(&mut keyspace, 9, "one", "200");
    set(&mut keyspace, 9, "later", "5000");
    assert!(keyspace.expired(99, 10, |_| true).found.is_empty());
    let slots = |overdue: &[Overdue]| overdue.iter().map(|key| key.slot).collect::<Vec<_>>();
    for mut keyspace in [keyspace, Keyspace::open(&engine, "keys").unwrap()] {
        assert_eq!(slots(&keyspace.expired(200, 10, |_| true).found), [3; 10]);
        // The others are not held up by those that are not deleted yet.
        let found = keyspace.expired(200, 10, |_| true).found;
        assert_eq!(found[0], Overdue { slot: 9, key: b"one".to_vec(), deadline_ms: 200 });
        assert_eq!(slots(&found[1..]), [3; 9]);
        assert_eq!(slots(&keyspace.expired(9999, 1000, |slot| slot == 9).found), [9, 9]);
        assert_eq!(keyspace.expired(100, 1000, |_| true).found.len(), 100);
    }
}

#[test]
fn slots_that_cannot_be_read_are_told_of_once_and_looked_through_again_after_a_while() {
    let disk = SimDisk::seeded(1);
    let open = || Engine::open(Arc::new(disk.clone()), Options::default()).unwrap();
    let engine = open();
    let mut keyspace = Keyspace::open(&engine, "keys").unwrap();
    let value = "v".repeat(200);
    for sequence in 1..=4_000_u64 {
        let words: [&[u8]; 5] = [b"set", &sequence.to_be_bytes(), value.as_bytes(), b"px", b"100"];
        common::apply(&mut keyspace, (sequence % 9) as u16, Applied { epoch: 1, sequence }, 0, &words);
    }
    drop(keyspace);
    engine.close().unwrap();
    let engine = open();
    let mut keyspace = Keyspace::open(&engine, "keys").unwrap();
    disk.set_plan(FaultPlan { unreadable: Some(0..u64::MAX), ..FaultPlan::default() });
    let look = |keyspace: &mut Keyspace, now_ms| {
        let looked = keyspace.expired(now_ms, 9_000, |_| true);
        (looked.found.len(), looked.failed.map(|(slot, _)| slot))
    };
    assert_eq!([200, 201].map(|now_ms| look(&mut keyspace, now_ms)), [(0, Some(0)), (0, None)]);
    disk.set_plan(FaultPlan::default());
    assert_eq!(look(&mut keyspace, 600_199), (0, None));
    assert_eq!(look(&mut keyspace, 600_200), (4_000, None));
}

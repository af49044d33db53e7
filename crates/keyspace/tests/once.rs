//! Writes that are done once, however often they are repeated.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use atoll_keyspace::{DATES_APART_MS_MAX, FRESH_MS_MAX, REQUESTS_MAX, SESSION_MS_MIN, SESSIONS_MAX};
use common::{SLOT, Subject, told};

#[test]
fn a_write_is_done_once_and_answered_the_same_again() {
    let mut subject = Subject::new();
    assert_eq!(subject.ask("AT.ID a1 1 0 INCRBY n 5"), "[0 5]");
    assert_eq!(subject.ask("AT.ID a1 1 0 INCRBY n 5"), "[1 5]");
    assert_eq!(subject.ask("AT.ID b2 1 0 INCRBY n 5"), "[0 10]", "another client");
    assert_eq!(subject.ask("AT.ID A1 2 0 INCRBY n 5"), "[0 15]", "another write");
    assert_eq!(subject.ask("AT.ID a1 1 0 INCRBY n 5"), "[1 5]");
    assert_eq!(subject.ask("AT.ID a1 3 0 APPEND s xy"), "[0 2]");
    assert_eq!(subject.ask("AT.ID a1 3 0 APPEND s xy"), "[1 2]");
    assert_eq!(subject.ask("AT.ID a1 4 0 SET k v NX"), "[0 +OK]");
    assert_eq!(subject.ask("AT.ID a1 4 0 SET k v NX"), "[1 +OK]");
    assert_eq!(subject.ask("AT.ID a1 5 0 GETDEL k"), "[0 \"v\"]");
    assert_eq!(subject.ask("AT.ID a1 5 0 GETDEL k"), "[1 \"v\"]");
    assert_eq!(subject.ask("GET n"), "\"15\"");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn what_was_refused_is_judged_anew() {
    let mut subject = Subject::new();
    assert_eq!(subject.ask("AT.ID 1 1 0 AT.BATCH h IFEQ f 1 APPEND f 2"), "[0 [0 nil 0]]");
    subject.ask("HSET h f 1");
    assert_eq!(subject.ask("AT.ID 1 1 0 AT.BATCH h IFEQ f 1 APPEND f 2"), "[0 +OK]");
    assert_eq!(subject.ask("AT.ID 1 1 0 AT.BATCH h IFEQ f 1 APPEND f 2"), "[1 +OK]");
    assert!(subject.ask("AT.ID 1 2 0 INCR h").starts_with("-WRONGTYPE"));
    subject.ask("DEL h");
    assert_eq!(subject.ask("AT.ID 1 2 0 INCR h"), "[0 1]");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn what_cannot_be_done_once_is_refused() {
    let mut subject = Subject::new();
    for line in ["GET k", "FLUSHALL ASYNC", "AT.ID 2 2 0 INCR k", "PING 1"] {
        let told = subject.ask(&format!("AT.ID 1 1 0 {line}"));
        assert!(told.contains("takes a command that changes keys"), "{line}: {told}");
    }
    assert!(subject.ask("AT.ID 1 1 0 NONE k").contains("unknown command 'NONE'"));
    assert!(subject.ask("AT.ID 1 1 0 SET k").contains("wrong number of arguments for 'set'"));
    for client in
        ["", "g", "-1", "+1", "100000000000000000000000000000000", "1@", "@1", "1@x", "1@-1", "1@1@1"]
    {
        assert!(subject.ask(&format!("AT.ID {client} 1 0 INCR k")).contains("hexadecimal"), "{client}");
    }
    assert!(subject.ask("AT.ID 1 -1 0 INCR k").contains("not an integer"));
    assert!(subject.ask("AT.ID 1 1 2 INCR k").contains("a floor"));
    let long = format!("AT.ID 1 1 0 SET k {} GET", "x".repeat(2000));
    assert_eq!(subject.ask(&long), "[0 nil]");
    let refused = subject.ask("AT.ID 1 2 0 SET k y GET");
    assert!(refused.starts_with("-LIMIT an answer that is remembered"), "{refused}");
    assert_eq!(subject.ask("STRLEN k"), "2000", "nothing was changed");
}

#[test]
fn the_latest_writes_are_remembered_and_older_ones_are_never_done_again() {
    let mut subject = Subject::new();
    for sequence in 0..=REQUESTS_MAX {
        assert_eq!(subject.ask(&format!("AT.ID 7 {sequence} 0 INCR n")), format!("[0 {}]", sequence + 1));
    }
    assert_eq!(subject.ask("AT.ID 7 1 0 INCR n"), "[1 2]");
    assert!(subject.ask("AT.ID 7 0 0 INCR n").starts_with("-FORGOTTEN write 0"));
    assert_eq!(subject.ask("GET n"), format!("\"{}\"", REQUESTS_MAX + 1));
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn a_client_is_forgotten_when_it_was_silent_for_long_and_not_before() {
    let mut subject = Subject::new();
    subject.ask("AT.ID 1 1 0 INCR n");
    subject.now_ms += SESSION_MS_MIN;
    subject.ask("AT.ID 2 1 0 INCR n");
    assert_eq!(subject.ask("AT.ID 1 1 0 INCR n"), "[1 1]");
    subject.now_ms += SESSION_MS_MIN;
    subject.ask("AT.ID 3 1 0 INCR n");
    assert_eq!(subject.ask("AT.ID 2 1 0 INCR n"), "[1 2]");
    assert_eq!(subject.ask("AT.ID 1 1 0 INCR n"), "[0 4]", "nobody knows it any more");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn a_client_is_remembered_for_as_long_as_is_said_though_the_dates_of_two_primaries_differ() {
    let mut subject = Subject::new();
    let began_ms = subject.now_ms;
    // A primary dates the writes of a client a minute too early, and notes the date of the first one only.
    subject.ask("AT.ID 1 1 0 INCR n");
    subject.now_ms += 59_999;
    subject.ask("AT.ID 1 2 0 INCR n");
    // The next primary dates its own a minute too late, ten minutes after that.
    subject.now_ms += SESSION_MS_MIN + DATES_APART_MS_MAX;
    subject.ask("AT.ID 2 1 0 INCR n");
    assert_eq!(subject.forget(9), 0);
    assert_eq!(subject.ask("AT.ID 1 2 0 INCR n"), "[1 2]");
    subject.now_ms = began_ms + SESSION_MS_MIN + DATES_APART_MS_MAX + 60_001;
    assert_eq!(subject.forget(9), 1, "but not for ever");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn a_client_that_says_when_it_began_never_does_a_write_twice() {
    let mut subject = Subject::new();
    let began = subject.now_ms;
    let ask = |subject: &mut Subject, sequence| subject.ask(&format!("AT.ID 1@{began} {sequence} 0 INCR n"));
    assert_eq!(ask(&mut subject, 1), "[0 1]");
    assert_eq!(subject.ask("AT.ID 1 1 0 INCR n"), "[1 1]", "the date is no part of the name");
    subject.now_ms += FRESH_MS_MAX + 1;
    assert_eq!(ask(&mut subject, 2), "[0 2]", "as long as it is known its age does not matter");
    subject.now_ms += 2 * SESSION_MS_MIN;
    assert_eq!(subject.ask("AT.ID 2 1 0 INCR n"), "[0 3]", "which forgets the other");
    for sequence in 1..4 {
        let refused = ask(&mut subject, sequence);
        assert!(refused.starts_with(&format!("-FORGOTTEN write {sequence} of this client may")), "{refused}");
        let age_ms = subject.now_ms - began;
        assert!(
            refused.contains(&format!("its date is {age_ms} ms behind the time of its slot")),
            "{refused}"
        );
    }
    assert_eq!(subject.ask("GET n"), "\"3\"");
    // A clock may be somewhat wrong, but not so that the date says nothing.
    let ahead = |by: u64| format!("AT.ID 3@{} 1 0 INCR n", subject.now_ms + by);
    let (little, much) = (ahead(FRESH_MS_MAX), ahead(FRESH_MS_MAX + 1));
    assert!(subject.ask(&much).starts_with("-ERR the client's date is 300001 ms ahead"));
    assert_eq!(subject.ask(&little), "[0 4]");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn clients_that_were_silent_for_long_are_forgotten_with_all_keys() {
    let mut subject = Subject::new();
    let write = |subject: &mut Subject, client: u64| subject.ask(&format!("AT.ID {client:x} 1 0 SET k v"));
    (0..300).for_each(|client| drop(write(&mut subject, client)));
    assert_eq!(subject.ask("FLUSHALL"), "+OK");
    assert_eq!(write(&mut subject, 299), "[1 +OK]", "it may still ask again");
    subject.now_ms += 2 * SESSION_MS_MIN;
    assert_eq!(subject.ask("FLUSHALL"), "+OK");
    subject.keyspace.verify(SLOT).unwrap();
    for client in (0..300).rev() {
        assert_eq!(write(&mut subject, client), "[0 +OK]");
    }
    // While one is still in use the others are forgotten a few at a time, and it stays.
    subject.now_ms += 2 * SESSION_MS_MIN;
    assert_eq!(write(&mut subject, 1000), "[0 +OK]");
    for _ in 0..6 {
        assert_eq!(subject.ask("FLUSHALL"), "+OK");
        subject.keyspace.verify(SLOT).unwrap();
    }
    assert_eq!(write(&mut subject, 1000), "[1 +OK]");
    for client in (0..300).rev() {
        assert_eq!(write(&mut subject, client), "[0 +OK]");
    }
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn clients_that_were_silent_for_long_are_found_and_forgotten_where_nobody_writes() {
    let mut subject = Subject::new();
    let found = |subject: &mut Subject, most| {
        subject.keyspace.remembering(subject.now_ms, most, |slot| slot == SLOT).found
    };
    for client in 0..300 {
        assert_eq!(subject.ask(&format!("AT.ID {client:x} 1 0 SET k v")), "[0 +OK]");
    }
    subject.now_ms += SESSION_MS_MIN + 180_000;
    assert_eq!((found(&mut subject, 9), subject.forget(1_000)), (vec![], 0), "they may ask again");
    assert_eq!(subject.ask("AT.ID 7 2 0 SET k w"), "[0 +OK]");
    subject.now_ms += 61_000;
    assert!(subject.keyspace.remembering(subject.now_ms, 9, |_| false).found.is_empty());
    assert!(found(&mut subject, 0).is_empty());
    assert_eq!((found(&mut subject, 9), subject.forget(200)), (vec![SLOT], 200));
    subject.keyspace.verify(SLOT).unwrap();
    assert_eq!((found(&mut subject, 9), subject.forget(200)), (vec![SLOT], 99));
    assert_eq!((found(&mut subject, 9), subject.keyspace.sessions_in(SLOT)), (vec![], 1));
    subject.keyspace.verify(SLOT).unwrap();
    assert_eq!(subject.ask("AT.ID 7 2 0 SET k w"), "[1 +OK]", "who wrote since stays");
    assert_eq!(subject.ask("AT.ID 8 1 0 SET k v"), "[0 +OK]");
    // A new session becomes old in its time, whatever was known of the slot before.
    subject.now_ms += SESSION_MS_MIN + 300_000;
    assert_eq!((found(&mut subject, 9), subject.forget(u64::MAX)), (vec![SLOT], 2));
    assert_eq!(subject.keyspace.sessions_in(SLOT), 0);
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn what_moved_is_forgotten_in_its_time_as_well() {
    let (mut from, mut to) = (Subject::new(), Subject::new());
    from.ask("AT.ID 1 1 0 INCR n");
    let (cells, _) = from.keyspace.exporter(SLOT).next(1 << 20).unwrap();
    let (applied, time_ms) = (from.keyspace.applied(SLOT), from.keyspace.time_ms(SLOT));
    to.keyspace.begin_import(SLOT).unwrap();
    to.keyspace.import(SLOT, &cells).unwrap();
    assert!(to.keyspace.remembering(u64::MAX, 9, |_| true).found.is_empty(), "it is not there yet");
    to.keyspace.end_import(SLOT, applied, time_ms).unwrap();
    to.applied = applied;
    to.now_ms += SESSION_MS_MIN + 241_000;
    assert_eq!(to.keyspace.remembering(to.now_ms, 9, |_| true).found, [SLOT]);
    assert_eq!(to.forget(9), 1);
    to.keyspace.verify(SLOT).unwrap();
}

#[test]
fn clients_beyond_those_that_are_remembered_are_refused_until_some_are_forgotten() {
    let mut subject = Subject::new();
    for client in 0..SESSIONS_MAX {
        assert_eq!(subject.ask(&format!("AT.ID {client:x} 1 0 SET k v")), "[0 +OK]");
    }
    assert!(subject.ask("AT.ID fffff 1 0 SET k w").starts_with("-TRYAGAIN"));
    assert_eq!(subject.ask("GET k"), "\"v\"", "nothing was changed");
    assert_eq!(subject.ask("AT.ID 5 2 0 SET k w"), "[0 +OK]", "who is known goes on");
    subject.now_ms += 2 * SESSION_MS_MIN;
    assert_eq!(subject.ask("AT.ID fffff 1 0 SET k w"), "[0 +OK]");
    subject.keyspace.verify(SLOT).unwrap();
}

#[test]
fn what_is_remembered_moves_with_the_slot_and_outlives_its_keys() {
    let (mut from, mut to) = (Subject::new(), Subject::new());
    from.ask("AT.ID 1 1 0 INCR n");
    assert_eq!(from.ask("FLUSHALL"), "+OK");
    assert_eq!(from.ask("AT.ID 1 1 0 INCR n"), "[1 1]");
    let (cells, is_last) = from.keyspace.exporter(SLOT).next(1 << 20).unwrap();
    assert!(is_last);
    let (applied, time_ms) = (from.keyspace.applied(SLOT), from.keyspace.time_ms(SLOT));
    to.keyspace.install(SLOT, applied, time_ms, &cells).unwrap();
    assert_eq!(to.keyspace.digest(SLOT).unwrap(), from.keyspace.digest(SLOT).unwrap());
    to.applied = applied;
    assert_eq!(to.ask("AT.ID 1 1 0 INCR n"), "[1 1]");
    to.keyspace.verify(SLOT).unwrap();
    to.keyspace.clear([SLOT].into_iter()).unwrap();
    to.keyspace.verify(SLOT).unwrap();
}

#[test]
fn keys_are_found_behind_the_name_of_the_write() {
    let words: [&[u8]; 7] = [b"COMMAND", b"GETKEYS", b"AT.ID", b"1", b"1", b"0", b"MSET"];
    let all = [&words[..], &[b"a", b"1", b"b", b"2"]].concat();
    let mut bytes = Vec::new();
    atoll_resp::write_request(&mut bytes, &all);
    let mut parser = atoll_resp::RequestParser::new(atoll_resp::Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let atoll_resp::Command::Command(keys) = atoll_resp::Command::of(&request).unwrap() else { panic!("?") };
    let mut reply = Vec::new();
    keys.answer(&mut atoll_resp::ReplyWriter::new(&mut reply, atoll_resp::Protocol::Resp3));
    assert_eq!(told(&common::value(&reply)), "[\"a\" \"b\"]");
}

//! A slot that cannot be read fails the requests for it, and no others.

use super::*;
use crate::warned;
use atoll_keyspace::{Applied, Keyspace, slot_of};
use atoll_resp::{Command, Limits, Protocol, RequestParser, write_request};

#[test]
fn what_cannot_be_read_is_an_error_for_who_reads_or_waits_for_it_and_for_nobody_else() {
    let running = run();
    let mut client = running.connect();
    let long = "v".repeat(100_000);
    let mut request = Vec::new();
    write_request(&mut request, &["HSET", "long", "f", &long]);
    client.write_all(&request).unwrap();
    assert_eq!(hear(&mut client, 4), ":1\r\n");
    running.disk.is_unreadable.store(true, Ordering::Release);
    for words in ["HGET long f", "AT.WAIT 60000 long f PRESENT"] {
        say(&mut client, words);
        say(&mut client, "HLEN long");
        let mut told = String::new();
        while !told.ends_with("\r\n:1\r\n") {
            told += &hear(&mut client, 1);
        }
        assert!(told.starts_with('-') && told.contains("cannot read"), "{words}: {told}");
    }
    running.end().unwrap();
}

/// A disk whose slots hold more than is read when they are opened: keys with deadlines, and remembered
/// clients.
fn disk_with_keys() -> Arc<MemoryDisk> {
    let disk = Arc::new(MemoryDisk::new());
    let engine = Engine::open(disk.clone(), Options { background: false, ..Options::default() }).unwrap();
    let mut keyspace = Keyspace::open(&engine, "slots").unwrap();
    for sequence in 1..=4_000 {
        let (key, client, value) = (format!("k{sequence}"), format!("{sequence:x}"), "v".repeat(200));
        let mut bytes = Vec::new();
        write_request(&mut bytes, &["AT.ID", &client, "1", "0", "SET", &key, &value, "PX", "100"]);
        let mut parser = RequestParser::new(Limits::default());
        let request = parser.parse(&bytes).unwrap().unwrap();
        let (applied, slot) = (Applied { epoch: 1, sequence }, slot_of(key.as_bytes()));
        let command = Command::of(&request).unwrap();
        keyspace.apply(slot, applied, 1, &command, Protocol::Resp2, &mut Vec::new()).unwrap();
    }
    drop(keyspace);
    engine.close().unwrap();
    disk
}

#[test]
fn slots_that_cannot_be_looked_through_are_told_once_and_end_nothing() {
    let mut ready = ready_on(disk_with_keys(), Arc::new(SystemClock), ConnectionLimits::default());
    ready.disk.is_unreadable.store(true, Ordering::Release);
    ready.event_loop.here.look_at_clock();
    let tick = |ready: &mut Ready| {
        warned::times(|| {
            ready.event_loop.ticked_us = 0;
            ready.event_loop.tick().unwrap();
        })
    };
    assert_eq!([0; 4].map(|_| tick(&mut ready)), [1, 0, 0, 0]);
}

#[test]
fn a_key_that_cannot_be_deleted_in_its_time_ends_nothing() {
    let running = run();
    let mut client = running.connect();
    running.disk.is_unreadable.store(true, Ordering::Release);
    let mut request = Vec::new();
    write_request(&mut request, &["SET", "long", &"v".repeat(100_000), "PX", "1"]);
    client.write_all(&request).unwrap();
    assert_eq!(hear(&mut client, 5), "+OK\r\n");
    while running.metrics.expired.get() == 0 {
        std::thread::yield_now();
    }
    say(&mut client, "GET long");
    assert!(hear(&mut client, 30).starts_with("-TRYAGAIN cannot read"));
    running.end().unwrap();
}

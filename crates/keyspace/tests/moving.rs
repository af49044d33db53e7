//! A slot that moves in pieces: equal on the other side, and empty if only part of it arrived.
#![allow(clippy::unwrap_used)]

mod common;

use atoll_disk::{MemoryDisk, SimDisk};
use atoll_engine::{Engine, Options};
use atoll_keyspace::{Applied, Keyspace, KeyspaceError, MovedCells};
use common::{SLOT, Subject};
use std::sync::Arc;

const APPLIED: Applied = Applied { epoch: 4, sequence: 40 };

fn filled() -> Subject {
    let mut subject = Subject::new();
    for number in 0..200 {
        subject.ask(&format!("SET key{number} {number} PX {}", 1000 + number));
        subject.ask(&format!("HSET hash{} field{number} {number}", number % 7));
    }
    subject.ask(&format!("SET long {}", "x".repeat(100_000)));
    subject
}

fn pieces(keyspace: &Keyspace) -> Vec<MovedCells> {
    let (mut exporter, mut pieces) = (keyspace.exporter(SLOT), Vec::new());
    loop {
        let (cells, is_last) = exporter.next(1000).unwrap();
        pieces.push(cells);
        if is_last {
            return pieces;
        }
    }
}

#[test]
fn a_slot_that_arrived_is_the_same() {
    let from = filled();
    let mut to = Subject::new();
    to.ask("SET before v");
    to.keyspace.begin_import(SLOT).unwrap();
    for piece in pieces(&from.keyspace) {
        to.keyspace.import(SLOT, &piece).unwrap();
    }
    assert_eq!(to.keyspace.keys_in(SLOT), 0);
    to.keyspace.end_import(SLOT, from.applied, from.now_ms).unwrap();
    to.keyspace.verify(SLOT).unwrap();
    assert_eq!(to.keyspace.digest(SLOT).unwrap(), from.keyspace.digest(SLOT).unwrap());
    assert_eq!(to.keyspace.applied(SLOT), from.applied);
    // The deadlines moved along.
    assert_eq!(to.keyspace.expired(from.now_ms + 1010, 1000, |_| true).found.len(), 11);
}

#[test]
fn a_slot_that_arrives_is_neither_read_nor_written_and_takes_only_cells() {
    let mut to = Subject::new();
    assert!(matches!(to.keyspace.import::<&[u8], &[u8]>(SLOT, &[]), Err(KeyspaceError::NotArriving { .. })));
    assert!(to.keyspace.end_import(SLOT, APPLIED, 0).is_err());
    to.keyspace.begin_import(SLOT).unwrap();
    let (mut reply, get) = (Vec::new(), atoll_resp::Command::Get(b"a"));
    let resp = atoll_resp::Protocol::Resp2;
    let read = to.keyspace.read(SLOT, 0, &get, resp, &mut reply);
    assert!(matches!(read, Err(KeyspaceError::Arriving { slot: SLOT })));
    assert!(to.keyspace.apply(SLOT, APPLIED, 0, &get, resp, &mut reply).is_err());
    for name in [&b""[..], b"\0", b"\xff\xff\0\x07", b"\x09key"] {
        assert!(to.keyspace.import(SLOT, &[(name, b"v")]).is_err(), "{name:?}");
    }
    to.keyspace.clear_slot(SLOT).unwrap();
    assert_eq!(to.ask("GET a"), "nil");
}

#[test]
fn what_arrived_in_part_is_gone_when_the_keyspace_is_opened_again() {
    let from = filled();
    let disk = Arc::new(MemoryDisk::new());
    let options = || Options { background: false, ..Options::default() };
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let mut to = Keyspace::open(&engine, "keys").unwrap();
    to.begin_import(SLOT).unwrap();
    to.import(SLOT, &pieces(&from.keyspace)[0]).unwrap();
    // A complete slot beside it stays.
    common::apply(&mut to, SLOT + 1, APPLIED, 0, &[b"set", b"a", b"v"]);
    drop(to);
    engine.close().unwrap();
    let engine = Engine::open(disk, options()).unwrap();
    let to = Keyspace::open(&engine, "keys").unwrap();
    to.verify(SLOT).unwrap();
    assert_eq!((to.applied(SLOT), to.keys_in(SLOT)), (Applied::default(), 0));
    assert_eq!((to.applied(SLOT + 1), to.keys_in(SLOT + 1)), (APPLIED, 1));
}

#[test]
fn a_cleared_slot_is_as_one_that_never_was() {
    let mut subject = filled();
    let other = Subject::new();
    subject.keyspace.clear_slot(SLOT).unwrap();
    assert_eq!(subject.keyspace.digest(SLOT).unwrap(), other.keyspace.digest(SLOT).unwrap());
    assert_eq!(subject.keyspace.applied(SLOT), Applied::default());
    assert!(subject.keyspace.expired(u64::MAX, 10, |_| true).found.is_empty());
    assert!(subject.keyspace.clear_slot(16384).is_err());
}

/// What a process finds that begins where another one is killed at this moment: the last entry, and how many
/// keys there are.
fn found_after_kill(disk: &SimDisk) -> (Applied, u64) {
    let options = Options { background: false, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.fork()), options).unwrap();
    let found = Keyspace::open(&engine, "keys").unwrap();
    found.verify(SLOT).unwrap();
    (found.applied(SLOT), found.keys_in(SLOT))
}

#[test]
fn slots_that_were_emptied_are_empty_where_the_process_is_killed_right_then() {
    let disk = SimDisk::seeded(1);
    let options = Options { background: false, ..Options::default() };
    let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
    let mut keyspace = Keyspace::open(&engine, "keys").unwrap();
    common::apply(&mut keyspace, SLOT, APPLIED, 0, &[b"set", b"a", b"v"]);
    engine.sync().unwrap();
    assert_eq!(found_after_kill(&disk), (APPLIED, 1));
    keyspace.clear([SLOT].into_iter()).unwrap();
    assert_eq!(found_after_kill(&disk), (Applied::default(), 0));
}

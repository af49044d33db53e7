//! Random commands on an engine and the same ones on plain maps: all answers and all cells have to be equal.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-keyspace --test beside_model`.
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-keyspace --test beside_model`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod common;

use atoll_disk::MemoryDisk;
use atoll_engine::{Engine, Options};
use atoll_keyspace::{Applied, Keyspace, ModelKeyspace, Overdue, ReadOutcome};
use atoll_resp::{Command, Limits, Protocol, RequestParser, Specification, find, write_request};
use common::random::Draw;
use std::sync::Arc;

/// Both, and the disk of the first one.
struct Pair {
    keyspace: Keyspace,
    model: ModelKeyspace,
    engine: Engine,
    disk: Option<Arc<MemoryDisk>>,
    applied: Applied,
    now_ms: u64,
}

const SLOTS: [u16; 3] = [0, 1, 16383];

fn options() -> Options {
    Options { background: false, store_id: Some(7), ..Options::default() }
}

impl Pair {
    fn new(on_disk: bool) -> Self {
        let disk = on_disk.then(|| Arc::new(MemoryDisk::new()));
        let engine = match &disk {
            Some(disk) => Engine::open(disk.clone(), options()).unwrap(),
            None => Engine::in_memory(options()).unwrap(),
        };
        let keyspace = match on_disk {
            true => Keyspace::open(&engine, "keys").unwrap(),
            false => Keyspace::open_in_memory(&engine, "keys").unwrap(),
        };
        let (applied, now_ms) = (Applied { epoch: 1, sequence: 0 }, 1_000_000_000);
        Self { keyspace, model: ModelKeyspace::new(), engine, disk, applied, now_ms }
    }

    fn next(&mut self) -> Applied {
        self.applied.sequence += 1;
        self.applied
    }

    /// The answers of both.
    fn ask(&mut self, slot: u16, words: &[Vec<u8>], protocol: Protocol) -> [Vec<u8>; 2] {
        let mut bytes = Vec::new();
        write_request(&mut bytes, words);
        let mut parser = RequestParser::new(Limits::default());
        let request = parser.parse(&bytes).unwrap().unwrap();
        // A request that is not a command does not reach a keyspace.
        let Ok(command) = Command::of(&request) else { return Default::default() };
        // What the buffer already holds must stay.
        let mut replies = [b"before".to_vec(), b"before".to_vec()];
        let [ours, theirs] = &mut replies;
        if find(&words[0]).is_some_and(Specification::is_write) {
            let (applied, now) = (self.next(), self.now_ms);
            self.keyspace.apply(slot, applied, now, &command, protocol, ours).unwrap();
            self.model.apply(slot, applied, now, &command, protocol, theirs).unwrap();
            return replies;
        }
        loop {
            let outcome = self.keyspace.read(slot, self.now_ms, &command, protocol, ours).unwrap();
            let other = self.model.read(slot, self.now_ms, &command, protocol, theirs).unwrap();
            assert_eq!(outcome, other);
            let ReadOutcome::Expired(overdue) = outcome else { return replies };
            assert_eq!((ours.as_slice(), theirs.as_slice()), (&b"before"[..], &b"before"[..]));
            self.expire(slot, &overdue);
        }
    }

    fn expire(&mut self, slot: u16, overdue: &[Overdue]) {
        let keys: Vec<_> = overdue.iter().map(|key| (key.key.as_slice(), key.deadline_ms)).collect();
        let (applied, now, mut replies) = (self.next(), self.now_ms, [Vec::new(), Vec::new()]);
        let [ours, theirs] = &mut replies;
        self.keyspace.apply_expiry(slot, applied, now, &keys, Protocol::Resp2, ours).unwrap();
        self.model.apply_expiry(slot, applied, now, &keys, Protocol::Resp2, theirs).unwrap();
        assert_eq!(ours, theirs);
    }

    fn forget(&mut self, slot: u16, most: u64) {
        let (applied, now, mut replies) = (self.next(), self.now_ms, [Vec::new(), Vec::new()]);
        let [ours, theirs] = &mut replies;
        self.keyspace.apply_forgetting(slot, applied, now, most, Protocol::Resp2, ours).unwrap();
        self.model.apply_forgetting(slot, applied, now, most, Protocol::Resp2, theirs).unwrap();
        assert_eq!(ours, theirs);
    }

    fn compare(&self) {
        for slot in SLOTS {
            self.keyspace.verify(slot).unwrap();
            self.model.verify(slot).unwrap();
            assert_eq!(self.keyspace.digest(slot).unwrap(), self.model.digest(slot).unwrap(), "slot {slot}");
            assert_eq!(self.keyspace.applied(slot), self.model.applied(slot));
            assert_eq!(self.keyspace.keys_in(slot), self.model.keys_in(slot));
        }
    }

    /// Simulates a restart of the process.
    fn open_again(&mut self) {
        let Some(disk) = &self.disk else { return };
        self.engine.close_shared().unwrap();
        self.engine = Engine::open(disk.clone(), options()).unwrap();
        self.keyspace = Keyspace::open(&self.engine, "keys").unwrap();
    }
}

fn run(seed: u64, on_disk: bool) {
    let mut pair = Pair::new(on_disk);
    let random = fastrand::Rng::with_seed(seed);
    let mut draw = Draw { random, now_ms: 0, lifetimes_ms: (1, 5000), is_wild: true };
    for step in 0..400 {
        draw.now_ms = pair.now_ms;
        let mut words = draw.command();
        if draw.random.u8(..4) == 0 {
            let client = draw.random.u8(..6);
            let name = format!("AT.ID {client} {} 0", draw.random.usize(step / 2..=step));
            words = name.split(' ').map(|word| word.as_bytes().to_vec()).chain(words).collect();
        }
        let slot = SLOTS[draw.random.usize(..SLOTS.len())];
        let protocol = if draw.random.bool() { Protocol::Resp2 } else { Protocol::Resp3 };
        let [ours, theirs] = pair.ask(slot, &words, protocol);
        assert_eq!(ours, theirs, "step {step}: {words:?}");
        match draw.random.u8(..20) {
            0 => pair.now_ms += draw.random.u64(..3000),
            1 => pair.compare(),
            2 if draw.random.u8(..4) == 0 => pair.open_again(),
            3 if draw.random.u8(..4) == 0 => pair.now_ms += draw.random.u64(..900_000),
            4 => pair.forget(slot, draw.random.u64(..4)),
            _ => {}
        }
    }
    pair.compare();
}

fn seeds() -> Vec<u64> {
    match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..200).collect(),
    }
}

fn run_all(on_disk: bool) {
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| run(seed, on_disk));
        assert!(
            result.is_ok(),
            "replay with ATOLL_SEED={seed} cargo test -p atoll-keyspace --test beside_model"
        );
    }
}

#[test]
fn an_engine_in_memory_comes_to_the_same_as_plain_maps() {
    run_all(false);
}

#[test]
fn an_engine_on_a_disk_comes_to_the_same_as_plain_maps_and_keeps_it() {
    run_all(true);
}

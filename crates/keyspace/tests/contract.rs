//! Batches and pages of the contract compared with its model: the same outcomes, values and pages.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-keyspace --test contract`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

mod common;

use atoll_keyspace::{
    Applied, FieldBatch, FieldCondition, FieldMutation, FieldRange, ModelKeyspace, OwnCommand,
};
use atoll_keyspace::{Keyspace, Part, RangeRequest, ReadOutcome};
use atoll_memory::MemoryStore;
use atoll_resp::{Protocol, Value};
use atoll_store::{
    Batch, Buffer, ByteRange, Cell, Condition, Direction, Limits, Mutation, Projection, ReadOptions,
    ScanRequest, SortRange, Store, StoreError, WriteOptions,
};
use common::{SLOT, value};
use std::ops::Bound;
use std::task::{Context, Poll, Waker};

/// Polls once: the store in memory answers immediately.
fn now<T>(mut future: impl Future<Output = T> + Unpin) -> T {
    match std::pin::Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

/// An engine, plain maps, and the model of the contract.
struct Trio {
    keyspace: Keyspace,
    plain: ModelKeyspace,
    store: MemoryStore,
    sequence: u64,
}

fn field_range(range: &SortRange) -> FieldRange<'_> {
    FieldRange { from: range.from.as_ref().map(Vec::as_slice), to: range.to.as_ref().map(Vec::as_slice) }
}

/// A batch as a command.
fn command(batch: &Batch) -> OwnCommand<'_> {
    let conditions = batch.conditions.iter().map(|condition| match condition {
        Condition::Absent(sort) => FieldCondition::Absent(sort),
        Condition::Equals(sort, value) => FieldCondition::Equals(sort, value),
    });
    let mutations = batch.mutations.iter().map(|mutation| match mutation {
        Mutation::Put(sort, value) => FieldMutation::Put(sort, value),
        Mutation::Append(sort, value) => FieldMutation::Append(sort, value),
        Mutation::Delete(sort) => FieldMutation::Delete(sort),
        Mutation::DeleteRange(range) => FieldMutation::DeleteRange(field_range(range)),
    });
    OwnCommand::Batch(FieldBatch {
        key: &batch.partition,
        conditions: conditions.collect(),
        mutations: mutations.collect(),
    })
}

impl Trio {
    fn new() -> Self {
        let keyspace = common::Subject::new().keyspace;
        Self { keyspace, plain: ModelKeyspace::new(), store: MemoryStore::new(), sequence: 0 }
    }

    /// The answer of both keyspaces, which has to be the same.
    fn apply(&mut self, command: &OwnCommand<'_>) -> Value {
        self.sequence += 1;
        let applied = Applied { epoch: 1, sequence: self.sequence };
        let (mut reply, mut other, resp) = (Vec::new(), Vec::new(), Protocol::Resp3);
        self.keyspace.apply_own(SLOT, applied, 0, command, resp, &mut reply).unwrap();
        self.plain.apply_own(SLOT, applied, 0, command, resp, &mut other).unwrap();
        assert_eq!(reply, other);
        value(&reply)
    }

    fn read(&self, command: &OwnCommand<'_>) -> Value {
        let (mut reply, mut other, resp) = (Vec::new(), Vec::new(), Protocol::Resp3);
        let outcome = self.keyspace.read_own(SLOT, 0, command, resp, &mut reply).unwrap();
        assert_eq!(outcome, ReadOutcome::Answered);
        let outcome = self.plain.read_own(SLOT, 0, command, resp, &mut other).unwrap();
        assert_eq!(outcome, ReadOutcome::Answered);
        assert_eq!(reply, other);
        value(&reply)
    }

    /// Writes to all three and compares their outcomes.
    fn write(&mut self, batch: Batch) -> Value {
        let answer = self.apply(&command(&batch));
        match now(self.store.write(batch, WriteOptions::default())) {
            Ok(_) => assert_eq!(answer, Value::Simple(b"OK".to_vec())),
            Err(StoreError::Conflict(conflict)) => {
                let actual = conflict.actual.map_or(Value::Null, |value| Value::String(value.to_vec()));
                let numbers = [conflict.condition as i64, conflict.actual_bytes as i64].map(Value::Integer);
                let [place, length] = numbers;
                assert_eq!(answer, Value::Array(vec![place, actual, length]));
            }
            Err(error) => {
                assert_eq!(answer.error_word(), Some(error.kind().names().resp.as_bytes()), "{error}");
            }
        }
        answer
    }

    fn compare_page(&self, request: &ScanRequest) {
        let part = match request.projection {
            Projection::KeysOnly => None,
            Projection::Values => Some(Part::ALL),
            Projection::Bytes(range) => {
                Some(Part { offset: range.offset, len: range.len.unwrap_or(u64::MAX) })
            }
        };
        let answer = self.read(&OwnCommand::Range(RangeRequest {
            key: &request.partition,
            range: field_range(&request.range),
            is_reverse: request.direction == Direction::Backward,
            limit: request.limit as u64,
            part,
        }));
        let page = now(self.store.scan(request.clone())).unwrap();
        let entries = page.entries.iter().flat_map(|entry| {
            let value = part.map_or(Value::Null, |_| Value::String(entry.value.to_vec()));
            [Value::String(entry.sort.clone()), value, Value::Integer(entry.value_bytes as i64)]
        });
        let more = Value::Integer(i64::from(page.resume.is_some()));
        assert_eq!(answer, Value::Array(vec![more, Value::Array(entries.collect())]), "{request:?}");
    }

    fn compare(&self) {
        self.keyspace.verify(SLOT).unwrap();
        self.plain.verify(SLOT).unwrap();
        assert_eq!(self.keyspace.digest(SLOT).unwrap(), self.plain.digest(SLOT).unwrap());
        for partition in PARTITIONS {
            self.compare_page(&ScanRequest { limit: 10_000, ..ScanRequest::all(partition) });
        }
    }
}

const PARTITIONS: [&[u8]; 2] = [b"p", b"p\0"];

fn sort(random: &mut fastrand::Rng) -> Vec<u8> {
    let letters = b"\0a\xff";
    (0..random.usize(..4)).map(|_| letters[random.usize(..3)]).collect()
}

fn buffer(random: &mut fastrand::Rng) -> Buffer {
    let len = [0, 1, 1, 3, 300, 70_000][random.usize(..6)];
    Buffer::copy_from(&vec![random.u8(..3); len])
}

fn range(random: &mut fastrand::Rng) -> SortRange {
    let end = |random: &mut fastrand::Rng| match random.u8(..4) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(sort(random)),
        _ => Bound::Excluded(sort(random)),
    };
    SortRange { from: end(random), to: end(random) }
}

fn batch(random: &mut fastrand::Rng, partition: &[u8]) -> Batch {
    let mut batch = Batch::on(partition);
    for _ in 0..random.usize(..3) {
        batch = match random.bool() {
            true => batch.if_absent(sort(random)),
            false => batch.if_equals(sort(random), buffer(random)),
        };
    }
    for _ in 0..random.usize(..8) {
        batch = match random.u8(..8) {
            0..=2 => batch.put(sort(random), buffer(random)),
            3 | 4 => batch.append(sort(random), buffer(random)),
            5 => batch.delete(sort(random)),
            _ => batch.delete_range(range(random)),
        };
    }
    batch
}

fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut trio = Trio::new();
    for _ in 0..60 {
        let partition = PARTITIONS[random.usize(..2)];
        trio.write(batch(&mut random, partition));
        if random.u8(..4) > 0 {
            continue;
        }
        trio.compare();
        let bytes = ByteRange { offset: random.u64(..5), len: random.bool().then(|| random.u64(..5)) };
        let projections = [Projection::KeysOnly, Projection::Values, Projection::Bytes(bytes)];
        trio.compare_page(&ScanRequest {
            range: range(&mut random),
            direction: if random.bool() { Direction::Forward } else { Direction::Backward },
            projection: projections[random.usize(..3)],
            limit: random.usize(1..6),
            ..ScanRequest::all(partition)
        });
        let field = sort(&mut random);
        let part = Part { offset: bytes.offset, len: bytes.len.unwrap_or(u64::MAX) };
        let answer = trio.read(&OwnCommand::Get { key: partition, field: &field, part });
        let options = ReadOptions { range: bytes, ..ReadOptions::default() };
        let expected = now(trio.store.get(Cell::new(partition, &field), options)).unwrap();
        assert_eq!(answer, expected.map_or(Value::Null, |value| Value::String(value.to_vec())));
    }
    trio.compare();
}

#[test]
fn batches_and_pages_are_those_of_the_contract() {
    let seeds = match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..300).collect(),
    };
    for seed in seeds {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(result.is_ok(), "replay with ATOLL_SEED={seed} cargo test -p atoll-keyspace --test contract");
    }
}

#[test]
fn limits_are_those_of_the_contract() {
    let limits = Limits::CONTRACT;
    assert_eq!(atoll_keyspace::KEY_BYTES_MAX, limits.partition_key_bytes);
    assert_eq!(atoll_keyspace::FIELD_BYTES_MAX, limits.sort_key_bytes);
    assert_eq!(atoll_keyspace::VALUE_BYTES_MAX as u64, limits.value_bytes);
    assert_eq!(atoll_keyspace::CONDITION_BYTES_MAX, limits.condition_bytes);
    assert_eq!(atoll_keyspace::BATCH_OPERATIONS_MAX, limits.batch_operations);
    assert_eq!(atoll_keyspace::BATCH_BYTES_MAX, limits.batch_bytes);
    assert_eq!(atoll_keyspace::PAGE_BYTES_MAX, limits.page_bytes);
    let zeros = |len: usize| Buffer::build(len, |_| ());
    let (mega, p) = (1 << 20, || Batch::on(*b"p"));
    let most = [
        Batch::on(vec![1; 16 << 10]).put(vec![2; 16 << 10], zeros(1)),
        p().put(*b"long", zeros(64 * mega)),
        p().if_equals(*b"k", zeros(mega)),
        (0..8).fold(p(), |batch, at| batch.put([at], zeros(mega - 1))),
        (0..1000_u16).fold(p(), |batch, at| batch.put(at.to_be_bytes(), zeros(1))),
        p().append(*b"long", zeros(0)),
        // Values that were removed before do not count.
        p().delete_range(SortRange::half_open(*b"l", *b"m")).append(*b"long", zeros(8 * mega - 10)),
    ];
    let more = [
        Batch::on(vec![1; (16 << 10) + 1]).put(*b"k", zeros(1)),
        Batch::on(vec![]).put(*b"k", zeros(1)),
        p().put(vec![2; (16 << 10) + 1], zeros(1)),
        p().delete_range(SortRange::half_open(vec![2; (16 << 10) + 1], *b"x")),
        p().put(*b"k", zeros(64 * mega + 1)),
        p().if_equals(*b"k", zeros(mega + 1)),
        (0..8).fold(p(), |batch, at| batch.put([at], zeros(mega))),
        (0..1001_u16).fold(p(), |batch, at| batch.put(at.to_be_bytes(), zeros(1))),
        p().append(*b"whole", zeros(1)),
        p().put(*b"k", zeros(1)).append(*b"k", zeros(64 * mega)),
    ];
    let mut trio = Trio::new();
    for batch in most {
        let is_refused = matches!(trio.write(batch), Value::Error(_));
        assert!(!is_refused);
    }
    trio.write(p().put(*b"whole", zeros(64 * mega)));
    // A refused batch leaves only its position in the log.
    trio.sequence = 100;
    trio.write(p().if_absent(*b"whole"));
    let before = trio.keyspace.digest(SLOT).unwrap();
    for batch in more {
        trio.sequence = 100;
        let answer = trio.write(batch);
        assert!(matches!(answer, Value::Error(_)), "{answer:?}");
        assert_eq!(trio.keyspace.digest(SLOT).unwrap(), before);
    }
    // A page ends where one more entry would be too long, but has at least one.
    trio.write(p().delete_range(SortRange::all()));
    for (at, megas) in [(0, 5), (1, 1), (2, 2), (3, 1), (4, 1)] {
        trio.write(p().put([at], zeros(megas * mega)));
    }
    for from in 0..5 {
        trio.compare_page(&ScanRequest {
            range: SortRange::half_open([from], *b"z"),
            ..ScanRequest::all(*b"p")
        });
    }
}

#[test]
fn a_partition_is_a_hash_to_clients_of_redis() {
    let mut subject = common::Subject::new();
    let apply = |subject: &mut common::Subject, line: &str| {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let (command, mut reply) = (OwnCommand::of(&words).unwrap(), Vec::new());
        let (applied, now) = (Applied::default(), subject.now_ms);
        subject.keyspace.apply_own(SLOT, applied, now, &command, Protocol::Resp3, &mut reply).unwrap();
        common::told(&value(&reply))
    };
    assert_eq!(apply(&mut subject, "AT.BATCH k IFABSENT a PUT a 1 PUT b 2"), "+OK");
    assert_eq!(subject.ask("HGETALL k"), "{\"a\"=\"1\" \"b\"=\"2\"}");
    assert_eq!(apply(&mut subject, "AT.BATCH k IFABSENT c IFEQ a 2 PUT c 1"), "[1 \"1\" 1]");
    subject.ask("PEXPIRE k 100");
    assert_eq!(apply(&mut subject, "AT.BATCH k APPEND a 2 DEL b"), "+OK");
    assert_eq!(subject.ask("PTTL k"), "100");
    subject.now_ms += 100;
    assert_eq!(apply(&mut subject, "AT.BATCH k IFABSENT a APPEND a 3"), "+OK");
    assert_eq!(subject.ask("HGETALL k"), "{\"a\"=\"3\"}");
    assert_eq!(apply(&mut subject, "AT.BATCH k DELRANGE [a [a"), "+OK");
    assert_eq!(subject.ask("EXISTS k"), "0");
    subject.ask("SET s v");
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    for line in ["AT.BATCH s PUT a 1", "AT.RANGE s - +", "AT.GET s a"] {
        assert_eq!(apply(&mut subject, line), wrong, "{line}");
    }
    subject.keyspace.verify(SLOT).unwrap();
}

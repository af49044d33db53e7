//! Tests on random values: every operation, answer and error arrives as it was sent, and no bytes make a
//! decoder panic.

use super::answer::{self, Travels};
use super::{Request, check_bytes};
use atoll_store::{
    Batch, Buffer, ByteRange, Capabilities, Conflict, Direction, Durability, ErrorKind, Expectation, Limits,
    PartitionPage, PartitionQuery, Place, Projection, Read, ReadOptions, RequestId, ScanEntry, ScanPage,
    ScanRequest, SortRange, Source, Split, StoreError, Timestamp, Token, Waited, WriteOptions, Written,
};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

struct Random(fastrand::Rng);

impl Random {
    fn bytes(&mut self) -> Vec<u8> {
        let most = [0, 1, 10, 300][self.0.usize(..4)];
        (0..self.0.usize(..=most)).map(|_| self.0.u8(..)).collect()
    }

    fn buffer(&mut self) -> Buffer {
        self.bytes().into()
    }

    fn number(&mut self) -> u64 {
        self.0.u64(..) >> self.0.u32(..64)
    }

    fn size(&mut self) -> usize {
        usize::try_from(self.number()).unwrap()
    }

    fn text(&mut self) -> String {
        (0..self.0.usize(..20)).map(|_| self.0.char(..)).collect()
    }

    fn option<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.bool().then(|| make(self))
    }

    fn many<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.0.usize(..6)).map(|_| make(self)).collect()
    }

    fn duration(&mut self) -> Duration {
        Duration::new(self.number(), self.0.u32(..1_000_000_000))
    }

    fn range(&mut self) -> ByteRange {
        ByteRange { offset: self.number(), len: self.option(Self::number) }
    }

    fn sort_range(&mut self) -> SortRange {
        let bound = |random: &mut Self| match random.0.u8(..3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(random.bytes()),
            _ => Bound::Excluded(random.bytes()),
        };
        SortRange { from: bound(self), to: bound(self) }
    }

    fn durability(&mut self) -> Durability {
        Durability::ALL[self.0.usize(..3)]
    }

    fn write_options(&mut self) -> WriteOptions {
        WriteOptions {
            durability: self.option(Self::durability),
            deadline: self.option(Self::duration),
            request: self.option(|random| RequestId { client: random.0.u128(..), sequence: random.number() }),
        }
    }

    fn batch(&mut self) -> Batch {
        let mut batch = Batch::on(self.bytes());
        for _ in 0..self.0.usize(..5) {
            batch = match self.0.u8(..6) {
                0 => batch.if_absent(self.bytes()),
                1 => batch.if_equals(self.bytes(), self.buffer()),
                2 => batch.put(self.bytes(), self.buffer()),
                3 => batch.append(self.bytes(), self.buffer()),
                4 => batch.delete(self.bytes()),
                _ => batch.delete_range(self.sort_range()),
            };
        }
        batch
    }

    fn token(&mut self) -> Option<Token> {
        self.option(|random| Token(random.bytes()))
    }

    fn place(&mut self) -> Place {
        self.option(Self::text).map_or(Place::Here, Place::Host)
    }

    fn split(&mut self) -> Split {
        Split { token: Token(self.bytes()), place: self.place() }
    }

    fn scan(&mut self) -> ScanRequest {
        ScanRequest {
            partition: self.bytes(),
            range: self.sort_range(),
            direction: if self.0.bool() { Direction::Forward } else { Direction::Backward },
            projection: match self.0.u8(..3) {
                0 => Projection::KeysOnly,
                1 => Projection::Values,
                _ => Projection::Bytes(self.range()),
            },
            limit: self.size(),
            resume: self.token(),
        }
    }

    fn request(&mut self) -> Request {
        match self.0.u8(..14) {
            0 => {
                let (range, immutable) = (self.range(), self.0.bool());
                let options = ReadOptions { range, immutable, deadline: self.option(Self::duration) };
                Request::Get(self.bytes(), self.bytes(), options)
            }
            1 => Request::GetMany(self.many(|random| Read {
                partition: random.bytes(),
                sort: random.bytes(),
                range: random.range(),
                immutable: random.0.bool(),
            })),
            2 => Request::Write(self.batch(), self.write_options()),
            3 => Request::Create(self.bytes(), self.bytes(), self.bytes().into(), self.write_options()),
            4 => Request::DeletePartition(self.bytes(), self.write_options()),
            5 => Request::Scan(self.scan()),
            6 => {
                let value = self.option(Self::buffer);
                let expectation =
                    if self.0.bool() { Expectation::Equals(value) } else { Expectation::Differs(value) };
                Request::Wait(self.bytes(), self.bytes(), expectation, self.duration())
            }
            7 => Request::PartitionKeys(PartitionQuery {
                prefix: self.bytes(),
                split: self.option(Self::split),
                limit: self.size(),
                resume: self.token(),
            }),
            8 => Request::Splits(self.number()),
            9 => Request::Place(self.bytes()),
            10 => Request::Now,
            11 => Request::Sync,
            12 => Request::CreateSnapshot(self.text()),
            _ => Request::DeleteSnapshot(self.text()),
        }
    }

    fn capabilities(&mut self) -> Capabilities {
        Capabilities {
            limits: Limits {
                partition_key_bytes: self.size(),
                sort_key_bytes: self.size(),
                value_bytes: self.number(),
                condition_bytes: self.size(),
                batch_operations: self.size(),
                batch_bytes: self.size(),
                page_bytes: self.size(),
            },
            durability: self.many(Self::durability),
            durability_default: self.durability(),
            cheap_scans_across_large_values: self.0.bool(),
            waiters_max: self.size(),
            wait_latency: self.duration(),
            parallelism_best: self.size(),
            round_trip: self.duration(),
            request_memory: self.duration(),
            request_memory_count: self.size(),
        }
    }
}

fn check<T: Travels + PartialEq + std::fmt::Debug>(value: T, seed: u64) {
    let bytes = answer::encode(&Ok(Same(&value)));
    let arrived = answer::decode::<T>(&bytes).unwrap().unwrap();
    assert_eq!(arrived, value, "seed {seed}; replay: SEED={seed} cargo test -p atoll-embedded round_trip");
    for end in 0..bytes.len() {
        assert!(answer::decode::<T>(&bytes[..end]).is_err(), "seed {seed}, cut at {end} of {value:?}");
    }
}

/// Encodes a value by reference.
struct Same<'a, T>(&'a T);

impl<T: Travels> Travels for Same<'_, T> {
    fn write(&self, to: &mut super::bytes::Writer) {
        self.0.write(to);
    }

    fn read(from: &mut super::bytes::Reader<'_>) -> Result<Self, super::DecodeError> {
        Err(from.error("never read"))
    }
}

#[allow(clippy::disallowed_methods)]
fn seeds() -> Vec<u64> {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    one.map_or_else(|| (0..500).collect(), |seed| vec![seed])
}

#[test]
fn every_request_arrives_as_it_left() {
    for seed in seeds() {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let request = random.request();
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes).as_ref(), Ok(&request), "seed {seed}");
        for end in 0..bytes.len() {
            assert!(Request::decode(&bytes[..end]).is_err(), "seed {seed}, cut at {end} of {request:?}");
        }
    }
}

#[test]
fn every_answer_arrives_as_it_left() {
    for seed in seeds() {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        check((), seed);
        check(random.option(Random::buffer), seed);
        check(Written { durability: random.durability(), repeated: random.0.bool() }, seed);
        let entries = random.many(|random| ScanEntry {
            sort: random.bytes(),
            value: random.buffer(),
            value_bytes: random.number(),
        });
        check(ScanPage { entries, resume: random.token() }, seed);
        let met = random.option(Random::buffer);
        check(random.option(|_| met).map_or(Waited::TimedOut, Waited::Met), seed);
        check(PartitionPage { partitions: random.many(Random::bytes), resume: random.token() }, seed);
        check(random.many(Random::split), seed);
        check(random.place(), seed);
        check(Timestamp(random.number()), seed);
        check(random.capabilities(), seed);
    }
}

fn errors(random: &mut Random) -> Vec<StoreError> {
    let source = || -> Option<Source> { Some(Arc::new(std::io::Error::other("the cable is out"))) };
    vec![
        StoreError::Superseded { what: random.text() },
        StoreError::NotFound { what: "snapshot", name: random.text() },
        StoreError::InvalidInput { what: "token", problem: random.text(), hint: "use one that was given" },
        StoreError::Limit { what: "sort key", actual: random.number(), max: random.number() },
        StoreError::Limit { what: "something of a later release", actual: 3, max: 2 },
        StoreError::Unsupported { what: random.text(), hint: "do without" },
        StoreError::Unauthenticated { place: random.text() },
        StoreError::Owned { place: random.text(), host: random.text(), pid: random.0.u32(..) },
        StoreError::Unavailable { place: random.text(), reason: random.text(), source: source() },
        StoreError::Corrupt { place: random.text(), problem: random.text() },
        StoreError::OutOfSpace { place: random.text(), source: source() },
        StoreError::ReadOnly { place: random.text() },
        StoreError::NewerFormat { place: random.text(), found: random.0.u32(..), supported: 1 },
        StoreError::NewerFeature { place: random.text(), bit: random.0.u32(..64), to_write: random.0.bool() },
        StoreError::Unknown { what: "write", reason: random.text(), source: None },
        StoreError::Remote {
            kind: ErrorKind::ALL[random.0.usize(..13)],
            unknown: random.0.bool(),
            message: random.text(),
            hint: random.option(Random::text),
        },
    ]
}

#[test]
fn every_error_keeps_its_kind_outcome_message_and_hint() {
    for seed in seeds() {
        for error in errors(&mut Random(fastrand::Rng::with_seed(seed))) {
            let bytes = answer::encode::<()>(&Err(error.clone()));
            let arrived = answer::decode::<()>(&bytes).unwrap().unwrap_err();
            let facts = |error: &StoreError| (error.kind(), error.outcome(), error.to_string());
            assert_eq!(facts(&arrived), facts(&error), "seed {seed}");
            let keeps_hint = !error.to_string().starts_with("something of a later");
            assert!(arrived.hint() == error.hint() || !keeps_hint, "seed {seed}: {arrived:?}");
        }
    }
}

#[test]
fn a_conflict_arrives_whole() {
    for seed in seeds() {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let conflict = Conflict {
            condition: random.size(),
            sort: random.bytes(),
            actual: random.option(Random::buffer),
            actual_bytes: random.number(),
        };
        let bytes = answer::encode::<()>(&Err(StoreError::Conflict(Box::new(conflict.clone()))));
        match answer::decode::<()>(&bytes).unwrap() {
            Err(StoreError::Conflict(arrived)) => assert_eq!(*arrived, conflict, "seed {seed}"),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn damaged_and_random_bytes_never_panic_a_decoder() {
    for seed in seeds() {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        check_bytes(&random.bytes());
        let mut bytes = random.request().encode();
        for _ in 0..20 {
            let at = random.0.usize(..bytes.len());
            bytes[at] = random.0.u8(..);
            check_bytes(&bytes);
        }
    }
}

#[test]
fn a_count_that_the_bytes_cannot_hold_is_refused() {
    // 2 reads are announced as 2^62.
    let bytes = [2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40, 0, 0];
    assert!(Request::decode(&bytes).is_err());
}

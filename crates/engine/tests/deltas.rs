//! Puts into leaves that are not in memory: the store equals a plain map, whatever happens to a delta before
//! it becomes a page.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test deltas`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use atoll_disk::{FaultPlan, MemoryDisk, SimDisk};
use atoll_engine::{Damage, Direction, Durability, Engine, EngineError, Options, Snapshot, Tree, WriteBatch};
use common::each_seed;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Records of about 90 bytes: three times the budget.
const KEYS: u64 = 36_000;
const BUDGET: u64 = 1 << 20;

fn random_key(random: &mut Rng) -> Vec<u8> {
    key(random.u64(..KEYS))
}

fn random_value(random: &mut Rng) -> Vec<u8> {
    let len = match random.u64(..30) {
        0 => 256 + random.u64(..2000),
        _ => random.u64(..120),
    };
    vec![random.u8(..); len as usize]
}

fn key(number: u64) -> Vec<u8> {
    format!("user{:012}", number.wrapping_mul(0x9E37_79B9) % 1_000_000_007).into_bytes()
}

fn options(background: bool) -> Options {
    Options {
        background,
        log_segment_bytes: 64 << 10,
        memory_bytes: BUDGET,
        store_id: Some(7),
        ..Options::default()
    }
}

fn content(tree: &Tree) -> Model {
    let mut found = Model::new();
    tree.scan((Bound::Unbounded, Bound::Unbounded), Direction::Forward, |key, value| {
        found.insert(key.to_vec(), value.bytes().unwrap().to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

fn assert_snapshot(snapshot: &Snapshot, tree: &Tree, model: &Model) {
    let mut expected = model.iter();
    snapshot
        .scan(tree, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, |key, value| {
            let (other, bytes) = expected.next().unwrap();
            assert_eq!((key, &*value.bytes().unwrap()), (&**other, &**bytes));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(expected.next().is_none());
    assert_eq!(snapshot.len(tree).unwrap(), model.len() as u64);
}

#[track_caller]
fn assert_same(found: &Model, model: &Model) {
    if let Some((found, expected)) = found.iter().zip(model).find(|(a, b)| a != b) {
        let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
        panic!("found {} {:?}, expected {} {:?}", name(found.0), found.1, name(expected.0), expected.1);
    }
    assert_eq!(found.len(), model.len());
}

struct Run {
    random: Rng,
    disk: SimDisk,
    engine: Engine,
    tree: Tree,
    model: Model,
    held: Vec<(Snapshot, Model)>,
    named: Option<Model>,
    /// Number of looks at the store when some puts had gone beside their leaves.
    beside: u64,
    failed: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let disk = SimDisk::seeded(seed);
        let engine = Engine::open(Arc::new(disk.clone()), options(false)).unwrap();
        let tree = engine.tree("t").unwrap();
        let random = Rng::with_seed(seed);
        let mut run = Self {
            random,
            disk,
            engine,
            tree,
            model: Model::new(),
            held: Vec::new(),
            named: None,
            beside: 0,
            failed: 0,
        };
        for first in (0..KEYS).step_by(500) {
            let mut batch = WriteBatch::new();
            for number in first..first + 500 {
                let value = random_value(&mut run.random);
                batch.put(&run.tree, &key(number), &value);
                run.model.insert(key(number), value);
            }
            run.engine.write(&batch, Durability::Buffered).unwrap();
            run.engine.checkpoint().unwrap();
        }
        run
    }

    fn step(&mut self) {
        match self.random.u64(..100) {
            0..50 => self.put_some(),
            50..60 => {
                let key = random_key(&mut self.random);
                self.tree.delete(&key, Durability::Buffered).unwrap();
                self.model.remove(&key);
            }
            60..65 => {
                let key = random_key(&mut self.random);
                self.tree.append(&key, b"more", Durability::Buffered).unwrap();
                self.model.entry(key).or_default().extend(b"more");
            }
            65..90 => {
                let key = random_key(&mut self.random);
                let found = self.tree.get(&key).unwrap().map(|value| value.to_buffer().unwrap().to_vec());
                assert_eq!(found.as_ref(), self.model.get(&key));
            }
            90..94 => {
                if self.held.len() == 3 {
                    let (snapshot, model) = self.held.remove(0);
                    assert_snapshot(&snapshot, &self.tree, &model);
                }
                self.held.push((self.engine.snapshot(), self.model.clone()));
            }
            94..97 => drop(self.engine.checkpoint().unwrap()),
            97 => self.checkpoint_that_fails(),
            98 => self.name_or_forget(),
            _ => self.look(),
        }
    }

    fn put_some(&mut self) {
        let mut batch = WriteBatch::new();
        // A quarter of them into one leaf, the others anywhere.
        let (near, count) = (self.random.u64(..4) == 0, 1 + self.random.u64(..40));
        let first = random_key(&mut self.random);
        for number in 0..count {
            let key = if near {
                [&*first, &[b'a' + number as u8 % 26][..]].concat()
            } else {
                random_key(&mut self.random)
            };
            let value = random_value(&mut self.random);
            batch.put(&self.tree, &key, &value);
            self.model.insert(key, value);
        }
        self.engine.write(&batch, Durability::Buffered).unwrap();
    }

    fn checkpoint_that_fails(&mut self) {
        let struck = self.random.u64(..12);
        self.disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
        self.failed += u64::from(self.engine.checkpoint().is_err());
        self.disk.set_plan(FaultPlan::default());
    }

    fn name_or_forget(&mut self) {
        match self.named.take() {
            None => {
                self.engine.create_snapshot("kept").unwrap();
                self.named = Some(self.model.clone());
            }
            Some(model) => {
                let snapshot = self.engine.open_snapshot("kept").unwrap();
                assert_snapshot(&snapshot, &self.tree, &model);
                self.engine.delete_snapshot("kept").unwrap();
            }
        }
    }

    fn look(&mut self) {
        self.beside += u64::from(self.engine.stats().trees.iter().any(|(_, records)| records.is_none()));
        assert_same(&content(&self.tree), &self.model);
        let report = self.engine.check().unwrap();
        // A failed checkpoint may have left one copy half written; the next checkpoint mends it.
        let is_copy = |error: &EngineError| {
            matches!(error, EngineError::Corrupt { problem: Damage::SuperblockCopy, .. })
        };
        assert!(report.damage.iter().all(is_copy), "{:?}", report.damage);
        assert_eq!(self.tree.len().unwrap(), self.model.len() as u64);
        for (snapshot, model) in &self.held {
            assert_snapshot(snapshot, &self.tree, model);
        }
    }

    /// Opens the store again: after a crash that keeps everything written, or after closing it.
    fn reopen(&mut self) {
        self.held.clear();
        self.engine.sync().unwrap();
        if self.random.u64(..2) == 0 {
            self.engine.clone().close().unwrap();
        }
        self.disk = self.disk.crash();
        self.engine = Engine::open(Arc::new(self.disk.clone()), options(false)).unwrap();
        self.tree = self.engine.tree("t").unwrap();
        self.look();
    }
}

fn run(seed: u64) -> (u64, u64) {
    let mut run = Run::new(seed);
    for _ in 0..3 {
        for _ in 0..250 {
            run.step();
        }
        run.reopen();
    }
    (run.beside, run.failed)
}

#[test]
fn a_store_larger_than_its_memory_equals_a_plain_map() {
    let counts = each_seed("deltas", 1..=6, run);
    let (beside, failed) = counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    // Otherwise the test would not test deltas.
    assert!(beside >= counts.len() as u64 && (failed > 0 || counts.len() == 1), "{beside} {failed}");
}

/// A value that identifies its key and its version.
fn versioned(number: u64, version: u64) -> Vec<u8> {
    [number.to_le_bytes(), version.to_le_bytes()].concat().repeat(5)
}

fn version_of(number: u64, value: &[u8]) -> u64 {
    let version = u64::from_le_bytes(value[8..16].try_into().unwrap());
    assert_eq!(value, versioned(number, version), "key {number}");
    version
}

#[test]
fn readers_see_what_was_put_while_checkpoints_make_pages_of_it() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options(true)).unwrap();
    let tree = engine.tree("t").unwrap();
    let numbers: Vec<u64> = (0..KEYS).collect();
    for numbers in numbers.chunks(500) {
        let records: Vec<_> = numbers.iter().map(|&number| (key(number), versioned(number, 0))).collect();
        tree.put_many(&records, Durability::Buffered).unwrap();
    }
    let written: Vec<AtomicU64> = numbers.iter().map(|_| AtomicU64::new(0)).collect();
    let (written, is_done) = (&written, &AtomicBool::new(false));
    let checkpoints = engine.stats().checkpoint;
    std::thread::scope(|scope| {
        for seed in [11, 12] {
            let tree = tree.clone();
            let engine = engine.clone();
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                while !is_done.load(Ordering::Acquire) {
                    let number = random.u64(..KEYS);
                    let least = written[number as usize].load(Ordering::Acquire);
                    let value = tree.get(&key(number)).unwrap().unwrap().to_buffer().unwrap();
                    assert!(version_of(number, &value) >= least, "key {number}");
                    if random.u64(..50) == 0 {
                        // A snapshot does not move on.
                        let snapshot = engine.snapshot();
                        let seen = || {
                            let value = snapshot.get(&tree, &key(number)).unwrap().unwrap();
                            version_of(number, &value.to_buffer().unwrap())
                        };
                        let first = seen();
                        assert!(first >= least && first == seen(), "key {number}");
                    }
                }
            });
        }
        let mut random = Rng::with_seed(13);
        for version in 1..=40_000 {
            let number = random.u64(..KEYS);
            tree.put(&key(number), &versioned(number, version), Durability::Buffered).unwrap();
            written[number as usize].store(version, Ordering::Release);
        }
        is_done.store(true, Ordering::Release);
    });
    let stats = engine.stats();
    assert!(stats.checkpoint > checkpoints + 5, "{stats:?}");
    assert!(stats.trees.iter().any(|(_, records)| records.is_none()), "nothing went beside: {stats:?}");
    assert_eq!(tree.len().unwrap(), KEYS);
    assert!(engine.check().unwrap().damage.is_empty());
}

/// A store on `disk` whose leaves are all on disk only, except one, so that the depth of the leaves is known.
fn opened(disk: &SimDisk) -> (Engine, Tree) {
    let options = Options { memory_bytes: 64 << 20, blind_puts: true, ..options(false) };
    let engine = Engine::open(Arc::new(disk.clone()), options).unwrap();
    let tree = engine.tree("t").unwrap();
    tree.put(b"user", b"first of all", Durability::Buffered).unwrap();
    (engine, tree)
}

fn sorted(number: u64) -> Vec<u8> {
    format!("user{number:08}").into_bytes()
}

/// A store of 20,000 records on `disk`, closed.
fn filled(disk: &SimDisk) {
    let (engine, tree) = opened(disk);
    for first in (0..20_000).step_by(500) {
        let records: Vec<_> =
            (first..first + 500).map(|number| (sorted(number), versioned(number, 0))).collect();
        tree.put_many(&records, Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
}

#[test]
fn a_checkpoint_writes_what_was_put_beside_leaves_and_not_the_leaves() {
    let disk = SimDisk::seeded(5);
    filled(&disk);
    let some = || (100..20_000u64).step_by(2_000);
    // Each time beside the same leaves, where nothing has read the records that the checkpoint before wrote
    // beside them.
    for version in 1..4 {
        let (engine, tree) = opened(&disk);
        for number in some() {
            tree.put(&sorted(number + version), &versioned(number, version), Durability::Buffered).unwrap();
        }
        let written = engine.checkpoint().unwrap().written_bytes;
        // The inner node and the table are half of it; ten leaves would be 70 KB.
        assert!(written < 40_000, "{written} bytes");
        // The first leaf is in memory.
        let stats = engine.stats();
        assert!((9..=10).contains(&stats.second_pages_written), "{stats:?}");
        engine.close().unwrap();
    }
    let (engine, tree) = opened(&disk);
    for number in some() {
        let value = |number| tree.get(&sorted(number)).unwrap().unwrap().to_buffer().unwrap().to_vec();
        for version in 1..4 {
            assert_eq!(value(number + version), versioned(number, version), "{number} {version}");
        }
        assert_eq!(value(number), versioned(number, 0));
        assert_eq!(value(number + 4), versioned(number + 4, 0));
    }
    assert_eq!(tree.len().unwrap(), 20_001);
    assert!(engine.check().unwrap().damage.is_empty());
    // Earlier builds cannot read this, and the format says so.
    assert!(engine.format().features.contains(&"records-beside-leaves"), "{:?}", engine.format());
}

#[test]
fn who_holds_a_delta_that_no_checkpoint_could_write_keeps_the_page_below() {
    for struck in 0..4 {
        let disk = SimDisk::seeded(struck);
        filled(&disk);
        let (engine, tree) = opened(&disk);
        // Far from each other, so that some leaves are written before the disk fails and others are not.
        let some = || (100..20_000u64).step_by(2_000);
        for number in some() {
            tree.put(&sorted(number), b"beside", Durability::Buffered).unwrap();
        }
        assert!(engine.stats().trees.iter().any(|(_, records)| records.is_none()), "nothing went beside");
        disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
        engine.checkpoint().unwrap_err();
        disk.set_plan(FaultPlan::default());
        let snapshot = engine.snapshot();
        for number in some() {
            tree.put(&sorted(number + 1), b"above", Durability::Buffered).unwrap();
        }
        engine.checkpoint().unwrap();
        // Freed space is reused.
        for version in 1..4 {
            let records: Vec<_> =
                (0..20_000).map(|number| (sorted(number), versioned(number, version))).collect();
            tree.put_many(&records, Durability::Buffered).unwrap();
            engine.checkpoint().unwrap();
        }
        for number in some() {
            let value =
                |number| snapshot.get(&tree, &sorted(number)).unwrap().unwrap().to_buffer().unwrap().to_vec();
            assert_eq!(value(number), b"beside", "{number}");
            assert_eq!(value(number + 1), versioned(number + 1, 0), "{number}");
        }
    }
}

//! Changes between two states: the same as the difference of two plain maps, at the cost of what changed.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test changes`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod common;

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
use atoll_engine::{
    Change, Durability, Engine, EngineError, Options, Snapshot, Tree, TreeChanges, WriteBatch,
};
use common::each_seed;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type ReportedChanges = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Values below this length lie in leaves, where comparing them costs nothing.
const SMALL: usize = 256;

const TREES: [&str; 3] = ["a", "b", "late"];

fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: 64 << 10,
        memory_bytes: 1 << 20,
        store_id: Some(7),
        ..Options::default()
    }
}

/// A state, and the contents of each tree at that time.
struct State {
    snapshot: Snapshot,
    models: BTreeMap<&'static str, Model>,
}

struct Run {
    random: fastrand::Rng,
    disk: Option<Arc<dyn Disk>>,
    engine: Engine,
    models: BTreeMap<&'static str, Model>,
    states: Vec<State>,
    named: BTreeMap<String, BTreeMap<&'static str, Model>>,
}

impl Run {
    fn new(seed: u64, on_disk: bool) -> Self {
        let disk: Option<Arc<dyn Disk>> = on_disk.then(|| Arc::new(MemoryDisk::new()) as Arc<dyn Disk>);
        let engine = match &disk {
            Some(disk) => Engine::open(Arc::clone(disk), options()).unwrap(),
            None => Engine::in_memory(options()).unwrap(),
        };
        let models = TREES[..2].iter().map(|tree| (*tree, Model::new())).collect();
        let random = fastrand::Rng::with_seed(seed);
        let run = Self { random, disk, engine, models, states: Vec::new(), named: BTreeMap::new() };
        TREES[..2].iter().for_each(|tree| drop(run.tree(tree)));
        run
    }

    fn tree(&self, name: &str) -> Tree {
        self.engine.tree(name).unwrap()
    }

    fn any_tree(&mut self) -> (&'static str, Tree) {
        let known: Vec<&'static str> = self.models.keys().copied().collect();
        let name = known[self.random.usize(..known.len())];
        (name, self.tree(name))
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.u32(..4000);
        match self.random.u32(..30) {
            0 => vec![b'x'; 1 + number as usize * 10],
            1 => vec![0; 1 + number as usize % 5],
            _ => format!("user{:012}", u64::from(number) * 7_777_777).into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.random.u32(..60) {
            // Long values of equal length are distinguished as well.
            0 => [70_000, 150_000][self.random.usize(..2)],
            1..=4 => [300, 3000][self.random.usize(..2)],
            5..=9 => 0,
            _ => self.random.usize(..200),
        };
        // Few different bytes, so that many puts change nothing.
        vec![self.random.u8(..3); len]
    }

    /// Puts and deletes of keys that are spread over the tree, or close to each other.
    fn batch(&mut self) {
        let (name, tree) = self.any_tree();
        let mut batch = WriteBatch::new();
        let count = if self.random.u32(..5) == 0 { 1500 } else { 40 };
        let near = self.random.u64(..4000);
        for step in 0..self.random.u64(..count) {
            let key = match count {
                1500 => format!("user{:012}", (near + step) % 4000 * 7_777_777).into_bytes(),
                _ => self.key(),
            };
            let value = self.value();
            let model = self.models.get_mut(name).unwrap();
            match self.random.u32(..8) {
                0 => {
                    batch.append(&tree, &key, &value);
                    model.entry(key).or_default().extend(value);
                }
                1 | 2 => {
                    batch.delete(&tree, &key);
                    model.remove(&key);
                }
                _ => {
                    batch.put(&tree, &key, &value);
                    model.insert(key, value);
                }
            }
        }
        self.engine.write(&batch, Durability::Flushed).unwrap();
    }

    fn delete_range(&mut self) {
        let (name, tree) = self.any_tree();
        let (a, b) = (self.key(), self.key());
        let (from, to) = if a < b { (a, b) } else { (b, a) };
        let mut batch = WriteBatch::new();
        batch.delete_range(&tree, (Bound::Included(&from), Bound::Excluded(&to)));
        self.engine.write(&batch, Durability::Flushed).unwrap();
        self.models.get_mut(name).unwrap().retain(|key, _| !(&from..&to).contains(&key));
    }

    /// Nodes move to another tree and come back unchanged.
    fn move_range(&mut self) {
        let [a, b] = [self.tree("a"), self.tree("b")];
        let (mut ours, mut theirs) = (self.models.remove("a").unwrap(), self.models.remove("b").unwrap());
        let is_apart = match (ours.last_key_value(), theirs.first_key_value()) {
            (Some((last, _)), Some((first, _))) => last < first,
            _ => true,
        };
        if theirs.is_empty() {
            let at = self.key();
            a.split_off(&at, "b", Durability::Flushed).unwrap();
            theirs = ours.split_off(&at);
        } else if is_apart {
            a.absorb(&b, Durability::Flushed).unwrap();
            ours.append(&mut theirs);
        } else {
            let mut batch = WriteBatch::new();
            batch.delete_range(&b, (Bound::Unbounded, Bound::Unbounded));
            self.engine.write(&batch, Durability::Flushed).unwrap();
            theirs.clear();
        }
        self.models.extend([("a", ours), ("b", theirs)]);
    }

    fn step(&mut self) {
        match self.random.u32(..100) {
            0..=44 => self.batch(),
            45..=49 => self.move_range(),
            50..=54 => self.delete_range(),
            55..=64 => {
                let snapshot = self.engine.snapshot();
                self.states.push(State { snapshot, models: self.models.clone() });
            }
            65..=69 => {
                let name = format!("s{}", self.random.u32(..3));
                if self.named.remove(&name).is_some() {
                    self.engine.delete_snapshot(&name).unwrap();
                } else {
                    self.engine.create_snapshot(&name).unwrap();
                    self.named.insert(name, self.models.clone());
                }
            }
            70..=79 => drop(self.engine.checkpoint().unwrap()),
            80 => self.reopen(),
            81 => {
                self.tree("late");
                self.models.entry("late").or_default();
            }
            82..=84 if self.states.len() > 4 => drop(self.states.remove(self.random.usize(..3))),
            85 => drop(self.engine.check().unwrap()),
            _ => self.compare(),
        }
    }

    fn reopen(&mut self) {
        let Some(disk) = self.disk.clone() else { return };
        self.states.clear();
        self.engine.close_shared().unwrap();
        self.engine = Engine::open(disk, options()).unwrap();
    }

    /// Compares two states, in either order, or a state with itself.
    fn compare(&mut self) {
        let mut states = std::mem::take(&mut self.states);
        let kept = states.len();
        for (name, models) in &self.named {
            let snapshot = self.engine.open_snapshot(name).unwrap();
            states.push(State { snapshot, models: models.clone() });
        }
        states.push(State { snapshot: self.engine.snapshot(), models: self.models.clone() });
        let (newer, older) = (self.random.usize(..states.len()), self.random.usize(..states.len()));
        self.check_pair(&states[newer], &states[older]);
        states.truncate(kept);
        self.states = states;
    }

    fn check_pair(&mut self, newer: &State, older: &State) {
        let without = |all: &State, others: &State| -> Vec<String> {
            let names = all.models.keys().filter(|name| !others.models.contains_key(*name));
            names.map(|name| (*name).to_owned()).collect()
        };
        let trees = TreeChanges { created: without(newer, older), dropped: without(older, newer) };
        assert_eq!(newer.snapshot.trees_since(&older.snapshot).unwrap(), trees);
        let none = Model::new();
        for name in TREES {
            let now = newer.models.get(name).unwrap_or(&none);
            let before = older.models.get(name).unwrap_or(&none);
            let from = if self.random.bool() { Vec::new() } else { self.key() };
            let told = self.told(&newer.snapshot, &older.snapshot, name, &from);
            check_told(&told, now, before, &from);
        }
    }

    /// All changes reported from a key on, sometimes by several calls.
    fn told(&mut self, newer: &Snapshot, older: &Snapshot, tree: &str, from: &[u8]) -> ReportedChanges {
        let mut told = ReportedChanges::new();
        let mut next = Bound::Included(from.to_vec());
        let at_once = if self.random.bool() { usize::MAX } else { self.random.usize(1..2000) };
        loop {
            let mut left = at_once;
            let tell = |key: &[u8], change: Change<'_>| {
                let value = match change {
                    Change::Put(value) => Some(value.bytes().unwrap().to_vec()),
                    Change::Deleted => None,
                };
                told.push((key.to_vec(), value));
                left -= 1;
                if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let stopped = newer.changes_since(older, tree, next.as_ref().map(Vec::as_slice), tell).unwrap();
            match stopped {
                Some(key) => next = Bound::Excluded(key),
                None => return told,
            }
        }
    }
}

/// Asserts that everything that differs is reported in order, and otherwise only long values.
fn check_told(told: &ReportedChanges, now: &Model, before: &Model, from: &[u8]) {
    assert!(told.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
    assert!(told.first().is_none_or(|(key, _)| key.as_slice() >= from), "from the key on");
    let mut all: Vec<&Vec<u8>> =
        now.keys().chain(before.keys()).filter(|key| key.as_slice() >= from).collect();
    all.sort();
    all.dedup();
    let mut told = told.iter().peekable();
    for key in all {
        let (now, before) = (now.get(key), before.get(key));
        match told.next_if(|(told, _)| told == key) {
            Some((_, value)) => {
                assert!(value.as_ref() == now, "the value that it has now");
                let is_long = now.is_some_and(|now| now.len() >= SMALL);
                assert!(now != before || is_long, "{} did not change", key.escape_ascii());
            }
            None => assert!(now == before, "{} changed and was not told", key.escape_ascii()),
        }
    }
    assert!(told.next().is_none(), "a key that no state has");
}

fn run(seed: u64, on_disk: bool) {
    let mut run = Run::new(seed, on_disk);
    for _ in 0..250 {
        run.step();
    }
    run.compare();
}

fn run_all(on_disk: bool) {
    each_seed("changes", 1..=12, |seed| run(seed, on_disk));
}

#[test]
fn what_is_told_is_the_difference_of_two_maps_in_memory() {
    run_all(false);
}

#[test]
fn what_is_told_is_the_difference_of_two_maps_across_checkpoints_and_openings() {
    run_all(true);
}

#[test]
fn states_of_different_stores_are_refused() {
    let [one, other] = [1, 2].map(|_| Engine::in_memory(options()).unwrap());
    let ignore = |_: &[u8], _: Change<'_>| ControlFlow::Continue(());
    let refused = one.snapshot().changes_since(&other.snapshot(), "a", Bound::Unbounded, ignore);
    assert!(matches!(refused, Err(EngineError::OtherStore { .. })));
    assert!(matches!(one.snapshot().trees_since(&other.snapshot()), Err(EngineError::OtherStore { .. })));
}

/// A disk that counts reads.
struct Counted {
    disk: MemoryDisk,
    reads: AtomicU64,
}

impl Relay for Counted {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(offset, target)
    }
}

const RECORDS: u64 = 1_000_000;
const CHANGED: u64 = 100;

/// Records put next to each other in ten places, so that leaves are split there.
const CLUSTER: u64 = 400;

/// Adjacent records that are deleted, so that leaves disappear.
const GONE: u64 = 5000;

/// Number of reads that finding a hundred changes among a million records takes, and the number found.
fn reads_of_finding(memory_bytes: u64, is_reshaped: bool) -> (u64, u64) {
    let options = Options { memory_bytes, log_segment_bytes: 1 << 20, ..options() };
    let disk = Arc::new(Counted { disk: MemoryDisk::new(), reads: AtomicU64::new(0) });
    let roomy = Options { memory_bytes: 1 << 30, ..options.clone() };
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, roomy).unwrap();
    let tree = engine.tree("t").unwrap();
    tree.bulk_load((0..RECORDS).map(|number| (number.to_be_bytes(), [7; 24]))).unwrap();
    engine.create_snapshot("before").unwrap();
    let mut batch = WriteBatch::new();
    for number in 0..CHANGED {
        let key = number * (RECORDS / CHANGED) + number % 7 * 50;
        batch.put(&tree, &key.to_be_bytes(), &[8; 24]);
        for more in (0..CLUSTER).filter(|_| is_reshaped && number % 10 == 5) {
            let key = [key.to_be_bytes(), more.to_be_bytes()].concat();
            batch.put(&tree, &key, &[9; 24]);
        }
    }
    if is_reshaped {
        let (from, to) = ((RECORDS / 2 + 1000).to_be_bytes(), (RECORDS / 2 + 1000 + GONE).to_be_bytes());
        batch.delete_range(&tree, (Bound::Included(&from), Bound::Excluded(&to)));
    }
    engine.write(&batch, Durability::Flushed).unwrap();
    engine.close().unwrap();
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
    let (now, before) = (engine.snapshot(), engine.open_snapshot("before").unwrap());
    let (start, mut found) = (disk.reads.load(Ordering::Relaxed), 0);
    let count = |_: &[u8], _: Change<'_>| {
        found += 1;
        ControlFlow::Continue(())
    };
    now.changes_since(&before, "t", Bound::Unbounded, count).unwrap();
    (disk.reads.load(Ordering::Relaxed) - start, found)
}

#[test]
fn a_hundred_changes_among_a_million_records_are_found_in_the_leaves_that_have_them() {
    let (reads, found) = reads_of_finding(1 << 30, false);
    assert_eq!(found, CHANGED);
    // A leaf before and after each change, the inner nodes, and the last leaves again after each pause.
    assert!(reads < 2 * CHANGED + 50, "{reads} reads");
}

#[test]
fn where_leaves_were_split_and_removed_only_those_are_read_as_well() {
    let (reads, found) = reads_of_finding(1 << 30, true);
    assert_eq!(found, CHANGED + 10 * CLUSTER + GONE);
    assert!(reads < 2 * CHANGED + 150, "{reads} reads");
}

#[test]
fn where_memory_is_short_they_are_found_with_few_more_reads() {
    let (reads, found) = reads_of_finding(1 << 20, false);
    assert_eq!(found, CHANGED);
    assert!(reads < 3 * CHANGED + 50, "{reads} reads");
}

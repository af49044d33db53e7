//! Key ranges that move between trees: against plain maps, and what a move writes.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test ranges`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use atoll_disk::{Disk, MemoryDisk};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, Snapshot, Tree, WriteBatch};
use common::each_seed;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Models = BTreeMap<String, Model>;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// Mostly keys with a short common prefix, occasionally some with a long one, or none.
fn random_key(random: &mut Rng) -> Vec<u8> {
    let number = random.u64(..6000);
    match random.u64(..12) {
        0 => [b"long/".as_slice(), &[b'x'; 1500], format!("/{number:05}").as_bytes()].concat(),
        1 => vec![random.u64(..256) as u8; 1 + random.u64(..3) as usize],
        _ => format!("atom/{:03}/{number:08}", number % 7).into_bytes(),
    }
}

fn random_value(random: &mut Rng) -> Vec<u8> {
    let len = match random.u64(..50) {
        0 => 70_000,
        1..=5 => 256 + random.u64(..3000),
        _ => random.u64(..120),
    };
    let seed = random.u8(..);
    (0..len).map(|index| seed.wrapping_add(index as u8)).collect()
}

fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: 64 << 10,
        memory_bytes: 2 << 20,
        store_id: Some(7),
        ..Options::default()
    }
}

fn of_tree(tree: &Tree, direction: Direction) -> Model {
    let mut found = Model::new();
    tree.scan(ALL, direction, |key, value| {
        assert!(found.insert(key.to_vec(), value.bytes().unwrap().to_vec()).is_none());
        ControlFlow::Continue(())
    })
    .unwrap();
    found
}

fn of_snapshot(snapshot: &Snapshot, tree: &Tree) -> Model {
    let mut found = Model::new();
    snapshot
        .scan(tree, ALL, Direction::Forward, |key, value| {
            found.insert(key.to_vec(), value.bytes().unwrap().to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn assert_sound(engine: &Engine, records: usize) {
    let report = engine.check().unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert_eq!(report.records, records as u64);
}

struct Run {
    random: Rng,
    disk: Option<Arc<dyn Disk>>,
    engine: Engine,
    models: Models,
    snapshots: Vec<(Snapshot, Models)>,
    named: BTreeMap<String, Models>,
    splits: u64,
    absorbed: u64,
    refused: u64,
}

impl Run {
    fn new(seed: u64, on_disk: bool) -> Self {
        let disk = on_disk.then(|| Arc::new(MemoryDisk::new()) as Arc<dyn Disk>);
        let engine = match &disk {
            Some(disk) => Engine::open(Arc::clone(disk), options()).unwrap(),
            None => Engine::in_memory(options()).unwrap(),
        };
        Self {
            random: Rng::with_seed(seed),
            disk,
            engine,
            models: Models::new(),
            snapshots: Vec::new(),
            named: BTreeMap::new(),
            splits: 0,
            absorbed: 0,
            refused: 0,
        }
    }

    fn tree(&mut self, name: &str) -> Tree {
        self.models.entry(name.to_owned()).or_default();
        self.engine.tree(name).unwrap()
    }

    fn name(&mut self) -> String {
        format!("t{}", self.random.u64(..6))
    }

    fn durability(&mut self) -> Durability {
        [Durability::Buffered, Durability::Flushed, Durability::Synced][self.random.u64(..3) as usize]
    }

    /// The tree whose range includes a key, so that ranges seldom mix.
    fn owner(&mut self, key: &[u8]) -> String {
        let mut reaches = self.models.iter().filter(|(_, model)| {
            let (first, last) = (model.first_key_value(), model.last_key_value());
            first.zip(last).is_some_and(|(first, last)| first.0.as_slice() <= key && key <= last.0)
        });
        match reaches.next() {
            Some((name, _)) if self.random.u64(..50) > 0 => name.clone(),
            _ if self.random.u64(..8) > 0 => "t0".to_owned(),
            _ => self.name(),
        }
    }

    fn step(&mut self) {
        match self.random.u64(..40) {
            0..=11 => self.batch(),
            12..=16 => self.look(),
            17..=22 => self.split_off(),
            23..=29 => self.absorb(),
            30 => self.delete_range(),
            31 => self.snapshots.push((self.engine.snapshot(), self.models.clone())),
            32 => drop(self.snapshots.pop()),
            33 => self.named_snapshot(),
            34 => self.count(),
            35 | 36 => self.reopen(),
            37 => assert_sound(&self.engine, self.models.values().map(BTreeMap::len).sum()),
            _ => drop(self.engine.checkpoint().unwrap()),
        }
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..1 + self.random.u64(..150) {
            let (key, value) = (random_key(&mut self.random), random_value(&mut self.random));
            let name = self.owner(&key);
            let tree = self.tree(&name);
            let model = self.models.get_mut(&name).unwrap();
            match self.random.u64(..10) {
                0 | 1 => {
                    batch.delete(&tree, &key);
                    model.remove(&key);
                }
                2 => {
                    batch.append(&tree, &key, &value);
                    model.entry(key).or_default().extend(value);
                }
                _ => {
                    batch.put(&tree, &key, &value);
                    model.insert(key, value);
                }
            }
        }
        let durability = self.durability();
        self.engine.write(&batch, durability).unwrap();
    }

    fn delete_range(&mut self) {
        let (a, b) = (random_key(&mut self.random), random_key(&mut self.random));
        let (from, to) = (a.clone().min(b.clone()), a.max(b));
        let name = self.owner(&from);
        let tree = self.tree(&name);
        let mut batch = WriteBatch::new();
        batch.delete_range(&tree, (Bound::Included(&from), Bound::Excluded(&to)));
        self.engine.write(&batch, Durability::Flushed).unwrap();
        self.models.get_mut(&name).unwrap().retain(|key, _| !(&from..&to).contains(&key));
    }

    fn look(&mut self) {
        let name = self.name();
        let tree = self.tree(&name);
        for _ in 0..20 {
            let key = random_key(&mut self.random);
            let found = tree.get(&key).unwrap().map(|value| value.to_buffer().unwrap().to_vec());
            assert_eq!(found.as_ref(), self.models[&name].get(&key), "{name} {key:?}");
        }
    }

    fn split_off(&mut self) {
        let (name, to, durability) = (self.name(), self.name(), self.durability());
        // At an existing key, or between others.
        let at = match self.models.get(&name).and_then(|model| model.keys().nth(model.len() / 3)) {
            Some(key) if self.random.u64(..3) == 0 => key.clone(),
            _ => random_key(&mut self.random),
        };
        let tree = self.tree(&name);
        let is_free = name != to && self.models.get(&to).is_none_or(BTreeMap::is_empty);
        match tree.split_off(&at, &to, durability) {
            Ok((upper, _)) => {
                assert!(is_free, "{to} had records");
                assert_eq!(upper.name(), to);
                let moved = self.models.get_mut(&name).unwrap().split_off(&at);
                self.models.insert(to, moved);
                self.splits += 1;
            }
            Err(EngineError::Occupied { tree }) => assert!(tree == to && !is_free),
            Err(error) => panic!("{error}"),
        }
    }

    fn absorb(&mut self) {
        let (name, other) = (self.name(), self.name());
        let (tree, from, durability) = (self.tree(&name), self.tree(&other), self.durability());
        let ends =
            |model: &Model| Some((model.first_key_value()?.0.clone(), model.last_key_value()?.0.clone()));
        let mixed = ends(&self.models[&name]).zip(ends(&self.models[&other]));
        let mixed = mixed.map(|(a, b)| (a.0.max(b.0), a.1.min(b.1))).filter(|(first, last)| first <= last);
        match tree.absorb(&from, durability) {
            Ok(_) => {
                assert_eq!(mixed, None, "{name} {other}");
                if name != other {
                    let moved = std::mem::take(self.models.get_mut(&other).unwrap());
                    self.absorbed += u64::from(!moved.is_empty() && !self.models[&name].is_empty());
                    self.models.get_mut(&name).unwrap().extend(moved);
                }
            }
            Err(EngineError::Overlap { first, last, .. }) => {
                assert_eq!(mixed, Some((first, last)));
                self.refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn named_snapshot(&mut self) {
        let name = format!("s{}", self.random.u64(..3));
        if self.named.remove(&name).is_some() {
            self.engine.delete_snapshot(&name).unwrap();
        } else {
            self.engine.create_snapshot(&name).unwrap();
            self.named.insert(name, self.models.clone());
        }
    }

    fn count(&mut self) {
        let name = self.name();
        let tree = self.tree(&name);
        assert_eq!(tree.is_empty().unwrap(), self.models[&name].is_empty());
        assert_eq!(tree.len().unwrap(), self.models[&name].len() as u64, "{name}");
    }

    fn check_all(&mut self) {
        for (name, model) in &self.models {
            let tree = self.engine.tree(name).unwrap();
            assert!(of_tree(&tree, Direction::Forward) == *model, "{name}");
            assert!(of_tree(&tree, Direction::Backward) == *model, "{name}");
        }
        let records = self.models.values().map(BTreeMap::len).sum();
        assert_sound(&self.engine, records);
        let named =
            self.named.iter().map(|(name, models)| (self.engine.open_snapshot(name).unwrap(), models));
        for (snapshot, models) in
            self.snapshots.iter().map(|(snapshot, models)| (snapshot, models)).collect::<Vec<_>>()
        {
            same_in_snapshot(&self.engine, snapshot, models);
        }
        named.for_each(|(snapshot, models)| same_in_snapshot(&self.engine, &snapshot, models));
    }

    fn reopen(&mut self) {
        let Some(disk) = self.disk.clone() else { return };
        self.check_all();
        self.snapshots.clear();
        if self.random.u64(..2) == 0 {
            self.engine.close_shared().unwrap();
        } else {
            self.engine.sync().unwrap();
        }
        self.engine = Engine::open(disk, options()).unwrap();
        self.check_all();
    }
}

fn same_in_snapshot(engine: &Engine, snapshot: &Snapshot, models: &Models) {
    for (name, model) in models {
        let tree = engine.tree(name).unwrap();
        assert!(of_snapshot(snapshot, &tree) == *model, "{name} in a snapshot");
        assert_eq!(snapshot.len(&tree).unwrap(), model.len() as u64, "{name} in a snapshot");
    }
}

fn run(seed: u64, on_disk: bool) -> (u64, u64, u64) {
    let mut run = Run::new(seed, on_disk);
    for _ in 0..300 {
        run.step();
    }
    run.check_all();
    run.reopen();
    (run.splits, run.absorbed, run.refused)
}

fn run_all(on_disk: bool) {
    let counts = each_seed("ranges", 1..=12, |seed| run(seed, on_disk));
    let total = counts.into_iter().fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
    assert!(total.0 > 20 && total.1 > 20 && total.2 > 5, "{total:?}");
}

#[test]
fn trees_in_memory_equal_plain_maps_while_ranges_move() {
    run_all(false);
}

#[test]
fn trees_on_disk_equal_plain_maps_while_ranges_move() {
    run_all(true);
}

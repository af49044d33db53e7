//! The engine against a plain ordered map: any sequence of operations gives the same content.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test model`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

mod common;

use atoll_disk::{Disk, MemoryDisk};
use atoll_engine::{Direction, Durability, Engine, Options, Snapshot, Tree, WriteBatch};
use common::each_seed;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn random_key(random: &mut Rng) -> Vec<u8> {
    let number = random.u64(..3000);
    match random.u64(..30) {
        0 => vec![b'x'; 1 + number as usize * 20],
        1 => vec![0; 1 + (number % 5) as usize],
        2 => format!("user{number}").into_bytes(),
        _ => format!("user{:012}", number * 7_777_777).into_bytes(),
    }
}

fn random_value(random: &mut Rng) -> Vec<u8> {
    let len = match random.u64(..40) {
        0 => random.u64(..200_000),
        1..=6 => random.u64(..5000),
        7 => 0,
        _ => random.u64(..200),
    };
    let seed = random.u8(..);
    (0..len).map(|index| seed.wrapping_add(index as u8)).collect()
}

fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: 64 << 10,
        memory_bytes: 1 << 20,
        store_id: Some(7),
        ..Options::default()
    }
}

fn content(scan: impl Fn(Direction, &mut dyn FnMut(Vec<u8>, Vec<u8>))) -> Model {
    let mut forward = Vec::new();
    scan(Direction::Forward, &mut |key, value| forward.push((key, value)));
    let mut backward = Vec::new();
    scan(Direction::Backward, &mut |key, value| backward.push((key, value)));
    backward.reverse();
    assert_eq!(forward.len(), backward.len());
    assert!(forward == backward, "both directions show the same");
    assert!(forward.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
    forward.into_iter().collect()
}

fn of_tree(tree: &Tree) -> Model {
    content(|direction, keep| {
        tree.scan((Bound::Unbounded, Bound::Unbounded), direction, |key, value| {
            keep(key.to_vec(), value.bytes().unwrap().to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    })
}

fn of_snapshot(snapshot: &Snapshot, tree: &Tree) -> Model {
    content(|direction, keep| {
        snapshot
            .scan(tree, (Bound::Unbounded, Bound::Unbounded), direction, |key, value| {
                keep(key.to_vec(), value.bytes().unwrap().to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
    })
}

fn check_same(tree: &Tree, model: &Model, when: &str) {
    let found = of_tree(tree);
    assert_eq!(found.len(), model.len(), "{when}");
    assert!(found == *model, "{when}");
    assert_eq!(tree.len().unwrap(), model.len() as u64, "{when}");
}

struct Run {
    random: Rng,
    disk: Option<Arc<dyn Disk>>,
    engine: Engine,
    tree: Tree,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    named: BTreeMap<String, Model>,
}

impl Run {
    fn new(seed: u64, on_disk: bool) -> Self {
        let disk: Option<Arc<dyn Disk>> = on_disk.then(|| Arc::new(MemoryDisk::new()) as Arc<dyn Disk>);
        let engine = match &disk {
            Some(disk) => Engine::open(Arc::clone(disk), options()).unwrap(),
            None => Engine::in_memory(options()).unwrap(),
        };
        let tree = engine.tree("t").unwrap();
        let random = Rng::with_seed(seed);
        Self {
            random,
            disk,
            engine,
            tree,
            model: Model::new(),
            snapshots: Vec::new(),
            named: BTreeMap::new(),
        }
    }

    fn durability(&mut self) -> Durability {
        [Durability::Buffered, Durability::Flushed, Durability::Synced][self.random.u64(..3) as usize]
    }

    fn step(&mut self) {
        match self.random.u64(..100) {
            0..=44 => self.batch(),
            45..=59 => self.put_one(),
            60..=74 => self.append(),
            75..=84 => self.look(),
            85..=92 => self.delete(),
            93 => self.delete_range(),
            94 => self.snapshot(),
            95 => drop(self.snapshots.pop()),
            96 => self.named_snapshot(),
            97 => self.reopen(),
            98 => self.stream(),
            _ => {
                self.engine.checkpoint().unwrap();
            }
        }
    }

    fn put_one(&mut self) {
        let (key, value, durability) =
            (random_key(&mut self.random), random_value(&mut self.random), self.durability());
        self.tree.put(&key, &value, durability).unwrap();
        self.model.insert(key, value);
    }

    /// A long value in pieces, with a checkpoint or an abandoned writer in between.
    fn stream(&mut self) {
        let key = random_key(&mut self.random);
        let mut writer = self.tree.value_writer(&key).unwrap();
        let mut value = Vec::new();
        for _ in 0..self.random.u64(..8) {
            let part = vec![self.random.u8(..); self.random.u64(..500_000) as usize];
            writer.write(&part).unwrap();
            value.extend(part);
            if self.random.u64(..3) == 0 {
                self.put_one();
                self.engine.checkpoint().unwrap();
            }
        }
        if self.random.u64(..4) > 0 {
            let durability = self.durability();
            writer.commit(durability).unwrap();
            self.model.insert(key, value);
        }
    }

    fn append(&mut self) {
        let (key, value, durability) =
            (random_key(&mut self.random), random_value(&mut self.random), self.durability());
        self.tree.append(&key, &value, durability).unwrap();
        self.model.entry(key).or_default().extend(value);
    }

    fn delete(&mut self) {
        let (key, durability) = (random_key(&mut self.random), self.durability());
        self.tree.delete(&key, durability).unwrap();
        self.model.remove(&key);
    }

    fn batch(&mut self) {
        let mut batch = WriteBatch::new();
        for _ in 0..self.random.u64(..60) {
            let (key, value) = (random_key(&mut self.random), random_value(&mut self.random));
            match self.random.u64(..10) {
                0 => {
                    batch.delete(&self.tree, &key);
                    self.model.remove(&key);
                }
                1 => {
                    batch.append(&self.tree, &key, &value);
                    self.model.entry(key).or_default().extend(value);
                }
                _ => {
                    batch.put(&self.tree, &key, &value);
                    self.model.insert(key, value);
                }
            }
        }
        let durability = self.durability();
        self.engine.write(&batch, durability).unwrap();
    }

    fn delete_range(&mut self) {
        let (a, b) = (random_key(&mut self.random), random_key(&mut self.random));
        let (from, to) = if a < b { (a, b) } else { (b, a) };
        let mut batch = WriteBatch::new();
        batch.delete_range(&self.tree, (Bound::Included(&from), Bound::Excluded(&to)));
        self.engine.write(&batch, Durability::Flushed).unwrap();
        self.model.retain(|key, _| !(&from..&to).contains(&key));
    }

    fn look(&mut self) {
        let keys: Vec<Vec<u8>> = (0..20).map(|_| random_key(&mut self.random)).collect();
        for key in &keys {
            let value = self.tree.get(key).unwrap().map(|value| value.to_buffer().unwrap().to_vec());
            assert_eq!(value.as_ref(), self.model.get(key));
        }
        let mut shown = 0;
        self.tree
            .get_many(&keys, |index, value| {
                assert_eq!(index, shown);
                shown += 1;
                assert_eq!(value, self.model.get(&keys[index]).map(Vec::as_slice));
            })
            .unwrap();
        assert_eq!(shown, keys.len());
        let (from, to) = (Bound::Included(keys[0].as_slice()), Bound::Excluded(keys[1].as_slice()));
        let mut found = Vec::new();
        self.tree
            .scan((from, to), Direction::Forward, |key, _| {
                found.push(key.to_vec());
                if found.len() < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
        let all = self.model.keys().filter(|key| (&keys[0]..&keys[1]).contains(key));
        assert!(found.iter().eq(all.take(50)));
    }

    fn snapshot(&mut self) {
        self.snapshots.push((self.engine.snapshot(), self.model.clone()));
    }

    fn named_snapshot(&mut self) {
        let name = format!("s{}", self.random.u64(..4));
        if self.named.contains_key(&name) {
            self.engine.delete_snapshot(&name).unwrap();
            self.named.remove(&name);
        } else {
            self.engine.create_snapshot(&name).unwrap();
            self.named.insert(name, self.model.clone());
        }
    }

    fn check_snapshots(&self) {
        for (snapshot, model) in &self.snapshots {
            assert!(of_snapshot(snapshot, &self.tree) == *model, "a snapshot changed");
        }
        for (name, model) in &self.named {
            let snapshot = self.engine.open_snapshot(name).unwrap();
            assert!(of_snapshot(&snapshot, &self.tree) == *model, "named snapshot {name} changed");
        }
    }

    fn reopen(&mut self) {
        let Some(disk) = self.disk.clone() else { return };
        self.check_snapshots();
        self.snapshots.clear();
        if self.random.u64(..2) == 0 {
            self.engine.close_shared().unwrap();
        } else {
            self.engine.sync().unwrap();
        }
        self.engine = Engine::open(disk, options()).unwrap();
        self.tree = self.engine.tree("t").unwrap();
        check_same(&self.tree, &self.model, "after opening again");
        let report = self.engine.check().unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        assert_eq!(report.records, self.model.len() as u64);
        self.check_snapshots();
    }
}

fn run(seed: u64, on_disk: bool) {
    let mut run = Run::new(seed, on_disk);
    for _ in 0..300 {
        run.step();
    }
    check_same(&run.tree, &run.model, "at the end");
    run.check_snapshots();
    run.reopen();
}

fn run_all(on_disk: bool) {
    each_seed("model", 1..=12, |seed| run(seed, on_disk));
}

#[test]
fn a_store_in_memory_equals_a_plain_map() {
    run_all(false);
}

#[test]
fn a_store_on_disk_equals_a_plain_map_across_checkpoints_and_openings() {
    run_all(true);
}

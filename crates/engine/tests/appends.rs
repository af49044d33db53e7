//! Growing values: what a reader, a snapshot, a scan or the disk has of a value does not change, and no
//! append is lost.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test appends`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use atoll_disk::{Disk, MemoryDisk};
use atoll_engine::{Direction, Durability, Engine, Options, Tree, Value, WriteBatch};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn seeds() -> Vec<u64> {
    let one = std::env::var("ATOLL_SEED").ok().and_then(|seed| seed.parse().ok());
    one.map_or_else(|| (1..=20).collect(), |seed| vec![seed])
}

fn options() -> Options {
    // So little memory that values come and go.
    Options { memory_bytes: 1 << 20, background: false, ..Options::default() }
}

fn content(tree: &Tree) -> Model {
    let mut content = Model::new();
    let all = (Bound::Unbounded, Bound::Unbounded);
    tree.scan(all, Direction::Forward, |key, value| {
        content.insert(key.to_vec(), value.bytes().unwrap().to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    content
}

/// Asserts that the front of a value is right, whether or not it lies in one piece, and that asking leaves no
/// trace.
fn fronts_are_right(tree: &Tree, key: &[u8], expected: Option<&Vec<u8>>, at: &str) {
    let [short, long] =
        [17, 300].map(|most| expected.map(|value| (&value[..value.len().min(most)], value.len() as u64)));
    let found = tree.front::<17>(key).unwrap();
    assert_eq!(found.as_ref().map(|front| (front.bytes(), front.len())), short, "{at}");
    let found = tree.front::<300>(key).unwrap();
    assert_eq!(found.as_ref().map(|front| (front.bytes(), front.len())), long, "{at}");
}

fn key(random: &mut fastrand::Rng) -> Vec<u8> {
    format!("key{:02}", random.u8(..12)).into_bytes()
}

fn piece(random: &mut fastrand::Rng) -> Vec<u8> {
    let len = match random.u8(..10) {
        0 => random.usize(256..2000),
        1 => 0,
        _ => random.usize(1..256),
    };
    vec![random.u8(..); len]
}

/// Appends and everything that reads values meanwhile, in random order.
fn run(seed: u64, disk: Option<Arc<dyn Disk>>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let open = || match &disk {
        Some(disk) => Engine::open(Arc::clone(disk), options()).unwrap(),
        None => Engine::in_memory(options()).unwrap(),
    };
    let mut engine = open();
    let mut tree = engine.tree("t").unwrap();
    let mut model = Model::new();
    let mut held: Vec<(Value, Vec<u8>)> = Vec::new();
    let mut snapshot = None;
    for step in 0..1500 {
        let key = key(&mut random);
        match random.u8(..100) {
            0..75 => {
                fronts_are_right(&tree, &key, model.get(&key), &format!("seed {seed}, step {step}"));
                let added = piece(&mut random);
                tree.append(&key, &added, Durability::Flushed).unwrap();
                model.entry(key).or_default().extend_from_slice(&added);
            }
            75..79 => {
                tree.delete(&key, Durability::Flushed).unwrap();
                model.remove(&key);
            }
            79..87 => {
                let found = tree.get(&key).unwrap();
                assert_eq!(found.is_some(), model.contains_key(&key), "seed {seed}, step {step}");
                held.extend(found.map(|value| (value, model[&key].clone())));
            }
            87..93 => {
                let length = model.get(&key).map_or(0, Vec::len);
                let (from, len) = (random.usize(..=length), random.usize(..=length.min(300)));
                let found = tree.get(&key).unwrap();
                let part = found.map(|value| value.read(from as u64, len as u64).unwrap());
                let expected = model.get(&key).map(|value| &value[from..(from + len).min(length)]);
                assert_eq!(part.as_deref(), expected, "seed {seed}, step {step}");
            }
            93 => snapshot = Some((engine.snapshot(), model.clone())),
            94 => assert_eq!(content(&tree), model, "seed {seed}, step {step}"),
            95 if disk.is_some() => drop(engine.checkpoint().unwrap()),
            96 if disk.is_some() => {
                (held, snapshot) = (Vec::new(), None);
                drop((tree, engine));
                engine = open();
                tree = engine.tree("t").unwrap();
            }
            _ => {
                for (value, expected) in held.drain(..) {
                    assert_eq!(value.to_buffer().unwrap().as_slice(), expected, "seed {seed}, step {step}");
                }
                if let Some((snapshot, expected)) = &snapshot {
                    for (key, expected) in expected {
                        let found = snapshot.get(&tree, key).unwrap().unwrap().to_buffer().unwrap();
                        assert_eq!(found.as_slice(), expected, "seed {seed}, step {step}");
                    }
                }
            }
        }
    }
    assert_eq!(content(&tree), model, "seed {seed}");
}

#[test]
fn in_memory_what_somebody_has_of_a_value_stays_as_it_is_while_it_grows() {
    seeds().into_iter().for_each(|seed| run(seed, None));
}

#[test]
fn on_disk_too_across_checkpoints_and_openings() {
    seeds().into_iter().for_each(|seed| run(seed, Some(Arc::new(MemoryDisk::new()))));
}

#[test]
fn the_memory_of_a_value_that_grew_is_counted_and_given_back() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let tree = engine.tree("t").unwrap();
    let before = engine.stats().memory_bytes;
    for _ in 0..1000 {
        tree.append(b"key", &[7; 200], Durability::Buffered).unwrap();
    }
    let grown = engine.stats().memory_bytes - before;
    assert!((200_000..500_000).contains(&grown), "{grown}");
    assert_eq!(tree.get(b"key").unwrap().unwrap().to_buffer().unwrap().len(), 200_000);
    // An append does not change a value that a reader holds.
    let value = tree.get(b"key").unwrap().unwrap();
    tree.append(b"key", b"more", Durability::Buffered).unwrap();
    assert_eq!((value.len(), tree.get(b"key").unwrap().unwrap().len()), (200_000, 200_004));
}

#[test]
fn what_a_batch_deleted_with_a_range_does_not_count_for_what_it_appends() {
    let engine = Engine::in_memory(Options::default()).unwrap();
    let (tree, other) = (engine.tree("t").unwrap(), engine.tree("other").unwrap());
    let long = vec![1; 60 << 20];
    for tree in [&tree, &other] {
        tree.put(b"k", &long, Durability::Buffered).unwrap();
    }
    let all = (Bound::Unbounded, Bound::Unbounded);
    let more = vec![2; 8 << 20];
    let mut batch = WriteBatch::new();
    batch.delete_range(&tree, all);
    batch.append(&tree, b"k", &more);
    engine.write(&batch, Durability::Buffered).unwrap();
    assert_eq!(tree.get(b"k").unwrap().unwrap().len(), 8 << 20);
    // Nor does what the batch put before.
    let mut batch = WriteBatch::new();
    batch.append(&tree, b"k", &long[..50 << 20]);
    batch.delete_range(&tree, (Bound::Included(&b"k"[..]), Bound::Unbounded));
    batch.append(&tree, b"k", &more);
    engine.write(&batch, Durability::Buffered).unwrap();
    assert_eq!(tree.get(b"k").unwrap().unwrap().len(), 8 << 20);
    // The deleted range does not affect other keys and trees.
    for (range, of) in [(all, &other), ((Bound::Excluded(&b"k"[..]), Bound::Unbounded), &tree)] {
        let mut batch = WriteBatch::new();
        batch.delete_range(&tree, range);
        batch.append(of, b"k", &long);
        engine.write(&batch, Durability::Buffered).unwrap_err();
    }
}

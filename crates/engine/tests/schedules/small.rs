//! Models of a few leaves that are all in memory: splits, latches, *still*, updates.

use crate::disk::Scheduled;
use atoll_disk::Disk;
use atoll_engine::{Direction, Durability, Engine, Options, Snapshot, Tree, WriteBatch};
use shuttle::thread::{JoinHandle, spawn};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

pub const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);

/// Records that a model finds in its trees, by key.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn options() -> Options {
    Options {
        memory_bytes: 4 << 20,
        checkpoint_bytes: 1 << 20,
        log_segment_bytes: 16 << 10,
        background: false,
        store_id: Some(7),
        life: Some(1),
        ..Options::default()
    }
}

/// Opens what is on a disk, as another process would.
pub fn open(disk: Arc<dyn Disk>, options: Options) -> (Engine, Tree) {
    let engine = Engine::open(disk, options).unwrap();
    let tree = engine.tree("records").unwrap();
    (engine, tree)
}

pub fn put(tree: &Tree, key: &str, value: &[u8]) -> u64 {
    tree.put(key.as_bytes(), value, Durability::Flushed).unwrap().sequence
}

pub fn get(tree: &Tree, key: &str) -> Option<Vec<u8>> {
    tree.get(key.as_bytes()).unwrap().map(|value| value.to_buffer().unwrap().to_vec())
}

/// All records, which must be in order.
pub fn content(tree: &Tree) -> Content {
    let mut records = Vec::new();
    let visit = |key: &[u8], value: atoll_engine::ValueRef<'_>| {
        records.push((key.to_vec(), value.bytes().unwrap().to_vec()));
        ControlFlow::Continue(())
    };
    tree.scan(ALL, Direction::Forward, visit).unwrap();
    in_order(records)
}

/// All records of a snapshot, which must be in order.
pub fn content_of(snapshot: &Snapshot, tree: &Tree) -> Content {
    let mut records = Vec::new();
    let visit = |key: &[u8], value: atoll_engine::ValueRef<'_>| {
        records.push((key.to_vec(), value.bytes().unwrap().to_vec()));
        ControlFlow::Continue(())
    };
    snapshot.scan(tree, ALL, Direction::Forward, visit).unwrap();
    in_order(records)
}

fn in_order(records: Vec<(Vec<u8>, Vec<u8>)>) -> Content {
    assert!(records.windows(2).all(|pair| pair[0].0 < pair[1].0), "keys ascend");
    records.into_iter().collect()
}

/// Sets records in one batch.
pub fn put_all(tree: &Tree, keys: impl Iterator<Item = String>, value: &[u8]) {
    let records: Vec<(String, &[u8])> = keys.map(|key| (key, value)).collect();
    tree.put_many(&records, Durability::Flushed).unwrap();
}

pub fn join(threads: Vec<JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A leaf that nearly fills its frame; one thread writes until it splits, others look keys up and scan.
pub fn reader_against_split() {
    let engine = Engine::in_memory(options()).unwrap();
    let tree = engine.tree("records").unwrap();
    let old = |number: usize| format!("k{:02}", 2 * number);
    put_all(&tree, (0..30).map(old), &[7; 220]);
    let before = engine.stats().leaf_memory_bytes;
    let new = |number: usize| format!("k{:02}", 2 * number + 1);
    let writer = spawn({
        let tree = tree.clone();
        move || (0..7).for_each(|number| _ = put(&tree, &new(number), &[8; 220]))
    });
    let reader = spawn({
        let tree = tree.clone();
        move || [0, 29, 14, 3].into_iter().for_each(|at| assert_eq!(get(&tree, &old(at)), Some(vec![7; 220])))
    });
    let scanner = spawn({
        let tree = tree.clone();
        move || {
            let seen = content(&tree);
            assert_eq!(seen.values().filter(|value| value[0] == 7).count(), 30);
            let news = seen.len() - 30;
            assert!((0..news).all(|number| seen.contains_key(new(number).as_bytes())), "no later one alone");
        }
    });
    join(vec![writer, reader, scanner]);
    assert_eq!(content(&tree).len(), 37);
    assert!(engine.stats().leaf_memory_bytes > before, "the leaf was split");
}

/// Two threads write into one leaf, interleaved keys of their own and one common key; a third reads.
pub fn writers_of_one_leaf() {
    let disk = Scheduled::empty();
    let (_engine, tree) = open(disk.clone(), options());
    put_all(&tree, ["a", "m", "z"].map(str::to_owned).into_iter(), b"first");
    let writer = |own: [&'static str; 2]| {
        let tree = tree.clone();
        move || {
            let first = put(&tree, own[0], own[0].as_bytes());
            // The value of one lies in the leaf, that of the other in the log.
            let shared =
                put(&tree, "shared", &own[0].repeat(if own[0] == "b" { 300 } else { 1 }).into_bytes());
            let last = put(&tree, own[1], own[1].as_bytes());
            tree.delete(own[0].as_bytes(), Durability::Flushed).unwrap();
            assert!(first < shared && shared < last);
            shared
        }
    };
    let (one, two) = (spawn(writer(["b", "y"])), spawn(writer(["c", "n"])));
    let reader = spawn({
        let tree = tree.clone();
        move || {
            let seen: Vec<_> = (0..3).map(|_| get(&tree, "shared")).collect();
            let changes = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert!(changes <= 2 && (seen[0].is_none() || seen[2].is_some()), "{seen:?}");
            assert_eq!(get(&tree, "m").as_deref(), Some(&b"first"[..]));
        }
    });
    let (one, two) = (one.join().unwrap(), two.join().unwrap());
    join(vec![reader]);
    let expected = if one > two { "b".repeat(300) } else { "c".to_owned() };
    assert_eq!(get(&tree, "shared"), Some(expected.into_bytes()), "the later commit wins");
    let here = content(&tree);
    assert_eq!(
        here.keys().map(Vec::as_slice).collect::<Vec<_>>(),
        [&b"a"[..], b"m", b"n", b"shared", b"y", b"z"]
    );
    let (_again, tree) = open(Arc::new(disk.kill()), Options { life: Some(2), ..options() });
    assert_eq!(content(&tree), here, "the log says the same");
}

/// One thread writes into two leaves in turn, one into both at once; a reader of more than one leaf sees no
/// half of it.
pub fn stillness() {
    let engine = Engine::in_memory(options()).unwrap();
    let tree = engine.tree("records").unwrap();
    put_all(&tree, (0..60).map(|number| format!("k{number:02}")), &[0; 220]);
    let placer = spawn({
        let tree = tree.clone();
        move || {
            for round in 1..4 {
                put(&tree, "k01", &[round]);
                put(&tree, "k58", &[round]);
            }
        }
    });
    let batcher = spawn({
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            for round in 1..3 {
                let mut batch = WriteBatch::new();
                batch.put(&tree, b"k02", &[round]);
                batch.put(&tree, b"k57", &[round]);
                engine.write(&batch, Durability::Flushed).unwrap();
            }
        }
    });
    let check = |seen: &Content| {
        let first = |key: &str| seen[key.as_bytes()][0];
        assert!(first("k01") == first("k58") || first("k01") == first("k58") + 1, "in the order of commits");
        assert_eq!(first("k02"), first("k57"), "a batch is seen whole");
    };
    let scanner = spawn({
        let tree = tree.clone();
        move || (0..2).for_each(|_| check(&content(&tree)))
    });
    let others = spawn({
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            let snapshot = engine.snapshot();
            let keys = ["k01", "k58", "k02", "k57"];
            let mut seen = Content::new();
            tree.get_many(&keys, |at, value| drop(seen.insert(keys[at].into(), value.unwrap().to_vec())))
                .unwrap();
            check(&seen);
            check(&content_of(&snapshot, &tree));
        }
    });
    join(vec![placer, batcher, scanner, others]);
}

/// Two threads count in one record by updates, while one puts beside it and one puts into what they read.
pub fn updates() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk.clone(), options());
    put_all(&tree, ["count", "other"].map(str::to_owned).into_iter(), &[0]);
    let counter = || {
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            for _ in 0..2 {
                let decide = |reader: &atoll_engine::Reader<'_>| {
                    let count = reader.get(&tree, b"count")?.unwrap().to_buffer()?[0];
                    let other = reader.get(&tree, b"other")?.unwrap().to_buffer()?[0];
                    let mut batch = WriteBatch::new();
                    batch.put(&tree, b"count", &[count + 1]);
                    batch.put(&tree, b"seen", &[other]);
                    Ok::<_, atoll_engine::EngineError>((Some(batch), other))
                };
                let (other, commit) = engine.update(Durability::Flushed, decide).unwrap();
                assert!(commit.is_some() && other <= 2);
            }
        }
    };
    let placer = spawn({
        let tree = tree.clone();
        move || {
            put(&tree, "other", &[1]);
            put(&tree, "other", &[2]);
        }
    });
    join(vec![spawn(counter()), spawn(counter()), placer]);
    assert_eq!(get(&tree, "count"), Some(vec![4]), "no update is lost");
    let here = content(&tree);
    let (_again, tree) = open(Arc::new(disk.kill()), Options { life: Some(2), ..options() });
    assert_eq!(content(&tree), here, "the log says the same");
}

//! Models of leaves that are evicted and read back, of space that is reused, and of writers that wait for
//! memory.

use crate::disk::Scheduled;
use crate::small::{content, content_of, get, join, open, options, put, put_all};
use atoll_engine::{Durability, Options, Tree};
use shuttle::thread::spawn;
use std::sync::Arc;

/// Records of about four leaves.
const RECORDS: usize = 100;

fn key(number: usize) -> String {
    format!("k{number:03}")
}

fn value(version: u8) -> [u8; 220] {
    [version; 220]
}

/// Memory for less than the leaves: lookups, a scan and a writer bring leaves in and so evict others.
pub fn eviction() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk, Options { memory_bytes: 24 << 10, ..options() });
    put_all(&tree, (0..RECORDS).map(key), &value(0));
    engine.checkpoint().unwrap();
    let reader = spawn({
        let tree = tree.clone();
        move || {
            let mut newest = [0; 4];
            for round in 0..6 {
                let part = round % 4;
                let found = get(&tree, &key(part * 25 + 12)).expect("no record is missing");
                assert!(found == value(found[0]) && found[0] >= newest[part], "whole, and never older");
                newest[part] = found[0];
            }
        }
    });
    let writer = spawn({
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            for version in 1..3 {
                (0..4).for_each(|part| _ = put(&tree, &key(part * 25 + 12), &value(version)));
                engine.checkpoint().unwrap();
            }
        }
    });
    let scanner = spawn({
        let tree = tree.clone();
        move || {
            let seen = content(&tree);
            assert_eq!(seen.len(), RECORDS);
            let versions: Vec<u8> = (0..4).map(|part| seen[key(part * 25 + 12).as_bytes()][0]).collect();
            assert!(versions.is_sorted_by(|a, b| a >= b) && versions[0] - versions[3] <= 1, "{versions:?}");
        }
    });
    join(vec![reader, writer, scanner]);
    let seen = content(&tree);
    assert!((0..4).all(|part| seen[key(part * 25 + 12).as_bytes()] == value(2)));
    assert!(engine.stats().leaf_memory_bytes < 6 * (8 << 10), "leaves went");
    assert!(engine.check().unwrap().damage.is_empty());
}

/// A snapshot is read while everything is rewritten and committed, again and again.
pub fn reclamation() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk.clone(), Options { memory_bytes: 24 << 10, ..options() });
    put_all(&tree, (0..RECORDS).map(key), &value(0));
    engine.checkpoint().unwrap();
    let reader = spawn({
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            let snapshot = engine.snapshot();
            let seen = content_of(&snapshot, &tree);
            let version = seen[key(0).as_bytes()][0];
            assert!(seen.len() == RECORDS && seen.values().all(|found| *found == value(version)));
            for number in [3, 97, 50] {
                let found = snapshot.get(&tree, key(number).as_bytes()).unwrap().expect("it is there");
                assert!(*found.to_buffer().unwrap() == value(version));
            }
        }
    });
    let lookups = spawn({
        let tree = tree.clone();
        move || {
            let mut newest = 0;
            for number in [90, 10, 60, 30] {
                let found = get(&tree, &key(number)).expect("no record is missing");
                assert!(found == value(found[0]) && found[0] >= newest);
                newest = found[0];
            }
        }
    });
    let writer = spawn({
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            for version in 1..5 {
                put_all(&tree, (0..RECORDS).map(key), &value(version));
                engine.checkpoint().unwrap();
            }
        }
    });
    join(vec![reader, lookups, writer]);
    engine.checkpoint().unwrap();
    assert!(engine.stats().free_bytes > 0, "space was given back");
    assert!(engine.check().unwrap().damage.is_empty());
}

/// Leaves that are not in memory: one thread puts beside them and makes checkpoints of that, others read
/// records of the leaves, by a lookup and by a snapshot.
pub fn deltas() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk.clone(), options());
    put_all(&tree, (0..RECORDS).map(key), &value(0));
    engine.close_shared().unwrap();
    let (engine, tree) = open(disk, Options { memory_bytes: 16 << 10, life: Some(2), ..options() });
    let put_at = |part: usize| key(part * 25 + 12);
    let writer = spawn({
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            for version in 1..4 {
                (0..4).for_each(|part| _ = put(&tree, &put_at(part), &[version]));
                // So much that it becomes one page with its leaf; beside the other leaves there are second
                // pages.
                [0, 50]
                    .iter()
                    .for_each(|from| put_all(&tree, (from + 13..from + 22).map(key), &value(version)));
                engine.checkpoint().unwrap();
            }
        }
    });
    let reader = spawn({
        let tree = tree.clone();
        move || {
            let mut newest = 0;
            for number in [3, 28, 53, 78, 8, 33, 58, 83] {
                assert_eq!(get(&tree, &key(number)).as_deref(), Some(&value(0)[..]), "beside what is put");
                let found = get(&tree, &put_at(0)).expect("it is there")[0];
                assert!(found >= newest, "never older");
                newest = found;
            }
        }
    });
    let snapshots = spawn({
        let (engine, tree) = (engine.clone(), tree.clone());
        move || {
            let snapshot = engine.snapshot();
            let seen = content_of(&snapshot, &tree);
            let versions: Vec<u8> = (0..4).map(|part| seen[put_at(part).as_bytes()][0]).collect();
            assert!(versions.is_sorted_by(|a, b| a >= b) && versions[0] - versions[3] <= 1, "{versions:?}");
            assert!(seen.len() == RECORDS && content_of(&snapshot, &tree) == seen, "the same again");
        }
    });
    join(vec![writer, reader, snapshots]);
    let seen = content(&tree);
    assert!((0..4).all(|part| seen[put_at(part).as_bytes()] == [3]) && seen.len() == RECORDS);
    assert!(engine.check().unwrap().damage.is_empty());
}

/// Leaves that are completely on disk, with records beside them that were not read yet: concurrent lookups of
/// a record find the latest put.
pub fn lookups_beside() {
    let disk = Scheduled::empty();
    let blind = |life| Options { blind_puts: true, life: Some(life), ..options() };
    let (engine, tree) = open(disk.clone(), blind(1));
    put_all(&tree, (0..RECORDS).map(key), &value(0));
    engine.close_shared().unwrap();
    let (engine, tree) = open(disk.clone(), blind(2));
    (0..4).for_each(|part| _ = put(&tree, &key(part * 25 + 12), &[1]));
    engine.close_shared().unwrap();
    let (engine, tree) = open(disk, blind(3));
    let reader = |parts: [usize; 3]| {
        let tree = tree.clone();
        move || {
            for part in parts {
                let number = part * 25 + 12;
                assert_eq!(get(&tree, &key(number)).as_deref(), Some(&[1][..]), "what was put last");
                assert_eq!(get(&tree, &key(number + 1)).as_deref(), Some(&value(0)[..]));
            }
        }
    };
    join(vec![spawn(reader([0, 1, 3])), spawn(reader([1, 0, 3]))]);
    assert!(engine.check().unwrap().damage.is_empty());
}

/// Two threads bring in more than the memory holds; a third makes checkpoints. All of them end.
pub fn room() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk, Options { memory_bytes: 48 << 10, background: true, ..options() });
    let writer = |offset: usize| {
        let tree = tree.clone();
        move || {
            for part in 0..10 {
                put_all(&tree, (0..20).map(|number| key(40 * part + 2 * number + offset)), &value(1));
            }
        }
    };
    join(vec![spawn(writer(0)), spawn(writer(1))]);
    assert_eq!(content(&tree).len(), 400);
    assert!(engine.stats().checkpoints_made > 0, "there was too little room for all");
    engine.close_shared().unwrap();
}

/// Cleaning moves values while one thread overwrites and removes them and another reads.
pub fn cleaning() {
    let disk = Scheduled::empty();
    let (engine, tree) = open(disk.clone(), options());
    let long = |version: u8| [version; 600];
    // Each batch fills most of a segment; a quarter of the first ones stays alive.
    (0..RECORDS).step_by(20).for_each(|first| put_all(&tree, (first..first + 20).map(key), &long(0)));
    let others: Vec<usize> = (0..RECORDS).filter(|number| number % 4 > 0).collect();
    others.chunks(20).for_each(|some| put_all(&tree, some.iter().copied().map(key), &long(1)));
    let checkpoint = spawn({
        let engine = engine.clone();
        move || {
            engine.checkpoint().unwrap();
        }
    });
    let writer = spawn({
        let tree = tree.clone();
        move || {
            put(&tree, &key(0), &long(2));
            put(&tree, &key(24), b"2");
            tree.delete(key(48).as_bytes(), Durability::Flushed).unwrap();
            put(&tree, &key(4), &long(2));
            put(&tree, &key(4), &long(3));
        }
    });
    let reader = spawn({
        let tree = tree.clone();
        move || {
            for number in [0, 4, 8, 24, 4, 0] {
                let found = get(&tree, &key(number)).expect("no record is missing");
                assert!(found == long(found[0]) || found == b"2", "whole");
            }
        }
    });
    join(vec![checkpoint, writer, reader]);
    assert!(engine.stats().values_moved > 0, "{:?}", engine.stats());
    let assert_holds = |tree: &Tree| {
        let here = content(tree);
        assert_eq!(here.len(), RECORDS - 1);
        for (number, expected) in
            [(0, &long(2)[..]), (4, &long(3)), (8, &long(0)), (24, b"2"), (25, &long(1))]
        {
            assert!(here[key(number).as_bytes()] == expected, "key {number}");
        }
        here
    };
    let here = assert_holds(&tree);
    assert!(engine.check().unwrap().damage.is_empty());
    let (again, tree) = open(Arc::new(disk.kill()), Options { life: Some(2), ..options() });
    assert!(assert_holds(&tree) == here, "the log says the same");
    assert!(again.check().unwrap().damage.is_empty());
}

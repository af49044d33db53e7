//! Leaves that rot on disk while the log has further changes to them: what is intact stays readable, and
//! nothing outdated is shown.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

mod support;

use atoll_disk::{Disk, MemoryDisk};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, Tree, WriteBatch};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use support::{KEYS, SICK, fill, image, key, old, options, value};

fn read_only(salvage: bool) -> Options {
    Options { read_only: true, salvage, ..options() }
}

fn open(image: &[u8], options: Options) -> Result<(Engine, Tree), EngineError> {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::with_bytes(image.to_vec()));
    let engine = Engine::open(disk, options)?;
    let tree = engine.tree("t")?;
    Ok((engine, tree))
}

/// The disk of a store that made these changes after its last checkpoint, with the leaf of the sick key
/// rotten.
fn rotten(change: impl FnOnce(&Engine, &Tree)) -> Vec<u8> {
    let disk = Arc::new(MemoryDisk::new());
    let opened = || Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    let engine = opened();
    let tree = engine.tree("t").unwrap();
    fill(&tree);
    engine.close().unwrap();
    let engine = opened();
    let tree = engine.tree("t").unwrap();
    change(&engine, &tree);
    let mut bytes = image(&*disk);
    // The log before the checkpoint has it as well, and is not read.
    let needle = old(SICK);
    let places: Vec<usize> =
        (0..bytes.len() - needle.len()).filter(|&at| bytes[at..].starts_with(&needle)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at + 5] ^= 1);
    bytes
}

/// Numbers around the sick one whose records cannot be read.
fn unread(tree: &Tree) -> Vec<u32> {
    (SICK - 200..SICK + 200).filter(|&number| value(tree, number).is_err()).collect()
}

/// Asserts that everything is unchanged, except the rotten leaf, which is an error, and the records in
/// `told`.
fn assert_sound_elsewhere(tree: &Tree, told: &[(u32, Option<&[u8]>)]) {
    let unread = unread(tree);
    assert!((10..200).contains(&unread.len()), "{unread:?}");
    for number in (0..KEYS).step_by(97).chain(unread[0] - 20..unread[0]) {
        if !unread.contains(&number) && !told.iter().any(|(other, _)| *other == number) {
            assert_eq!(value(tree, number).unwrap(), Some(old(number)), "{number}");
        }
    }
    for (number, expected) in told {
        assert_eq!(value(tree, *number).unwrap().as_deref(), *expected, "{number}");
    }
}

#[test]
fn a_rotten_leaf_that_small_puts_of_the_log_went_to_keeps_no_other_from_being_read() {
    let bytes = rotten(|_, tree| {
        assert_eq!(value(tree, SICK + 1).unwrap(), Some(old(SICK + 1)));
        tree.put(&key(SICK + 1), b"new", Durability::Flushed).unwrap();
        tree.put(&key(5), b"elsewhere", Durability::Flushed).unwrap();
    });
    let told: [(u32, Option<&[u8]>); 2] = [(SICK + 1, Some(b"new")), (5, Some(b"elsewhere"))];
    for options in [read_only(false), read_only(true), options()] {
        let (engine, tree) = open(&bytes, options).unwrap();
        assert_sound_elsewhere(&tree, &told);
        assert_eq!(engine.recovery().leaves_lost, 0);
        assert!(!engine.check().unwrap().damage.is_empty());
    }
    // Later writes are committed.
    let disk = Arc::new(MemoryDisk::with_bytes(bytes));
    for round in 0..3 {
        // So that lookups read the records beside a leaf before the leaf.
        let options = Options { blind_puts: true, ..options() };
        let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
        let tree = engine.tree("t").unwrap();
        assert_sound_elsewhere(&tree, &told);
        tree.put(&key(6), &[round], Durability::Flushed).unwrap();
        engine.checkpoint().unwrap();
        assert_sound_elsewhere(&tree, &told);
        engine.close().unwrap();
    }
}

#[test]
fn a_rotten_leaf_keeps_more_small_puts_of_the_log_than_it_would_have_taken() {
    let numbers = SICK - 20..SICK + 20;
    let bytes = rotten(|_, tree| {
        for number in numbers.clone().filter(|&number| number != SICK) {
            tree.put(&key(number), &[9; 100], Durability::Flushed).unwrap();
        }
    });
    let check = |tree: &Tree| {
        for number in numbers.clone().filter(|&number| number != SICK) {
            assert_eq!(value(tree, number).unwrap(), Some(vec![9; 100]), "{number}");
        }
        for number in (0..KEYS).step_by(97).filter(|number| !(SICK - 200..SICK + 200).contains(number)) {
            assert_eq!(value(tree, number).unwrap(), Some(old(number)), "{number}");
        }
        assert!(value(tree, SICK).is_err());
    };
    for options in [read_only(false), read_only(true)] {
        let (engine, tree) = open(&bytes, options).unwrap();
        check(&tree);
        assert_eq!(engine.recovery().leaves_lost, 0);
    }
    let disk = Arc::new(MemoryDisk::with_bytes(bytes));
    for _ in 0..2 {
        // So that lookups read the records beside a leaf before the leaf.
        let options = Options { blind_puts: true, ..options() };
        let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
        let tree = engine.tree("t").unwrap();
        check(&tree);
        tree.put(&key(5), &old(5), Durability::Flushed).unwrap();
        engine.checkpoint().unwrap();
        check(&tree);
        engine.close().unwrap();
    }
}

#[test]
fn what_has_to_know_a_rotten_leaf_is_refused_and_salvage_does_without_the_leaf() {
    let bytes = rotten(|engine, tree| {
        tree.put(&key(SICK + 1), b"a", Durability::Flushed).unwrap();
        tree.append(&key(SICK + 1), b"b", Durability::Flushed).unwrap();
        tree.put(&key(SICK + 2), b"gone soon", Durability::Flushed).unwrap();
        tree.delete(&key(SICK + 2), Durability::Flushed).unwrap();
        tree.delete(&key(7), Durability::Flushed).unwrap();
        let mut batch = WriteBatch::new();
        let (from, to) = (key(SICK - 120), key(SICK - 1));
        batch.delete_range(tree, (Bound::Included(&from), Bound::Included(&to)));
        engine.write(&batch, Durability::Flushed).unwrap();
        tree.put(&key(5), b"elsewhere", Durability::Flushed).unwrap();
    });
    for options in [read_only(false), options()] {
        let refused = open(&bytes, options).map(|_| ()).unwrap_err();
        assert!(matches!(refused, EngineError::Corrupt { .. }), "{refused}");
    }
    let (engine, tree) = open(&bytes, read_only(true)).unwrap();
    assert!(engine.recovery().leaves_lost > 0);
    let told: [(u32, Option<&[u8]>); 3] = [(7, None), (5, Some(b"elsewhere")), (SICK - 120, None)];
    let unread = unread(&tree);
    for number in [SICK, SICK + 1, SICK + 2] {
        assert!(unread.contains(&number), "{number}");
    }
    // Deleted keys of the range are absent where that can be known.
    for number in (SICK - 120..SICK).filter(|number| !unread.contains(number)) {
        assert_eq!(value(&tree, number).unwrap(), None, "{number}");
    }
    for (number, expected) in told {
        assert_eq!(value(&tree, number).unwrap().as_deref(), expected, "{number}");
    }
    for number in (0..KEYS).step_by(97).filter(|number| !(SICK - 120..SICK + 200).contains(number)) {
        assert_eq!(value(&tree, number).unwrap(), Some(old(number)), "{number}");
    }
    assert!(!engine.check().unwrap().damage.is_empty());
    let all = (Bound::Unbounded, Bound::Unbounded);
    tree.scan(all, Direction::Forward, |_, _| ControlFlow::Continue(())).unwrap_err();
}

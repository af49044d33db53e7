//! `salvage` recovers from a store with rotten leaves that the log changes: everything readable, and nothing
//! outdated.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

mod support;

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
use atoll_engine::{Durability, Engine, EngineError, Options, Tree};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use support::{KEYS, SICK, fill, image, key, old, options, value_of};

fn salvaging() -> Options {
    Options { read_only: true, salvage: true, ..options() }
}

fn opened(disk: &Arc<MemoryDisk>) -> Engine {
    Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options()).unwrap()
}

/// A store with a large tree, a tree of three records above its keys, and one more tree, closed.
fn filled() -> Arc<MemoryDisk> {
    let disk = Arc::new(MemoryDisk::new());
    let engine = opened(&disk);
    let tree = engine.tree("t").unwrap();
    fill(&tree);
    for name in ["small", "other"] {
        let small = engine.tree(name).unwrap();
        for number in 30_000..30_003 {
            small.put(&key(number), format!("{name} {number}").as_bytes(), Durability::Buffered).unwrap();
        }
    }
    engine.close().unwrap();
    disk
}

fn rot(bytes: &mut [u8], needle: &[u8]) {
    let places: Vec<usize> =
        (0..bytes.len() - needle.len()).filter(|&at| bytes[at..].starts_with(needle)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at + 2] ^= 1);
}

/// The disk of a store that made these changes after its last checkpoint, with the leaf of this value rotten.
fn rotten(needle: &[u8], change: impl FnOnce(&Engine, &Tree)) -> Vec<u8> {
    let disk = filled();
    let engine = opened(&disk);
    change(&engine, &engine.tree("t").unwrap());
    let mut bytes = image(&*disk);
    rot(&mut bytes, needle);
    bytes
}

fn open(image: &[u8], options: Options) -> Result<(Engine, Tree), EngineError> {
    let engine = Engine::open(Arc::new(MemoryDisk::with_bytes(image.to_vec())), options)?;
    let tree = engine.tree("t")?;
    Ok((engine, tree))
}

fn salvaged(image: &[u8]) -> (Engine, Tree) {
    let refused = open(image, options()).map(|_| ()).unwrap_err();
    assert!(matches!(refused, EngineError::Corrupt { .. }), "{refused}");
    open(image, salvaging()).unwrap()
}

/// Asserts that the sick key is unreadable, and that everything away from it, some of it in other trees, is
/// unchanged.
fn assert_whole_elsewhere(tree_of: impl Fn(u32) -> Tree) {
    assert!(value_of(&tree_of(SICK), &key(SICK)).is_err());
    for number in (0..KEYS).step_by(97).filter(|number| !(SICK - 200..SICK + 200).contains(number)) {
        assert_eq!(value_of(&tree_of(number), &key(number)).unwrap(), Some(old(number)), "{number}");
    }
}

#[test]
fn a_leaf_that_the_log_changes_often_is_lost_once() {
    let bytes = rotten(&old(SICK), |_, tree| {
        for number in SICK - 5..SICK + 5 {
            tree.delete(&key(number), Durability::Flushed).unwrap();
            tree.append(&key(number), b"anew", Durability::Flushed).unwrap();
        }
    });
    let (engine, tree) = salvaged(&bytes);
    // The range may meet a boundary of leaves.
    assert!((1..=2).contains(&engine.recovery().leaves_lost), "{:?}", engine.recovery());
    assert_whole_elsewhere(|_| tree.clone());
}

/// Many keys between the sick one and the next.
fn behind_sick(number: u32) -> Vec<u8> {
    [key(SICK), (number * 7919 % 3000).to_be_bytes()].concat()
}

#[test]
fn however_much_was_put_beside_a_rotten_leaf_comes_out_but_for_what_was_changed_in_other_ways() {
    let count = 3000;
    let bytes = rotten(&old(SICK), |_, tree| {
        for number in 0..count {
            tree.put(&behind_sick(number), &[1; 60], Durability::Flushed).unwrap();
            if number % 2 == 0 {
                tree.put(&behind_sick(number / 2), &[2; 70], Durability::Flushed).unwrap();
            }
            if number == 1000 {
                tree.delete(&behind_sick(7), Durability::Flushed).unwrap();
                tree.append(&behind_sick(8), b"more", Durability::Flushed).unwrap();
                tree.put(&behind_sick(9), &[3; 400], Durability::Flushed).unwrap();
            }
        }
        tree.delete(&behind_sick(2000), Durability::Flushed).unwrap();
    });
    let (engine, tree) = salvaged(&bytes);
    assert_eq!(engine.recovery().leaves_lost, 1);
    for number in 0..count {
        let found = value_of(&tree, &behind_sick(number));
        match number {
            7..=8 | 2000 => assert!(found.is_err(), "{number}: {found:?}"),
            9 => assert_eq!(found.unwrap(), Some(vec![3; 400]), "{number}"),
            0..1500 => assert_eq!(found.unwrap(), Some(vec![2; 70]), "{number}"),
            _ => assert_eq!(found.unwrap(), Some(vec![1; 60]), "{number}"),
        }
    }
    assert_whole_elsewhere(|_| tree.clone());
}

#[test]
fn longer_values_of_the_log_come_out_that_were_put_into_a_rotten_leaf() {
    let long = |len: usize| -> Vec<u8> { (0..len).map(|at| (at % 251) as u8).collect() };
    let in_log = [(0, 256), (1, 5000), (2, (64 << 10) - 1)];
    let bytes = rotten(&old(SICK), |_, tree| {
        let put = |number, value: &[u8]| tree.put(&behind_sick(number), value, Durability::Flushed).unwrap();
        for (number, len) in in_log {
            put(number, &long(len));
        }
        put(10, b"short");
        put(10, &long(400));
        put(11, &long(400));
        put(11, b"short");
        put(12, &long(400));
        tree.append(&behind_sick(12), b"more", Durability::Flushed).unwrap();
        // This value does not lie in the log.
        put(13, b"short");
        put(13, &long(64 << 10));
        // The lost part is divided, with some of each kind in either half.
        for number in 100..1000 {
            put(number, &long(100));
        }
    });
    for memory_bytes in [1 << 30, 4 << 20] {
        let (engine, tree) = open(&bytes, Options { memory_bytes, ..salvaging() }).unwrap();
        assert_eq!(engine.recovery().leaves_lost, 1);
        let snapshot = engine.snapshot();
        let told = in_log.into_iter().chain([(10, 400)]).map(|(number, len)| (number, long(len)));
        for (number, expected) in told.chain([(11, b"short".to_vec()), (700, long(100))]) {
            assert_eq!(value_of(&tree, &behind_sick(number)).unwrap(), Some(expected.clone()), "{number}");
            let shown = snapshot.get(&tree, &behind_sick(number)).unwrap().unwrap();
            assert_eq!(*shown.to_buffer().unwrap(), *expected, "{number}");
        }
        for number in [12, 13] {
            assert!(value_of(&tree, &behind_sick(number)).is_err(), "{number}");
        }
        assert_whole_elsewhere(|_| tree.clone());
    }
}

#[test]
fn what_was_put_into_a_tree_of_one_rotten_leaf_comes_out() {
    let bytes = rotten(b"small 30001", |engine, _| {
        let small = engine.tree("small").unwrap();
        small.put(&key(30_002), b"later", Durability::Flushed).unwrap();
        small.put(&key(5), b"new", Durability::Flushed).unwrap();
    });
    let (engine, _) = salvaged(&bytes);
    let small = engine.tree("small").unwrap();
    assert_eq!(value_of(&small, &key(30_002)).unwrap(), Some(b"later".to_vec()));
    assert_eq!(value_of(&small, &key(5)).unwrap(), Some(b"new".to_vec()));
    assert!(value_of(&small, &key(30_001)).is_err());
    let other = engine.tree("other").unwrap();
    assert_eq!(value_of(&other, &key(30_001)).unwrap(), Some(b"other 30001".to_vec()));
    assert_eq!(engine.recovery().leaves_lost, 1);
}

#[test]
fn ranges_that_moved_over_a_rotten_leaf_are_where_they_went() {
    for is_absorbed in [false, true] {
        let bytes = rotten(&old(SICK), |_, tree| {
            tree.put(&key(SICK + 2), b"before", Durability::Flushed).unwrap();
            let (upper, _) = tree.split_off(&key(SICK + 1), "upper", Durability::Flushed).unwrap();
            tree.put(&key(5), b"elsewhere", Durability::Flushed).unwrap();
            upper.put(&key(KEYS), b"at the end", Durability::Flushed).unwrap();
            if is_absorbed {
                tree.absorb(&upper, Durability::Flushed).unwrap();
            }
        });
        let (engine, tree) = salvaged(&bytes);
        let upper = if is_absorbed { tree.clone() } else { engine.tree("upper").unwrap() };
        let tree_of = |number| if number > SICK { upper.clone() } else { tree.clone() };
        assert_eq!(value_of(&upper, &key(SICK + 2)).unwrap(), Some(b"before".to_vec()));
        assert_eq!(value_of(&upper, &key(KEYS)).unwrap(), Some(b"at the end".to_vec()));
        assert_eq!(value_of(&tree, &key(5)).unwrap(), Some(b"elsewhere".to_vec()));
        assert!(value_of(&upper, &key(SICK + 1)).is_err());
        assert_whole_elsewhere(tree_of);
        if !is_absorbed {
            // How far the damaged leaf reached is unknown.
            assert_ne!(value_of(&tree, &key(SICK + 500)).ok().flatten(), Some(old(SICK + 500)), "it went");
        }
        assert!(engine.recovery().leaves_lost > 0);
    }
}

#[test]
fn a_tree_absorbs_one_of_which_nothing_can_be_read() {
    for absorbs_it in [false, true] {
        let bytes = rotten(b"small 30001", |engine, tree| {
            let small = engine.tree("small").unwrap();
            let (into, from) = if absorbs_it { (tree, &small) } else { (&small, tree) };
            into.absorb(from, Durability::Flushed).unwrap();
        });
        let (engine, tree) = salvaged(&bytes);
        let into = if absorbs_it { tree } else { engine.tree("small").unwrap() };
        for number in (0..KEYS).step_by(97) {
            assert_eq!(value_of(&into, &key(number)).unwrap(), Some(old(number)), "{number}");
        }
        assert_eq!(
            value_of(&into, &[key(5).as_slice(), &[0]].concat()).unwrap(),
            None,
            "it lies among what is known"
        );
        assert!(value_of(&into, &key(30_001)).is_err());
        assert_eq!(engine.recovery().leaves_lost, 1);
    }
}

#[test]
fn a_tree_absorbs_one_of_which_only_long_values_of_the_log_are_known() {
    let long = |number: u32| vec![number as u8; 60_000];
    let bytes = rotten(b"small 30001", |engine, tree| {
        let small = engine.tree("small").unwrap();
        for number in 30_005..30_010 {
            small.put(&key(number), &long(number), Durability::Flushed).unwrap();
        }
        tree.absorb(&small, Durability::Flushed).unwrap();
    });
    let (engine, tree) = salvaged(&bytes);
    for number in 30_005..30_010 {
        assert_eq!(value_of(&tree, &key(number)).unwrap(), Some(long(number)), "{number}");
    }
    assert_eq!(value_of(&tree, &key(5)).unwrap(), Some(old(5)));
    assert!(value_of(&tree, &key(30_001)).is_err());
    assert_eq!(engine.recovery().leaves_lost, 1);
}

/// A disk that shows one image until a place in it was read, and another one from then on.
struct Overtaken {
    first: MemoryDisk,
    then: MemoryDisk,
    place: u64,
    is_over: AtomicBool,
}

impl Relay for Overtaken {
    fn inner(&self) -> &dyn Disk {
        if self.is_over.load(Ordering::Relaxed) { &self.then } else { &self.first }
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let read = self.inner().read_at(offset, target);
        let is_it = (offset..offset + target.len() as u64).contains(&self.place) && target.len() < 64 << 10;
        self.is_over.fetch_or(is_it, Ordering::Relaxed);
        read
    }
}

#[test]
fn who_salvages_beside_an_owner_that_went_on_looks_again_at_what_seems_rotten() {
    let disk = filled();
    let engine = opened(&disk);
    let tree = engine.tree("t").unwrap();
    tree.put(&key(SICK + 1), b"soon older", Durability::Flushed).unwrap();
    let mut first = image(&*disk);
    let needle = old(SICK);
    let place = (0..first.len()).rfind(|&at| first[at..].starts_with(&needle)).unwrap();
    first[place + 2] ^= 1;
    tree.put(&key(SICK + 1), b"newer", Durability::Flushed).unwrap();
    engine.checkpoint().unwrap();
    let then = MemoryDisk::with_bytes(image(&*disk));
    let first = MemoryDisk::with_bytes(first);
    let disk = Arc::new(Overtaken { first, then, place: place as u64, is_over: AtomicBool::new(false) });
    let reader = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, salvaging()).unwrap();
    assert!(disk.is_over.load(Ordering::Relaxed), "nothing seemed rotten");
    let tree = reader.tree("t").unwrap();
    assert_eq!(value_of(&tree, &key(SICK)).unwrap(), Some(old(SICK)));
    assert_eq!(value_of(&tree, &key(SICK + 1)).unwrap(), Some(b"newer".to_vec()));
}

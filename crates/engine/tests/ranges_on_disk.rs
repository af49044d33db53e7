//! Key ranges that move between trees: what a move writes, how older builds react to it, and how it fares on
//! failing disks.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use atoll_disk::{Disk, DiskError, FaultPlan, MemoryDisk, Relay, SimDisk};
use atoll_engine::{Direction, Durability, Engine, EngineError, Options, Tree};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn options() -> Options {
    Options { background: false, log_segment_bytes: 64 << 10, store_id: Some(7), ..Options::default() }
}

fn key(number: u64) -> Vec<u8> {
    format!("atom/{number:010}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    format!("{number:0100}").into_bytes()
}

fn load(tree: &Tree, from: u64, to: u64) {
    tree.bulk_load((from..to).map(|number| (key(number), value(number)))).unwrap();
}

/// The numbers of a tree's keys, read from both ends and checked with their values.
fn numbers(tree: &Tree) -> Vec<u64> {
    let mut both = [Direction::Forward, Direction::Backward].map(|direction| {
        let mut found = Vec::new();
        tree.scan((Bound::Unbounded, Bound::Unbounded), direction, |key, _| {
            found.push(std::str::from_utf8(&key[5..]).unwrap().parse().unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    });
    both[1].reverse();
    assert!(both[0] == both[1]);
    std::mem::take(&mut both[0])
}

fn assert_sound(engine: &Engine) {
    let report = engine.check().unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
}

/// Counts the bytes written.
struct Counted {
    inner: MemoryDisk,
    written: AtomicU64,
}

impl Relay for Counted {
    fn inner(&self) -> &dyn Disk {
        &self.inner
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.inner.write_at(offset, bytes)
    }
}

#[test]
fn a_move_writes_the_nodes_on_the_way_and_nothing_else() {
    const RECORDS: u64 = 1_000_000;
    let disk = Arc::new(Counted { inner: MemoryDisk::new(), written: AtomicU64::new(0) });
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("atoms").unwrap();
    load(&tree, 0, RECORDS);
    engine.checkpoint().unwrap();
    let data = disk.written.swap(0, Ordering::Relaxed);
    assert!(data > RECORDS * 100, "{data}");
    // Also where nothing of the tree is in memory.
    drop((tree, engine));
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("atoms").unwrap();
    let (upper, _) = tree.split_off(&key(400_000), "upper", Durability::Synced).unwrap();
    let split = engine.checkpoint().unwrap();
    tree.absorb(&upper, Durability::Synced).unwrap();
    let absorbed = engine.checkpoint().unwrap();
    let written = disk.written.load(Ordering::Relaxed);
    println!("{data} bytes of data; to split off and absorb: {written}, of them {split:?} {absorbed:?}");
    assert!(written < data / 100, "{written} of {data}");
    assert_eq!(tree.len().unwrap(), RECORDS);
    assert_sound(&engine);
}

#[test]
fn trees_of_any_height_become_one_and_part_again() {
    // One leaf, some leaves, one level of nodes above them, two levels.
    let sizes = [1, 40, 3000, 120_000];
    for (lower, upper) in sizes.into_iter().flat_map(|lower| sizes.map(|upper| (lower, upper))) {
        let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
        let (a, b) = (engine.tree("a").unwrap(), engine.tree("b").unwrap());
        load(&a, 0, lower);
        load(&b, 1_000_000, 1_000_000 + upper);
        let what = format!("{lower} below {upper}");
        // The upper tree absorbs the lower one, and vice versa.
        let (into, from) = if (lower + upper) % 3 == 0 { (&a, &b) } else { (&b, &a) };
        into.absorb(from, Durability::Buffered).unwrap();
        let expected = (0..lower).chain(1_000_000..1_000_000 + upper);
        assert!(numbers(into).into_iter().eq(expected.clone()), "{what}");
        assert!(from.is_empty().unwrap() && from.len().unwrap() == 0, "{what}");
        assert_eq!(into.len().unwrap(), lower + upper, "{what}");
        assert_sound(&engine);
        // Writes find their way on both sides of the seam.
        into.put(&key(999_999), b"new", Durability::Buffered).unwrap();
        into.delete(&key(999_999), Durability::Buffered).unwrap();
        let at = [0, lower / 2, lower, 1_000_000 + upper / 3, 1_000_000 + upper - 1][(upper % 5) as usize];
        let (above, _) = into.split_off(&key(at), "above", Durability::Buffered).unwrap();
        assert!(numbers(into).into_iter().eq(expected.clone().filter(|number| *number < at)), "{what}");
        assert!(numbers(&above).into_iter().eq(expected.filter(|number| *number >= at)), "{what}");
        engine.checkpoint().unwrap();
        assert_sound(&engine);
        assert_eq!(into.len().unwrap() + above.len().unwrap(), lower + upper, "{what}");
        assert_sound(&engine);
    }
}

#[test]
fn nodes_that_are_full_are_split_at_the_seam() {
    let engine = Engine::in_memory(options()).unwrap();
    let (a, b) = (engine.tree("a").unwrap(), engine.tree("b").unwrap());
    // Ascending puts fill nodes completely.
    let put = |tree: &Tree, numbers: std::ops::Range<u64>| {
        for number in numbers {
            tree.put(&key(number), &value(number), Durability::Buffered).unwrap();
        }
    };
    put(&a, 0..100_000);
    put(&b, 100_000..130_000);
    a.absorb(&b, Durability::Buffered).unwrap();
    assert!(numbers(&a).into_iter().eq(0..130_000));
    assert_sound(&engine);
    put(&b, 200_000..201_000);
    b.absorb(&a, Durability::Buffered).unwrap();
    assert!(numbers(&b).into_iter().eq((0..130_000).chain(200_000..201_000)));
    assert_sound(&engine);
}

#[test]
fn splitting_and_absorbing_again_and_again_leaves_no_more_nodes() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = Engine::open(disk, options()).unwrap();
    let tree = engine.tree("t").unwrap();
    load(&tree, 0, 200_000);
    let pages = engine.check().unwrap().pages;
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..200 {
        let at = key(random.u64(1..200_000));
        let (upper, _) = tree.split_off(&at, "upper", Durability::Buffered).unwrap();
        tree.absorb(&upper, Durability::Buffered).unwrap();
    }
    engine.checkpoint().unwrap();
    let after = engine.check().unwrap();
    assert!(after.damage.is_empty() && after.records == 200_000, "{after:?}");
    // At most two leaves for each cut, where halves do not fit into one leaf again.
    assert!(after.pages <= pages + 2 * 200 + 8, "{pages} {}", after.pages);
    assert!(numbers(&tree).into_iter().eq(0..200_000));
}

/// The features needed to read, as both superblocks name them.
fn features(bytes: &[u8]) -> [u64; 2] {
    [0, 4096].map(|copy| u64::from_le_bytes(bytes[copy + 16..copy + 24].try_into().unwrap()))
}

#[test]
fn both_superblocks_say_so_before_the_first_range_moves() {
    let disk = SimDisk::seeded(4);
    let engine = Engine::open(Arc::new(disk.clone()), options()).unwrap();
    let tree = engine.tree("t").unwrap();
    (0..100).for_each(|number| assert!(tree.put(&key(number), b"v", Durability::Synced).is_ok()));
    assert_eq!(features(&disk.to_bytes()), [0, 0]);
    // At every change of the disk from the beginning of the split on: the log has no move before the
    // superblocks announce it.
    for cut in 0..12 {
        let copy = disk.fork();
        let engine = Engine::open(Arc::new(copy.clone()), options()).unwrap();
        let tree = engine.tree("t").unwrap();
        copy.set_plan(FaultPlan { power_cut_after: Some(cut), ..FaultPlan::default() });
        let split = tree.split_off(&key(50), "upper", Durability::Synced);
        let after = copy.crash();
        let engine = Engine::open(Arc::new(after.clone()), options()).unwrap();
        let has_moved = engine.tree_names() == ["t", "upper"];
        assert!(has_moved || split.is_err(), "{cut}");
        assert!(!has_moved || features(&after.to_bytes()) == [1, 1], "{cut}");
        let lower = engine.tree("t").unwrap();
        assert_eq!(numbers(&lower).len(), if has_moved { 50 } else { 100 }, "{cut}");
        assert_sound(&engine);
    }
    assert!(engine.format().features.is_empty());
    // The feature stays.
    let (upper, _) = tree.split_off(&key(50), "upper", Durability::Synced).unwrap();
    assert_eq!(features(&disk.to_bytes()), [1, 1]);
    tree.absorb(&upper, Durability::Synced).unwrap();
    engine.close().unwrap();
    // The tree was not counted since, and a commit says so.
    assert_eq!(features(&disk.to_bytes()), [3, 3]);
    let engine = Engine::open(Arc::new(disk.clone()), options()).unwrap();
    assert_eq!(engine.tree("t").unwrap().len().unwrap(), 100);
    engine.checkpoint().unwrap();
    assert_eq!(features(&disk.to_bytes()), [3, 3]);
    assert_eq!(engine.format().features, ["moved-ranges", "uncounted-trees"]);
}

#[test]
fn a_move_that_the_disk_refuses_changes_nothing_and_can_be_tried_again() {
    for struck in 0..6 {
        let disk = SimDisk::seeded(struck);
        let engine = Engine::open(Arc::new(disk.clone()), options()).unwrap();
        let tree = engine.tree("t").unwrap();
        (0..500)
            .for_each(|number| assert!(tree.put(&key(number), &value(number), Durability::Flushed).is_ok()));
        disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
        let refused = tree.split_off(&key(100), "upper", Durability::Flushed).is_err();
        assert_eq!(refused, struck < 3, "two superblocks and a group: {struck}");
        disk.set_plan(FaultPlan::default());
        if refused {
            assert_eq!(tree.len().unwrap(), 500);
            tree.split_off(&key(100), "upper", Durability::Flushed).unwrap();
        }
        engine.sync().unwrap();
        let after = disk.crash();
        assert_eq!(features(&after.to_bytes()), [1, 1]);
        let engine = Engine::open(Arc::new(after), options()).unwrap();
        assert!(numbers(&engine.tree("t").unwrap()).into_iter().eq(0..100));
        assert!(numbers(&engine.tree("upper").unwrap()).into_iter().eq(100..500));
        assert_sound(&engine);
    }
}

#[test]
fn records_are_counted_when_somebody_asks_and_stay_counted() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = Engine::open(disk.clone(), options()).unwrap();
    let tree = engine.tree("a").unwrap();
    load(&tree, 0, 5000);
    tree.split_off(&key(1000), "b", Durability::Buffered).unwrap();
    engine.tree("b").unwrap().split_off(&key(3000), "c", Durability::Buffered).unwrap();
    let known =
        |engine: &Engine| -> BTreeMap<String, Option<u64>> { engine.stats().trees.into_iter().collect() };
    assert_eq!(known(&engine).values().flatten().count(), 0);
    // Trees that change meanwhile do not affect this.
    tree.put(&key(0), b"again", Durability::Buffered).unwrap();
    let c = engine.tree("c").unwrap();
    (4000..4600).for_each(|number| assert!(c.delete(&key(number), Durability::Buffered).is_ok()));
    engine.create_snapshot("before").unwrap();
    engine.close().unwrap();
    let engine = Engine::open(disk.clone(), options()).unwrap();
    assert_eq!(known(&engine).values().flatten().count(), 0);
    let trees = ["a", "b", "c"].map(|name| engine.tree(name).unwrap());
    assert!(trees.iter().all(|tree| !tree.is_empty().unwrap()));
    let snapshot = engine.open_snapshot("before").unwrap();
    assert_eq!(trees.each_ref().map(|tree| snapshot.len(tree).unwrap()), [1000, 2000, 1400]);
    assert_eq!(trees[2].len().unwrap(), 1400);
    assert_eq!((known(&engine)["a"], known(&engine)["c"]), (None, Some(1400)));
    assert_eq!(trees[0].len().unwrap(), 1000);
    assert_eq!(trees[1].len().unwrap(), 2000);
    engine.close().unwrap();
    let engine = Engine::open(disk, options()).unwrap();
    assert_eq!(known(&engine).values().flatten().count(), 3);
    assert_sound(&engine);
}

#[test]
fn a_count_that_others_overtake_is_right_for_its_moment_and_kept_by_nobody() {
    let engine = Engine::in_memory(options()).unwrap();
    let tree = engine.tree("a").unwrap();
    load(&tree, 0, 30_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(engine.tree("b").unwrap().len().unwrap() <= 30_000);
            }
        });
        for round in 0..300 {
            let (upper, _) = tree.split_off(&key(round * 100), "b", Durability::Buffered).unwrap();
            assert!(tree.len().unwrap() + upper.len().unwrap() == 30_000 || round == 0);
            tree.absorb(&upper, Durability::Buffered).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        counting.join().unwrap();
    });
    assert_eq!(tree.len().unwrap(), 30_000);
    assert_sound(&engine);
}

#[test]
fn trees_of_two_stores_stay_apart_and_so_do_those_that_mix() {
    let (one, other) = (Engine::in_memory(options()).unwrap(), Engine::in_memory(options()).unwrap());
    let (a, b) = (one.tree("a").unwrap(), other.tree("a").unwrap());
    assert!(matches!(a.absorb(&b, Durability::Flushed), Err(EngineError::ForeignTree { .. })));
    let b = one.tree("b").unwrap();
    load(&a, 0, 100);
    load(&b, 50, 150);
    let error = a.absorb(&b, Durability::Flushed).unwrap_err();
    let expected = "trees \"a\" and \"b\" both span the keys from \"atom/0000000050\" to \"atom/0000000099\"";
    assert!(error.to_string().starts_with(expected), "{error}");
    assert!(matches!(a.absorb(&a, Durability::Flushed), Err(EngineError::Overlap { .. })));
    let occupied = a.split_off(&key(50), "b", Durability::Flushed);
    assert!(matches!(occupied, Err(EngineError::Occupied { tree }) if tree == "b"));
    assert!(matches!(a.split_off(b"", "c", Durability::Flushed), Err(EngineError::Size { .. })));
    assert_eq!((a.len().unwrap(), b.len().unwrap(), one.tree_names().len()), (100, 100, 2));
}

#[test]
fn log_segments_of_what_moved_are_cleaned_as_any_other() {
    let disk = Arc::new(MemoryDisk::new());
    let options = Options { checkpoint_bytes: u64::MAX, ..options() };
    let engine = Engine::open(disk, options).unwrap();
    let tree = engine.tree("t").unwrap();
    let long = |number: u64| vec![number as u8; 1000];
    (0..2000).for_each(|number| assert!(tree.put(&key(number), &long(number), Durability::Buffered).is_ok()));
    let (upper, _) = tree.split_off(&key(1), "upper", Durability::Buffered).unwrap();
    // One in ten stays.
    for number in (1..2000).filter(|number| number % 10 > 0) {
        upper.delete(&key(number), Durability::Buffered).unwrap();
    }
    for _ in 0..4 {
        engine.checkpoint().unwrap();
    }
    let stats = engine.stats();
    assert!(stats.values_moved > 100, "{stats:?}");
    assert!(stats.log_segment_bytes <= stats.log_value_bytes * 4 / 3 + 4 * (64 << 10), "{stats:?}");
    assert_sound(&engine);
    for number in (10..2000).step_by(10) {
        assert_eq!(upper.get(&key(number)).unwrap().unwrap().to_buffer().unwrap().to_vec(), long(number));
    }
    // Values that were moved to a cold segment move again, and are found there as well.
    tree.absorb(&upper, Durability::Buffered).unwrap();
    for number in (0..2000).filter(|number| number % 100 > 0) {
        tree.delete(&key(number), Durability::Buffered).unwrap();
    }
    for _ in 0..4 {
        engine.checkpoint().unwrap();
    }
    let stats = engine.stats();
    assert!(stats.log_segment_bytes <= stats.log_value_bytes * 4 / 3 + 4 * (64 << 10), "{stats:?}");
    assert_sound(&engine);
}

#[test]
fn ranges_move_beside_writers_in_place_and_readers() {
    let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
    let tree = engine.tree("t").unwrap();
    load(&tree, 0, 20_000);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (tree, stop, written) = (&tree, &stop, &written);
            scope.spawn(move || {
                let mut round = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    // Below every cut, so these stay in their tree.
                    let number = (round * 2 + thread) % 1000;
                    tree.put(&key(number), &value(round), Durability::Flushed).unwrap();
                    let found = tree.get(&key(number)).unwrap().unwrap();
                    assert_eq!(found.to_buffer().unwrap().to_vec(), value(round));
                    round += 1;
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut round = 0;
        while round < 300 || written.load(Ordering::Relaxed) < 1000 {
            let at = 1000 + round % 300 * 60;
            round += 1;
            let (upper, _) = tree.split_off(&key(at), "upper", Durability::Flushed).unwrap();
            assert!(tree.get(&key(at)).unwrap().is_none() && upper.get(&key(at)).unwrap().is_some());
            if round % 50 == 0 {
                engine.checkpoint().unwrap();
            }
            let snapshot = engine.snapshot();
            tree.absorb(&upper, Durability::Flushed).unwrap();
            assert!(snapshot.get(&tree, &key(at)).unwrap().is_none());
            assert!(snapshot.get(&upper, &key(at)).unwrap().is_some());
            assert!(upper.get(&key(at)).unwrap().is_none() && tree.get(&key(at)).unwrap().is_some());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(numbers(&tree).into_iter().eq(0..20_000));
    assert_sound(&engine);
}

#[test]
fn a_cut_through_long_keys_leaves_leaves_that_can_hold_them() {
    // The prefix that a leaf leaves out here is many times as long as a leaf.
    let long = |number: u64| [vec![b'x'; 50_000], format!("{number:06}").into_bytes()].concat();
    for at in [1, 7, 60, 61, 150, 299] {
        let engine = Engine::open(Arc::new(MemoryDisk::new()), options()).unwrap();
        let tree = engine.tree("t").unwrap();
        (0..300).for_each(|number| assert!(tree.put(&long(number), b"v", Durability::Buffered).is_ok()));
        let (upper, _) = tree.split_off(&long(at), "upper", Durability::Buffered).unwrap();
        // Keys beyond the former separators come to the leaves at the cut.
        tree.put(b"y", b"beyond", Durability::Buffered).unwrap();
        upper.put(b"w", b"before", Durability::Buffered).unwrap();
        engine.checkpoint().unwrap();
        assert_sound(&engine);
        assert_eq!((tree.len().unwrap(), upper.len().unwrap()), (at + 1, 301 - at));
        assert!(upper.get(&long(at)).unwrap().is_some() && tree.get(&long(at - 1)).unwrap().is_some());
        tree.delete(b"y", Durability::Buffered).unwrap();
        upper.delete(b"w", Durability::Buffered).unwrap();
        tree.absorb(&upper, Durability::Buffered).unwrap();
        assert_sound(&engine);
        assert_eq!(tree.len().unwrap(), 300);
    }
}

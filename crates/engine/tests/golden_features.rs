//! Kept stores of format 1 with every feature that a store may have: whatever later builds write, they read
//! these as they were meant.
//!
//! The files in `tests/kept` have their bytes, from the first to the last: each line is some bytes, or one
//! byte, `*`, and how often it occurs. They stay as the build that first had the feature wrote them. A new
//! store is added here, and this writes those that are missing:
//! `ATOLL_WRITE_KEPT=features cargo test -p atoll-engine --test golden_features`
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic)]

use atoll_disk::{Disk, MemoryDisk, SimDisk};
use atoll_engine::{Direction, Durability, Engine, Options, Tree, ValueRef, WriteBatch};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::{Bound, ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// How to write the files that are missing.
const COMMAND: &str = "ATOLL_WRITE_KEPT=features cargo test -p atoll-engine --test golden_features";

/// The snapshot that some of them have.
const THEN: &str = "then";

/// A kept store.
struct Kept {
    /// Its file, without `.txt`.
    name: &'static str,
    /// Features that it has.
    features: &'static [&'static str],
    /// Trees whose number of records it does not have.
    uncounted: &'static [&'static str],
    options: fn() -> Options,
    /// Makes it. The engine is given back open, so that its last changes are only in the log.
    make: fn(&Arc<dyn Disk>) -> Engine,
    expected: fn() -> Expected,
}

/// What a store holds.
#[derive(Default)]
struct Expected {
    trees: Vec<(&'static str, Content)>,
    /// What its snapshot holds.
    then: Vec<(&'static str, Content)>,
}

const MOVED_RANGES: Kept = Kept {
    name: "moved-ranges",
    features: &["moved-ranges", "uncounted-trees"],
    uncounted: &["low"],
    options,
    make: |disk| {
        let engine = opened(disk, 1, options());
        let low = engine.tree("low").unwrap();
        put_all(&low, 0..120);
        engine.checkpoint().unwrap();
        let (high, _) = low.split_off(&key(60), "high", Durability::Synced).unwrap();
        put_all(&high, 200..201);
        engine.checkpoint().unwrap();
        // These moves are only in the log.
        let (top, _) = high.split_off(&key(100), "top", Durability::Flushed).unwrap();
        low.absorb(&high, Durability::Flushed).unwrap();
        top.delete(&key(119), Durability::Synced).unwrap();
        engine
    },
    expected: || {
        let top = records(100..119).into_iter().chain(records(200..201)).collect();
        let trees = vec![("low", records(0..100)), ("high", Content::new()), ("top", top)];
        Expected { trees, ..Expected::default() }
    },
};

const UNCOUNTED_TREES: Kept = Kept {
    name: "uncounted-trees",
    features: &["moved-ranges", "uncounted-trees"],
    uncounted: &["t", "rest"],
    options,
    make: |disk| {
        let engine = opened(disk, 1, options());
        let (tree, counted) = (engine.tree("t").unwrap(), engine.tree("counted").unwrap());
        put_all(&tree, 0..120);
        put_all(&counted, 0..3);
        let (rest, _) = tree.split_off(&key(70), "rest", Durability::Synced).unwrap();
        engine.create_snapshot(THEN).unwrap();
        put_all(&rest, 200..210);
        engine.checkpoint().unwrap();
        tree.put(&key(3), b"changed", Durability::Synced).unwrap();
        engine
    },
    expected: || {
        let mut tree = records(0..70);
        tree.insert(key(3), b"changed".to_vec());
        let rest = records(70..120).into_iter().chain(records(200..210)).collect();
        let counted = ("counted", records(0..3));
        Expected {
            trees: vec![("t", tree), ("rest", rest), counted.clone()],
            then: vec![("t", records(0..70)), ("rest", records(70..120)), counted],
        }
    },
};

/// Keys whose records lie beside their leaves.
const BESIDE: [u32; 5] = [60, 110, 160, 210, 260];

const SECOND_PAGES: Kept = Kept {
    name: "second-pages",
    features: &["uncounted-trees", "records-beside-leaves"],
    uncounted: &["t"],
    options: blind_options,
    make: |disk| {
        let engine = opened(disk, 1, blind_options());
        let tree = engine.tree("t").unwrap();
        for first in (0..300).step_by(100) {
            let some: Vec<_> = (first..first + 100).map(|number| (key(number), short(number))).collect();
            tree.put_many(&some, Durability::Buffered).unwrap();
        }
        engine.close().unwrap();
        let engine = opened(disk, 2, blind_options());
        let tree = engine.tree("t").unwrap();
        // Once a leaf is in memory, the depth of the others is known.
        tree.put(&key(0), b"first of all", Durability::Flushed).unwrap();
        for number in BESIDE {
            tree.put(&key(number), b"beside", Durability::Flushed).unwrap();
        }
        engine.checkpoint().unwrap();
        let stats = engine.stats();
        assert!(stats.second_pages_written > 0, "{stats:?}");
        // These lie above the records beside the leaves, and only in the log.
        for number in BESIDE {
            tree.put(&key(number + 1), b"above", Durability::Synced).unwrap();
        }
        engine
    },
    expected: || {
        let mut tree: Content = (0..300).map(|number| (key(number), short(number))).collect();
        tree.insert(key(0), b"first of all".to_vec());
        for number in BESIDE {
            tree.insert(key(number), b"beside".to_vec());
            tree.insert(key(number + 1), b"above".to_vec());
        }
        Expected { trees: vec![("t", tree)], ..Expected::default() }
    },
};

const COLD_SEGMENTS: Kept = Kept {
    name: "cold-segments",
    features: &[],
    uncounted: &[],
    options: short_log_options,
    make: |disk| {
        let engine = opened(disk, 1, short_log_options());
        let tree = engine.tree("t").unwrap();
        for number in 0..120 {
            tree.put(&key(number), &long(number), Durability::Buffered).unwrap();
        }
        // One in ten stays, which is too little for the segments that these lie in.
        let mut batch = WriteBatch::new();
        for number in (0..120).step_by(10) {
            let (from, to) = (key(number), key(number + 10));
            batch.delete_range(&tree, (Bound::Excluded(&from[..]), Bound::Excluded(&to[..])));
        }
        engine.write(&batch, Durability::Flushed).unwrap();
        for _ in 0..3 {
            engine.checkpoint().unwrap();
        }
        let stats = engine.stats();
        assert!(stats.values_moved > 0, "{stats:?}");
        tree.append(&key(50), &[9; 300], Durability::Synced).unwrap();
        engine
    },
    expected: || {
        let mut tree: Content = (0..120).step_by(10).map(|number| (key(number), long(number))).collect();
        tree.entry(key(50)).or_default().extend([9; 300]);
        Expected { trees: vec![("t", tree)], ..Expected::default() }
    },
};

const TOKEN: Kept = Kept {
    name: "token",
    features: &[],
    uncounted: &[],
    options,
    make: |disk| {
        let owner = |token, life| {
            Engine::attach(Arc::clone(disk), token, Options { life: Some(life), ..options() }).unwrap()
        };
        let engine = owner(4, 1);
        put_all(&engine.tree("t").unwrap(), 0..60);
        engine.detach(6).unwrap();
        // The claim of this token is history afterwards.
        let engine = owner(6, 2);
        let tree = engine.tree("t").unwrap();
        put_all(&tree, 60..120);
        tree.delete(&key(0), Durability::Synced).unwrap();
        engine
    },
    expected: || Expected { trees: vec![("t", records(1..120))], ..Expected::default() },
};

fn options() -> Options {
    Options { background: false, log_segment_bytes: 64 << 10, store_id: Some(7), ..Options::default() }
}

fn blind_options() -> Options {
    Options { memory_bytes: 64 << 20, blind_puts: true, ..options() }
}

fn short_log_options() -> Options {
    Options { log_segment_bytes: 16 << 10, ..options() }
}

fn opened(disk: &Arc<dyn Disk>, life: u64, options: Options) -> Engine {
    Engine::open(Arc::clone(disk), Options { life: Some(life), ..options }).unwrap()
}

fn key(number: u32) -> Vec<u8> {
    format!("atom/{number:06}").into_bytes()
}

/// A value that lies in its leaf.
fn short(number: u32) -> Vec<u8> {
    vec![number as u8; 80]
}

/// A value that lies in the log.
fn long(number: u32) -> Vec<u8> {
    vec![number as u8; 1000]
}

/// Records with values of both kinds.
fn records(numbers: Range<u32>) -> Content {
    let value = |number: u32| if number.is_multiple_of(10) { long(number) } else { short(number) };
    numbers.map(|number| (key(number), value(number))).collect()
}

fn put_all(tree: &Tree, numbers: Range<u32>) {
    for (key, value) in records(numbers) {
        tree.put(&key, &value, Durability::Flushed).unwrap();
    }
}

/// The text that represents these bytes.
fn text_of(bytes: &[u8]) -> String {
    let (mut text, mut on_line) = (String::new(), 0);
    for same in bytes.chunk_by(|a, b| a == b) {
        if same.len() >= 8 {
            let before = if on_line > 0 { "\n" } else { "" };
            writeln!(text, "{before}{:02x}*{}", same[0], same.len()).unwrap();
            on_line = 0;
            continue;
        }
        for byte in same {
            if on_line == 32 {
                text.push('\n');
                on_line = 0;
            }
            write!(text, "{byte:02x}").unwrap();
            on_line += 1;
        }
    }
    text
}

fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
    let mut bytes = Vec::new();
    for line in text.lines() {
        match line.split_once('*') {
            Some((hex, count)) => bytes.resize(bytes.len() + count.parse::<usize>().unwrap(), byte(hex)),
            None => {
                let pairs = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
                bytes.extend(pairs.map(byte));
            }
        }
    }
    bytes
}

/// The contents of a tree, now or in the snapshot.
fn content(engine: &Engine, snapshot: Option<&str>, tree: &str) -> Content {
    let mut content = Content::new();
    let keep = |key: &[u8], value: ValueRef<'_>| {
        content.insert(key.to_vec(), value.bytes().unwrap().to_vec());
        ControlFlow::Continue(())
    };
    let (tree, all) = (engine.tree(tree).unwrap(), (Bound::Unbounded, Bound::Unbounded));
    match snapshot {
        Some(name) => engine.open_snapshot(name).unwrap().scan(&tree, all, Direction::Forward, keep).unwrap(),
        None => tree.scan(all, Direction::Forward, keep).unwrap(),
    };
    content
}

fn assert_holds(engine: &Engine, expected: &Expected, name: &str) {
    for (tree, now) in &expected.trees {
        assert!(content(engine, None, tree) == *now, "{name}: tree {tree}");
    }
    for (tree, then) in &expected.then {
        assert!(content(engine, Some(THEN), tree) == *then, "{name}: tree {tree} in the snapshot");
    }
    let damage = engine.check().unwrap().damage;
    assert!(damage.is_empty(), "{name}: {damage:?}");
}

fn assert_is_read_and_written_on(kept: &Kept, bytes: &[u8]) {
    let (name, expected) = (kept.name, (kept.expected)());
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::with_bytes(1, bytes));
    let engine = opened(&disk, 8, (kept.options)());
    assert!(engine.recovery().groups_replayed > 0, "{name}: a part of it is only in the log");
    let format = engine.format();
    let has = |feature: &&str| format.features.contains(feature);
    assert!(kept.features.iter().all(has), "{name}: {format:?}");
    let trees = engine.stats().trees;
    let is_uncounted = |tree: &&str| trees.iter().any(|(name, known)| name == tree && known.is_none());
    assert!(kept.uncounted.iter().all(is_uncounted), "{name}: {trees:?}");
    assert_eq!(trees.len(), expected.trees.len(), "{name}: {trees:?}");
    for _ in 0..2 {
        assert_holds(&engine, &expected, name);
        engine.checkpoint().unwrap();
    }
    engine.tree("more").unwrap().put(b"more", b"later", Durability::Synced).unwrap();
    engine.close().unwrap();
    let engine = opened(&disk, 9, (kept.options)());
    assert_holds(&engine, &expected, name);
    for (tree, now) in &expected.trees {
        assert_eq!(engine.tree(tree).unwrap().len().unwrap(), now.len() as u64, "{name}: tree {tree}");
    }
}

/// Checks such a store as this build writes it, and then the one that was kept.
fn check(kept: &Kept) {
    let disk = Arc::new(MemoryDisk::new());
    let engine = (kept.make)(&(Arc::clone(&disk) as Arc<dyn Disk>));
    let bytes = disk.to_bytes();
    drop(engine);
    let text = text_of(&bytes);
    assert!(bytes_of(&text) == bytes, "{}: a text that says other bytes", kept.name);
    assert!(text.len() < 96 << 10, "{}: small enough to be kept: {} bytes", kept.name, text.len());
    assert_is_read_and_written_on(kept, &bytes);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kept/{}.txt", kept.name));
    // One that is there stays as it is: a store that this build writes again proves nothing.
    let is_asked = std::env::var_os("ATOLL_WRITE_KEPT").is_some_and(|what| what == "features");
    if is_asked && !file.exists() {
        std::fs::write(&file, text).unwrap();
    }
    match std::fs::read_to_string(&file) {
        Ok(kept_text) => assert_is_read_and_written_on(kept, &bytes_of(&kept_text)),
        Err(error) => panic!("tests/kept/{}.txt: {error}; this writes it: {COMMAND}", kept.name),
    }
}

#[test]
fn a_store_with_moved_ranges_is_read_and_written_on() {
    check(&MOVED_RANGES);
}

#[test]
fn a_store_with_uncounted_trees_is_read_and_written_on() {
    check(&UNCOUNTED_TREES);
}

#[test]
fn a_store_with_records_beside_leaves_is_read_and_written_on() {
    check(&SECOND_PAGES);
}

#[test]
fn a_store_with_cold_segments_is_read_and_written_on() {
    let magic = |bytes: &[u8]| bytes.windows(8).any(|word| word == b"ATOLLCLD");
    let disk = Arc::new(MemoryDisk::new());
    drop((COLD_SEGMENTS.make)(&(Arc::clone(&disk) as Arc<dyn Disk>)));
    assert!(magic(&disk.to_bytes()), "no cold segment was written");
    check(&COLD_SEGMENTS);
}

#[test]
fn a_store_with_a_token_is_read_and_written_on() {
    let disk = Arc::new(MemoryDisk::new());
    let engine = (TOKEN.make)(&(Arc::clone(&disk) as Arc<dyn Disk>));
    assert_eq!((engine.token(), disk.to_bytes()[24]), (6, 1), "the feature that writing needs");
    check(&TOKEN);
}

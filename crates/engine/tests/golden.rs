//! A kept store of format 1: whatever later builds write, they read this store as it was meant.
//!
//! `tests/kept/format-1.txt` has its bytes: each line is an offset, a number of repetitions, and the sixteen
//! bytes that are repeated there; everything else is zero. The last test below wrote it, in the build that
//! defined format 1.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use atoll_disk::{Disk, MemoryDisk, SimDisk};
use atoll_engine::{Direction, Durability, Engine, Options, ValueRef};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

const KEPT: &str = include_str!("kept/format-1.txt");

const ROW: usize = 16;

fn options() -> Options {
    let (store_id, life) = (Some(7), Some(1));
    Options { background: false, log_segment_bytes: 64 << 10, store_id, life, ..Options::default() }
}

/// Contents of the trees `first` and `second` when the snapshot was made, and at the end.
fn contents() -> [(Content, Content); 2] {
    let value = |number: u32| -> Vec<u8> {
        match number {
            // One value in the leaf, one in the log, one in an extent of its own.
            7 => vec![7; 300],
            8 => vec![8; 70_000],
            _ => format!("value {number}").into_bytes(),
        }
    };
    let then: Content =
        (0..60).map(|number| (format!("key {number:03}").into_bytes(), value(number))).collect();
    let mut now = then.clone();
    now.insert(b"key 005".to_vec(), b"changed".to_vec());
    now.remove(b"key 006".as_slice());
    now.get_mut(b"key 007".as_slice()).unwrap().extend([9; 300]);
    let second = Content::from([(vec![0, 255], Vec::new())]);
    [(then, second.clone()), (now, second)]
}

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

fn bytes_of(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let mut number = || words.next().unwrap().parse::<usize>().unwrap();
        let (offset, count) = (number(), number());
        let row: Vec<u8> = words
            .next()
            .unwrap()
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        bytes.resize(bytes.len().max(offset + count * ROW), 0);
        bytes[offset..offset + count * ROW].copy_from_slice(&row.repeat(count));
    }
    bytes
}

#[test]
fn a_store_of_format_1_is_read_and_written_on() {
    assert!(KEPT.len() < 64 << 10, "small enough to be kept: {} bytes", KEPT.len());
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::with_bytes(1, &bytes_of(KEPT)));
    assert_is_read_and_written_on(&disk);
}

fn assert_is_read_and_written_on(disk: &Arc<dyn Disk>) {
    let [(then, second), (now, _)] = contents();
    let open = |life| Engine::open(Arc::clone(disk), Options { life: Some(life), ..options() }).unwrap();
    let engine = open(2);
    assert!(engine.recovery().groups_replayed > 0, "a part of it is only in the log");
    assert_eq!(engine.tree_names(), ["first", "second"]);
    for _ in 0..2 {
        assert!(content(&engine, Some("then"), "first") == then);
        assert!(content(&engine, None, "first") == now);
        assert!(content(&engine, None, "second") == second);
        assert!(engine.check().unwrap().damage.is_empty());
        engine.checkpoint().unwrap();
    }
    engine.tree("second").unwrap().put(b"more", b"later", Durability::Synced).unwrap();
    engine.close().unwrap();
    let engine = open(3);
    assert_eq!(content(&engine, None, "second").len(), 2);
    assert!(content(&engine, Some("then"), "first") == then);
}

/// Such a store as this build writes it. `ATOLL_WRITE_KEPT=FILE` keeps it, which is right only for a new
/// format.
#[test]
fn a_store_to_be_kept_is_read_and_written_on_as_well() {
    let (bytes, text) = written();
    assert!(bytes_of(&text) == bytes, "a text that says other bytes");
    assert_is_read_and_written_on(&(Arc::new(SimDisk::with_bytes(1, &bytes)) as Arc<dyn Disk>));
    if let Some(file) = std::env::var_os("ATOLL_WRITE_KEPT") {
        std::fs::write(file, text).unwrap();
    }
}

/// The bytes, and the text that represents them.
fn written() -> (Vec<u8>, String) {
    let disk = Arc::new(MemoryDisk::new());
    let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    let [(then, second), _] = contents();
    let [first_tree, second_tree] = ["first", "second"].map(|name| engine.tree(name).unwrap());
    for (key, value) in &then {
        first_tree.put(key, value, Durability::Flushed).unwrap();
    }
    for (key, value) in &second {
        second_tree.put(key, value, Durability::Flushed).unwrap();
    }
    engine.create_snapshot("then").unwrap();
    first_tree.put(b"key 005", b"changed", Durability::Flushed).unwrap();
    engine.checkpoint().unwrap();
    first_tree.delete(b"key 006", Durability::Flushed).unwrap();
    first_tree.append(b"key 007", &[9; 300], Durability::Synced).unwrap();
    let len = disk.len().unwrap() as usize;
    let mut bytes = vec![0; len.next_multiple_of(ROW)];
    disk.read_at(0, &mut bytes[..len]).unwrap();
    let mut text = String::new();
    let rows: Vec<&[u8]> = bytes.chunks(ROW).collect();
    let mut at = 0;
    for same in rows.chunk_by(|a, b| a == b) {
        // The last line gives the length of the file.
        if same[0] != [0; ROW] || at + same.len() == rows.len() {
            write!(text, "{} {} ", at * ROW, same.len()).unwrap();
            same[0].iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
        at += same.len();
    }
    (bytes, text)
}

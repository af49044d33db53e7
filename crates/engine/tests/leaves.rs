//! The memory of leaves and of the nodes above them, and that it is counted, for various keys in various
//! orders.
#![allow(clippy::unwrap_used)]

use atoll_disk::MemoryDisk;
use atoll_engine::{Durability, Engine, Options, Tree};
use std::sync::Arc;

const RECORDS: u64 = 20_000;
const VALUE: &[u8] = &[7; 100];

/// A store in which nothing is written in the background, with room for everything.
fn engine() -> Engine {
    let options = Options { background: false, checkpoint_bytes: u64::MAX, ..Options::default() };
    Engine::open(Arc::new(MemoryDisk::new()), options).unwrap()
}

fn ascending(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn scattered(number: u64) -> Vec<u8> {
    ascending(number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

fn put_all(tree: &Tree, key: impl Fn(u64) -> Vec<u8>) {
    for number in 0..RECORDS {
        tree.put(&key(number), VALUE, Durability::Buffered).unwrap();
    }
}

/// Bytes of leaves relative to those of their short keys and values.
fn leaves_over_records(key: impl Fn(u64) -> Vec<u8>) -> f64 {
    let engine = engine();
    put_all(&engine.tree("records").unwrap(), key);
    engine.stats().leaf_memory_bytes as f64 / (RECORDS * (24 + VALUE.len() as u64)) as f64
}

#[test]
fn ascending_keys_fill_their_leaves() {
    let ratio = leaves_over_records(ascending);
    assert!(ratio < 1.2, "leaves take {ratio:.2} of what is in them");
}

#[test]
fn leaves_stay_regular_in_any_order() {
    let ratio = leaves_over_records(scattered);
    assert!(ratio < 1.9, "leaves take {ratio:.2} of what is in them");
    // Ascending runs in several places: each ends in a leaf where others continue.
    let ratio = leaves_over_records(|number| ascending(number % 40 * 1_000_000 + number / 40));
    assert!(ratio < 1.9, "leaves take {ratio:.2} of what is in them");
}

#[test]
fn what_all_keys_share_makes_no_leaf_larger_than_it_must_be() {
    let ratio = leaves_over_records(|number| [&[b'/'; 1000][..], &scattered(number)].concat());
    assert!(ratio < 2.2, "leaves take {ratio:.2} of what is in them");
}

#[test]
fn keys_too_long_for_a_regular_leaf_share_larger_ones() {
    let engine = engine();
    let tree = engine.tree("records").unwrap();
    let key = |number: u64| [ascending(number % 7 * 1000 + number), vec![b'x'; 6000]].concat();
    for number in 0..200 {
        tree.put(&key(number), VALUE, Durability::Buffered).unwrap();
    }
    let ratio = engine.stats().leaf_memory_bytes as f64 / (200.0 * 6100.0);
    assert!(ratio < 3.0, "leaves take {ratio:.2} of what is in them");
    (0..200).for_each(|number| assert!(tree.get(&key(number)).unwrap().is_some()));
}

#[test]
fn nodes_count_the_keys_between_their_children() {
    let engine = engine();
    put_all(&engine.tree("records").unwrap(), |number| [&[b'/'; 1000][..], &scattered(number)].concat());
    let stats = engine.stats();
    let leaves = stats.leaf_memory_bytes / 8256;
    assert!(stats.inner_memory_bytes > leaves * 1000, "{stats:?}");
}

#[test]
fn a_long_value_is_taken_off_with_its_record() {
    let engine = engine();
    let tree = engine.tree("grown").unwrap();
    let before = engine.stats().leaf_memory_bytes;
    for _ in 0..50 {
        // Too long to be joined with the piece before it.
        tree.append(b"key", &vec![7; 140 << 10], Durability::Flushed).unwrap();
    }
    assert!(engine.stats().leaf_memory_bytes > before);
    tree.put(b"key", &[7; 300], Durability::Flushed).unwrap();
    let left = engine.stats().leaf_memory_bytes - before;
    assert!((1..300).contains(&left), "{left} bytes for one piece");
    tree.delete(b"key", Durability::Flushed).unwrap();
    assert_eq!(engine.stats().leaf_memory_bytes, before);
}

#[test]
fn a_tree_counts_from_its_making() {
    let engine = engine();
    (0..50).for_each(|number| drop(engine.tree(&format!("tree {number}")).unwrap()));
    assert!(engine.stats().leaf_memory_bytes >= 50 * 8000, "{:?}", engine.stats());
}

//! A budget stays true where freed values of one length leave gaps that values of another length cannot use.
//!
//! The only test in its process, because it measures the whole process.

// Under sanitizers values do not lie together.
#![cfg(all(target_os = "linux", not(atoll_plain_memory)))]
#![allow(clippy::unwrap_used)]

use atoll_disk::{FileDisk, Mode};
use atoll_engine::{Durability, Engine, Options, Tree};
use std::path::Path;
use std::sync::Arc;

const BUDGET: u64 = 64 << 20;

#[test]
fn what_few_values_of_one_length_keep_from_others_counts() {
    values_of_another_length();
    small_records();
}

fn open(folder: &Path) -> (Engine, Tree) {
    let disk = FileDisk::open(&folder.join("store"), Mode::Create).unwrap();
    let options = Options { memory_bytes: BUDGET, ..Options::default() };
    let engine = Engine::open(Arc::new(disk), options).unwrap();
    let tree = engine.tree("records").unwrap();
    (engine, tree)
}

/// Leaves one value in each run.
fn leave_few(engine: &Engine, tree: &Tree) {
    // As many as the budget has room for, and then one in each run of 15.
    (0..42_000).for_each(|number| put(tree, number, 1_000));
    engine.checkpoint().unwrap();
    (0..42_000).filter(|number| number % 15 != 0).for_each(|number| {
        tree.delete(&key(number), Durability::Buffered).unwrap();
    });
    engine.checkpoint().unwrap();
}

fn values_of_another_length() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, tree) = open(folder.path());
    leave_few(&engine, &tree);
    let beside = anonymous_bytes() - in_slabs(&engine);
    assert!(atoll_buffer::unused_bytes() as u64 > BUDGET / 3, "{} bytes", atoll_buffer::unused_bytes());
    let (mut most, mut most_seen) = (0, 0);
    for number in 100_000..130_000 {
        put(&tree, number, 3_000);
        if number.is_multiple_of(100) {
            (most, most_seen) = (most.max(in_slabs(&engine)), most_seen.max(anonymous_bytes()));
        }
    }
    let bound = BUDGET + BUDGET / 8;
    assert!(most <= bound, "{most} of {bound} bytes of nodes and runs: {:?}", engine.stats());
    // The rest of the process uses as much as before.
    assert!(most_seen - beside <= bound, "{most_seen} of {bound} bytes with {beside}, as the system sees it");
}

/// The few values left are not worth the gaps around them: all of them are evicted where leaves want the
/// room.
fn small_records() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, tree) = open(folder.path());
    leave_few(&engine, &tree);
    let before = atoll_buffer::unused_bytes() as u64;
    assert!(before > BUDGET / 3, "{before} bytes");
    (100_000..600_000).for_each(|number| put(&tree, number, 100));
    let left = atoll_buffer::unused_bytes() as u64;
    assert!(left < before / 2, "{left} bytes of {before} are pinned still: {:?}", engine.stats());
}

/// Bytes of memory for nodes and values, including the gaps between these.
fn in_slabs(engine: &Engine) -> u64 {
    let stats = engine.stats();
    stats.leaf_memory_bytes + stats.inner_memory_bytes + atoll_buffer::run_bytes() as u64
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn put(tree: &Tree, number: u64, len: usize) {
    tree.put(&key(number), &vec![number as u8; len], Durability::Buffered).unwrap();
}

/// Anonymous memory of the process, as the system reports it.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let field = status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().strip_suffix(" kB"));
    field.unwrap().parse::<u64>().unwrap() * 1024
}

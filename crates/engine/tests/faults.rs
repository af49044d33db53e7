//! What the engine does when its disk refuses: nothing is lost, and it goes on once the cause is gone.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{FaultPlan, SimDisk};
use atoll_engine::{Damage, Durability, Engine, EngineError, Options, Tree};
use atoll_errors::ErrorKind;
use std::sync::Arc;

fn options() -> Options {
    Options { background: false, log_segment_bytes: 64 << 10, seed: Some(7), ..Options::default() }
}

fn open(disk: &SimDisk) -> (Engine, Tree) {
    let engine = Engine::open(Arc::new(disk.clone()), options()).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

fn fill(tree: &Tree, from: u32, to: u32) {
    for number in from..to {
        tree.put(&number.to_be_bytes(), &[number as u8; 300], Durability::Flushed).unwrap();
    }
}

fn assert_holds(tree: &Tree, count: u32) {
    assert_eq!(tree.len(), u64::from(count));
    for number in 0..count {
        let value = tree.get(&number.to_be_bytes()).unwrap().unwrap().to_buffer().unwrap();
        assert_eq!(*value, [number as u8; 300], "key {number}");
    }
}

#[test]
fn a_checkpoint_that_failed_half_way_is_made_again_whole() {
    for struck in 0..3 {
        let disk = SimDisk::seeded(struck);
        let (engine, tree) = open(&disk);
        fill(&tree, 0, 3000);
        disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
        engine.checkpoint().unwrap_err();
        disk.set_plan(FaultPlan::default());
        fill(&tree, 3000, 3100);
        engine.checkpoint().unwrap();
        let (engine, tree) = open(&disk.crash());
        assert_holds(&tree, 3100);
        assert!(engine.check().unwrap().damage.is_empty());
    }
}

#[test]
fn a_full_disk_refuses_writes_and_serves_again_when_there_is_room() {
    let disk = SimDisk::seeded(1);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 100);
    disk.set_plan(FaultPlan { space_left: Some(10_000), ..FaultPlan::default() });
    let refused = (100..100_000u32).find_map(|number| {
        tree.put(&number.to_be_bytes(), &[number as u8; 300], Durability::Flushed)
            .err()
            .map(|error| (number, error))
    });
    let (stopped_at, error) = refused.expect("the disk fills");
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert_holds(&tree, stopped_at);
    engine.checkpoint().unwrap_err();
    disk.set_plan(FaultPlan::default());
    fill(&tree, stopped_at, stopped_at + 50);
    engine.close().unwrap();
    assert_holds(&open(&disk.crash()).1, stopped_at + 50);
}

#[test]
fn after_a_failed_sync_nothing_more_is_promised_until_it_is_opened_again() {
    let disk = SimDisk::seeded(3);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 10);
    engine.sync().unwrap();
    disk.set_plan(FaultPlan { fail_sync: Some(0), ..FaultPlan::default() });
    let error = tree.put(b"last", b"value", Durability::Synced).unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert!(matches!(tree.put(b"more", b"", Durability::Flushed), Err(EngineError::Poisoned { .. })));
    let value = tree.get(&0u32.to_be_bytes()).unwrap();
    assert!(value.is_some(), "reads go on");
    let (_, tree) = open(&disk.crash());
    for number in 0..10u32 {
        assert!(tree.get(&number.to_be_bytes()).unwrap().is_some());
    }
}

#[test]
fn read_only_media_can_be_read_and_are_never_written() {
    let disk = SimDisk::seeded(4);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 500);
    engine.checkpoint().unwrap();
    fill(&tree, 500, 600);
    engine.sync().unwrap();
    let media = disk.crash();
    let before = media.to_bytes();
    media.set_plan(FaultPlan { read_only: true, ..FaultPlan::default() });
    let read_only = Options { read_only: true, ..options() };
    let engine = Engine::open(Arc::new(media.clone()), read_only).unwrap();
    let tree = engine.tree("t").unwrap();
    assert_holds(&tree, 600);
    assert!(matches!(tree.put(b"k", b"v", Durability::Flushed), Err(EngineError::ReadOnly { .. })));
    assert!(matches!(engine.tree("other"), Err(EngineError::ReadOnly { .. })));
    engine.close().unwrap();
    assert!(media.to_bytes() == before, "not a byte was written");
}

#[test]
fn a_store_of_a_newer_format_and_a_file_that_is_no_store_say_so() {
    let foreign = SimDisk::with_bytes(1, &[b'x'; 10_000]);
    assert!(matches!(Engine::open(Arc::new(foreign), options()), Err(EngineError::NotAStore { .. })));
    let short = SimDisk::with_bytes(1, b"hello");
    assert!(matches!(Engine::open(Arc::new(short), options()), Err(EngineError::NotAStore { .. })));
}

#[test]
fn one_damaged_superblock_is_mended_and_two_are_an_error() {
    let disk = SimDisk::seeded(5);
    let (engine, tree) = open(&disk);
    fill(&tree, 0, 100);
    engine.close().unwrap();
    for copy in [0, 4096] {
        let damaged = disk.fork();
        damaged.flip_bit(copy + 100, 3);
        let (engine, tree) = open(&damaged);
        assert!(engine.recovery().superblock_mended);
        assert_holds(&tree, 100);
        drop((engine, tree));
        assert!(!open(&damaged).0.recovery().superblock_mended, "it was mended");
    }
    let damaged = disk.fork();
    damaged.flip_bit(100, 3);
    damaged.flip_bit(4196, 3);
    let error = Engine::open(Arc::new(damaged), options()).err().expect("it does not open");
    assert!(matches!(error, EngineError::Corrupt { problem: Damage::Superblocks, .. }), "{error}");
}

/// What a former life left behind a torn end must not come back, even where this life writes the same.
#[test]
fn a_group_that_was_cut_stays_cut() {
    let disk = SimDisk::seeded(6);
    let (engine, tree) = open(&disk);
    engine.sync().unwrap();
    let before = disk.to_bytes();
    tree.put(b"a", b"first", Durability::Flushed).unwrap();
    tree.put(b"b", b"second", Durability::Flushed).unwrap();
    let mut torn = disk.to_bytes();
    let start = (0..torn.len()).find(|&at| before.get(at) != torn.get(at)).unwrap();
    torn[start..start + 40].fill(0);
    let disk = SimDisk::with_bytes(7, &torn);
    let (engine, tree) = open(&disk);
    assert!(engine.recovery().cut.is_some());
    assert!(tree.is_empty());
    tree.put(b"a", b"first", Durability::Flushed).unwrap();
    let (_, tree) = open(&disk.kill());
    assert!(tree.get(b"a").unwrap().is_some());
    assert!(tree.get(b"b").unwrap().is_none());
}

/// One copy torn by a write that failed, the other by a crash: the copy in doubt must be written first.
#[test]
fn a_crash_after_a_failed_superblock_write_leaves_one_copy_intact() {
    for struck in 0..12 {
        for cut in 0..12 {
            let disk = SimDisk::seeded(struck * 100 + cut);
            let (engine, tree) = open(&disk);
            fill(&tree, 0, 20);
            engine.sync().unwrap();
            disk.set_plan(FaultPlan { fail_write: Some(struck), ..FaultPlan::default() });
            let _ = engine.checkpoint();
            disk.set_plan(FaultPlan { power_cut_after: Some(cut), ..FaultPlan::default() });
            let _ = engine.checkpoint();
            assert_holds(&open(&disk.crash()).1, 20);
        }
    }
}

#[test]
fn a_flipped_bit_in_the_head_of_the_last_group_is_never_passed_over() {
    let disk = SimDisk::seeded(8);
    let (engine, tree) = open(&disk);
    tree.put(b"before", b"value", Durability::Synced).unwrap();
    let without = disk.to_bytes();
    tree.put(b"last", b"value", Durability::Synced).unwrap();
    let with = disk.to_bytes();
    drop(engine);
    let start = (0..with.len()).find(|&at| without.get(at) != with.get(at)).unwrap();
    for bit in 0..40 * 8 {
        let mut bytes = with.clone();
        bytes[start + bit / 8] ^= 1 << (bit % 8);
        let damaged = SimDisk::with_bytes(9, &bytes);
        let Ok(engine) = Engine::open(Arc::new(damaged), options()) else { continue };
        let is_there = engine.tree("t").unwrap().get(b"last").unwrap().is_some();
        assert!(is_there || engine.recovery().cut.is_some(), "bit {bit} of the group's head");
    }
}

//! A damaged store, or one whose disk fails at little cost: what is intact stays readable, what was refused
//! stays undone, and a sound store is not reported as damaged.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

mod support;

use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
use atoll_engine::{Clock, Damage, Durability, Engine, EngineError, Options, Tree};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{image, options, value};

const BLOCK: u64 = 4096;

/// A disk in memory with unreadable blocks, which may also report a failed write that did not fail.
#[derive(Default)]
struct Hurt {
    bytes: MemoryDisk,
    unreadable: Mutex<Option<Range<u64>>>,
    denies_writes: AtomicBool,
    /// The next sync finds no space for what was written before.
    denies_syncs: AtomicBool,
    /// Writes of superblocks, by offset, and syncs, as none.
    told: Mutex<Vec<Option<u64>>>,
}

impl Hurt {
    fn make_unreadable(&self, range: Option<Range<u64>>) {
        *self.unreadable.lock().unwrap() = range;
    }
}

fn error(operation: Operation, offset: u64) -> DiskError {
    DiskError { operation, name: "hurt".into(), offset, source: std::io::Error::other("planted") }
}

impl Relay for Hurt {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let end = offset + target.len() as u64;
        let is_hit = self
            .unreadable
            .lock()
            .unwrap()
            .as_ref()
            .is_some_and(|hurt| hurt.start < end && offset < hurt.end);
        if is_hit { Err(error(Operation::Read, offset)) } else { self.bytes.read_at(offset, target) }
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.told.lock().unwrap().push(None);
        if self.denies_syncs.swap(false, Ordering::Relaxed) {
            let source = std::io::ErrorKind::StorageFull.into();
            return Err(DiskError { source, ..error(Operation::Sync, 0) });
        }
        self.bytes.sync()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.bytes.write_at(offset, bytes)?;
        if offset < 2 * BLOCK {
            self.told.lock().unwrap().push(Some(offset));
        }
        if self.denies_writes.swap(false, Ordering::Relaxed) {
            return Err(error(Operation::Write, offset));
        }
        Ok(())
    }
}

#[test]
fn a_superblock_that_is_newer_than_the_other_one_is_on_the_medium_before_that_is_written_over() {
    for newest in [0, BLOCK] {
        let disk = filled(1000);
        let mut former = vec![0; BLOCK as usize];
        disk.bytes.read_at(BLOCK - newest, &mut former).unwrap();
        let (engine, tree) = open(&disk).unwrap();
        tree.put(b"more", b"v", Durability::Flushed).unwrap();
        engine.close().unwrap();
        // As where a sync of the first copy failed: the system has it, but perhaps not the medium.
        disk.bytes.write_at(BLOCK - newest, &former).unwrap();
        disk.told.lock().unwrap().clear();
        let (engine, _) = open(&disk).unwrap();
        assert!(engine.recovery().superblock_mended);
        assert_eq!(*disk.told.lock().unwrap(), [Some(newest), None, Some(BLOCK - newest), None]);
    }
}

fn open(disk: &Arc<Hurt>) -> Result<(Engine, Tree), EngineError> {
    let engine = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options())?;
    let tree = engine.tree("t")?;
    Ok((engine, tree))
}

fn filled(records: u32) -> Arc<Hurt> {
    let disk = Arc::new(Hurt::default());
    let (engine, tree) = open(&disk).unwrap();
    for number in 0..records {
        tree.put(&number.to_be_bytes(), &[7; 100], Durability::Flushed).unwrap();
    }
    engine.close().unwrap();
    disk
}

#[test]
fn a_superblock_copy_that_cannot_be_read_is_as_good_as_a_damaged_one() {
    for copy in [0, BLOCK] {
        let disk = filled(1000);
        disk.make_unreadable(Some(copy..copy + BLOCK));
        let (engine, tree) = open(&disk).unwrap();
        assert_eq!(tree.len().unwrap(), 1000);
        let damage = engine.check().unwrap().damage;
        let is_told = |told: &EngineError| matches!(told, EngineError::Disk(error) if error.offset == copy);
        assert!(damage.iter().any(is_told), "{damage:?}");
    }
    let disk = filled(10);
    disk.make_unreadable(Some(0..2 * BLOCK));
    assert!(matches!(open(&disk), Err(EngineError::Disk { .. })));
}

#[test]
fn a_leaf_that_cannot_be_read_does_not_keep_what_is_put_into_it_from_being_committed() {
    let filled = Arc::new(Hurt::default());
    let (engine, tree) = open(&filled).unwrap();
    let key = |number: u32| number.to_be_bytes();
    // In random order, so that leaves have some room left.
    for number in (0..20_000).map(|number| number * 7919 % 20_000) {
        tree.put(&key(number), &[7; 100], Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
    let value = |tree: &Tree, number| tree.get(&key(number)).unwrap().unwrap().to_buffer().unwrap().to_vec();
    // A few go to a page of their own, more are merged with the leaf, and with still more a put reads the
    // leaf.
    let refused = (8..120).step_by(4).find(|&count| {
        let disk = Arc::new(Hurt { bytes: MemoryDisk::with_bytes(image(&filled.bytes)), ..Hurt::default() });
        let options = Options { blind_puts: true, ..options() };
        let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
        let tree = engine.tree("t").unwrap();
        // So that the depth of the leaves is known.
        tree.put(&key(0), b"first of all", Durability::Buffered).unwrap();
        disk.make_unreadable(Some(2 * BLOCK..disk.bytes.len().unwrap()));
        let numbers = 10_000..10_000 + count;
        let put = |number| tree.put(&key(number), &[8; 100], Durability::Buffered);
        let refused = numbers.clone().map(put).find_map(Result::err);
        engine.checkpoint().unwrap();
        disk.make_unreadable(None);
        let found = (10_000..).take_while(|&number| value(&tree, number) == [8; 100]).count();
        assert!(found == count as usize || refused.is_some(), "{found} of {count}");
        engine.close().unwrap();
        let (engine, after) = open(&disk).unwrap();
        assert_eq!((10_000..).take_while(|&number| value(&after, number) == [8; 100]).count(), found);
        assert_eq!(after.len().unwrap(), 20_000);
        assert!(engine.check().unwrap().damage.is_empty());
        refused.is_some()
    });
    assert!(refused.is_some(), "all of them fitted beside the leaf");
}

/// A store that puts beside leaves that are not in memory, and in which the depth of the leaves is known.
fn blind(disk: &Arc<Hurt>) -> (Engine, Tree) {
    let options = Options { blind_puts: true, ..options() };
    let engine = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap();
    let tree = engine.tree("t").unwrap();
    tree.put(&0u32.to_be_bytes(), b"first of all", Durability::Buffered).unwrap();
    (engine, tree)
}

/// A store in which one leaf has a second page, with the record of 10,000.
fn with_a_second_page() -> Arc<Hurt> {
    let disk = Arc::new(Hurt::default());
    let (engine, tree) = open(&disk).unwrap();
    for number in (0..20_000u32).map(|number| number * 7919 % 20_000) {
        tree.put(&number.to_be_bytes(), &[7; 100], Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
    let (engine, tree) = blind(&disk);
    tree.put(&10_000u32.to_be_bytes(), &[8; 100], Durability::Buffered).unwrap();
    engine.close().unwrap();
    disk
}

#[test]
fn records_beside_a_leaf_that_the_disk_does_not_read_for_a_while_are_not_given_up() {
    let disk = with_a_second_page();
    let (engine, tree) = blind(&disk);
    tree.put(&10_001u32.to_be_bytes(), &[9; 100], Durability::Flushed).unwrap();
    for _ in 0..2 {
        disk.make_unreadable(Some(2 * BLOCK..disk.bytes.len().unwrap()));
        let refused = engine.checkpoint().map(|_| ()).unwrap_err();
        assert!(matches!(refused, EngineError::Disk(_)), "{refused}");
        disk.make_unreadable(None);
    }
    engine.checkpoint().unwrap();
    let check = |engine: &Engine, tree: &Tree| {
        for (number, byte) in [(10_000, 8), (10_001, 9), (10_003, 7), (5, 7), (19_999, 7)] {
            assert_eq!(value(tree, number).unwrap(), Some(vec![byte; 100]), "{number}");
        }
        assert_eq!(tree.len().unwrap(), 20_000);
        assert!(engine.check().unwrap().damage.is_empty());
    };
    check(&engine, &tree);
    engine.close().unwrap();
    let (engine, tree) = open(&disk).unwrap();
    check(&engine, &tree);
}

#[test]
fn records_beside_a_leaf_that_the_disk_never_reads_again_do_not_stop_checkpoints_for_ever() {
    let key = |number: u32| number.to_be_bytes();
    // Seconds at which a checkpoint fails: many in a short time, and few in a long one.
    for (fails_at, given_up_at) in [(vec![0; 20], 60), (vec![0, 90, 180, 270, 360, 450, 540], 540)] {
        let disk = with_a_second_page();
        let time = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&time);
        let clock = Clock::new(move || Duration::from_secs(told.load(Ordering::Relaxed)));
        let options = Options { blind_puts: true, clock, ..options() };
        let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options).unwrap();
        let tree = engine.tree("t").unwrap();
        // So that the depth of the leaves is known.
        tree.put(&key(0), b"first of all", Durability::Buffered).unwrap();
        tree.put(&key(10_001), &[9; 100], Durability::Flushed).unwrap();
        disk.make_unreadable(Some(2 * BLOCK..disk.bytes.len().unwrap()));
        for second in fails_at {
            time.store(second, Ordering::Relaxed);
            let refused = engine.checkpoint().map(|_| ()).unwrap_err();
            assert!(matches!(refused, EngineError::Disk(_)), "{refused}");
        }
        time.store(given_up_at, Ordering::Relaxed);
        engine.checkpoint().unwrap();
        disk.make_unreadable(None);
        // The last put is found, the leaf's other keys are errors rather than older values, and everything
        // else is intact.
        let check = |tree: &Tree| {
            assert_eq!(value(tree, 10_001).unwrap(), Some(vec![9; 100]));
            for number in [10_000, 10_003] {
                let found = value(tree, number);
                assert!(matches!(found, Err(EngineError::Corrupt { .. })), "{number}: {found:?}");
            }
            for number in [5, 9_000, 11_000, 19_999] {
                assert_eq!(value(tree, number).unwrap(), Some(vec![7; 100]), "{number}");
            }
        };
        check(&tree);
        engine.close().unwrap();
        let (engine, tree) = open(&disk).unwrap();
        check(&tree);
        let damage = engine.check().unwrap().damage;
        assert_eq!(damage.len(), 1, "{damage:?}");
    }
}

#[test]
fn records_beside_a_leaf_that_are_damaged_do_not_keep_what_comes_after_them_from_being_committed() {
    let disk = with_a_second_page();
    let key = |number: u32| number.to_be_bytes();
    let (engine, tree) = blind(&disk);
    // The log before the checkpoint has it as well, and is not read.
    let bytes = image(&disk.bytes);
    let places = (0..bytes.len() - 100).filter(|&at| bytes[at..at + 100] == [8; 100]);
    assert!(places.map(|at| disk.bytes.write_at(at as u64 + 50, &[0]).unwrap()).count() > 0);
    tree.put(&key(10_001), &[9; 100], Durability::Buffered).unwrap();
    engine.checkpoint().unwrap();
    // The last puts are found, the leaf's other keys are errors rather than older values, and everything else
    // is intact.
    let check = |tree: &Tree, newest: &[u32]| {
        for &number in newest {
            assert_eq!(value(tree, number).unwrap(), Some(vec![9; 100]), "{number}");
        }
        for number in [10_000, 10_003] {
            let found = value(tree, number);
            assert!(matches!(found, Err(EngineError::Corrupt { .. })), "{number}: {found:?}");
        }
        for number in [5, 9_000, 11_000, 19_999] {
            assert_eq!(value(tree, number).unwrap(), Some(vec![7; 100]), "{number}");
        }
    };
    check(&tree, &[10_001]);
    engine.close().unwrap();
    // Nor does it come back with later puts beside it.
    for round in 0..3 {
        let (engine, tree) = blind(&disk);
        check(&tree, &[10_001]);
        tree.put(&key(10_002), &[9; 100], Durability::Buffered).unwrap();
        engine.checkpoint().unwrap();
        check(&tree, &[10_001, 10_002]);
        let damage = engine.check().unwrap().damage;
        assert_eq!(damage.len(), 1, "{round}: {damage:?}");
        engine.close().unwrap();
    }
}

#[test]
fn a_value_in_pieces_for_a_leaf_that_cannot_be_read_is_refused_and_stops_nobody() {
    let disk = filled(20_000);
    let engine =
        Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, Options { blind_puts: true, ..options() }).unwrap();
    let tree = engine.tree("t").unwrap();
    let key = |number: u32| number.to_be_bytes();
    // So that the depth of the leaves is known.
    tree.put(&key(0), b"first of all", Durability::Buffered).unwrap();
    disk.make_unreadable(Some(2 * BLOCK..disk.bytes.len().unwrap()));
    let mut writer = tree.value_writer(&key(10_000)).unwrap();
    writer.write(&vec![3; 100 << 10]).unwrap();
    let refused = writer.commit(Durability::Flushed).unwrap_err();
    assert!(matches!(refused, EngineError::Disk(_)), "{refused}");
    tree.put(&key(1), b"elsewhere", Durability::Flushed).unwrap();
    disk.make_unreadable(None);
    assert_eq!(tree.get(&key(10_000)).unwrap().unwrap().len(), 100, "it was said to be refused");
    engine.close().unwrap();
    let (engine, tree) = open(&disk).unwrap();
    assert_eq!(tree.get(&key(10_000)).unwrap().unwrap().len(), 100);
    assert!(engine.check().unwrap().damage.is_empty());
}

#[test]
fn a_store_that_lost_both_superblocks_is_not_replaced_by_a_new_one() {
    for first in [0, 1] {
        let disk = filled(1000);
        // The first may also be garbage that this store wrote.
        disk.bytes.write_at(first * 64, &vec![0; (2 * BLOCK - first * 64) as usize]).unwrap();
        let before = disk.bytes.len().unwrap();
        let refused = open(&disk).map(|_| ()).unwrap_err();
        assert!(
            matches!(refused, EngineError::Corrupt { problem: Damage::Superblocks, .. }),
            "{first}: {refused}"
        );
        assert_eq!(disk.bytes.len().unwrap(), before);
    }
}

#[test]
fn a_write_that_was_refused_is_not_there_after_a_crash_though_the_disk_took_it() {
    let disk = filled(10);
    let (_engine, tree) = open(&disk).unwrap();
    disk.denies_writes.store(true, Ordering::Relaxed);
    let refused = tree.put(b"refused", b"v", Durability::Flushed).unwrap_err();
    assert!(!refused.is_unknown(), "{refused}");
    let copy = Arc::new(Hurt { bytes: MemoryDisk::with_bytes(image(&disk.bytes)), ..Hurt::default() });
    let (_engine, after) = open(&copy).unwrap();
    assert!(after.get(b"refused").unwrap().is_none());
    // Nor does it hinder later writes.
    tree.put(b"next", b"v", Durability::Flushed).unwrap();
    let copy = Arc::new(Hurt { bytes: MemoryDisk::with_bytes(image(&disk.bytes)), ..Hurt::default() });
    let (_engine, after) = open(&copy).unwrap();
    assert!(after.get(b"next").unwrap().is_some() && after.get(b"refused").unwrap().is_none());
}

#[test]
fn a_checkpoint_whose_sync_finds_no_room_is_not_one_that_was_refused_for_room() {
    let disk = filled(1000);
    let (engine, tree) = open(&disk).unwrap();
    tree.put(b"acknowledged", b"v", Durability::Flushed).unwrap();
    disk.denies_syncs.store(true, Ordering::Relaxed);
    let failed = engine.checkpoint().map(|_| ()).unwrap_err();
    assert!(failed.is_unknown(), "{failed}");
    assert_ne!(failed.kind(), atoll_errors::ErrorKind::OutOfSpace, "{failed}");
    let after = tree.put(b"after", b"v", Durability::Flushed).unwrap_err();
    assert!(matches!(after, EngineError::Poisoned { .. }), "{after}");
}

#[test]
fn a_load_among_other_records_puts_none_of_its_own_twice() {
    let engine = Engine::in_memory(options()).unwrap();
    let tree = engine.tree("t").unwrap();
    tree.put(b"there before", b"", Durability::Buffered).unwrap();
    let records = (0..2500u32).map(|number| {
        if number == 1500 {
            assert!(tree.get(&999u32.to_be_bytes()).unwrap().is_some(), "the first thousand is visible");
            tree.delete(&999u32.to_be_bytes(), Durability::Buffered).unwrap();
        }
        (number.to_be_bytes(), [1u8; 10])
    });
    assert_eq!(tree.bulk_load(records).unwrap(), 2500);
    assert!(tree.get(&999u32.to_be_bytes()).unwrap().is_none(), "somebody else deleted it since");
    assert_eq!(tree.len().unwrap(), 2500);
}

#[test]
fn a_check_beside_checkpoints_finds_no_damage_in_a_sound_store() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
    let engine = Engine::open(Arc::clone(&disk), options()).unwrap();
    let tree = engine.tree("t").unwrap();
    for number in 0..20_000u32 {
        tree.put(&number.to_be_bytes(), &[1; 100], Durability::Buffered).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut number = 0u32;
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..500 {
                    number = (number + 7919) % 20_000;
                    tree.put(&number.to_be_bytes(), &[2; 100], Durability::Buffered).unwrap();
                }
                engine.checkpoint().unwrap();
            }
        });
        let found: Vec<_> = (0..20).map(|_| engine.check().map(|report| report.damage)).collect();
        is_over.store(true, Ordering::Relaxed);
        for damage in found {
            assert!(matches!(&damage, Ok(damage) if damage.is_empty()), "{damage:?}");
        }
    });
}

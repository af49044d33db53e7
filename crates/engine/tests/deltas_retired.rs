//! Values that a writer retires while a checkpoint runs are retired once, even if the process ends before the
//! next checkpoint.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay, SimDisk};
use atoll_engine::{Durability, Engine, Options, Tree};
use std::sync::{Arc, Mutex};

type Happening = Box<dyn FnOnce() + Send>;

/// End of the superblocks. They are read under a lock, and so is the table of the last commit, the only thing
/// there whose length is a number of blocks.
const DATA_START: u64 = 8192;
const BLOCK: usize = 4096;

/// A disk on which something happens before the next read.
struct Interrupted {
    disk: SimDisk,
    happening: Mutex<Option<Happening>>,
}

impl Relay for Interrupted {
    fn inner(&self) -> &dyn Disk {
        &self.disk
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        let is_locked = offset < DATA_START || target.len().is_multiple_of(BLOCK);
        let happening = self.happening.lock().unwrap().take_if(|_| !is_locked);
        if let Some(happening) = happening {
            happening();
        }
        self.disk.read_at(offset, target)
    }
}

fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: 64 << 10,
        log_windows: false,
        blind_puts: true,
        store_id: Some(7),
        ..Options::default()
    }
}

fn opened(disk: Arc<dyn Disk>) -> (Engine, Tree) {
    let engine = Engine::open(disk, options()).unwrap();
    let tree = engine.tree("t").unwrap();
    // So that the depth of the leaves is known.
    tree.put(b"user", b"first of all", Durability::Buffered).unwrap();
    (engine, tree)
}

fn key(number: u64) -> Vec<u8> {
    format!("user{number:08}").into_bytes()
}

fn interrupted(seed: u64) -> Arc<Interrupted> {
    Arc::new(Interrupted { disk: SimDisk::seeded(seed), happening: Mutex::default() })
}

/// A store of long values, of which only the first leaf is in memory.
fn filled(disk: &Arc<Interrupted>) -> (Engine, Tree) {
    let (engine, tree) = opened(Arc::clone(disk) as Arc<dyn Disk>);
    for number in 0..20_000 {
        tree.put(&key(number), &[1; 300], Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
    opened(Arc::clone(disk) as Arc<dyn Disk>)
}

/// Replaces two long values without reading them, around one that stays.
fn replace_some(tree: &Tree) {
    for number in [15_000, 15_002] {
        tree.put(&key(number), &[2; 10], Durability::Buffered).unwrap();
    }
}

#[test]
fn a_value_that_a_writer_lets_go_of_during_a_checkpoint_leaves_with_that() {
    let disk = interrupted(1);
    let (engine, tree) = filled(&disk);
    // Put so much beside one leaf that it is read and becomes one page, and replace two long values in a
    // later leaf.
    for number in 5000..5018 {
        tree.put(&key(number), &[2; 100], Durability::Buffered).unwrap();
    }
    replace_some(&tree);
    let other = tree.clone();
    let happening = move || assert!(other.delete(&key(15_001), Durability::Flushed).is_ok());
    *disk.happening.lock().unwrap() = Some(Box::new(happening));
    engine.checkpoint().unwrap();
    assert!(disk.happening.lock().unwrap().is_none(), "the checkpoint read nothing");
    let check = |engine: &Engine| {
        let damage = engine.check().unwrap().damage;
        assert!(damage.is_empty(), "{damage:?}");
    };
    let left: Arc<dyn Disk> = Arc::new(MemoryDisk::with_bytes(disk.disk.to_bytes()));
    let (after, read) = opened(left);
    check(&after);
    assert!(read.get(&key(15_001)).unwrap().is_none());
    for engine in [after, engine] {
        for _ in 0..3 {
            engine.checkpoint().unwrap();
            check(&engine);
        }
    }
}

#[test]
fn a_check_beside_writers_that_let_go_of_values_finds_no_damage_in_a_sound_store() {
    for by_checkpoint in [false, true] {
        let disk = interrupted(2);
        let (engine, tree) = filled(&disk);
        replace_some(&tree);
        if by_checkpoint {
            // So much beside it that the checkpoint makes one page of both.
            for number in (14_980..15_020).filter(|number| *number != 15_001) {
                tree.put(&key(number), &[2; 60], Durability::Buffered).unwrap();
            }
        }
        let (other, its) = (tree.clone(), engine.clone());
        let happening: Happening = Box::new(move || {
            if by_checkpoint {
                its.checkpoint().unwrap();
            } else {
                other.delete(&key(15_001), Durability::Flushed).unwrap();
            }
        });
        *disk.happening.lock().unwrap() = Some(happening);
        for _ in 0..3 {
            let damage = engine.check().unwrap().damage;
            assert!(damage.is_empty(), "by checkpoint: {by_checkpoint}: {damage:?}");
            assert!(disk.happening.lock().unwrap().is_none(), "the check read nothing");
            engine.checkpoint().unwrap();
        }
    }
}

/// Checks a store three times, the first time with something happening meanwhile, and asserts that there is
/// no damage.
fn check_beside(engine: &Engine, disk: &Interrupted, happening: impl FnOnce() + Send + 'static) {
    *disk.happening.lock().unwrap() = Some(Box::new(happening));
    for _ in 0..3 {
        let damage = engine.check().unwrap().damage;
        assert!(damage.is_empty(), "{damage:?}");
        assert!(disk.happening.lock().unwrap().is_none(), "the check read nothing");
        engine.checkpoint().unwrap();
    }
}

/// A store whose leaves have room left, most of all around one key, where there are long values too.
fn filled_loosely(disk: &Arc<Interrupted>, count: u64, len: usize, around: u64) -> (Engine, Tree) {
    let (engine, tree) = opened(Arc::clone(disk) as Arc<dyn Disk>);
    for number in (0..count).map(|number| number * 7919 % count) {
        let len = if number.abs_diff(around) < 10 { 300 } else { len };
        tree.put(&key(number), &vec![1; len], Durability::Buffered).unwrap();
    }
    for number in (around - 199..around + 200).step_by(2) {
        tree.delete(&key(number), Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
    let (engine, tree) = opened(Arc::clone(disk) as Arc<dyn Disk>);
    // So that the depth of the leaves is known below the last node too.
    tree.put(&key(count - 1), b"last of all", Durability::Buffered).unwrap();
    (engine, tree)
}

#[test]
fn a_check_of_a_deep_tree_knows_what_a_checkpoint_tells_below_a_node_that_it_comes_to_later() {
    let disk = interrupted(3);
    // More leaves than one inner node can have.
    let (engine, tree) = filled_loosely(&disk, 40_000, 200, 38_000);
    for number in (37_986..38_014).step_by(2) {
        tree.put(&key(number), &[2; 120], Durability::Buffered).unwrap();
    }
    let its = engine.clone();
    check_beside(&engine, &disk, move || assert!(its.checkpoint().is_ok()));
}

#[test]
fn a_check_knows_what_a_checkpoint_tells_of_records_that_lay_on_others() {
    let disk = interrupted(4);
    let (engine, tree) = filled_loosely(&disk, 20_000, 200, 15_000);
    // A second page that is too long to be copied, and records on top of it that make one page of everything.
    for number in [14_996, 14_998, 15_000] {
        tree.put(&key(number), &[2; 150], Durability::Buffered).unwrap();
    }
    engine.checkpoint().unwrap();
    for number in (14_986..15_014).step_by(2) {
        tree.put(&key(number), &[2; 120], Durability::Buffered).unwrap();
    }
    let its = engine.clone();
    check_beside(&engine, &disk, move || assert!(its.checkpoint().is_ok()));
}

#[test]
fn a_check_counts_once_what_was_put_over_values_and_told_after_it_began() {
    let disk = interrupted(5);
    let (engine, tree) = filled_loosely(&disk, 20_000, 200, 15_000);
    let its = engine.clone();
    check_beside(&engine, &disk, move || {
        for number in (14_986..15_014).step_by(2) {
            tree.put(&key(number), &[2; 120], Durability::Buffered).unwrap();
        }
        its.checkpoint().unwrap();
    });
}

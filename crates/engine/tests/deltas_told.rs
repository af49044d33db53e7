//! What a writer lets go of while a checkpoint runs is let go of once, also when the process ends before the next one.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay, SimDisk};
use atoll_engine::{Durability, Engine, Options, Tree};
use std::sync::{Arc, Mutex};

type Happening = Box<dyn FnOnce() + Send>;

/// Where the superblocks end: they are read under a lock.
const DATA_START: u64 = 8192;

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
        let happening = self.happening.lock().unwrap().take_if(|_| offset >= DATA_START);
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
        seed: Some(7),
        ..Options::default()
    }
}

fn opened(disk: Arc<dyn Disk>) -> (Engine, Tree) {
    let engine = Engine::open(disk, options()).unwrap();
    let tree = engine.tree("t").unwrap();
    // So that it is known where leaves are.
    tree.put(b"user", b"first of all", Durability::Buffered).unwrap();
    (engine, tree)
}

fn key(number: u64) -> Vec<u8> {
    format!("user{number:08}").into_bytes()
}

/// A store of long values, of which none but the first leaf is in memory.
fn filled(disk: &Arc<Interrupted>) -> (Engine, Tree) {
    let (engine, tree) = opened(Arc::clone(disk) as Arc<dyn Disk>);
    for number in 0..20_000 {
        tree.put(&key(number), &[1; 300], Durability::Buffered).unwrap();
    }
    engine.close().unwrap();
    opened(Arc::clone(disk) as Arc<dyn Disk>)
}

/// Replaces two long values, unseen, around one that stays.
fn replace_some(tree: &Tree) {
    for number in [15_000, 15_002] {
        tree.put(&key(number), &[2; 10], Durability::Buffered).unwrap();
    }
}

#[test]
fn a_value_that_a_writer_lets_go_of_during_a_checkpoint_leaves_with_that() {
    let disk = Arc::new(Interrupted { disk: SimDisk::seeded(1), happening: Mutex::default() });
    let (engine, tree) = filled(&disk);
    // So much beside one leaf that it is read and becomes one page, and two long values replaced in a later one.
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
        let disk = Arc::new(Interrupted { disk: SimDisk::seeded(2), happening: Mutex::default() });
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

//! Stores whose checkpoints fail: what waits for a checkpoint takes neither the memory nor the disk without
//! bound, and the store goes on once a checkpoint succeeds.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used)]

use atoll_disk::{Disk, DiskError, MemoryDisk, Operation, Relay};
use atoll_engine::{Durability, Engine, EngineError, Options, Tree};
use atoll_errors::ErrorKind;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// End of the superblocks.
const DATA_START: u64 = 8192;

/// A disk that refuses to write superblocks, with this kind of error, as long as it is told to.
struct Refusing {
    bytes: MemoryDisk,
    kind: io::ErrorKind,
    refuses: AtomicBool,
}

impl Refusing {
    fn with(kind: io::ErrorKind) -> Arc<Self> {
        Arc::new(Self { bytes: MemoryDisk::new(), kind, refuses: AtomicBool::new(false) })
    }

    fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }
}

impl Relay for Refusing {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        if offset < DATA_START && self.refuses.load(Ordering::Relaxed) {
            let source = io::Error::new(self.kind, "planted");
            return Err(DiskError { operation: Operation::Write, name: "refusing".into(), offset, source });
        }
        self.bytes.write_at(offset, bytes)
    }
}

fn open(disk: &Arc<Refusing>, options: Options) -> (Engine, Tree) {
    let engine = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

/// Puts numbers from 0 on until one is refused, and returns it with the error. The key follows from the
/// number.
fn fill(tree: &Tree, most: u64, key: impl Fn(u64) -> u64) -> (u64, EngineError) {
    let put = |number: u64| {
        let value = number.to_be_bytes().repeat(12);
        tree.put(&key(number).to_be_bytes(), &value, Durability::Flushed).err().map(|error| (number, error))
    };
    (0..most).find_map(put).expect("nothing bounds what is written")
}

#[test]
fn the_log_of_a_store_whose_checkpoints_fail_ends_at_a_limit_and_goes_on_when_one_succeeds() {
    let kinds =
        [(io::ErrorKind::Other, ErrorKind::Unavailable), (io::ErrorKind::StorageFull, ErrorKind::OutOfSpace)];
    for (planted, told) in kinds {
        let options = Options {
            checkpoint_bytes: 256 << 10,
            log_segment_bytes: 64 << 10,
            log_windows: false,
            ..Options::default()
        };
        let disk = Refusing::with(planted);
        let (engine, tree) = open(&disk, options.clone());
        disk.refuse(true);
        let (refused_at, error) = fill(&tree, 1_000_000, |number| number % 100);
        assert!(matches!(error, EngineError::CheckpointsFail { .. }), "{error}");
        assert!(error.kind() == told && !error.is_unknown(), "{error}");
        assert!(error.to_string().contains("cannot write"), "{error}");
        // What was refused did not happen, and reads go on.
        let newest = |tree: &Tree| {
            let value = tree.get(&((refused_at - 1) % 100).to_be_bytes()).unwrap().unwrap();
            assert_eq!(*value.to_buffer().unwrap(), (refused_at - 1).to_be_bytes().repeat(12));
        };
        newest(&tree);
        // Nobody but the writers who are refused asks for a checkpoint.
        disk.refuse(false);
        let put = || tree.put(b"more", b"v", Durability::Flushed).is_ok();
        let serves = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            put()
        });
        assert!(serves, "it stays refused though checkpoints would succeed");
        engine.close().unwrap();
        let (engine, tree) = open(&disk, options);
        assert!(engine.recovery().clean);
        newest(&tree);
    }
}

#[test]
fn long_values_overwritten_while_checkpoints_fail_take_a_bounded_part_of_the_disk() {
    const LEN: usize = 1 << 20;
    let options = Options {
        checkpoint_bytes: 4 << 20,
        log_segment_bytes: 64 << 10,
        log_windows: false,
        ..Options::default()
    };
    let disk = Refusing::with(io::ErrorKind::Other);
    let (engine, tree) = open(&disk, options.clone());
    disk.refuse(true);
    let put = |number: u8| {
        // So that the background checkpoints keep up.
        std::thread::sleep(Duration::from_millis(5));
        tree.put(b"k", &[number].repeat(LEN), Durability::Flushed).err().map(|error| (number, error))
    };
    // Sixteen values reach the limit; three checkpoints have to fail before that counts.
    let (refused_at, error) = (0..=u8::MAX).find_map(put).expect("nothing bounds what is overwritten");
    assert!(matches!(error, EngineError::CheckpointsFail { .. }), "{error}");
    let newest = |tree: &Tree| {
        let value = tree.get(b"k").unwrap().unwrap().to_buffer().unwrap();
        assert!(value.len() == LEN && value.iter().all(|&byte| byte == refused_at - 1), "{}", value[0]);
    };
    newest(&tree);
    disk.refuse(false);
    let serves = (0..10_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        tree.put(b"more", b"v", Durability::Flushed).is_ok()
    });
    assert!(serves, "it stays refused though checkpoints would succeed");
    engine.close().unwrap();
    let (engine, tree) = open(&disk, options);
    newest(&tree);
    assert!(engine.check().unwrap().damage.is_empty());
}

// Not under sanitizers, like the other tests of the budget.
#[cfg(not(atoll_plain_memory))]
#[test]
fn what_a_store_whose_checkpoints_fail_would_replay_stays_within_its_memory() {
    const BUDGET: u64 = 4 << 20;
    let options = Options { memory_bytes: BUDGET, log_segment_bytes: 64 << 10, ..Options::default() };
    let disk = Refusing::with(io::ErrorKind::Other);
    let (engine, tree) = open(&disk, options.clone());
    disk.refuse(true);
    // In no order; some ten times the budget.
    let key = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (refused_at, error) = fill(&tree, 400_000, key);
    assert!(matches!(error, EngineError::CheckpointsFail { .. }), "{error}");
    disk.refuse(false);
    engine.checkpoint().unwrap();
    tree.put(b"more", b"v", Durability::Flushed).unwrap();
    assert_eq!(tree.len().unwrap(), refused_at + 1);
    engine.close().unwrap();
    assert_eq!(open(&disk, options).1.len().unwrap(), refused_at + 1);
}

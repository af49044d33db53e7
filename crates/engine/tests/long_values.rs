//! Long values: a range of one is read, and verified, without the rest.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-engine --test long_values`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

#[path = "common/counted.rs"]
mod counted;

use atoll_buffer::Buffer;
use atoll_disk::{Disk, MemoryDisk};
use atoll_engine::{Durability, Engine, EngineError, Options, Tree, WriteBatch};
use counted::Counted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn disk_of(bytes: Vec<u8>) -> Arc<Counted> {
    Arc::new(Counted { bytes: MemoryDisk::with_bytes(bytes), read: AtomicU64::new(0) })
}

fn open(disk: &Arc<Counted>) -> (Engine, Tree) {
    let options = Options { background: false, store_id: Some(7), ..Options::default() };
    let engine = Engine::open(Arc::clone(disk) as Arc<dyn Disk>, options).unwrap();
    let tree = engine.tree("t").unwrap();
    (engine, tree)
}

fn put(engine: &Engine, tree: &Tree, key: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new();
    batch.put_buffer(tree, key, Buffer::copy_from(value));
    engine.write(&batch, Durability::Flushed).unwrap();
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(..)).collect()
}

/// A closed store with one value of these bytes.
fn with_value(value: &[u8]) -> Vec<u8> {
    let disk = disk_of(Vec::new());
    let (engine, tree) = open(&disk);
    put(&engine, &tree, b"long", value);
    engine.close().unwrap();
    disk.bytes.to_bytes()
}

#[test]
fn a_range_of_a_long_value_is_read_without_the_rest_and_the_whole_without_a_copy() {
    let value = noise(1, 5_000_000);
    let disk = disk_of(with_value(&value));
    let (_engine, tree) = open(&disk);
    let found = tree.get(b"long").unwrap().unwrap();
    let before = disk.read.load(Ordering::Relaxed);
    assert_eq!(found.read(3_000_000, 100).unwrap(), value[3_000_000..3_000_100]);
    let read = disk.read.load(Ordering::Relaxed) - before;
    assert!(read <= 512 << 10, "{read} bytes were read for 100");
    assert_eq!(found.read(3_000_000, 100).unwrap(), value[3_000_000..3_000_100]);
    assert_eq!(disk.read.load(Ordering::Relaxed) - before, read, "what was read is kept");
    let fresh = disk_of(with_value(&value));
    let (_engine, tree) = open(&fresh);
    let found = tree.get(b"long").unwrap().unwrap();
    let (once, twice) = (found.to_buffer().unwrap(), found.read(10, 4_999_000).unwrap());
    assert_eq!(once, value[..]);
    assert_eq!(once[10..].as_ptr(), twice.as_ptr(), "pieces that were read together stay together");
}

#[test]
fn a_piece_that_stays_behind_keeps_no_more_than_itself() {
    let value = noise(4, 4_000_000);
    let disk = disk_of(with_value(&value));
    let (_engine, tree) = open(&disk);
    let found = tree.get(b"long").unwrap().unwrap();
    for from in (0..value.len()).step_by(200_000).rev() {
        found.read(from as u64, 10).unwrap();
    }
    let once = found.read(0, 2_000_000).unwrap();
    // Some of the pieces now lie together, and some do not: nothing moves.
    let sliding = found.read(1_000_000, 2_000_000).unwrap();
    assert_eq!(sliding, value[1_000_000..3_000_000]);
    let again = found.read(0, 2_000_000).unwrap();
    assert_eq!(once.as_ptr(), again.as_ptr());
}

#[test]
fn pieces_that_were_read_one_by_one_are_put_together_once() {
    let value = noise(2, 3_000_000);
    let disk = disk_of(with_value(&value));
    let (_engine, tree) = open(&disk);
    let found = tree.get(b"long").unwrap().unwrap();
    for from in (0..value.len()).step_by(200_000).rev() {
        found.read(from as u64, 10).unwrap();
    }
    let few = found.read(262_100, 100).unwrap();
    assert_eq!(few, value[262_100..262_200]);
    let (once, twice) = (found.read(1000, 2_000_000).unwrap(), found.read(2000, 1_000_000).unwrap());
    assert_eq!(once, value[1000..2_001_000]);
    assert_eq!(twice, value[2000..1_002_000]);
    assert_eq!(once[1000..].as_ptr(), twice.as_ptr(), "what was copied is not copied again");
    assert_eq!(found.to_buffer().unwrap(), value[..]);
}

#[test]
fn every_range_of_values_of_any_length_is_what_was_put_and_appended() {
    let seed = std::env::var("ATOLL_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in seed..seed + 30 {
        println!("replay with ATOLL_SEED={seed} cargo test -p atoll-engine --test long_values");
        let mut random = fastrand::Rng::with_seed(seed);
        let near = [64 << 10, 256 << 10, 512 << 10, 1 << 20, 16 << 20][random.usize(..5)];
        let mut value =
            noise(seed, (near + random.usize(..3)).saturating_sub(1) + random.usize(..2) * 777_777);
        let disk = disk_of(Vec::new());
        let (engine, tree) = open(&disk);
        put(&engine, &tree, b"long", &value);
        for _ in 0..random.usize(..4) {
            let more = noise(random.u64(..), random.usize(1..600_000));
            tree.append(b"long", &more, Durability::Flushed).unwrap();
            value.extend_from_slice(&more);
        }
        let check = |tree: &Tree, random: &mut fastrand::Rng| {
            let found = tree.get(b"long").unwrap().unwrap();
            for _ in 0..20 {
                let from = random.usize(..value.len() + 10);
                let len = random.usize(..value.len()) >> random.usize(..20);
                let end = (from + len).min(value.len());
                let part = found.read(from as u64, len as u64).unwrap();
                assert_eq!(part, value[from.min(end)..end], "{from} {len} of {}", value.len());
            }
            assert_eq!(found.to_buffer().unwrap(), value[..]);
        };
        check(&tree, &mut random);
        let is_crash = random.bool();
        if !is_crash {
            engine.close().unwrap();
        }
        // What is only in memory is lost; the log has everything.
        let again = disk_of(disk.bytes.to_bytes());
        let (_engine, tree) = open(&again);
        check(&tree, &mut random);
    }
}

#[test]
fn a_flip_in_a_long_value_is_found_where_it_is_read_and_nowhere_else() {
    let value = noise(2, 3_000_000);
    let mut bytes = with_value(&value);
    let at = bytes.windows(64).position(|window| window == &value[2_000_000..2_000_064]).unwrap();
    bytes[at] ^= 4;
    let (_engine, tree) = open(&disk_of(bytes));
    let found = tree.get(b"long").unwrap().unwrap();
    assert_eq!(found.read(0, 1000).unwrap(), value[..1000]);
    assert!(matches!(found.read(1_999_990, 5), Err(EngineError::Corrupt { .. })));
    assert!(matches!(found.to_buffer(), Err(EngineError::Corrupt { .. })));
    assert_eq!(found.read(2_900_000, 100_000).unwrap(), value[2_900_000..]);
}

#[test]
fn a_value_knows_which_of_its_bytes_are_in_memory() {
    let value = noise(11, 1 << 20);
    let (engine, tree) = open(&disk_of(with_value(&value)));
    let long = tree.get(b"long").unwrap().unwrap();
    let (from, len) = (600_000, 1000);
    assert!(!long.is_resident() && !long.is_resident_within(from, len));
    assert_eq!(long.read(from, len).unwrap()[..], value[from as usize..][..1000]);
    assert!(long.is_resident_within(from, len) && !long.is_resident());
    assert!(!long.is_resident_within(0, from + len), "the bytes before were not read");
    assert!(!long.is_resident_within(from, u64::MAX), "nor those behind");
    assert!(long.is_resident_within(1 << 20, 5) && long.is_resident_within(0, 0), "there is nothing to read");
    engine.close().unwrap();
}

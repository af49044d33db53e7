//! A store whose leaves can rot: its contents, how it is opened, and what is on its disk.
#![allow(dead_code, clippy::unwrap_used)]

use atoll_disk::Disk;
use atoll_engine::{Durability, EngineError, Options, Tree};

pub const KEYS: u32 = 20_000;

/// The key whose leaf rots.
pub const SICK: u32 = 10_000;

pub fn options() -> Options {
    Options {
        background: false,
        log_segment_bytes: 64 << 10,
        log_windows: false,
        store_id: Some(7),
        ..Options::default()
    }
}

pub fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// The value that a key has at first.
pub fn old(number: u32) -> Vec<u8> {
    format!("value of {number:08}").repeat(6).into_bytes()
}

/// Puts all keys in random order, so that leaves have some room left.
pub fn fill(tree: &Tree) {
    for number in (0..KEYS).map(|number| number * 7919 % KEYS) {
        tree.put(&key(number), &old(number), Durability::Buffered).unwrap();
    }
}

/// All bytes of a disk.
pub fn image(disk: &dyn Disk) -> Vec<u8> {
    let mut bytes = vec![0; disk.len().unwrap() as usize];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

pub fn value(tree: &Tree, number: u32) -> Result<Option<Vec<u8>>, EngineError> {
    value_of(tree, &key(number))
}

pub fn value_of(tree: &Tree, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
    tree.get(key)?.map(|value| Ok(value.to_buffer()?.to_vec())).transpose()
}

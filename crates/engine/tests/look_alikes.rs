//! Values full of bytes that look like headers of the log do not make an opening slow.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the times of two openings are what is compared"
)]

use atoll_disk::MemoryDisk;
use atoll_engine::{Durability, Engine, Options, Tree, WriteBatch};
use std::sync::Arc;
use std::time::{Duration, Instant};

const VALUES: u32 = 800;
const VALUE_BYTES: usize = 60_000;

/// Bytes that each of the headers claims to be followed by. Reading as many for each takes thousands of times
/// as long as reading the log does.
const CLAIMED_BYTES: u32 = 24 << 20;

/// Looking at the headers may take this many times as long as an opening without them.
const FACTOR_MAX: u32 = 50;

fn open(bytes: Vec<u8>) -> (Arc<MemoryDisk>, Engine, Tree) {
    let disk = Arc::new(MemoryDisk::with_bytes(bytes));
    let options = Options { background: false, store_id: Some(7), ..Options::default() };
    let engine = Engine::open(disk.clone(), options).unwrap();
    let tree = engine.tree("t").unwrap();
    (disk, engine, tree)
}

/// A value of headers with these marks, one in eight of which lies where a group may begin. No log can have
/// any of them behind its first group.
fn look_alikes(group: [u8; 4], jump: [u8; 4]) -> Vec<u8> {
    let kinds = [
        (group, 1, 0),            // not later
        (group, u64::MAX / 2, 0), // later than there is room for groups before it
        (group, 2, u64::MAX),     // synced further than the log went
        (jump, 2, 0),             // longer than a jump
    ];
    let mut value = Vec::with_capacity(VALUE_BYTES + 64);
    for (mark, sequence, synced) in kinds.into_iter().flat_map(|kind| [kind; 8]).cycle() {
        value.extend(mark);
        value.extend(CLAIMED_BYTES.to_le_bytes());
        value.extend(u64::to_le_bytes(sequence));
        value.extend(u64::to_le_bytes(synced));
        // Chain and checksum, and one byte more, so that the next header lies elsewhere in a word.
        value.extend([0xA5; 17]);
        if value.len() >= VALUE_BYTES {
            break;
        }
    }
    value.truncate(VALUE_BYTES);
    value
}

/// How long it takes to open a store whose only large group has many of these values and is torn in one.
fn opening_with(value: &[u8]) -> Duration {
    let (disk, engine, tree) = open(Vec::new());
    let mut batch = WriteBatch::new();
    (0..VALUES).for_each(|number| batch.put(&tree, &number.to_be_bytes(), value));
    engine.write(&batch, Durability::Flushed).unwrap();
    drop((tree, engine));
    let mut bytes = disk.to_bytes();
    let middle = bytes.len() * 3 / 4;
    bytes[middle] ^= 1;
    let begun = Instant::now();
    let (_disk, engine, tree) = open(bytes);
    let taken = begun.elapsed();
    assert!(engine.recovery().cut.is_some_and(|cut| cut.bytes > u64::from(VALUES) * VALUE_BYTES as u64));
    assert_eq!(tree.len().unwrap(), 0);
    taken
}

#[test]
fn headers_that_cannot_follow_are_not_read_with_all_that_they_claim() {
    // The same bytes but for the marks, before and after: other programs may slow down either.
    let without = || opening_with(&look_alikes(*b"grp0", *b"jmp0"));
    let before = without();
    let taken = opening_with(&look_alikes(*b"grp1", *b"jmp1"));
    let usual = before.max(without());
    assert!(taken < usual * FACTOR_MAX, "{taken:?}, and {usual:?} without headers");
}

//! Values full of bytes that look like headers of the log do not make an opening slow.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "the time of an opening is what is tested"
)]

use atoll_disk::MemoryDisk;
use atoll_engine::{Durability, Engine, Options, Tree, WriteBatch};
use std::sync::Arc;
use std::time::{Duration, Instant};

const VALUES: u32 = 800;
const VALUE_BYTES: usize = 60_000;

/// Bytes that each of the headers claims to be followed by. Reading as many for each takes a minute.
const CLAIMED_BYTES: u32 = 24 << 20;

fn open(bytes: Vec<u8>) -> (Arc<MemoryDisk>, Engine, Tree) {
    let disk = Arc::new(MemoryDisk::with_bytes(bytes));
    let options = Options { background: false, store_id: Some(7), ..Options::default() };
    let engine = Engine::open(disk.clone(), options).unwrap();
    let tree = engine.tree("t").unwrap();
    (disk, engine, tree)
}

/// A value of headers, one in eight of which lies where a group may begin. No log can have any of them behind
/// its first group.
fn look_alikes() -> Vec<u8> {
    let kinds: [(&[u8; 4], u64, u64); 4] = [
        (b"grp1", 1, 0),            // not later
        (b"grp1", u64::MAX / 2, 0), // later than there is room for groups before it
        (b"grp1", 2, u64::MAX),     // synced further than the log went
        (b"jmp1", 2, 0),            // longer than a jump
    ];
    let mut value = Vec::with_capacity(VALUE_BYTES);
    for (magic, sequence, synced) in kinds.into_iter().flat_map(|kind| [kind; 8]).cycle() {
        let header =
            [&magic[..], &CLAIMED_BYTES.to_le_bytes(), &sequence.to_le_bytes(), &synced.to_le_bytes()];
        value.extend(header.concat());
        // Chain and checksum, and one byte more, so that the next header lies elsewhere in a word.
        value.extend([0xA5; 17]);
        if value.len() >= VALUE_BYTES {
            break;
        }
    }
    value.truncate(VALUE_BYTES);
    value
}

#[test]
fn headers_that_cannot_follow_are_not_read_with_all_that_they_claim() {
    let (disk, engine, tree) = open(Vec::new());
    let value = look_alikes();
    let mut batch = WriteBatch::new();
    (0..VALUES).for_each(|number| batch.put(&tree, &number.to_be_bytes(), &value));
    engine.write(&batch, Durability::Flushed).unwrap();
    drop((tree, engine));
    // The group is torn in one of its values.
    let mut bytes = disk.to_bytes();
    let middle = bytes.len() * 3 / 4;
    bytes[middle] ^= 1;
    let begun = Instant::now();
    let (_disk, engine, tree) = open(bytes);
    let taken = begun.elapsed();
    assert!(engine.recovery().cut.is_some_and(|cut| cut.bytes > u64::from(VALUES) * VALUE_BYTES as u64));
    assert_eq!(tree.len().unwrap(), 0);
    assert!(taken < Duration::from_secs(10), "{taken:?}");
}

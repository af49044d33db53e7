//! Entry points for fuzzers: whatever the bytes, decoding answers a value or an error.

use crate::backing::Backing;
use crate::codec::Decoder;
use crate::log::{LogPoint, Replay, SEGMENT_HEADER};
use crate::node::PageRef;
use crate::space::Extent;
use crate::superblock::{Superblock, Table};
use crate::{page, record};
use atoll_disk::{Disk, MemoryDisk};
use std::sync::Arc;

/// Decodes bytes as a page of a tree.
pub fn page(bytes: &[u8]) {
    let _ = page::decode(bytes, &PageRef::default());
}

/// Decodes bytes as a superblock and as the table of a commit.
pub fn superblock(bytes: &[u8]) {
    let _ = Superblock::decode(bytes);
    let _ = Table::decode(bytes);
}

/// Decodes bytes as the records of a log group.
pub fn records(bytes: &[u8]) {
    let mut payload = Decoder::new(bytes);
    while !payload.is_at_end() {
        if record::decode(&mut payload).is_err() {
            break;
        }
    }
}

/// Replays bytes as a log segment, with whatever groups and jumps they hold.
pub fn log(bytes: &[u8]) {
    let disk = MemoryDisk::new();
    if disk.write_at(0, bytes).is_err() {
        return;
    }
    let backing = Backing::new(Some(Arc::new(disk)), 1, 1 << 20);
    let segment = Extent { offset: 0, len: bytes.len() as u64 };
    let point = LogPoint { segment, number: 1, start: 0, position: SEGMENT_HEADER, chain: 1, sequence: 0 };
    let Ok(mut replay) = Replay::start(&backing, point, 0) else { return };
    while let Ok(Some(group)) = replay.next() {
        records(group.payload());
    }
    let end = replay.point();
    let _ = replay.end(end);
}

//! Entry points for fuzzers: for any bytes, decoding returns a value or an error.

use crate::backing::Backing;
use crate::codec::Decoder;
use crate::delta::Records;
use crate::log::{GROUP_MAGIC, JUMP_MAGIC, LogPoint, Replay, SEGMENT_HEADER, group_bytes};
use crate::node::PageRef;
use crate::space::Extent;
use crate::superblock::{Superblock, Table};
use crate::{page, record};
use atoll_disk::{Disk, MemoryDisk};
use std::sync::Arc;

/// Decodes bytes as a page of a tree.
pub fn page(bytes: &[u8]) {
    let _ = page::decode(bytes, &PageRef::default(), 0);
    let _ = Records::decode(bytes);
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

/// Replays bytes as a log segment, with whatever groups and jumps they contain.
pub fn log(bytes: &[u8]) {
    replay(bytes);
}

/// Replays groups and jumps whose checksums are right, while their contents may make no sense.
///
/// Each one takes three bytes, for its kind, the position up to which it claims that the log was synced, and
/// the length of its payload, followed by the payload.
pub fn groups(bytes: &[u8]) {
    let mut image = vec![0; SEGMENT_HEADER as usize];
    let mut point = first_point(u64::MAX >> 1);
    let mut rest = bytes;
    while let [kind, synced, len, body @ ..] = rest {
        let (payload, behind) = body.split_at(usize::from(*len).min(body.len()));
        let magic = if kind & 1 == 0 { GROUP_MAGIC } else { JUMP_MAGIC };
        point.sequence += 1;
        let group = group_bytes(STORE, &point, magic, u64::from(*synced) * 16, payload);
        if kind & 2 == 0 {
            // Chained to what comes next; otherwise the chain is broken here.
            point.chain = u64::from_le_bytes(group[32..40].try_into().unwrap_or_default());
        }
        point.position += group.len() as u64;
        image.extend(group);
        rest = behind;
    }
    replay(&image);
}

const STORE: u64 = 1;

fn first_point(len: u64) -> LogPoint {
    let segment = Extent { offset: 0, len };
    LogPoint { segment, number: 1, start: 0, position: SEGMENT_HEADER, chain: 1, sequence: 0 }
}

fn replay(bytes: &[u8]) {
    let disk = MemoryDisk::new();
    if disk.write_at(0, bytes).is_err() {
        return;
    }
    let backing = Backing::new(Some(Arc::new(disk)), STORE, 1 << 20);
    let Ok(mut replay) = Replay::start(&backing, first_point(bytes.len() as u64), 0) else { return };
    while let Ok(Some(group)) = replay.next() {
        records(group.payload());
    }
    let end = replay.point();
    let _ = replay.end(end);
}

//! Joins a cell's two keys into one key of the engine, so that partitions lie apart and in order.
//!
//! `partition with each 0x00 written as 0x00 0xFF | 0x00 0x01 | sort key`
//!
//! Invariant: the order of joined keys is the order of (partition, sort), and no two cells share a key.

use atoll_engine::Hurt;
use atoll_store::{Cell, SortRange};
use std::ops::Bound;

const END: [u8; 2] = [0, 1];

/// The engine's key of a cell.
pub(crate) fn joined(cell: Cell<'_>) -> Vec<u8> {
    let mut key = partition_start(cell.partition, cell.sort.len());
    key.extend_from_slice(cell.sort);
    key
}

/// Passes the engine's key of a cell to `show`; short keys, as most are, cost no allocation.
pub(crate) fn with_joined<R>(cell: Cell<'_>, show: impl FnOnce(&[u8]) -> R) -> R {
    let mut short = [0; 256];
    let (partition_end, end) = (cell.partition.len(), cell.partition.len() + END.len() + cell.sort.len());
    if end > short.len() || cell.partition.contains(&0) {
        return show(&joined(cell));
    }
    short[..partition_end].copy_from_slice(cell.partition);
    short[partition_end..partition_end + END.len()].copy_from_slice(&END);
    short[partition_end + END.len()..end].copy_from_slice(cell.sort);
    show(&short[..end])
}

/// The prefix of every key of `partition`.
fn partition_start(partition: &[u8], spare: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(partition.len() + END.len() + spare);
    escape(partition, &mut key);
    key.extend_from_slice(&END);
    key
}

fn escape(partition: &[u8], key: &mut Vec<u8>) {
    if !partition.contains(&0) {
        key.extend_from_slice(partition);
        return;
    }
    for &byte in partition {
        key.push(byte);
        if byte == 0 {
            key.push(0xFF);
        }
    }
}

/// The common prefix of the keys of all partitions that start with `prefix`.
pub(crate) fn listing_start(prefix: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    escape(prefix, &mut key);
    key
}

/// The first key after all keys of `partition`.
pub(crate) fn partition_end(partition: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(partition.len() + 2);
    escape(partition, &mut key);
    key.extend_from_slice(&[0, 2]);
    key
}

/// The partition and sort key of a joined key; none if `key` is not one.
pub(crate) fn split(key: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut partition = Vec::with_capacity(key.len());
    let mut at = 0;
    loop {
        let zero = key.get(at..)?.iter().position(|&byte| byte == 0)? + at;
        partition.extend_from_slice(&key[at..zero]);
        match key.get(zero + 1)? {
            0xFF => {
                partition.push(0);
                at = zero + 2;
            }
            1 => return Some((partition, &key[zero + 2..])),
            _ => return None,
        }
    }
}

/// The partition and sort key at the beginning of a joined key, as far as they go: a separator of the tree
/// need not be a whole key.
pub(crate) fn beginning(key: &[u8]) -> (Vec<u8>, Vec<u8>) {
    if let Some((partition, sort)) = split(key) {
        return (partition, sort.to_vec());
    }
    let mut partition = Vec::with_capacity(key.len());
    let mut bytes = key.iter().copied();
    while let Some(byte) = bytes.next() {
        partition.push(byte);
        // The byte after a zero says whether the zero is part of the partition key.
        if byte == 0 && bytes.next() != Some(0xFF) {
            partition.pop();
            break;
        }
    }
    (partition, Vec::new())
}

/// The keys of a cell: partition and sort key.
pub type CellKeys = (Vec<u8>, Vec<u8>);

/// The first and the last cell that some damage found by a check affects: partition and sort key of each, as
/// far as they are known; none for a tree that holds no cells.
#[must_use]
pub fn hurt_cells(hurt: &Hurt) -> Option<[Option<CellKeys>; 2]> {
    let of = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(beginning(key)),
        Bound::Unbounded => None,
    };
    (hurt.tree == super::CELLS).then(|| [of(&hurt.keys.0), of(&hurt.keys.1)])
}

/// A range of sort keys of one partition as a range of the engine's keys.
pub(crate) struct KeyRange {
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    /// Length of the prefix before the sort key.
    pub(crate) start_len: usize,
}

impl KeyRange {
    pub(crate) fn of(partition: &[u8], range: &SortRange) -> Self {
        let start = partition_start(partition, 0);
        let with = |sort: &Vec<u8>| [start.as_slice(), sort].concat();
        let from = match range.from.as_ref() {
            Bound::Unbounded => Bound::Included(start.clone()),
            bound => bound.map(with),
        };
        let to = match range.to.as_ref() {
            Bound::Unbounded => Bound::Excluded(partition_end(partition)),
            bound => bound.map(with),
        };
        Self { from, to, start_len: start.len() }
    }

    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.from.as_ref().map(Vec::as_slice), self.to.as_ref().map(Vec::as_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [&[u8]; 9] =
        [b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"a", b"a\0", b"a\0\x01", b"ab", b"\xff\xff"];
    const SORTS: [&[u8]; 5] = [b"", b"\0", b"\0\x01", b"x", b"\xff"];

    #[test]
    fn joined_keys_keep_order_and_come_apart_again() {
        let cells: Vec<Cell<'_>> =
            PARTS.iter().flat_map(|part| SORTS.iter().map(|sort| Cell::new(*part, *sort))).collect();
        for a in &cells {
            assert_eq!(split(&joined(*a)), Some((a.partition.to_vec(), a.sort)));
            assert!(with_joined(*a, |key| key == joined(*a)));
            for b in &cells {
                assert_eq!(joined(*a).cmp(&joined(*b)), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_partition_ends_before_the_next_begins() {
        for pair in PARTS.windows(2) {
            let end = partition_end(pair[0]);
            assert!(joined(Cell::new(pair[0], b"\xff\xff")) < end);
            assert!(end <= joined(Cell::new(pair[1], b"")), "{pair:?}");
        }
    }

    #[test]
    fn of_a_key_that_was_cut_there_is_what_it_begins_with() {
        for partition in PARTS {
            for sort in SORTS {
                let key = joined(Cell { partition, sort });
                assert_eq!(beginning(&key), (partition.to_vec(), sort.to_vec()));
                for end in 0..key.len() {
                    let (first, rest) = beginning(&key[..end]);
                    assert!(partition.starts_with(&first) && sort.starts_with(&rest), "{key:?} to {end}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_joined_key_does_not_come_apart() {
        for key in [&b""[..], b"abc", b"a\0", b"a\0\x07x"] {
            assert_eq!(split(key), None);
        }
    }
}

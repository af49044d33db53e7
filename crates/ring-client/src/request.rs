//! Calls of the contract, encoded as commands.

use atoll_store::{
    Batch, ByteRange, Condition, Direction, Mutation, Projection, RequestId, ScanRequest, SortRange,
};
use std::ops::Bound;

/// An encoded request.
pub(crate) type Written = Vec<u8>;

/// `AT.BATCH`, done once. The client promises not to repeat its writes before `floor`.
pub(crate) fn batch(batch: &Batch, request: RequestId, floor: u64) -> Written {
    let mut ends = Vec::new();
    for mutation in &batch.mutations {
        if let Mutation::DeleteRange(range) = mutation {
            ends.push(ends_of(range));
        }
    }
    let mut ends = ends.iter();
    let [client, sequence, floor] =
        [format!("{:x}", request.client), request.sequence.to_string(), floor.to_string()];
    let mut words: Vec<&[u8]> = vec![b"AT.ID", client.as_bytes(), sequence.as_bytes(), floor.as_bytes()];
    words.extend([&b"AT.BATCH"[..], &batch.partition]);
    for condition in &batch.conditions {
        match condition {
            Condition::Absent(sort) => words.extend([&b"IFABSENT"[..], sort]),
            Condition::Equals(sort, value) => words.extend([&b"IFEQ"[..], sort, value]),
        }
    }
    for mutation in &batch.mutations {
        match mutation {
            Mutation::Put(sort, value) => words.extend([&b"PUT"[..], sort, value]),
            Mutation::Append(sort, value) => words.extend([&b"APPEND"[..], sort, value]),
            Mutation::Delete(sort) => words.extend([&b"DEL"[..], sort]),
            Mutation::DeleteRange(_) => {
                if let Some((from, to)) = ends.next() {
                    words.extend([&b"DELRANGE"[..], from, to]);
                }
            }
        }
    }
    crate::connection::written(&words)
}

/// `AT.GET`.
pub(crate) fn get(partition: &[u8], sort: &[u8], range: ByteRange) -> Written {
    if range == ByteRange::ALL {
        return crate::connection::written(&[b"AT.GET", partition, sort]);
    }
    let [offset, len] = numbers(range);
    crate::connection::written(&[b"AT.GET", partition, sort, offset.as_bytes(), len.as_bytes()])
}

/// `AT.RANGE`, from after the last entry of the previous page.
pub(crate) fn range(request: &ScanRequest, last: Option<&[u8]>) -> Written {
    let (mut from, mut to) = ends_of(&request.range);
    if let Some(last) = last {
        let behind = [b"(", last].concat();
        match request.direction {
            Direction::Forward => from = behind,
            Direction::Backward => to = behind,
        }
    }
    let limit = u64::try_from(request.limit).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs()).to_string();
    let mut words: Vec<&[u8]> = vec![b"AT.RANGE", &request.partition, &from, &to, b"LIMIT", limit.as_bytes()];
    if request.direction == Direction::Backward {
        words.push(b"REV");
    }
    let [offset, len] = match request.projection {
        Projection::Bytes(range) => numbers(range),
        Projection::KeysOnly | Projection::Values => Default::default(),
    };
    match request.projection {
        Projection::KeysOnly => words.push(b"KEYS"),
        Projection::Values => {}
        Projection::Bytes(_) => words.extend([&b"BYTES"[..], offset.as_bytes(), len.as_bytes()]),
    }
    crate::connection::written(&words)
}

/// Numbers of the protocol are at most 2^63 - 1.
fn numbers(range: ByteRange) -> [String; 2] {
    let most = i64::MAX.unsigned_abs();
    [range.offset, range.len.unwrap_or(most)].map(|number| number.min(most).to_string())
}

fn ends_of(range: &SortRange) -> (Vec<u8>, Vec<u8>) {
    let end = |bound: &Bound<Vec<u8>>, all: &[u8]| match bound {
        Bound::Unbounded => all.to_vec(),
        Bound::Included(sort) => [b"[", sort.as_slice()].concat(),
        Bound::Excluded(sort) => [b"(", sort.as_slice()].concat(),
    };
    (end(&range.from, b"-"), end(&range.to, b"+"))
}

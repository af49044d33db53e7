//! The largest batch that the contract allows, on a node in a folder: it fits through the node's door, and
//! one that is larger is refused before anything is sent.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use atoll_ring::{Node, NodeOptions, SlotStorage};
use atoll_ring_client::{RingOptions, RingStore};
use atoll_store::{
    Batch, Buffer, ByteRange, Cell, ErrorKind, Limits, ReadOptions, Store, StoreError, WriteOptions,
};
use std::time::{Duration, Instant};

const SORT: &[u8] = b"longest";

/// Values of conditions, all of which together have with the keys as many bytes as a batch may have.
fn expected() -> Vec<([u8; 1], Buffer)> {
    let limits = Limits::CONTRACT;
    let mut left = limits.batch_bytes - SORT.len();
    let mut expected = Vec::new();
    for name in 0_u8.. {
        let bytes = limits.condition_bytes.min(left - 1);
        expected.push(([name], Buffer::build(bytes, |value| value.fill(name))));
        left -= 1 + bytes;
        if left == 0 {
            break;
        }
    }
    expected
}

/// Puts the longest value under these conditions, and under as many others without keys as a batch may have.
fn largest(partition: &[u8], expected: &[([u8; 1], Buffer)]) -> Batch {
    let limits = Limits::CONTRACT;
    let mut batch = Batch::on(partition);
    for (sort, value) in expected {
        batch = batch.if_equals(*sort, value.clone());
    }
    while batch.operations() + 1 < limits.batch_operations {
        batch = batch.if_absent(*b"");
    }
    let longest = Buffer::build(limits.value_bytes as usize, |value| value.fill(b'v'));
    batch.put(SORT, longest)
}

async fn write(store: &RingStore, batch: Batch) -> Result<(), StoreError> {
    store.write(batch, WriteOptions::default()).await.map(drop)
}

#[tokio::test]
async fn the_largest_batch_of_the_contract_is_written_and_a_larger_one_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let place = SlotStorage::Folder(folder.path().to_owned());
    let node = Node::start(NodeOptions { listen, place, ..NodeOptions::default() }).unwrap();
    let store = RingStore::open(RingOptions::of(vec![node.address().to_string()])).await.unwrap();
    let (partition, expected) = (vec![b'p'; Limits::CONTRACT.partition_key_bytes], expected());
    for (sort, value) in &expected {
        write(&store, Batch::on(&partition[..]).put(*sort, value.clone())).await.unwrap();
    }
    let batch = largest(&partition, &expected);
    assert_eq!(batch.operations(), Limits::CONTRACT.batch_operations);
    write(&store, batch.clone()).await.unwrap();
    let last = ByteRange { offset: Limits::CONTRACT.value_bytes - 3, len: None };
    let read = ReadOptions { range: last, ..ReadOptions::default() };
    let value = store.get(Cell::new(&partition, SORT), read).await.unwrap();
    assert_eq!(value.as_deref(), Some(&b"vvv"[..]));
    // One byte or one operation more is refused while nobody waits for the node.
    let began = Instant::now();
    let wider = Batch { partition: [&partition[..], b"p"].concat(), ..batch.clone() };
    let one = Batch::on(&partition[..]).put([SORT, b"+"].concat(), &b"v"[..]);
    let longer = Batch { mutations: one.mutations, ..batch.clone() };
    for larger in [wider, longer, batch.if_absent(*b"")] {
        assert_eq!(write(&store, larger).await.unwrap_err().kind(), ErrorKind::Limit);
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

//! Promises of the memory store beyond those that the conformance suite checks of every store.

#![allow(clippy::unwrap_used, clippy::panic)]

use atoll_memory::{MemoryStore, Options};
use atoll_store::clock::ManualClock;
use atoll_store::{
    Batch, Buffer, Cell, Durability, ErrorKind, Expectation, Limits, ReadOptions, RequestId, Store,
    WriteOptions,
};
use std::sync::Arc;
use std::time::Duration;

fn request(sequence: u64) -> WriteOptions {
    let request = Some(RequestId { client: 1, sequence });
    WriteOptions { request, ..WriteOptions::default() }
}

async fn value(store: &MemoryStore, sort: &str) -> Option<Vec<u8>> {
    store.get(Cell::new("p", sort), ReadOptions::default()).await.unwrap().map(|value| value.to_vec())
}

#[tokio::test]
async fn a_batch_that_breaks_a_limit_half_way_is_undone() {
    let limits = Limits { value_bytes: 4, ..Limits::CONTRACT };
    let store = MemoryStore::open(Options { limits, ..Options::default() }).unwrap();
    let before = Batch::on(*b"p").put(*b"a", b"1".to_vec()).put(*b"b", b"123".to_vec());
    store.write(before, WriteOptions::default()).await.unwrap();
    let batch = Batch::on(*b"p")
        .put(*b"a", b"2".to_vec())
        .delete_range(atoll_store::SortRange::all())
        .put(*b"c", b"3".to_vec())
        .append(*b"c", b"4567".to_vec());
    assert_eq!(store.write(batch, WriteOptions::default()).await.unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(value(&store, "a").await.unwrap(), b"1");
    assert_eq!(value(&store, "b").await.unwrap(), b"123");
    assert_eq!(value(&store, "c").await, None);
}

#[tokio::test]
async fn request_ids_are_forgotten_by_age_and_by_count_and_not_before() {
    let clock = Arc::new(ManualClock::default());
    let options = Options {
        clock: clock.clone(),
        request_memory: Duration::from_secs(60),
        request_memory_count: 2,
        ..Options::default()
    };
    let store = MemoryStore::open(options).unwrap();
    let append =
        async |sequence| store.append(Cell::new("p", "a"), b"x", request(sequence)).await.unwrap().repeated;
    assert!(!append(1).await);
    assert!(append(1).await);
    clock.advance(Duration::from_secs(60));
    assert!(append(1).await);
    clock.advance(Duration::from_nanos(1));
    assert!(!append(1).await, "too old");
    assert!(!append(2).await && !append(3).await);
    assert!(append(3).await && append(2).await);
    assert!(!append(4).await);
    assert!(!append(2).await, "one too many");
}

#[tokio::test]
async fn a_class_that_memory_cannot_keep_is_refused_and_nothing_is_written() {
    let store = MemoryStore::new();
    for class in [Durability::Flushed, Durability::Synced] {
        let result = store.put(Cell::new("p", "a"), b"x", WriteOptions::durable(class)).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(value(&store, "a").await, None);
}

#[tokio::test]
async fn what_is_kept_of_a_slice_is_aligned_and_keeps_nothing_else_alive() {
    let store = MemoryStore::new();
    let large = Buffer::copy_from(&[7; 100_000]);
    for part in [large.slice(1..100), large.slice(..100)] {
        store.write(Batch::on(*b"p").put(*b"a", part.clone()), WriteOptions::default()).await.unwrap();
        let read = store.get(Cell::new("p", "a"), ReadOptions::default()).await.unwrap().unwrap();
        assert_eq!(read, part);
        assert!(read.as_ptr().addr().is_multiple_of(64));
        assert!(read.allocated_bytes() < 200);
    }
}

#[tokio::test]
async fn a_copy_goes_its_own_way() {
    let store = MemoryStore::new();
    store.put(Cell::new("p", "a"), b"1", request(1)).await.unwrap();
    let copy = store.copy();
    store.put(Cell::new("p", "a"), b"2", WriteOptions::default()).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(value(&copy, "a").await.unwrap(), b"1");
    assert!(copy.put(Cell::new("p", "a"), b"1", request(1)).await.unwrap().repeated);
}

#[tokio::test]
async fn an_abandoned_wait_leaves_nothing_behind() {
    let store = MemoryStore::new();
    let forever = Expectation::Differs(None);
    let mut wait = store.wait(Cell::new("p", "a"), forever, Duration::MAX);
    assert!(futures::poll!(&mut wait).is_pending());
    assert_eq!(store.waits_open(), 1);
    drop(wait);
    assert_eq!(store.waits_open(), 0);
}

#[test]
fn options_beyond_the_contract_are_refused_by_name() {
    let limits = Limits { value_bytes: Limits::CONTRACT.value_bytes + 1, ..Limits::CONTRACT };
    let refused = |options: Options| options.validate().unwrap_err().option;
    assert_eq!(refused(Options { limits, ..Options::default() }), "limits");
    assert_eq!(refused(Options { request_memory_count: 0, ..Options::default() }), "request_memory_count");
    assert_eq!(refused(Options { waiters_max: 0, ..Options::default() }), "waiters_max");
}

//! Listings of a ring whose partitions are deleted while they are listed, as when a table is dropped.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use atoll_ring::{Node, NodeOptions};
use atoll_ring_client::{RingOptions, RingStore};
use atoll_store::{Cell, PartitionQuery, Store, WriteOptions};
use std::collections::BTreeSet;

/// The names of several partitions for each of many slots: the text in braces decides the slot.
fn names() -> BTreeSet<Vec<u8>> {
    let of_slot = |slot: u32| (0..5).map(move |at| format!("{}-{{{slot}}}", at * 7 % 5).into_bytes());
    (0..40).flat_map(of_slot).collect()
}

/// Lists everything in pages. Before the next page is requested, all but every `kept`-th partition of the
/// page is deleted.
async fn listed_and_deleted(store: &RingStore, limit: usize, kept: usize) -> Vec<Vec<u8>> {
    let mut query = PartitionQuery { limit, ..PartitionQuery::prefix(Vec::new()) };
    let mut listed = Vec::new();
    loop {
        let page = store.partition_keys(query.clone()).await.unwrap();
        for (at, partition) in page.partitions.iter().enumerate() {
            if at % kept != kept - 1 {
                store.delete_partition(partition, WriteOptions::default()).await.unwrap();
            }
        }
        listed.extend(page.partitions);
        query.resume = page.resume;
        if query.resume.is_none() {
            return listed;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_listed_once_each_while_those_before_are_deleted() {
    let options = NodeOptions { listen: "127.0.0.1:0".parse().unwrap(), ..NodeOptions::default() };
    let node = Node::start(options).unwrap();
    let store = RingStore::open(RingOptions::of(vec![node.address().to_string()])).await.unwrap();
    for (limit, kept) in [(1, 2), (3, usize::MAX), (7, 3), (11, usize::MAX), (13, usize::MAX)] {
        for name in names() {
            store.put(Cell::new(&name, "a"), b"x", WriteOptions::default()).await.unwrap();
        }
        let listed = listed_and_deleted(&store, limit, kept).await;
        assert_eq!(listed.len(), names().len(), "{limit} a page");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names(), "{limit} a page");
    }
}

//! The conformance suite on a node in memory that is the whole ring.
//!
//! `CONFORMANCE_SEED=n` selects another seed, `CONFORMANCE_SIZE=full` the full size,
//! `CONFORMANCE_CHECK=name` a single check.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_conformance::{SharedStore, Subject};
use atoll_ring::{Node, NodeOptions};
use atoll_ring_client::{RingOptions, RingStore};
use atoll_store::StoreError;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct OneNode {
    nodes: Mutex<Vec<Node>>,
}

impl Subject for OneNode {
    fn name(&self) -> String {
        "store on a ring of one node".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        Box::pin(async move {
            let options = NodeOptions { listen: "127.0.0.1:0".parse().unwrap(), ..NodeOptions::default() };
            let node = Node::start(options).unwrap();
            let address = node.address().to_string();
            self.nodes.lock().unwrap().push(node);
            let store: SharedStore = Arc::new(RingStore::open(RingOptions::of(vec![address])).await?);
            Ok(store)
        })
    }

    fn slowness(&self) -> u32 {
        2
    }
}

#[test]
fn a_ring_of_one_node_keeps_the_promises() {
    common::run(&OneNode::default());
}

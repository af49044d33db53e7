//! The conformance suite on three nodes in memory, each of which has a copy of all slots. In every other
//! check requests have a latency class and share connections.
//!
//! `CONFORMANCE_SEED=n` selects another seed, `CONFORMANCE_CHECK=name` a single check.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_conformance::{SharedStore, Subject};
use atoll_replica::{GroupOptions, NodeId, Options};
use atoll_ring::{LocalGroup, Node, NodeOptions, Others};
use atoll_ring_client::RingStore;
use atoll_store::StoreError;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

struct ThreeNodes {
    nodes: Vec<Node>,
    opened: AtomicU32,
    _group: LocalGroup,
}

impl ThreeNodes {
    fn start() -> Self {
        let options = GroupOptions { slots: 16_384, copies: 3 };
        let group = LocalGroup::start(options, Duration::from_millis(300)).unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let start = |node| {
            let group = Arc::new(group.clone());
            // The timeout is long, so that a busy machine makes no copy look lost.
            let options = Options { suspect_us: 20_000_000, ..Options::default() };
            let others = Others { me: NodeId(node), listen, group, options };
            Node::start(NodeOptions { listen, others: Some(others), ..NodeOptions::default() }).unwrap()
        };
        let nodes = (1..=3).map(start).collect();
        let are_there = group.wait(Duration::from_secs(60), |table| {
            table.slots.iter().all(|slot| slot.in_sync.len() == 3 && slot.primary.is_some())
        });
        assert!(are_there);
        Self { nodes, opened: AtomicU32::new(0), _group: group }
    }
}

impl Subject for ThreeNodes {
    fn name(&self) -> String {
        "store on a ring of three nodes".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        let opened = self.opened.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let seeds = self.nodes.iter().map(|node| node.address().to_string()).collect();
            let store = RingStore::open(common::options(seeds, opened)).await?;
            common::reuse(store).await
        })
    }

    fn slowness(&self) -> u32 {
        4
    }
}

#[test]
fn a_ring_of_three_nodes_keeps_the_promises() {
    common::run(&ThreeNodes::start());
}

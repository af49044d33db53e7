//! The conformance suite on three nodes in memory, of which one dies and another joins while checks run. In
//! every other check requests have a latency class and share connections.
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
use atoll_replica::{GroupOptions, NodeId, Options, Table};
use atoll_ring::{LocalGroup, Node, NodeOptions, Others};
use atoll_ring_client::{RingOptions, RingStore};
use atoll_store::StoreError;
use futures::future::BoxFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A ring whose nodes die and are replaced.
struct Changing {
    group: LocalGroup,
    nodes: Mutex<Vec<(NodeId, Node)>>,
    /// How many nodes died.
    died: AtomicU32,
    /// How many checks began, and whether they are over.
    checks: Mutex<(u32, bool)>,
    checked: Condvar,
}

/// How many checks run for each node that dies. With 4 the suite takes three times as long.
const CHECKS_EACH: u32 = 12;

/// How long it may take until every slot has all its copies.
const PATIENCE: Duration = Duration::from_secs(120);

impl Changing {
    fn start() -> Self {
        let options = GroupOptions { slots: 16_384, copies: 3 };
        let group = LocalGroup::start(options, Duration::from_millis(500)).unwrap();
        let ring = Self {
            group,
            nodes: Mutex::new(Vec::new()),
            died: AtomicU32::new(0),
            checks: Mutex::new((0, false)),
            checked: Condvar::new(),
        };
        (1..=3).for_each(|node| ring.begin(NodeId(node)));
        ring.wait_until(is_whole);
        ring
    }

    fn begin(&self, me: NodeId) {
        let listen = "127.0.0.1:0".parse().unwrap();
        // The timeout is long, so that a busy machine makes no copy look lost; the group still notices a
        // death.
        let options = Options { suspect_us: 20_000_000, ..Options::default() };
        let others = Others { me, listen, group: Arc::new(self.group.clone()), options };
        let node =
            Node::start(NodeOptions { listen, others: Some(others), ..NodeOptions::default() }).unwrap();
        self.nodes.lock().unwrap().push((me, node));
    }

    fn wait_until(&self, is_wanted: impl Fn(&Table) -> bool) {
        assert!(self.group.wait(PATIENCE, is_wanted), "it takes too long: {:?}", self.group.table().members);
    }

    /// One node dies, the next one joins, and once everything is copied again this repeats, until all
    /// checks are over.
    fn change(&self) {
        for next in 4.. {
            let due = (next - 3) * CHECKS_EACH;
            let checks = self.checks.lock().unwrap();
            let checks =
                self.checked.wait_while(checks, |(begun, is_over)| *begun < due && !*is_over).unwrap();
            if checks.1 {
                return;
            }
            drop(checks);
            let (lost, node) = self.nodes.lock().unwrap().remove(0);
            drop(node);
            self.died.fetch_add(1, Ordering::SeqCst);
            let start = Instant::now();
            self.wait_until(|table| {
                table.slots.iter().all(|slot| slot.primary.is_some_and(|primary| primary != lost))
            });
            let others_lead = start.elapsed();
            self.group.give_up(lost);
            self.begin(NodeId(next));
            self.wait_until(|table| is_whole(table) && table.slots.iter().all(|slot| !slot.has(lost)));
            println!(
                "{lost} died: others led after {others_lead:.1?}, all was copied after {:.1?}",
                start.elapsed()
            );
        }
    }
}

fn is_whole(table: &Table) -> bool {
    table
        .slots
        .iter()
        .all(|slot| slot.in_sync.len() == 3 && slot.joining.is_empty() && slot.primary.is_some())
}

impl Subject for Changing {
    fn name(&self) -> String {
        "store on a ring whose nodes come and go".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        let opened = {
            let mut checks = self.checks.lock().unwrap();
            checks.0 += 1;
            checks.0
        };
        self.checked.notify_all();
        let seeds = self.nodes.lock().unwrap().iter().map(|(_, node)| node.address().to_string()).collect();
        Box::pin(async move {
            let options = RingOptions { patience: Duration::from_secs(30), ..common::options(seeds, opened) };
            common::reuse(RingStore::open(options).await?).await
        })
    }

    fn slowness(&self) -> u32 {
        20
    }
}

#[test]
fn a_ring_keeps_the_promises_while_one_node_dies_and_another_joins() {
    let ring = Changing::start();
    std::thread::scope(|scope| {
        scope.spawn(|| ring.change());
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            common::run_but(&ring, &["one_write_polls_no_other_waiter"])
        }));
        ring.checks.lock().unwrap().1 = true;
        ring.checked.notify_all();
        if let Err(broken) = judged {
            std::panic::resume_unwind(broken);
        }
    });
    assert!(ring.died.load(Ordering::SeqCst) > 0);
}

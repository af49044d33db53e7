//! What the contract promises of stores that are closed and opened again, on a ring of three processes: all
//! of them are stopped, or killed with `-9`, and started again in their folders.
//!
//! What survives a loss of power is not tested here: a process cannot lose what its system still holds.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

#[allow(dead_code, reason = "other tests use more of it")]
mod support;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "support/ring.rs"]
mod three;

use atoll_conformance::{
    Ending, Outcome, Relayed, Renamed, SEED_DEFAULT, SharedStore, Size, Subject, check_names, empty,
    run_check,
};
use atoll_ring_client::{RingOptions, RingStore};
use atoll_store::StoreError;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex};
use support::{Workspace, free_port};
use three::Ring;

/// The checks that reopen a store, except the one for a loss of power.
const CHECKS: [&str; 4] = [
    "what_was_acknowledged_is_there_after_close",
    "what_was_flushed_survives_the_process",
    "batches_are_not_torn_by_a_crash",
    "request_ids_survive_with_their_writes",
];

/// A ring that stops and starts again.
struct Lasting {
    place: Workspace,
    port: u16,
    ring: Mutex<Option<Ring>>,
    /// Makes the clients of each check distinct from those of the others.
    stranger: Mutex<u128>,
}

impl Lasting {
    fn start() -> Self {
        let (place, port) = (Workspace::new(), free_port());
        let ring = Mutex::new(Some(Ring::start(&place, port, "flushed")));
        Self { place, port, ring, stranger: Mutex::default() }
    }

    async fn client(&self) -> Result<RingStore, StoreError> {
        let seeds = (0..3).map(|node| format!("127.0.0.1:{}", self.port + node)).collect();
        let token = self.ring.lock().unwrap().as_ref().map(|ring| ring.token.clone());
        RingStore::open(RingOptions { token, ..RingOptions::of(seeds) }).await
    }

    fn named(&self, store: RingStore) -> SharedStore {
        Arc::new(Relayed(Renamed { store, stranger: *self.stranger.lock().unwrap() }))
    }
}

impl Subject for Lasting {
    fn name(&self) -> String {
        "store on a ring of three processes".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        Box::pin(async {
            *self.stranger.lock().unwrap() = fastrand::u128(..);
            let store = self.client().await?;
            // Starting another ring for each check would take longer than the check.
            empty(&store).await?;
            Ok(self.named(store))
        })
    }

    fn reopen(
        &self,
        store: SharedStore,
        ending: Ending,
    ) -> Option<BoxFuture<'_, Result<SharedStore, StoreError>>> {
        if ending == Ending::PowerLost {
            return None;
        }
        Some(Box::pin(async move {
            let again = || {
                let mut ring = self.ring.lock().unwrap();
                match (ending, ring.take().unwrap()) {
                    (Ending::Closed, ended) => ended.end(),
                    (_, killed) => killed.kill_all(),
                }
                *ring = Some(Ring::start(&self.place, self.port, "flushed"));
            };
            tokio::task::block_in_place(again);
            drop(store);
            Ok(self.named(self.client().await?))
        }))
    }

    fn slowness(&self) -> u32 {
        8
    }
}

#[test]
fn a_ring_of_three_processes_keeps_what_it_promised_across_its_end() {
    let ring = Lasting::start();
    for check in CHECKS {
        assert!(check_names().any(|name| name == check), "{check} is no check any more");
        let report = run_check(&ring, check, Size::Quick, SEED_DEFAULT);
        println!("{report}");
        for checked in &report.checks {
            assert_eq!(checked.outcome, Outcome::Kept, "{check}: {report}");
        }
    }
    ring.ring.lock().unwrap().take().unwrap().end();
}

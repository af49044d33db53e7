//! The store keeps every promise of the contract on a real Cassandra.
//!
//! `ATOLL_CASSANDRA` names its contact points, such as `127.0.0.1:19042`; `cargo xtask test --room cassandra`
//! starts a node and sets it. `CONFORMANCE_SEED=n` sets the seed, `CONFORMANCE_SIZE=full` selects the full
//! size, `CONFORMANCE_CHECK=name` selects a single check.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_conformance::{Ending, SEED_DEFAULT, SharedStore, Size, Subject, run_check, run_seeded};
use atoll_store::StoreError;
use common::{Namespaces, contacts};
use futures::future::BoxFuture;

struct OnCassandra {
    namespaces: Namespaces,
}

impl Subject for OnCassandra {
    fn name(&self) -> String {
        "store on Cassandra".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        Box::pin(async move { self.namespaces.open_fresh().await })
    }

    // Each write is a round of consensus, and the nodes under test share their cores with this process.
    fn slowness(&self) -> u32 {
        4
    }

    fn reopen(
        &self,
        store: SharedStore,
        ending: Ending,
    ) -> Option<BoxFuture<'_, Result<SharedStore, StoreError>>> {
        match ending {
            // The end of this process loses only what the store holds in memory.
            Ending::Closed | Ending::Killed => {
                Some(Box::pin(async move { self.namespaces.open_again(&store).await }))
            }
            Ending::PowerLost => None,
        }
    }
}

fn size() -> Size {
    match std::env::var("CONFORMANCE_SIZE").as_deref() {
        Ok("full") => Size::Full,
        _ => Size::Quick,
    }
}

fn seed() -> u64 {
    std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED_DEFAULT)
}

#[test]
fn the_store_on_cassandra_keeps_every_promise() {
    let Some(contacts) = contacts() else { return };
    let subject = OnCassandra { namespaces: Namespaces::new(contacts, "conformance") };
    let check = std::env::var("CONFORMANCE_CHECK").ok();
    let report = match &check {
        Some(check) => run_check(&subject, check, size(), seed()),
        None => run_seeded(&subject, size(), seed()),
    };
    println!("{report}");
    assert!(!report.checks.is_empty(), "there is no such check");
    assert!(report.is_clean());
    // Any other skipped check means that the store lost a capability or cannot be opened again.
    let skipped: Vec<_> = report.skipped().map(|checked| checked.name).collect();
    let allowed = ["what_was_synced_survives_power_loss"];
    assert!(skipped == allowed || check.is_some_and(|_| skipped.is_empty()), "{skipped:?} were skipped");
}

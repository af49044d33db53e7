//! A store that mixes plain and conditional writes on cells that can change must be rejected by the suite: this
//! is the mistake that loses updates, and nothing but the suite would find it.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

mod common;

use atoll_conformance::{Outcome, Relay, Relayed, SEED_DEFAULT, SharedStore, Size, Subject, run_check};
use atoll_store::{Batch, Durability, Mutation, Store, StoreError, StoreFuture, WriteOptions, Written};
use common::{Namespaces, contacts};
use futures::future::BoxFuture;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use std::sync::Arc;
use twox_hash::XxHash3_64;

const KEYSPACE: &str = "planted";

/// Puts without conditions go past the head of the partition, as plain writes at QUORUM.
struct Mixing {
    inner: SharedStore,
    namespace: Vec<u8>,
    session: Session,
    put: PreparedStatement,
    /// A put ends the pieces that appends made.
    cut: PreparedStatement,
}

impl Mixing {
    async fn open(namespaces: &Namespaces, contacts: &[String]) -> Result<Self, StoreError> {
        let namespace = namespaces.fresh();
        let store = atoll_cassandra::CassandraStore::open(namespaces.options(namespace.clone())).await?;
        let session = SessionBuilder::new().known_nodes(contacts).build().await.unwrap();
        let prepare = async |text: &str| {
            let mut statement = session.prepare(text).await.unwrap();
            statement.set_consistency(Consistency::Quorum);
            statement
        };
        let put = prepare(
            "UPDATE planted.cells SET head = ?, value = ? WHERE p = ? AND kind = 0 AND s = ? AND piece = 0",
        )
        .await;
        let cut = prepare("DELETE FROM planted.cells WHERE p = ? AND kind = 0 AND s = ? AND piece > 0").await;
        Ok(Self { inner: Arc::new(store), namespace, session, put, cut })
    }

    async fn put_plainly(&self, partition: &[u8], sort: &[u8], value: &[u8]) {
        let partition = [&self.namespace[..], partition].concat();
        let sum = XxHash3_64::oneshot(value).to_be_bytes();
        let head = [&sum[..], &(value.len() as u64).to_be_bytes(), &[0]].concat();
        let sealed = [&sum[..], value].concat();
        self.session.execute_unpaged(&self.put, (head, sealed, &partition, sort)).await.unwrap();
        self.session.execute_unpaged(&self.cut, (&partition, sort)).await.unwrap();
    }
}

impl Relay for Mixing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let is_put = |mutation: &Mutation| matches!(mutation, Mutation::Put(_, value) if value.len() < 1000);
        let is_plain = batch.conditions.is_empty() && options.request.is_none() && options.deadline.is_none();
        if !is_plain || batch.mutations.is_empty() || !batch.mutations.iter().all(is_put) {
            return self.inner.write(batch, options);
        }
        Box::pin(async move {
            for mutation in &batch.mutations {
                if let Mutation::Put(sort, value) = mutation {
                    self.put_plainly(&batch.partition, sort, value).await;
                }
            }
            Ok(Written { durability: Durability::Flushed, repeated: false })
        })
    }
}

struct Planted {
    contacts: Vec<String>,
    namespaces: Namespaces,
}

impl Subject for Planted {
    fn name(&self) -> String {
        "store on Cassandra that mixes plain and conditional writes".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        Box::pin(async move {
            let mixing = Mixing::open(&self.namespaces, &self.contacts).await?;
            Ok(Arc::new(Relayed(mixing)) as SharedStore)
        })
    }

    /// As the store behind it: a check that only takes its time is not one that rejects.
    fn slowness(&self) -> u32 {
        4
    }
}

#[test]
fn the_suite_rejects_a_store_that_mixes_plain_and_conditional_writes() {
    let Some(contacts) = contacts() else { return };
    let namespaces = Namespaces::new(contacts.clone(), KEYSPACE);
    let planted = Planted { contacts, namespaces };
    // Those that race both kinds of writes; others may be broken by what was planted for another reason.
    let racing =
        ["histories_on_one_partition_are_linearizable", "plain_and_conditional_writes_share_one_order"];
    for name in racing {
        let report = run_check(&planted, name, Size::Quick, SEED_DEFAULT);
        if let Some(Outcome::Broken(how)) = report.checks.first().map(|checked| &checked.outcome) {
            println!("rejected by {name}: {}", how.lines().next().unwrap_or_default());
            return;
        }
    }
    panic!("the suite keeps a store that loses updates");
}

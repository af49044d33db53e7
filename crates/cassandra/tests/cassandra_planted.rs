//! The suite must reject a store that mixes plain and conditional writes on cells that can change: this
//! mistake loses updates, and nothing but the suite would find it.
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

/// A store whose unconditional puts bypass the head of the partition, as plain writes at QUORUM.
struct Mixing {
    inner: SharedStore,
    namespace: Vec<u8>,
    session: Session,
    plant: Plant,
    put: PreparedStatement,
    /// Deletes the pieces that appends made, as part of a put.
    cut: PreparedStatement,
}

impl Mixing {
    async fn open(namespaces: &Namespaces, contacts: &[String], plant: Plant) -> Result<Self, StoreError> {
        let namespace = namespaces.fresh();
        let store = atoll_cassandra::CassandraStore::open(namespaces.options(namespace.clone())).await?;
        let session = SessionBuilder::new().known_nodes(contacts).build().await.unwrap();
        let prepare = async |text: &str| {
            let mut statement = session.prepare(text).await.unwrap();
            statement.set_consistency(Consistency::Quorum);
            statement
        };
        let value = if plant == Plant::NoSuchColumn { "no_such_column" } else { "value" };
        let put = prepare(&format!(
            "UPDATE planted.cells SET head = ?, {value} = ? WHERE p = ? AND kind = 0 AND s = ? AND piece = 0"
        ))
        .await;
        let cut = prepare("DELETE FROM planted.cells WHERE p = ? AND kind = 0 AND s = ? AND piece > 0").await;
        Ok(Self { inner: Arc::new(store), namespace, session, plant, put, cut })
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
        if self.plant == Plant::Nothing
            || !is_plain
            || batch.mutations.is_empty()
            || !batch.mutations.iter().all(is_put)
        {
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

/// The planted mistake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plant {
    /// Puts that are plain writes.
    PlainPuts,
    /// None: puts take the same path as all other writes.
    Nothing,
    /// Puts into a column that does not exist.
    NoSuchColumn,
}

struct Planted {
    contacts: Vec<String>,
    namespaces: Namespaces,
    plant: Plant,
}

impl Planted {
    fn there(plant: Plant) -> Option<Self> {
        let contacts = contacts()?;
        Some(Self { namespaces: Namespaces::new(contacts.clone(), KEYSPACE), contacts, plant })
    }
}

impl Subject for Planted {
    fn name(&self) -> String {
        "store on Cassandra that mixes plain and conditional writes".to_owned()
    }

    fn open(&self) -> BoxFuture<'_, Result<SharedStore, StoreError>> {
        Box::pin(async move {
            let mixing = Mixing::open(&self.namespaces, &self.contacts, self.plant).await?;
            Ok(Arc::new(Relayed(mixing)) as SharedStore)
        })
    }

    /// The same as of the store behind it: a check that only runs out of time does not count as one that
    /// rejects.
    fn slowness(&self) -> u32 {
        4
    }
}

/// The checks that race both kinds of writes, and the words by which each reports a lost update. The planted
/// mistake may break other checks for other reasons, and a mistake in the planting may break these.
const RACING: [(&str, &str); 2] = [
    ("histories_on_one_partition_are_linearizable", "has no order"),
    ("plain_and_conditional_writes_share_one_order", "does not see the plain write"),
];

/// The check that rejects the store because of a lost update; or the outcomes of all checks.
fn rejected_by(planted: &Planted) -> Result<&'static str, String> {
    let mut said = String::new();
    for (name, reason) in RACING {
        let report = run_check(planted, name, Size::Quick, SEED_DEFAULT);
        match report.checks.first().map(|checked| &checked.outcome) {
            Some(Outcome::Broken(how)) if how.contains(reason) => return Ok(name),
            outcome => said += &format!("{name}: {outcome:?}\n"),
        }
    }
    Err(said)
}

#[test]
fn the_suite_rejects_a_store_that_mixes_plain_and_conditional_writes() {
    let Some(planted) = Planted::there(Plant::PlainPuts) else { return };
    match rejected_by(&planted) {
        Ok(name) => println!("rejected by {name}"),
        Err(said) => panic!("the suite does not see the updates that this store loses:\n{said}"),
    }
}

#[test]
fn the_suite_keeps_the_same_store_with_nothing_planted() {
    let Some(planted) = Planted::there(Plant::Nothing) else { return };
    for (name, _) in RACING {
        let report = run_check(&planted, name, Size::Quick, SEED_DEFAULT);
        assert!(report.is_clean() && report.checks.len() == 1, "{report}");
    }
}

#[test]
fn a_mistake_in_the_planting_proves_nothing() {
    let Some(planted) = Planted::there(Plant::NoSuchColumn) else { return };
    let said = rejected_by(&planted).unwrap_err();
    assert_eq!(said.matches("panicked").count(), RACING.len(), "{said}");
}

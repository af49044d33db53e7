//! The rivals of Atoll in the same Cassandra cluster and with the same driver, plain rows and plain blobs;
//! and what calls of the contract cost there.
//!
//! Invariant: a rival gets a client in Rust, prepared statements and as many requests in flight as the bars
//! say, so that its client is never what makes it slow.

mod blobs;
mod costs;
mod rows;

pub use blobs::load as load_blobs;
pub use costs::costs;
pub use rows::load as load_rows;

use crate::peers::EngineError;
use scylla::client::SelfIdentity;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::Consistency;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// How many requests of one writer are under way at once.
const IN_FLIGHT: usize = 64;
/// The name of this program's own connections.
const NAME: &str = "atoll-benches";

/// Runs one statement, because the Python half has no driver.
pub async fn run(contacts: &str, statement: &str) -> Result<(), EngineError> {
    let session = session(contacts).await?;
    session.query_unpaged(statement, &[]).await?;
    session.await_schema_agreement().await?;
    Ok(())
}

/// The cost of a rival's writes.
#[derive(Serialize)]
struct Written {
    /// Rows or blobs.
    count: u64,
    /// Their bytes, for blobs.
    bytes: u64,
    /// Until the last write was acknowledged.
    seconds: f64,
    /// The part of that time spent making blobs.
    made_seconds: f64,
}

impl Written {
    fn keep(&self, out: &Path) -> Result<(), EngineError> {
        Ok(std::fs::write(out, serde_json::to_string(self)?)?)
    }
}

/// A session that waits for a majority of the replicas.
async fn session(contacts: &str) -> Result<Session, EngineError> {
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .request_timeout(Some(Duration::from_secs(60)))
        .build();
    let builder = SessionBuilder::new()
        .known_nodes(contacts.split(','))
        .default_execution_profile_handle(profile.into_handle())
        .custom_identity(SelfIdentity::new().with_application_name(NAME));
    Ok(builder.build().await?)
}

/// Makes an empty table in the rival's keyspace.
async fn fresh_table(
    session: &Session,
    keyspace: &str,
    table: &str,
    columns: &str,
) -> Result<(), EngineError> {
    let statements = [
        format!(
            "CREATE KEYSPACE IF NOT EXISTS {keyspace} \
             WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
        ),
        format!("DROP TABLE IF EXISTS {keyspace}.{table}"),
        format!("CREATE TABLE {keyspace}.{table} ({columns})"),
    ];
    for statement in statements {
        session.query_unpaged(statement, &[]).await?;
    }
    session.await_schema_agreement().await?;
    Ok(())
}

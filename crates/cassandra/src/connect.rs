//! Opening: from contact points to a session whose tables are there.

use crate::failure::{not_connected, told};
use crate::link::Link;
use crate::options::Options;
use crate::profiles::Profiles;
use crate::statements::Statements;
use crate::{near, schema, tls};
use atoll_store::{ErrorKind, StoreError};
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use scylla::client::{PoolSize, SelfIdentity};
use scylla::policies::retry::DefaultRetryPolicy;
use scylla::statement::unprepared::Statement;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The port of Cassandra's native protocol.
const PORT: u16 = 9042;

/// What the cluster says about itself that the store needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterSettings {
    /// Whether a write is acknowledged only after it was synced to the commit log's disk.
    pub(crate) is_synced: bool,
    /// Largest change of one partition that a node takes.
    pub(crate) mutation_bytes_max: Option<u64>,
}

/// Connects, makes sure of the tables, and prepares the statements.
pub(crate) async fn connect(mut options: Options) -> Result<(Link, ClusterSettings), StoreError> {
    let place = options.place();
    let session = tokio::time::timeout(options.connect_time_out, session(&options, &place))
        .await
        .unwrap_or_else(|_| Err(no_answer(&options, &place)))?;
    options.datacenter = datacenter(&session, &options)?;
    options.beside = options.beside.or_else(|| near::on_this_machine(&session));
    let profiles = Profiles::new(&options);
    schema::ensure(&session, &profiles, &options).await?;
    let settings = cluster_settings(&session).await;
    let started = Instant::now();
    let _ = session.query_unpaged("SELECT key FROM system.local", ()).await;
    let round_trip = started.elapsed();
    let keyspace = options.keyspace_quoted();
    let statements = Statements::prepare(&session, &profiles, options.consistency, &keyspace);
    let statements = statements.await.map_err(|error| StoreError::Unavailable {
        place: place.clone(),
        reason: "its tables are not those of this release, or a node does not know them yet".to_owned(),
        source: Some(Arc::new(error)),
    })?;
    Ok((Link::new(session, statements, profiles, options, round_trip), settings))
}

async fn session(options: &Options, place: &str) -> Result<Session, StoreError> {
    let per_host = NonZeroUsize::new(2).map_or_else(PoolSize::default, PoolSize::PerHost);
    let mut builder = SessionBuilder::new()
        .known_nodes(options.contacts.iter().map(|contact| with_port(contact)))
        .connection_timeout(options.connect_time_out)
        .pool_size(per_host)
        .tcp_nodelay(true)
        // What operators see in `system_views.clients`.
        .custom_identity(
            SelfIdentity::new()
                .with_application_name("atoll")
                .with_application_version(env!("CARGO_PKG_VERSION")),
        )
        .keyspaces_to_fetch([options.keyspace.clone()])
        .schema_agreement_timeout(options.request_time_out)
        .tls_context(tls::context(&options.tls)?.map(TlsContext::Rustls023));
    if let Some(credentials) = &options.credentials {
        builder = builder.user(&credentials.user, &credentials.password);
    }
    builder.build().await.map_err(|error| not_connected(place, error))
}

/// A contact point with its port: `host`, `host:port`, `[v6]` or `[v6]:port`.
fn with_port(contact: &str) -> String {
    let has_port = match contact.rsplit_once(':') {
        Some((host, port)) => port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')),
        None => false,
    };
    match (has_port, contact.contains(':') && !contact.starts_with('[')) {
        (true, _) => contact.to_owned(),
        (false, true) => format!("[{contact}]:{PORT}"),
        (false, false) => format!("{contact}:{PORT}"),
    }
}

fn no_answer(options: &Options, place: &str) -> StoreError {
    told(
        ErrorKind::Unavailable,
        format!("no contact point of {place} answers within {:?}", options.connect_time_out),
        "check that a node listens there for CQL (`nodetool statusbinary`), that host and port are right, and \
         whether it asks for TLS (tls=on or tls=PATH)",
    )
}

/// The near data centre: the one that was named, which must be there, or else that of the first contact point
/// where all must name the same.
fn datacenter(session: &Session, options: &Options) -> Result<Option<String>, StoreError> {
    let state = session.get_cluster_state();
    let mut there: Vec<&str> =
        state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
    there.sort_unstable();
    there.dedup();
    match (&options.datacenter, options.consistency) {
        (Some(named), _) if !there.contains(&named.as_str()) => Err(told(
            ErrorKind::InvalidInput,
            format!("{} has no data centre \"{named}\"; it has {}", options.place(), there.join(", ")),
            "name one of them with datacenter=NAME",
        )),
        (None, crate::options::Consistency::LocalQuorum) if there.len() > 1 => Err(told(
            ErrorKind::InvalidInput,
            format!("{} has the data centres {}, and none was named", options.place(), there.join(", ")),
            "consistency=local-quorum needs datacenter=NAME, the same one for every client of the keyspace",
        )),
        (None, _) => Ok(there.first().filter(|_| there.len() == 1).map(|only| (*only).to_owned())),
        (named, _) => Ok(named.clone()),
    }
}

/// Asks a node how it is set up. A cluster that does not tell (ScyllaDB) counts as the usual one.
async fn cluster_settings(session: &Session) -> ClusterSettings {
    let mut settings = ClusterSettings::default();
    let names = "('commitlog_sync', 'max_mutation_size', 'commitlog_segment_size')";
    let mut read =
        Statement::new(format!("SELECT name, value FROM system_views.settings WHERE name IN {names}"));
    read.set_consistency(scylla::statement::Consistency::One);
    read.set_retry_policy(Some(Arc::new(DefaultRetryPolicy::new())));
    read.set_request_timeout(Some(Duration::from_secs(5)));
    let Ok(result) = session.query_unpaged(read, ()).await else { return settings };
    let Ok(rows) = result.into_rows_result() else { return settings };
    let Ok(rows) = rows.rows::<(String, Option<String>)>() else { return settings };
    let mut segment = None;
    for (name, value) in rows.flatten() {
        let Some(value) = value else { continue };
        match name.as_str() {
            "commitlog_sync" => settings.is_synced = matches!(value.as_str(), "batch" | "group"),
            "max_mutation_size" => settings.mutation_bytes_max = size(&value),
            _ => segment = size(&value),
        }
    }
    // Half a segment is what a node takes unless it is told otherwise.
    settings.mutation_bytes_max = settings.mutation_bytes_max.or(segment.map(|bytes| bytes / 2));
    settings
}

/// A size as Cassandra writes it: `32MiB`.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "B" | "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contact_points_get_the_usual_port_unless_they_name_one() {
        let cases = [
            ("node-1", "node-1:9042"),
            ("node-1:19042", "node-1:19042"),
            ("10.0.0.1", "10.0.0.1:9042"),
            ("::1", "[::1]:9042"),
            ("[::1]", "[::1]:9042"),
            ("[::1]:7", "[::1]:7"),
        ];
        for (contact, expected) in cases {
            assert_eq!(with_port(contact), expected);
        }
    }

    #[test]
    fn sizes_of_the_settings_are_read() {
        let cases = [
            ("32MiB", Some(32 << 20)),
            ("16384KiB", Some(16 << 20)),
            ("7", Some(7)),
            ("null", None),
            ("", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), bytes, "{text}");
        }
    }
}

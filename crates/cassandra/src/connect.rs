//! Opening: from contact points to a session with its tables in place.

use crate::failure::{not_connected, told};
use crate::link::Link;
use crate::options::Options;
use crate::profiles::{KEEPALIVE_INTERVAL, Profiles, silence_max};
use crate::settings::{ClusterSettings, cluster_settings};
use crate::statements::Statements;
use crate::{near, schema, tls};
use atoll_store::{ErrorKind, StoreError};
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use scylla::client::{PoolSize, SelfIdentity};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use tokio::time::Instant;

/// The port of Cassandra's native protocol.
const PORT: u16 = 9042;

/// Connects, ensures that the tables exist, and prepares the statements.
pub(crate) async fn connect(mut options: Options) -> Result<(Link, ClusterSettings), StoreError> {
    let place = options.place();
    let session = tokio::time::timeout(options.connect_time_out, session(&options, &place))
        .await
        .unwrap_or_else(|_| Err(no_answer(&options, &place)))?;
    options.datacenter = datacenter(&session, &options)?;
    options.beside = beside(&session, &options)?;
    let profiles = Profiles::new(&options);
    schema::ensure(&session, &profiles, &options).await?;
    let settings = cluster_settings(&session, &place).await?;
    let started = Instant::now();
    let _ = session.query_unpaged("SELECT key FROM system.local", ()).await;
    let round_trip = started.elapsed();
    let keyspace = options.keyspace_quoted();
    let statements = Statements::prepare(&session, &profiles, options.consistency, &keyspace);
    let statements = statements.await.map_err(|error| {
        told(
            ErrorKind::Unavailable,
            format!("{place} does not know its own tables: {error}"),
            "a node may not know them yet: `nodetool describecluster` shows whether all agree; then try again",
        )
    })?;
    Ok((Link::new(session, statements, profiles, options, settings, round_trip), settings))
}

async fn session(options: &Options, place: &str) -> Result<Session, StoreError> {
    let per_host = NonZeroUsize::new(2).map_or_else(PoolSize::default, PoolSize::PerHost);
    let mut builder = SessionBuilder::new()
        .known_nodes(options.contacts.iter().map(|contact| with_port(contact)))
        .connection_timeout(options.connect_time_out)
        .pool_size(per_host)
        .tcp_nodelay(true)
        .keepalive_interval(KEEPALIVE_INTERVAL)
        .keepalive_timeout(silence_max(options.request_time_out))
        // Operators see these in `system_views.clients`.
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

/// A contact point with its port; it has the form `host`, `host:port`, `v6`, `[v6]` or `[v6]:port`.
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

/// The node to ask first: the one named in the options, or the one on this machine if it may be asked.
fn beside(session: &Session, options: &Options) -> Result<Option<IpAddr>, StoreError> {
    let Some(address) = options.beside.or_else(|| near::on_this_machine(session)) else { return Ok(None) };
    let state = session.get_cluster_state();
    let node = state.get_nodes_info().iter().find(|node| node.address.ip() == address);
    let there = node.and_then(|node| node.datacenter.as_deref());
    match options.beside {
        _ if node.is_none() || near::is_within(options.within(), there) => Ok(Some(address)),
        None => Ok(None),
        Some(_) => Err(told(
            ErrorKind::InvalidInput,
            format!(
                "the node beside, {address}, lies in the data centre {}, and local-quorum is of {}",
                there.unwrap_or("without a name"),
                options.within().unwrap_or_default()
            ),
            "name a node of that data centre with beside=ADDRESS, or the other one with datacenter=NAME",
        )),
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

/// The near data centre: the one named in the options, which must exist, or else the only one of the cluster.
/// With `local-quorum`, where every client must use the same one, it has to be named if there are several.
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
            format!("{} has the data centres {}, but none was named", options.place(), there.join(", ")),
            "consistency=local-quorum needs datacenter=NAME, the same one for every client of the keyspace",
        )),
        (None, _) => Ok(there.first().filter(|_| there.len() == 1).map(|only| (*only).to_owned())),
        (named, _) => Ok(named.clone()),
    }
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
}

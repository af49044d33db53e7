//! The nodes' own settings. Each node answers only for itself, so all that are up are asked, and the weakest
//! settings count: a node that is set up differently, for example in the middle of a change, may be the one
//! that a write depends on. The nodes are asked again periodically, because nodes join, and come back with
//! other settings.
//!
//! Invariant: a node that does not answer counts as one with Cassandra's defaults. A node that is down, or
//! that does not answer a later question, counts like that for Paxos only: it acknowledges nothing at
//! present, but it may be up, and take part in decisions, before it is asked again.

use crate::failure::told;
use crate::store::Shared;
use atoll_store::{ErrorKind, StoreError};
use futures::future::join_all;
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use std::sync::{Arc, Weak};
use std::time::Duration;

const READ: &str = "SELECT name, value FROM system_views.settings WHERE name IN \
                    ('commitlog_sync', 'max_mutation_size', 'commitlog_segment_size', 'paxos_variant')";

/// The default of the largest change of one partition that a node accepts.
const MUTATION_BYTES_MAX: u64 = 16 << 20;

/// The time between two looks at the nodes' settings: less than a node takes to start.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// The settings of the cluster that the store depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClusterSettings {
    /// Whether a write is acknowledged only after it was synced to the commit log's disk.
    pub(crate) is_synced: bool,
    /// The largest change of one partition that a node accepts.
    pub(crate) mutation_bytes_max: Option<u64>,
    /// Whether every node decides by Paxos v2.
    pub(crate) is_paxos_v2: bool,
    /// Whether reads are linearizable with earlier decisions and decisions with earlier reads; some variants
    /// of Paxos give that up.
    pub(crate) is_linearizable: bool,
}

impl Default for ClusterSettings {
    /// Cassandra's defaults.
    fn default() -> Self {
        Self { is_synced: false, mutation_bytes_max: None, is_paxos_v2: false, is_linearizable: true }
    }
}

/// Asks all nodes that are up for their settings; a node that does not answer counts as the weakest.
///
/// # Errors
/// `invalid-input` if a node's reads may miss what was decided before them.
pub(crate) async fn cluster_settings(session: &Session, place: &str) -> Result<ClusterSettings, StoreError> {
    let told = ask_all(session, place).await?;
    Ok(weakest(&told.into_iter().map(|told| told.map(Option::unwrap_or_default)).collect::<Vec<_>>()))
}

/// What the nodes told that were asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The weakest settings; none if no node answered.
    pub(crate) weakest: Option<ClusterSettings>,
    /// Whether every node that is up answered.
    pub(crate) is_whole: bool,
}

/// Asks again: a node that does not answer this time, for example while it restarts, counts as down.
async fn cluster_settings_again(session: &Session, place: &str) -> Result<Found, StoreError> {
    Ok(found(ask_all(session, place).await?))
}

fn found(told: Vec<Option<Option<ClusterSettings>>>) -> Found {
    let mut up = told.iter().flatten().peekable();
    let is_whole = up.peek().is_some() && up.all(Option::is_some);
    let told: Vec<_> = told.into_iter().map(Option::flatten).collect();
    Found { weakest: told.iter().any(Option::is_some).then(|| weakest(&told)), is_whole }
}

/// The answer of each node; the outer none is for a node that is down, the inner one for a node that did not
/// answer.
async fn ask_all(session: &Session, place: &str) -> Result<Vec<Option<Option<ClusterSettings>>>, StoreError> {
    let state = session.get_cluster_state();
    let nodes = state.get_nodes_info().iter().map(|node| async move {
        match node.is_connected() {
            true => Some((node, of_node(session, node).await)),
            false => None,
        }
    });
    let told = join_all(nodes).await;
    let is_wrong = |settings: &Option<ClusterSettings>| settings.is_some_and(|told| !told.is_linearizable);
    match told.iter().flatten().find(|(_, settings)| is_wrong(settings)) {
        Some((node, _)) => Err(not_linearizable(place, &node.address.ip().to_string())),
        None => Ok(told.into_iter().map(|told| Some(told?.1)).collect()),
    }
}

fn not_linearizable(place: &str, node: &str) -> StoreError {
    told(
        ErrorKind::InvalidInput,
        format!("{place} cannot keep what Atoll promises: node {node} reads without what was decided before"),
        "set paxos_variant to v1 or v2 in its cassandra.yaml, without any \"without_linearizable\"",
    )
}

/// Asks again and again while the store is open.
pub(crate) async fn look_now_and_then(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closed()) else { return };
        let link = &shared.link;
        let found = cluster_settings_again(&link.session, &link.place).await;
        if link.guarantees.heed(&link.place, found) {
            // Each waiter reads again, and is given the error.
            shared.watches.wake_all();
        }
    }
}

/// The settings of one node; none if it does not answer.
async fn of_node(session: &Session, node: &Arc<Node>) -> Option<ClusterSettings> {
    let mut read = Statement::new(READ);
    let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None);
    read.set_load_balancing_policy(Some(target));
    read.set_consistency(Consistency::One);
    read.set_request_timeout(Some(Duration::from_secs(5)));
    let rows = session.query_unpaged(read, ()).await.ok()?.into_rows_result().ok()?;
    let rows = rows.rows::<(String, Option<String>)>().ok()?;
    Some(understood(rows.flatten().filter_map(|(name, value)| Some((name, value?)))))
}

fn understood(rows: impl Iterator<Item = (String, String)>) -> ClusterSettings {
    let mut settings = ClusterSettings::default();
    let mut segment = None;
    for (name, value) in rows {
        match name.as_str() {
            "commitlog_sync" => settings.is_synced = matches!(value.as_str(), "batch" | "group"),
            "max_mutation_size" => settings.mutation_bytes_max = size(&value),
            "paxos_variant" => {
                settings.is_paxos_v2 = value == "v2";
                settings.is_linearizable = !value.contains("without_linearizable");
            }
            _ => segment = size(&value),
        }
    }
    // By default a node accepts half a commit log segment.
    settings.mutation_bytes_max = settings.mutation_bytes_max.or(segment.map(|bytes| bytes / 2));
    settings
}

/// The weakest settings of all nodes; none stands for a node that is down.
fn weakest(nodes: &[Option<ClusterSettings>]) -> ClusterSettings {
    let up = || nodes.iter().flatten();
    let all = |is: fn(&ClusterSettings) -> bool| up().next().is_some() && up().all(is);
    ClusterSettings {
        is_synced: all(|node| node.is_synced),
        mutation_bytes_max: up().map(|node| node.mutation_bytes_max.unwrap_or(MUTATION_BYTES_MAX)).min(),
        is_paxos_v2: all(|node| node.is_paxos_v2) && nodes.iter().all(Option::is_some),
        is_linearizable: all(|node| node.is_linearizable),
    }
}

/// Parses a size as Cassandra writes it: `32MiB`.
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

    fn node(rows: &[(&str, &str)]) -> ClusterSettings {
        understood(rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    #[test]
    fn the_weakest_node_counts_and_one_that_does_not_tell_is_weak() {
        let strong = [("commitlog_sync", "batch"), ("paxos_variant", "v2"), ("max_mutation_size", "16MiB")];
        let periodic = [("commitlog_sync", "periodic"), ("paxos_variant", "v2")];
        let first =
            [("commitlog_sync", "group"), ("paxos_variant", "v1"), ("commitlog_segment_size", "8MiB")];
        let of = |nodes: &[&[(&str, &str)]]| {
            weakest(&nodes.iter().map(|rows| Some(node(rows))).collect::<Vec<_>>())
        };
        let told = ClusterSettings {
            is_synced: true,
            mutation_bytes_max: Some(16 << 20),
            is_paxos_v2: true,
            is_linearizable: true,
        };
        assert_eq!(of(&[&strong, &strong]), told);
        assert_eq!(of(&[&strong, &periodic]), ClusterSettings { is_synced: false, ..told });
        let mixed = ClusterSettings { is_paxos_v2: false, mutation_bytes_max: Some(4 << 20), ..told };
        assert_eq!(of(&[&strong, &first]), mixed);
        assert_eq!(of(&[&strong, &[]]), ClusterSettings { is_synced: false, is_paxos_v2: false, ..told });
        let large = [("commitlog_sync", "batch"), ("paxos_variant", "v2"), ("max_mutation_size", "64MiB")];
        assert_eq!(of(&[&large, &large]).mutation_bytes_max, Some(64 << 20));
        assert_eq!(of(&[&large, &[]]).mutation_bytes_max, Some(16 << 20));
        assert_eq!(of(&[]), ClusterSettings { is_linearizable: false, ..ClusterSettings::default() });
        // A node that is down may come back with any settings, and serve requests before it is asked for
        // them.
        let down = weakest(&[Some(node(&strong)), None]);
        assert_eq!(down, ClusterSettings { is_paxos_v2: false, ..told });
    }

    #[test]
    fn nodes_that_are_up_and_silent_are_told_from_those_that_are_down() {
        let strong = node(&[("commitlog_sync", "batch"), ("paxos_variant", "v2")]);
        let (down, silent, told) = (None, Some(None), Some(Some(strong)));
        let cases = [
            ([told, told], (true, true)),
            ([told, down], (true, true)),
            ([told, silent], (true, false)),
            ([down, silent], (false, false)),
            ([down, down], (false, false)),
        ];
        for (nodes, (is_told, is_whole)) in cases {
            let found = found(nodes.to_vec());
            assert_eq!((found.weakest.is_some(), found.is_whole), (is_told, is_whole), "{nodes:?}");
        }
    }

    #[test]
    fn a_variant_of_paxos_that_gives_up_linearizable_reads_is_told_from_the_others() {
        let is_linearizable = |variant: &str| node(&[("paxos_variant", variant)]).is_linearizable;
        assert!(is_linearizable("v1") && is_linearizable("v2"));
        assert!(!is_linearizable("v2_without_linearizable_reads"));
        assert!(!is_linearizable("v1_without_linearizable_reads_or_rejected_writes"));
        let told = not_linearizable("cassandra://here", "10.0.0.7").to_string();
        assert!(told.contains("10.0.0.7"), "{told}");
    }
}

//! What the nodes say about how they are set up. Each answers for itself alone, so all that are up are asked, and the
//! weakest counts: a node that was set up otherwise, as in the middle of a change, may be the one that a write
//! depends on.
//!
//! Invariant: a node that does not tell counts as one that is set up as Cassandra is unless it is told otherwise.

use futures::future::join_all;
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use std::sync::Arc;
use std::time::Duration;

const READ: &str = "SELECT name, value FROM system_views.settings WHERE name IN \
                    ('commitlog_sync', 'max_mutation_size', 'commitlog_segment_size', 'paxos_variant')";

/// Largest change of one partition that a node takes unless it is told otherwise.
const MUTATION_BYTES_MAX: u64 = 16 << 20;

/// What the cluster says about itself that the store needs to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterSettings {
    /// Whether a write is acknowledged only after it was synced to the commit log's disk.
    pub(crate) is_synced: bool,
    /// Largest change of one partition that a node takes.
    pub(crate) mutation_bytes_max: Option<u64>,
    /// Whether every node decides by Paxos v2.
    pub(crate) is_paxos_v2: bool,
}

/// Asks all nodes that are up how they are set up.
pub(crate) async fn cluster_settings(session: &Session) -> ClusterSettings {
    let state = session.get_cluster_state();
    // One that is down says nothing about how it is set up, and takes part in nothing.
    let nodes = state.get_nodes_info().iter().filter(|node| node.is_connected());
    weakest(join_all(nodes.map(|node| of_node(session, node))).await)
}

async fn of_node(session: &Session, node: &Arc<Node>) -> ClusterSettings {
    let mut read = Statement::new(READ);
    let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None);
    read.set_load_balancing_policy(Some(target));
    read.set_consistency(Consistency::One);
    read.set_request_timeout(Some(Duration::from_secs(5)));
    let Ok(result) = session.query_unpaged(read, ()).await else { return ClusterSettings::default() };
    let Ok(rows) = result.into_rows_result() else { return ClusterSettings::default() };
    let Ok(rows) = rows.rows::<(String, Option<String>)>() else { return ClusterSettings::default() };
    understood(rows.flatten().filter_map(|(name, value)| Some((name, value?))))
}

fn understood(rows: impl Iterator<Item = (String, String)>) -> ClusterSettings {
    let mut settings = ClusterSettings::default();
    let mut segment = None;
    for (name, value) in rows {
        match name.as_str() {
            "commitlog_sync" => settings.is_synced = matches!(value.as_str(), "batch" | "group"),
            "max_mutation_size" => settings.mutation_bytes_max = size(&value),
            "paxos_variant" => settings.is_paxos_v2 = value == "v2",
            _ => segment = size(&value),
        }
    }
    // Half a segment is what a node takes unless it is told otherwise.
    settings.mutation_bytes_max = settings.mutation_bytes_max.or(segment.map(|bytes| bytes / 2));
    settings
}

fn weakest(nodes: Vec<ClusterSettings>) -> ClusterSettings {
    let all = |is: fn(&ClusterSettings) -> bool| !nodes.is_empty() && nodes.iter().all(is);
    ClusterSettings {
        is_synced: all(|node| node.is_synced),
        mutation_bytes_max: nodes
            .iter()
            .map(|node| node.mutation_bytes_max.unwrap_or(MUTATION_BYTES_MAX))
            .min(),
        is_paxos_v2: all(|node| node.is_paxos_v2),
    }
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
        let of = |nodes: &[&[(&str, &str)]]| weakest(nodes.iter().map(|rows| node(rows)).collect());
        let told = ClusterSettings { is_synced: true, mutation_bytes_max: Some(16 << 20), is_paxos_v2: true };
        assert_eq!(of(&[&strong, &strong]), told);
        assert_eq!(of(&[&strong, &periodic]), ClusterSettings { is_synced: false, ..told });
        let mixed = ClusterSettings { is_paxos_v2: false, mutation_bytes_max: Some(4 << 20), ..told };
        assert_eq!(of(&[&strong, &first]), mixed);
        assert_eq!(of(&[&strong, &[]]), ClusterSettings { is_synced: false, is_paxos_v2: false, ..told });
        let large = [("commitlog_sync", "batch"), ("paxos_variant", "v2"), ("max_mutation_size", "64MiB")];
        assert_eq!(of(&[&large, &large]).mutation_bytes_max, Some(64 << 20));
        assert_eq!(of(&[&large, &[]]).mutation_bytes_max, Some(16 << 20));
        assert_eq!(of(&[]), ClusterSettings::default());
    }
}

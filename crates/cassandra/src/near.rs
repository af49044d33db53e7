//! Prefers the node next to this program for requests that any node may answer.
//!
//! Invariant: only the order of nodes changes. If the preferred node is down or is no replica, the others
//! answer.
//! Invariant: with `local-quorum`, no node of another data centre is preferred, because a coordinator takes
//! "local" to mean its own data centre.

use scylla::client::session::Session;
use scylla::cluster::{ClusterState, NodeRef};
use scylla::policies::load_balancing::{FallbackPlan, LoadBalancingPolicy, RoutingInfo};
use scylla::routing::Shard;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

/// Asks one node first, if it has the data, and otherwise follows another policy.
#[derive(Debug)]
pub(crate) struct Toward {
    node: IpAddr,
    /// The data centre that the node must lie in, if that matters.
    within: Option<String>,
    others: Arc<dyn LoadBalancingPolicy>,
}

impl Toward {
    pub(crate) fn policy(
        node: IpAddr,
        within: Option<&str>,
        others: Arc<dyn LoadBalancingPolicy>,
    ) -> Arc<dyn LoadBalancingPolicy> {
        Arc::new(Self { node, within: within.map(str::to_owned), others })
    }

    fn is_meant(&self, node: NodeRef<'_>) -> bool {
        let is_within = is_within(self.within.as_deref(), node.datacenter.as_deref());
        is_within && node.address.ip() == self.node && node.is_connected()
    }
}

impl LoadBalancingPolicy for Toward {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'a>,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        let meant = cluster.get_nodes_info().iter().find(|node| self.is_meant(node));
        let meant = meant.filter(|meant| match (request.token, request.table) {
            (Some(token), Some(table)) => {
                let replicas = cluster.get_token_endpoints(table.ks_name(), table.table_name(), token);
                replicas.iter().any(|(replica, _)| replica.host_id == meant.host_id)
            }
            _ => true,
        });
        meant.map(|node| (node, None)).or_else(|| self.others.pick(request, cluster))
    }

    fn fallback<'a>(&'a self, request: &'a RoutingInfo<'a>, cluster: &'a ClusterState) -> FallbackPlan<'a> {
        let first = self.others.pick(request, cluster);
        Box::new(first.into_iter().chain(self.others.fallback(request, cluster)))
    }

    fn name(&self) -> String {
        format!("toward {}", self.node)
    }
}

/// Whether a node in the data centre `there` may be asked; if `within` is set, it must lie in that data
/// centre.
pub(crate) fn is_within(within: Option<&str>, there: Option<&str>) -> bool {
    within.is_none() || within == there
}

/// The node on this machine, if there is exactly one. If there are several, preferring one would leave the
/// others idle.
pub(crate) fn on_this_machine(session: &Session) -> Option<IpAddr> {
    let state = session.get_cluster_state();
    let mut here = state.get_nodes_info().iter().map(|node| node.address.ip()).filter(|node| is_here(*node));
    here.next().filter(|_| here.next().is_none())
}

/// Whether the address belongs to this machine: only such an address can be bound.
pub(crate) fn is_here(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_is_what_lies_in_the_named_data_centre() {
        assert!(
            is_within(None, None) && is_within(None, Some("east")) && is_within(Some("east"), Some("east"))
        );
        assert!(!is_within(Some("east"), Some("west")) && !is_within(Some("east"), None));
    }
}

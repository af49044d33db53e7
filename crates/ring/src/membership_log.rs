//! Logs changes of the ring's membership: once each time a node goes down, comes back, or leaves.
//!
//! The consensus library under the configuration group reports an unreachable member at every attempt to
//! reach it, so by default its log is off.

use atoll_replica::{NodeId, Table};
use std::collections::BTreeMap;

/// Which nodes were up by the last table.
#[derive(Debug, Default)]
pub(crate) struct MembershipLog {
    up: BTreeMap<NodeId, bool>,
}

impl MembershipLog {
    /// Logs what changed since the last table. The first table is the initial state, and nothing is logged
    /// for it.
    pub(crate) fn follow(&mut self, table: &Table) {
        self.up.retain(|node, _| {
            let stays = table.members.get(node).is_some();
            if !stays {
                tracing::info!(%node, "a node has left the ring");
            }
            stays
        });
        for (&node, member) in table.members.iter() {
            match self.up.insert(node, member.is_up) {
                Some(true) if !member.is_up => {
                    tracing::warn!(%node, "a node is down: other copies take over its slots");
                }
                Some(false) if member.is_up => tracing::info!(%node, "a node is up again"),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warned;
    use atoll_replica::{Incarnation, Member};

    /// A table with nodes that are up or not.
    fn table(nodes: &[(u32, bool)]) -> Table {
        let mut table = Table::default();
        for &(node, is_up) in nodes {
            let (incarnation, is_leaving, address) = (Incarnation(1), false, "somewhere".into());
            table
                .members
                .insert(NodeId(node), Member { incarnation, is_up, is_leaving, ..Member::new(address) });
        }
        table
    }

    #[test]
    fn a_node_that_goes_is_told_of_once_however_many_tables_come() {
        let mut membership_log = MembershipLog::default();
        let mut warned = |nodes: &[(u32, bool)]| warned::times(|| membership_log.follow(&table(nodes)));
        assert_eq!(warned(&[(1, true), (2, true), (3, false)]), 0, "as it was found");
        assert_eq!(warned(&[(1, true), (2, false), (3, false)]), 1);
        assert_eq!(warned(&[(1, true), (2, false), (3, false)]), 0);
        assert_eq!(warned(&[(1, true), (2, true), (3, false)]), 0, "that it is back is no warning");
        assert_eq!(warned(&[(1, true), (2, false)]), 1);
        assert_eq!(warned(&[(1, true), (2, false), (3, false), (4, true)]), 0, "nor that one is new");
    }
}

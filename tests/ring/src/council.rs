//! The configuration group as one that always answers: it hears nodes, decides, and plans where copies go.
//!
//! The decisions are behind [`Authority`]. Here that is the state machine alone, which is the same on every
//! member of a real group; how the members agree is tested elsewhere.

use atoll_replica::{
    Change, Decision, Group, Incarnation, Moment, NodeId, Proposal, Survived, Table, Version,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Makes the decisions, one change at a time.
pub(crate) trait Authority {
    fn decide(&mut self, change: Change) -> Decision;
    fn table(&self) -> Arc<Table>;
    fn plan(&self, gone: &[NodeId]) -> Vec<Change>;
}

impl Authority for Group {
    fn decide(&mut self, change: Change) -> Decision {
        self.apply(change)
    }

    fn table(&self) -> Arc<Table> {
        Self::table(self)
    }

    fn plan(&self, gone: &[NodeId]) -> Vec<Change> {
        Self::plan(self, gone)
    }
}

/// A request of a node to the group.
#[derive(Clone, Debug)]
pub(crate) enum GroupRequest {
    /// A node starts.
    Register { life: u64, survived: Survived },
    /// A node's heartbeat.
    Beat { life: u64, incarnation: Incarnation, asked_at: Moment, known: Version },
    /// A primary proposes a change.
    Propose(Proposal),
    /// A node asks for the newest table.
    Fetch,
}

/// The configuration group.
pub(crate) struct Council {
    pub(crate) authority: Box<dyn Authority>,
    /// When each node was last heard.
    pub(crate) heard_at: BTreeMap<NodeId, u64>,
    /// The time until which the group does not answer.
    pub(crate) away_until: u64,
    /// When it last planned where copies go.
    pub(crate) planned_at: u64,
    /// The table that a member which lags still has.
    pub(crate) former: Option<Arc<Table>>,
}

impl Council {
    pub(crate) fn new(authority: Box<dyn Authority>) -> Self {
        Self { authority, heard_at: BTreeMap::new(), away_until: 0, planned_at: 0, former: None }
    }

    /// Nodes that are up in the table but were not heard for `silence_us`.
    pub(crate) fn silent(&self, now: u64, silence_us: u64) -> Vec<(NodeId, Incarnation)> {
        let table = self.authority.table();
        let is_silent =
            |node: &NodeId| self.heard_at.get(node).is_none_or(|&heard_at| now > heard_at + silence_us);
        let up = table.members.iter().filter(|(_, member)| member.is_up);
        up.filter(|(node, _)| is_silent(node)).map(|(&node, member)| (node, member.incarnation)).collect()
    }

    /// Nodes that were not heard for `gone_us`.
    pub(crate) fn gone(&self, now: u64, gone_us: u64) -> Vec<NodeId> {
        let silent = self.heard_at.iter().filter(|(_, heard_at)| now > **heard_at + gone_us);
        silent.map(|(&node, _)| node).collect()
    }
}

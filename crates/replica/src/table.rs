//! The table: which node has which copy of which slot. Only the configuration group makes new ones.
//!
//! Invariant: a slot's in-sync copies hold every acknowledged write of it; its primary, if any, is one of
//! them.
//! Invariant: an epoch of a slot never has more than one primary.

use crate::{Configurations, Epoch, Incarnation, KeyspaceRules, Members, NodeId, Slot, Version, Zones};
use std::sync::Arc;

/// Most copies that a slot is to have.
pub const COPIES_MAX: usize = 7;

/// Room for one more, which is made before another one is dropped.
const ROOM: usize = COPIES_MAX + 1;

/// A few nodes, stored inline.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Copies {
    count: u8,
    nodes: [NodeId; ROOM],
}

/// Who has a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Counts the changes of the primary and of the in-sync copies.
    pub epoch: Epoch,
    /// The table since which this configuration is as it is, including the copies that are catching up.
    pub since: Version,
    /// The table in which the last loss was accepted: copies from before it share no history with those after
    /// it.
    pub branch: Version,
    /// The node that accepts writes and answers reads; none while the slot is down.
    pub primary: Option<NodeId>,
    /// The next primary, once the current one has nothing under way; one of the in-sync copies.
    pub successor: Option<NodeId>,
    /// The copies that have every acknowledged write, including the primary's.
    pub in_sync: Copies,
    /// The copies that are catching up and do not count.
    pub joining: Copies,
}

/// The configurations of all slots, and the members of the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Counts its changes.
    pub version: Version,
    /// All nodes of the ring, without those that left.
    pub members: Members,
    /// Keyspaces other than the first, in the order in which they were created.
    pub keyspaces: Arc<[KeyspaceRules]>,
    /// The names of zones.
    pub zones: Zones,
    /// One configuration for each slot of each keyspace.
    pub slots: Configurations,
}

impl Table {
    /// A table without nodes.
    #[must_use]
    pub fn empty(slots: u32) -> Self {
        Self { slots: Configurations::nobodys(slots), ..Self::default() }
    }

    /// The configuration of a slot; a slot that does not exist has no copies.
    #[must_use]
    #[inline]
    pub fn slot(&self, slot: Slot) -> Configuration {
        self.slots.get(slot.0 as usize).unwrap_or_default()
    }

    /// The current life of a node.
    #[must_use]
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.members.get(&node).map(|member| member.incarnation)
    }
}

impl Configuration {
    /// Whether a node has a copy, in sync or not.
    #[must_use]
    pub fn has(&self, node: NodeId) -> bool {
        self.in_sync.contains(node) || self.joining.contains(node)
    }
}

impl Copies {
    /// A set of these nodes. There is room for one more than [`COPIES_MAX`]; further nodes are left out.
    #[must_use]
    pub fn of(nodes: &[NodeId]) -> Self {
        let mut copies = Self::default();
        for &node in nodes {
            copies.insert(node);
        }
        copies
    }

    /// All nodes, in order.
    #[must_use]
    pub fn as_slice(&self) -> &[NodeId] {
        self.nodes.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Iterates over the nodes.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.as_slice().iter().copied()
    }

    /// The number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a node is one of them.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.as_slice().contains(&node)
    }

    /// Whether there is room for another node.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.len() < ROOM
    }

    /// Adds a node; returns whether it is new and there was room.
    pub fn insert(&mut self, node: NodeId) -> bool {
        if self.contains(node) {
            return false;
        }
        let Some(place) = self.nodes.get_mut(usize::from(self.count)) else { return false };
        *place = node;
        self.count += 1;
        true
    }

    /// Puts a node before all others; the last one is dropped if there is no room.
    pub(crate) fn put_first(&mut self, node: NodeId) {
        self.remove(node);
        let mut copies = Self::of(&[node]);
        for other in self.iter() {
            copies.insert(other);
        }
        *self = copies;
    }

    /// Removes a node; returns whether it was there.
    pub fn remove(&mut self, node: NodeId) -> bool {
        let before = self.len();
        *self = self.iter().filter(|&other| other != node).fold(Self::default(), |mut left, other| {
            left.insert(other);
            left
        });
        self.len() < before
    }
}

impl Extend<NodeId> for Copies {
    /// Adds nodes, as far as there is room.
    fn extend<T: IntoIterator<Item = NodeId>>(&mut self, nodes: T) {
        for node in nodes {
            self.insert(node);
        }
    }
}

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|node| node.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_few_and_each_is_there_once() {
        let mut copies = Copies::of(&[NodeId(1), NodeId(2), NodeId(1)]);
        assert_eq!(copies.as_slice(), [NodeId(1), NodeId(2)]);
        assert!(copies.remove(NodeId(1)) && !copies.remove(NodeId(1)) && copies.insert(NodeId(3)));
        assert_eq!(copies, Copies::of(&[NodeId(2), NodeId(3)]));
        let many: Vec<_> = (0..20).map(NodeId).collect();
        let mut copies = Copies::of(&many[..COPIES_MAX]);
        assert!(copies.insert(NodeId(9)), "one comes before another one goes");
        assert!(!copies.has_room() && !copies.insert(NodeId(10)));
        assert_eq!(Copies::of(&many), Copies::of(&many[..ROOM]));
    }
}

//! The state machine of the configuration group: it decides one change after the other, the same on every
//! member of the group.
//!
//! Invariant: a node counts as in sync only while it holds every acknowledged write of the slot.
//! Invariant: an epoch of a slot has one primary; a change of the primary or of the in-sync copies starts a
//! new epoch.
//! Invariant: a number belongs to the store that registered under it last, by its name, until the node has
//! left. Another store gets it only where clients reached that one, and has nothing of what that had.

use crate::members::Claim;
use crate::next_table::NextTable;
use crate::{
    Address, Copies, Epoch, Incarnation, KeyspaceRules, Member, NodeId, PlacementHints, Proposal, Slot,
    Survived, Table, Version,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Options of a ring that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// How many slots the keys of each keyspace are divided into.
    pub slots: u32,
    /// How many copies each slot of the first keyspace is to have.
    pub copies: usize,
}

/// A change that the group is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node starts.
    Register {
        /// The node.
        node: NodeId,
        /// Identifies this start, drawn at random by the node: a repeated request gets the same answer.
        nonce: u64,
        /// Where it is reached.
        address: String,
        /// What the placement of copies takes into account of it.
        hints: PlacementHints,
        /// What it still has.
        survived: Survived,
    },
    /// A node was not heard in this life for too long.
    Fail {
        /// The node.
        node: NodeId,
        /// The life that was not heard.
        incarnation: Incarnation,
    },
    /// Nodes fell silent together. Where they have all copies in sync of a slot, each of them stays in sync:
    /// whichever comes back first serves it.
    FailTogether {
        /// The nodes and the lives that were not heard.
        nodes: Vec<(NodeId, Incarnation)>,
    },
    /// A node is heard again in this life.
    Hear {
        /// The node.
        node: NodeId,
        /// The life that is heard.
        incarnation: Incarnation,
    },
    /// A primary's proposal.
    Propose(Proposal),
    /// A slot that never had copies gets these, all of them empty.
    Found {
        /// The slot.
        slot: Slot,
        /// The nodes; the first one leads.
        copies: Copies,
    },
    /// A node gets a copy.
    Copy {
        /// The slot.
        slot: Slot,
        /// The node.
        node: NodeId,
    },
    /// A copy is dropped. Has no effect on the primary's.
    Drop {
        /// The slot.
        slot: Slot,
        /// The node of the copy.
        node: NodeId,
    },
    /// Another in-sync copy becomes primary at once. Writes under way are not waited for: their clients learn
    /// that the outcome is unknown.
    Lead {
        /// The slot.
        slot: Slot,
        /// The epoch in which this was decided on.
        epoch: Epoch,
        /// The new primary.
        node: NodeId,
    },
    /// Another in-sync copy is to become primary, once the primary says that nothing is under way.
    HandOver {
        /// The slot.
        slot: Slot,
        /// The epoch in which this was decided on.
        epoch: Epoch,
        /// The successor.
        node: NodeId,
    },
    /// A node is to give up its copies and then leave the ring. If it starts again as a new life, it stays.
    Leave {
        /// The node.
        node: NodeId,
    },
    /// A node that was to leave, and has not left yet, stays.
    Stay {
        /// The node.
        node: NodeId,
    },
    /// A node that was to leave has no copies left: it is removed from the table. If it comes back, that is a
    /// new life.
    Remove {
        /// The node.
        node: NodeId,
        /// The life that ends.
        incarnation: Incarnation,
    },
    /// A slot that has lost all its in-sync copies continues with what another node has, if anything.
    /// Acknowledged writes are lost.
    Recover {
        /// The slot.
        slot: Slot,
        /// The table in which this loss was accepted. If the slot has changed since, it may have been served
        /// meanwhile, and more would be lost than was accepted: nothing happens. A node that was cut off and
        /// came back in the same life changes nothing.
        seen: Version,
    },
    /// A keyspace is added, unless there is one of this name.
    Keyspace(KeyspaceRules),
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The table changed.
    Changed,
    /// The table did not change: the change had been made already, or does not apply any more.
    Unchanged,
    /// The node has begun this life.
    Registered {
        /// The life.
        incarnation: Incarnation,
    },
    /// The node has not begun a life, because its number is that of another store. It may ask again: once the
    /// node of that store has left, the number is free.
    Taken,
}

/// The table, and the state that decides about it.
#[derive(Clone, Debug)]
pub struct Group {
    options: GroupOptions,
    table: Arc<Table>,
    /// The last few nonces of each node.
    nonces: BTreeMap<NodeId, VecDeque<u64>>,
    /// The last life of each node that left, so that its next one differs.
    left: BTreeMap<NodeId, Incarnation>,
}

/// The whole state of a group. With the options of the ring, all later decisions follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedGroup {
    /// The table.
    pub table: Arc<Table>,
    /// The last few nonces of each node that ever registered, the oldest first.
    pub nonces: Vec<(NodeId, Vec<u64>)>,
    /// The last life of each node that left.
    pub left: Vec<(NodeId, Incarnation)>,
}

impl Group {
    /// A ring without nodes.
    #[must_use]
    pub fn new(options: GroupOptions) -> Self {
        Self {
            options,
            table: Arc::new(Table::empty(options.slots)),
            nonces: BTreeMap::new(),
            left: BTreeMap::new(),
        }
    }

    /// A group that goes on from a saved state. None if that state is of a ring with another number of slots,
    /// or no group can have been in it.
    #[must_use]
    pub fn restored(options: GroupOptions, saved: SavedGroup) -> Option<Self> {
        let SavedGroup { table, nonces, left } = saved;
        if table.slots_each() != options.slots || nonces.iter().any(|(_, known)| known.len() > NONCES) {
            return None;
        }
        let nonces = nonces.into_iter().map(|(node, known)| (node, VecDeque::from(known))).collect();
        Some(Self { options, table, nonces, left: left.into_iter().collect() })
    }

    /// The whole state. Groups that would decide alike about everything save the same.
    #[must_use]
    pub fn saved(&self) -> SavedGroup {
        let nonces = self.nonces.iter().map(|(node, known)| (*node, known.iter().copied().collect()));
        SavedGroup {
            table: self.table(),
            nonces: nonces.collect(),
            left: self.left.iter().map(|(node, incarnation)| (*node, *incarnation)).collect(),
        }
    }

    /// The current table.
    #[must_use]
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    /// The options of the ring.
    #[must_use]
    pub fn options(&self) -> GroupOptions {
        self.options
    }

    /// Decides about one change.
    pub fn apply(&mut self, change: Change) -> Decision {
        if let Change::Register { node, nonce, address, hints, survived } = change {
            return self.register((node, nonce), address, &hints, &survived);
        }
        // If this table is not shared, it is changed in place: founding many slots copies none.
        let mut table = NextTable::of(Arc::make_mut(&mut self.table));
        match change {
            Change::Fail { node, incarnation } => table.hear(&[(node, incarnation)], false),
            Change::FailTogether { nodes } => table.hear(&nodes, false),
            Change::Hear { node, incarnation } => table.hear(&[(node, incarnation)], true),
            Change::Propose(proposal) => table.propose(proposal),
            Change::Found { slot, copies } => table.found(slot, copies),
            Change::Copy { slot, node } => table.copy(slot, node),
            Change::Drop { slot, node } => table.drop_copy(slot, node),
            Change::Lead { slot, epoch, node } => table.lead(slot, epoch, node),
            Change::HandOver { slot, epoch, node } => table.hand_over(slot, epoch, node),
            Change::Leave { node } => table.leave(node, true),
            Change::Stay { node } => table.leave(node, false),
            Change::Remove { node, incarnation } => {
                if table.remove(node, incarnation) {
                    self.left.insert(node, incarnation);
                }
            }
            Change::Recover { slot, seen } => table.recover(slot, seen),
            Change::Keyspace(rules) => table.add_keyspace(rules),
            Change::Register { .. } => {}
        }
        if table.end() { Decision::Changed } else { Decision::Unchanged }
    }

    fn register(
        &mut self,
        (node, nonce): (NodeId, u64),
        address: String,
        hints: &PlacementHints,
        survived: &Survived,
    ) -> Decision {
        let known = self.nonces.entry(node).or_default();
        if let (Some(known), Some(incarnation)) = (known.back(), self.table.incarnation(node))
            && *known == nonce
        {
            return Decision::Registered { incarnation };
        }
        if known.contains(&nonce) {
            // A late duplicate of a request that a former life made.
            return Decision::Unchanged;
        }
        let address = Address::from(address);
        let claim = self.table.members.get(&node).map_or(Claim::ByItself, |had| had.address.claim(&address));
        let survived = match claim {
            Claim::ByItself => survived,
            // What this store has is not what the slots' configurations name.
            Claim::InItsPlace => &Survived::Nothing,
            Claim::ByAnother => return Decision::Taken,
        };
        known.push_back(nonce);
        if known.len() > NONCES {
            known.pop_front();
        }
        let former = self.table.incarnation(node).or(self.left.remove(&node)).unwrap_or_default();
        let incarnation = Incarnation(former.0 + 1);
        let mut table = NextTable::of(Arc::make_mut(&mut self.table));
        let zone = hints.zone.as_deref().and_then(|name| table.zone(name));
        let member = Member { incarnation, weight: hints.weight, zone, ..Member::new(address) };
        table.begin(node, member, survived);
        table.end();
        Decision::Registered { incarnation }
    }
}

/// How many nonces are kept for each node.
const NONCES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn register(node: u32, nonce: u64) -> Change {
        let (node, hints, survived) = (NodeId(node), PlacementHints::default(), Survived::Nothing);
        Change::Register { node, nonce, address: String::new(), hints, survived }
    }

    #[test]
    fn a_group_that_goes_on_from_what_was_saved_decides_as_if_it_had_never_stopped() {
        let options = GroupOptions { slots: 8, copies: 2 };
        let mut group = Group::new(options);
        for change in [register(1, 1), register(2, 1), register(1, 2)] {
            group.apply(change);
        }
        for change in group.plan(&[]) {
            group.apply(change);
        }
        // A third node comes, and leaves before it has a copy.
        for change in [
            register(3, 1),
            Change::Leave { node: NodeId(3) },
            Change::Remove { node: NodeId(3), incarnation: Incarnation(1) },
        ] {
            assert_ne!(group.apply(change), Decision::Unchanged);
        }
        let mut restored = Group::restored(options, group.saved()).unwrap();
        assert_eq!(restored.saved(), group.saved());
        // A late duplicate of a former start, a node that left and comes back, and a new one.
        let asked = [register(1, 1), register(3, 9), register(4, 1), Change::Leave { node: NodeId(1) }];
        let decided = asked.map(|change| (restored.apply(change.clone()), group.apply(change)));
        assert_eq!(decided.map(|(restored, _)| restored), decided.map(|(_, whole)| whole));
        assert_eq!(decided[0].0, Decision::Unchanged, "a start that is over begins no life");
        assert_eq!(decided[1].0, Decision::Registered { incarnation: Incarnation(2) }, "it was there before");
        assert_eq!(restored.saved(), group.saved());
        assert_eq!(restored.plan(&[]), group.plan(&[]));
    }

    /// A store begins that says that it still has everything.
    fn start(node: u32, nonce: u64, address: &str) -> Change {
        let (node, address, hints) = (NodeId(node), address.to_owned(), PlacementHints::default());
        Change::Register { node, nonce, address, hints, survived: Survived::Everything }
    }

    /// Plans a few times.
    fn plan(group: &mut Group) {
        for _ in 0..4 {
            for change in group.plan(&[]) {
                group.apply(change);
            }
        }
    }

    fn led_by(group: &Group, node: u32) -> usize {
        let table = group.table();
        table.slots.iter().filter(|slot| slot.primary == Some(NodeId(node))).count()
    }

    fn life(number: u64) -> Decision {
        Decision::Registered { incarnation: Incarnation(number) }
    }

    #[test]
    fn a_number_is_that_of_its_store_and_one_in_its_place_has_nothing_of_what_that_had() {
        // What is decided about the last of these starts, and how many slots node 1 leads then.
        let after = |addresses: &[&str]| {
            let mut group = Group::new(GroupOptions { slots: 8, copies: 1 });
            let mut decided = Decision::Unchanged;
            for (nonce, address) in (1..).zip(addresses) {
                decided = group.apply(start(1, nonce, address));
                plan(&mut group);
            }
            (decided, led_by(&group, 1))
        };
        let names = ["a".repeat(40), "b".repeat(40)];
        for (one, other) in [("one", "other"), (&*names[0], &*names[1])] {
            let at = |name: &str, host: &str| format!("{name} {host}:1 {host}:2");
            let (first, in_its_place) = (at(one, "10.0.0.1"), at(other, "10.0.0.1"));
            let elsewhere = at(other, "10.0.0.2");
            assert_eq!(after(&[&first, &first]), (life(2), 8), "it comes back");
            assert_eq!(after(&[&first, &at(one, "10.0.0.2")]), (life(2), 8), "it comes back elsewhere");
            assert_eq!(after(&[&first, &in_its_place]), (life(2), 0), "another one comes in its place");
            assert_eq!(
                after(&[&first, &in_its_place, &first]),
                (life(3), 0),
                "and it comes back behind that"
            );
            assert_eq!(after(&[&first, &elsewhere]), (Decision::Taken, 8), "another one elsewhere");
            assert_eq!(after(&[&first, &elsewhere, &first]), (life(2), 8), "it comes back behind that");
        }
    }

    #[test]
    fn a_number_stays_taken_while_its_node_is_down_and_is_free_once_that_has_left() {
        let other = start(2, 9, "other 10.0.0.3:1 10.0.0.3:2");
        let down = |copies| {
            let mut group = Group::new(GroupOptions { slots: 8, copies });
            group.apply(start(1, 1, "one 10.0.0.1:1 10.0.0.1:2"));
            group.apply(start(2, 1, "two 10.0.0.2:1 10.0.0.2:2"));
            plan(&mut group);
            group.apply(Change::Fail { node: NodeId(2), incarnation: Incarnation(1) });
            let before = group.saved();
            assert_eq!(group.apply(other.clone()), Decision::Taken);
            assert_eq!(group.saved(), before, "whoever is refused may ask again");
            group.apply(Change::Leave { node: NodeId(2) });
            plan(&mut group);
            group
        };
        let mut group = down(2);
        assert_eq!(group.apply(other.clone()), life(2), "the other copies are there");
        assert_eq!(led_by(&group, 1), 8);
        let two = start(2, 2, "two 10.0.0.2:1 10.0.0.2:2");
        assert_eq!(group.apply(two), Decision::Taken, "the former one comes back");
        let mut group = down(1);
        assert_eq!(group.apply(other), Decision::Taken, "it does not leave: it has the last copies");
    }

    #[test]
    fn a_state_that_no_group_of_this_ring_can_be_in_is_not_gone_on_from() {
        let options = GroupOptions { slots: 8, copies: 2 };
        let saved = Group::new(options).saved();
        assert!(Group::restored(options, saved.clone()).is_some());
        assert!(Group::restored(GroupOptions { slots: 9, copies: 2 }, saved.clone()).is_none());
        let nonces = vec![(NodeId(1), vec![7; NONCES + 1])];
        assert!(Group::restored(options, SavedGroup { nonces, ..saved }).is_none());
    }
}

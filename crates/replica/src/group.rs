//! What the configuration group decides: one change after the other, each the same on every member of the
//! group.
//!
//! Invariant: a node is counted in sync only while it holds every write of the slot that was acknowledged.
//! Invariant: an epoch of a slot has one primary; a change of the primary or of the in-sync copies is a new
//! epoch.

use crate::changing::Changing;
use crate::{Copies, Epoch, Incarnation, KeyspaceRules, Member, NodeId, Proposal, Slot, Table};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Options of a ring that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// How many slots the keys of each keyspace are divided into.
    pub slots: u32,
    /// How many copies each of the first keyspace is to have.
    pub copies: usize,
}

/// What a node that begins still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survived {
    /// All that it ever said it has.
    Everything,
    /// Nothing that can be relied on.
    Nothing,
}

/// A change that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node begins.
    Register {
        /// Which.
        node: NodeId,
        /// A number of this beginning, drawn by the node: asking again with it is answered the same.
        nonce: u64,
        /// Where it is reached.
        address: String,
        /// What it has.
        survived: Survived,
    },
    /// A node in this life was not heard for too long.
    Fail {
        /// Which.
        node: NodeId,
        /// The life that was not heard.
        incarnation: Incarnation,
    },
    /// A node in this life is heard again.
    Hear {
        /// Which.
        node: NodeId,
        /// The life that is heard.
        incarnation: Incarnation,
    },
    /// A primary's wish.
    Propose(Proposal),
    /// A slot that never had copies gets these, all of them empty.
    Found {
        /// The slot.
        slot: Slot,
        /// Who; the first one leads.
        copies: Copies,
    },
    /// Another copy is made.
    Copy {
        /// The slot.
        slot: Slot,
        /// Where.
        node: NodeId,
    },
    /// A copy goes. Not the primary's.
    Drop {
        /// The slot.
        slot: Slot,
        /// Whose.
        node: NodeId,
    },
    /// Another in-sync copy becomes primary, at once: what is under way is not waited for, and whoever asked
    /// for it is told that nobody knows what became of it.
    Lead {
        /// The slot.
        slot: Slot,
        /// The epoch in which this was thought right.
        epoch: Epoch,
        /// Who.
        node: NodeId,
    },
    /// Another in-sync copy is to become primary, once the primary says that nothing is under way.
    HandOver {
        /// The slot.
        slot: Slot,
        /// The epoch in which this was thought right.
        epoch: Epoch,
        /// Who.
        node: NodeId,
    },
    /// A node is to have no copies any more, and then to be none of the ring. A new life of it stays.
    Leave {
        /// Which.
        node: NodeId,
    },
    /// A node that was to leave, and is still there, stays.
    Stay {
        /// Which.
        node: NodeId,
    },
    /// A node that was to leave has no copies any more: it is taken out of the table. When it comes back,
    /// that is a new life.
    Remove {
        /// Which.
        node: NodeId,
        /// The life that is over.
        incarnation: Incarnation,
    },
    /// A slot whose in-sync copies are all gone goes on with what another node has, if anything. Acknowledged
    /// writes are lost.
    Recover {
        /// The slot.
        slot: Slot,
    },
    /// There is another keyspace, unless one is called so already.
    Keyspace(KeyspaceRules),
}

/// What came of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The table is another one.
    Changed,
    /// It is as it was: that was so already, or it is no longer right.
    Unchanged,
    /// The node has begun this life.
    Registered {
        /// The life.
        incarnation: Incarnation,
    },
}

/// The table, and what decides about it.
#[derive(Clone, Debug)]
pub struct Group {
    options: GroupOptions,
    table: Arc<Table>,
    /// The numbers that each node began its lives with, some of the last ones.
    nonces: BTreeMap<NodeId, VecDeque<u64>>,
    /// The last life of each node that left, for the next one to be another.
    left: BTreeMap<NodeId, Incarnation>,
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

    /// The table as it is.
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
        if let Change::Register { node, nonce, address, survived } = change {
            return self.register(node, nonce, address, &survived);
        }
        // Where nobody else has this table any more, it becomes the next one in its place: founding many
        // slots copies none.
        let mut table = Changing::of(Arc::make_mut(&mut self.table));
        match change {
            Change::Fail { node, incarnation } => table.hear(node, incarnation, false),
            Change::Hear { node, incarnation } => table.hear(node, incarnation, true),
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
            Change::Recover { slot } => table.recover(slot),
            Change::Keyspace(rules) => table.add_keyspace(rules),
            Change::Register { .. } => {}
        }
        if table.end() { Decision::Changed } else { Decision::Unchanged }
    }

    fn register(&mut self, node: NodeId, nonce: u64, address: String, survived: &Survived) -> Decision {
        let known = self.nonces.entry(node).or_default();
        if let (Some(known), Some(incarnation)) = (known.back(), self.table.incarnation(node))
            && *known == nonce
        {
            return Decision::Registered { incarnation };
        }
        if known.contains(&nonce) {
            // A life that is over asked more than once, and one of its questions was late.
            return Decision::Unchanged;
        }
        known.push_back(nonce);
        if known.len() > NONCES {
            known.pop_front();
        }
        let former = self.table.incarnation(node).or(self.left.remove(&node)).unwrap_or_default();
        let incarnation = Incarnation(former.0 + 1);
        let mut table = Changing::of(Arc::make_mut(&mut self.table));
        let address = address.into();
        table.begin(node, Member { incarnation, is_up: true, is_leaving: false, address }, survived);
        table.end();
        Decision::Registered { incarnation }
    }
}

/// Former lives of a node that are remembered.
const NONCES: usize = 16;

//! What the configuration group decides: one change after the other, each the same on every member of the group.
//!
//! Invariant: a node is counted in sync only while it holds every write of the slot that was acknowledged.
//! Invariant: an epoch of a slot has one primary; a change of the primary or of the in-sync copies is a new epoch.

use crate::planted::{self, Bug};
use crate::{Configuration, Copies, Epoch, Incarnation, Member, NodeId, Position, Proposal, Slot, Table};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Options of a ring that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// How many slots keys are divided into.
    pub slots: u32,
    /// How many copies each is to have.
    pub copies: usize,
}

/// What a node that begins still has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Survived {
    /// All that it ever said it has: for each slot the last entry of its log. Of slots that are not named it has the
    /// beginning, in which nothing was written.
    Everything(Vec<(Slot, Position)>),
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
    /// Another in-sync copy becomes primary.
    Lead {
        /// The slot.
        slot: Slot,
        /// The epoch in which this was thought right.
        epoch: Epoch,
        /// Who.
        node: NodeId,
    },
    /// A slot whose in-sync copies are all gone goes on with what another node has, if anything. Acknowledged writes are lost.
    Recover {
        /// The slot.
        slot: Slot,
    },
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
}

impl Group {
    /// A ring without nodes.
    #[must_use]
    pub fn new(options: GroupOptions) -> Self {
        Self { options, table: Arc::new(Table::empty(options.slots)), nonces: BTreeMap::new() }
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
        let mut table = Changing::of(&self.table);
        match change {
            Change::Fail { node, incarnation } => table.hear(node, incarnation, false),
            Change::Hear { node, incarnation } => table.hear(node, incarnation, true),
            Change::Propose(proposal) => table.propose(proposal),
            Change::Found { slot, copies } => table.found(slot, copies),
            Change::Copy { slot, node } => table.copy(slot, node),
            Change::Drop { slot, node } => table.drop_copy(slot, node),
            Change::Lead { slot, epoch, node } => table.lead(slot, epoch, node),
            Change::Recover { slot } => table.recover(slot),
            Change::Register { .. } => {}
        }
        self.end(table)
    }

    fn end(&mut self, table: Changing) -> Decision {
        match table.end() {
            Some(table) => {
                self.table = Arc::new(table);
                Decision::Changed
            }
            None => Decision::Unchanged,
        }
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
        let incarnation = Incarnation(self.table.incarnation(node).unwrap_or_default().0 + 1);
        let mut table = Changing::of(&self.table);
        table.begin(node, Member { incarnation, is_up: true, address }, survived);
        self.end(table);
        Decision::Registered { incarnation }
    }
}

/// Former lives of a node that are remembered.
const NONCES: usize = 16;

/// A table on its way to the next one.
struct Changing {
    table: Table,
    is_changed: bool,
    /// How many slots each node leads, once somebody asked.
    leads: Option<BTreeMap<NodeId, i64>>,
}

impl Changing {
    fn of(table: &Table) -> Self {
        let mut table = table.clone();
        table.version = table.version.next();
        Self { table, is_changed: false, leads: None }
    }

    fn end(self) -> Option<Table> {
        self.is_changed.then_some(self.table)
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.table.members.get(&node).is_some_and(|member| member.is_up)
    }

    /// Changes a slot; with another primary or other in-sync copies it is another epoch.
    fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Configuration)) {
        let version = self.table.version;
        let Some(now) = self.table.slots.get_mut(slot.0 as usize) else { return };
        let before = *now;
        change(now);
        if *now == before {
            return;
        }
        if now.primary != before.primary || now.in_sync != before.in_sync {
            now.epoch = now.epoch.max(before.epoch.next());
        }
        now.since = version;
        self.is_changed = true;
        let (former, next) = (before.primary, now.primary);
        if let Some(leads) = self.leads.as_mut().filter(|_| former != next) {
            former.into_iter().for_each(|node| *leads.entry(node).or_default() -= 1);
            next.into_iter().for_each(|node| *leads.entry(node).or_default() += 1);
        }
    }

    fn each_slot(&mut self, mut change: impl FnMut(&mut Self, Slot)) {
        (0..self.table.slots.len() as u32).for_each(|slot| change(self, Slot(slot)));
    }

    /// A node begins a life. Where it was in sync and has everything, it stays so in a new epoch; otherwise it has to catch up.
    fn begin(&mut self, node: NodeId, member: Member, survived: &Survived) {
        self.table.members.insert(node, member);
        self.is_changed = true;
        let has_everything = matches!(survived, Survived::Everything(_)) || planted::is(Bug::LossForgotten);
        self.each_slot(|table, slot| {
            if !table.table.slot(slot).in_sync.contains(node) {
                return;
            }
            table.change(slot, |configuration| {
                if !has_everything {
                    configuration.demote(node);
                }
                configuration.epoch = configuration.epoch.next();
            });
            table.settle(slot);
        });
    }

    fn hear(&mut self, node: NodeId, incarnation: Incarnation, is_up: bool) {
        let Some(member) = self.table.members.get_mut(&node) else { return };
        if member.incarnation != incarnation || member.is_up == is_up {
            return;
        }
        member.is_up = is_up;
        self.is_changed = true;
        self.each_slot(|table, slot| {
            if table.table.slot(slot).in_sync.contains(node) {
                table.settle(slot);
            }
        });
    }

    /// In-sync copies that nobody hears have to catch up later, if others are heard; and one who is heard leads.
    fn settle(&mut self, slot: Slot) {
        let in_sync = self.table.slot(slot).in_sync;
        let up: Vec<_> = in_sync.iter().filter(|&node| self.is_up(node)).collect();
        let Some(&first) = up.first() else { return };
        let leads = self.leads.get_or_insert_with(|| {
            let mut leads = BTreeMap::new();
            for primary in self.table.slots.iter().filter_map(|configuration| configuration.primary) {
                *leads.entry(primary).or_default() += 1;
            }
            leads
        });
        let led = |node: &NodeId| (leads.get(node).copied().unwrap_or_default(), *node);
        let chosen = up.iter().copied().min_by_key(led).unwrap_or(first);
        self.change(slot, |configuration| {
            in_sync.iter().filter(|node| !up.contains(node)).for_each(|node| configuration.demote(node));
            if configuration.primary.is_none_or(|primary| !up.contains(&primary)) {
                configuration.primary = Some(chosen);
            }
        });
    }

    fn propose(&mut self, proposal: Proposal) {
        let (slot, epoch) = match proposal {
            Proposal::Admit { slot, epoch, .. } | Proposal::Dismiss { slot, epoch, .. } => (slot, epoch),
        };
        if self.table.slot(slot).epoch != epoch && !planted::is(Bug::OldProposalTaken) {
            return;
        }
        match proposal {
            Proposal::Admit { node, incarnation, .. } => {
                if self.table.incarnation(node) != Some(incarnation) || !self.is_up(node) {
                    return;
                }
                self.change(slot, |configuration| {
                    if configuration.joining.remove(node) {
                        configuration.in_sync.insert(node);
                    }
                });
            }
            Proposal::Dismiss { node, .. } => self.change(slot, |configuration| {
                if configuration.primary != Some(node) {
                    configuration.demote(node);
                    // Also where it was not in sync: whoever asked waits for this epoch to end.
                    configuration.epoch = epoch.next();
                }
            }),
        }
    }

    fn found(&mut self, slot: Slot, copies: Copies) {
        self.change(slot, |configuration| {
            if configuration.epoch == Epoch(0) {
                configuration.in_sync = copies;
                configuration.primary = copies.iter().next();
            }
        });
    }

    fn copy(&mut self, slot: Slot, node: NodeId) {
        if self.table.members.contains_key(&node) && !self.table.slot(slot).has(node) {
            self.change(slot, |configuration| {
                configuration.joining.insert(node);
            });
        }
    }

    fn drop_copy(&mut self, slot: Slot, node: NodeId) {
        self.change(slot, |configuration| {
            let is_last = configuration.in_sync.len() == 1 && configuration.in_sync.contains(node);
            if configuration.primary == Some(node) || is_last {
                return;
            }
            if configuration.joining.remove(node) | configuration.in_sync.remove(node) {
                // Whoever leads may have asked for it to be counted in: that must not come true when it is back one day.
                configuration.epoch = configuration.epoch.next();
            }
        });
    }

    fn lead(&mut self, slot: Slot, epoch: Epoch, node: NodeId) {
        let is_up = self.is_up(node);
        self.change(slot, |configuration| {
            let may = configuration.in_sync.contains(node)
                || (planted::is(Bug::LedByJoining) && configuration.joining.contains(node));
            if configuration.epoch == epoch && may && is_up {
                configuration.joining.remove(node);
                configuration.in_sync.insert(node);
                configuration.primary = Some(node);
            }
        });
    }

    /// The one who leads then has what it has: the log of a node that was catching up, or nothing.
    fn recover(&mut self, slot: Slot) {
        let configuration = self.table.slot(slot);
        if configuration.epoch == Epoch(0) || configuration.in_sync.iter().any(|node| self.is_up(node)) {
            return;
        }
        let all = self.table.members.keys().copied();
        let chosen = configuration.joining.iter().chain(all).find(|&node| self.is_up(node));
        let Some(chosen) = chosen else { return };
        let branch = self.table.version;
        self.change(slot, |configuration| {
            configuration.branch = branch;
            configuration.joining.remove(chosen);
            configuration.in_sync = Copies::of(&[chosen]);
            configuration.primary = Some(chosen);
            configuration.epoch = configuration.epoch.next();
        });
    }
}

impl Configuration {
    /// A copy has to catch up from now on.
    fn demote(&mut self, node: NodeId) {
        if self.in_sync.remove(node) {
            self.joining.insert(node);
        }
        if self.primary == Some(node) {
            self.primary = None;
        }
    }
}

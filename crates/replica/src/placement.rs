//! Placement: what the configuration group should change to give every slot its copies.
//!
//! Each call returns a few changes that can be applied one by one; the next call looks at the result.
//!
//! Invariant: a node that leaves drops a copy only where the nodes that stay have as many in sync as there
//! can be.

use crate::planted::{self, Bug};
use crate::{COPIES_MAX, Change, Configuration, Copies, Epoch, Group, NodeId, Slot, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Most changes that one call returns, not counting the founding of slots.
const CHANGES_MAX: usize = 256;

/// Most slots that are handed over at a time: each of them accepts no writes until the group has decided
/// about all.
const HANDED_OVER_MAX: usize = 64;

/// How many slots a node has a copy of, and how many it leads or is about to lead.
#[derive(Clone, Copy, Default)]
struct Load {
    copies: usize,
    leads: usize,
}

impl Group {
    /// Plans changes so that every slot has its copies, on nodes that are up and stay, and no node leads many
    /// more slots than another. Slots are founded once there are as many nodes as each slot is to have
    /// copies. The nodes in `gone` were not heard for so long that their copies are made elsewhere.
    #[must_use]
    pub fn plan(&self, gone: &[NodeId]) -> Vec<Change> {
        let table = self.table();
        let mut plan = Plan::of(&table, self.options().copies, gone);
        for (slot, configuration) in (0..).map(Slot).zip(table.slots.iter()) {
            if plan.changes.len() >= CHANGES_MAX && configuration.epoch != Epoch(0) {
                continue;
            }
            plan.look_at(slot, &configuration);
        }
        plan.take_out_those_that_left(&table);
        plan.changes
    }
}

struct Plan<'a> {
    /// Nodes that are up and stay.
    loads: BTreeMap<NodeId, Load>,
    /// The same nodes in order, filled when the first slot is founded.
    nodes: Vec<NodeId>,
    leaving: BTreeSet<NodeId>,
    table: &'a Table,
    /// How many copies each slot of the first keyspace is to have.
    copies: usize,
    /// How many nodes stay and are not gone: those that are down may come back, and are waited for.
    there: usize,
    gone: &'a [NodeId],
    handed_over: usize,
    /// How many copies each node would have if all had equally many, rounded up.
    fair_copies: usize,
    /// No node has fewer copies than this.
    least_copies: usize,
    /// Whether the only copy of some slot is on its way. Until that is done, the numbers of copies are in
    /// flux.
    moves_only_copies: bool,
    changes: Vec<Change>,
}

impl<'a> Plan<'a> {
    fn of(table: &'a Table, copies: usize, gone: &'a [NodeId]) -> Self {
        let staying = table.members.iter().filter(|(_, member)| !member.is_leaving);
        let there = staying.clone().filter(|(node, _)| !gone.contains(node)).count();
        let up = staying.filter(|(_, member)| member.is_up);
        let mut loads: BTreeMap<NodeId, Load> = up.map(|(&node, _)| (node, Load::default())).collect();
        let (mut handed_over, mut moves_only_copies) = (0, false);
        for (slot, configuration) in (0..).map(Slot).zip(table.slots.iter()) {
            let has_more = configuration.in_sync.len() + configuration.joining.len() > 1;
            moves_only_copies |= has_more && table.copies_of(slot, (copies, 1)).0 == 1;
            let leads = configuration.successor.or(configuration.primary);
            handed_over += usize::from(configuration.successor.is_some());
            for node in configuration.in_sync.iter().chain(configuration.joining.iter()) {
                if let Some(load) = loads.get_mut(&node) {
                    load.copies += 1;
                    load.leads += usize::from(leads == Some(node));
                }
            }
        }
        let leaving = table.members.iter().filter(|(_, member)| member.is_leaving);
        Self {
            fair_copies: loads.values().map(|load| load.copies).sum::<usize>().div_ceil(loads.len().max(1)),
            least_copies: loads.values().map(|load| load.copies).min().unwrap_or(0),
            moves_only_copies,
            leaving: leaving.map(|(&node, _)| node).collect(),
            table,
            copies,
            there,
            loads,
            nodes: Vec::new(),
            gone,
            handed_over,
            changes: Vec::new(),
        }
    }

    /// How many copies a slot is to have.
    fn copies_of(&self, slot: Slot) -> usize {
        self.table.copies_of(slot, (self.copies, 1)).0.min(COPIES_MAX)
    }

    fn look_at(&mut self, slot: Slot, configuration: &Configuration) {
        let copies = self.copies_of(slot);
        if configuration.epoch == Epoch(0) {
            if self.loads.len() >= copies {
                self.found(slot, copies);
            }
            return;
        }
        let wanted = copies.min(self.loads.len());
        let Some(primary) = configuration.primary else {
            // The remaining copies may be all that is left of this slot.
            return;
        };
        let is_lost = |node: &NodeId| self.gone.contains(node) || self.leaving.contains(node);
        let lost = configuration.joining.iter().find(is_lost);
        let stays = |node: &NodeId| !self.leaving.contains(node);
        let in_sync = configuration.in_sync.iter().filter(stays).count();
        let there = in_sync + configuration.joining.iter().filter(stays).count();
        if let Some(node) = lost {
            self.changes.push(Change::Drop { slot, node });
        } else if there < wanted {
            if let Some(node) = self.least_loaded(|node| !configuration.has(node)) {
                self.load(node, |load| load.copies += 1);
                self.changes.push(Change::Copy { slot, node });
            }
        } else if in_sync < configuration.in_sync.len() {
            // Before a leaving node drops its own.
            if in_sync >= copies.min(self.there).max(1) {
                self.leave(slot, configuration, primary);
            }
        } else if in_sync > wanted {
            self.drop_one(slot, configuration);
        } else if configuration.joining.is_empty() && configuration.successor.is_none() {
            self.balance(slot, configuration, primary);
        }
    }

    /// Adjacent slots go to the same nodes: clients learn ranges of slots, and learn few of them quickly.
    fn found(&mut self, slot: Slot, wanted: usize) {
        if self.nodes.is_empty() {
            self.nodes = self.loads.keys().copied().collect();
        }
        let count = self.nodes.len();
        let each = self.table.slots_each().max(1);
        let first = u64::from(slot.0 % each) * count as u64 / u64::from(each);
        let mut copies = Copies::default();
        for at in (first as usize..).take(wanted) {
            if let Some(&node) = self.nodes.get(at % count.max(1)) {
                copies.insert(node);
            }
        }
        if !copies.is_empty() {
            self.changes.push(Change::Found { slot, copies });
        }
    }

    /// A leaving node hands the slot over, and then drops its copy.
    fn leave(&mut self, slot: Slot, configuration: &Configuration, primary: NodeId) {
        if !self.leaving.contains(&primary) {
            let leaving = configuration.in_sync.iter().find(|node| self.leaving.contains(node));
            self.changes.extend(leaving.map(|node| Change::Drop { slot, node }));
        } else if configuration.successor.is_none()
            && let Some(node) = self.idlest(configuration)
        {
            self.hand_over(slot, configuration, node);
        }
    }

    /// Drops one surplus copy: that of the node with most copies. Where only one is to remain, and the
    /// surplus one is the primary's, the slot is handed over first.
    fn drop_one(&mut self, slot: Slot, configuration: &Configuration) {
        let copies = |node: &NodeId| self.loads.get(node).map_or(0, |load| load.copies);
        if self.copies_of(slot) == 1
            && let Some(primary) = configuration.primary
        {
            let others = configuration.in_sync.iter().filter(|&node| self.loads.contains_key(&node));
            let idlest = others.min_by_key(copies);
            if let Some(node) = idlest.filter(|node| copies(node) < copies(&primary)) {
                if configuration.successor.is_none() {
                    self.hand_over(slot, configuration, node);
                }
                return;
            }
        }
        let leads = [configuration.primary, configuration.successor];
        let others = configuration.in_sync.iter().filter(|&node| !leads.contains(&Some(node)));
        if let Some(node) = others.max_by_key(copies) {
            self.load(node, |load| load.copies = load.copies.saturating_sub(1));
            self.changes.push(Change::Drop { slot, node });
        }
    }

    /// Hands the slot over to a copy that leads fewer slots, or makes a copy on a node that has fewer.
    fn balance(&mut self, slot: Slot, configuration: &Configuration, primary: NodeId) {
        let load = |node: NodeId| self.loads.get(&node).copied().unwrap_or_default();
        let idlest = self.idlest(configuration);
        if let Some(node) = idlest.filter(|&node| load(node).leads + 1 < load(primary).leads) {
            return self.hand_over(slot, configuration, node);
        }
        let is_only_copy = self.copies_of(slot) == 1;
        let gets_one = |copies: usize| match is_only_copy {
            true => !self.moves_only_copies && load(primary).copies > self.fair_copies.max(copies + 1),
            false => {
                let others = configuration.in_sync.iter().filter(|&other| other != primary);
                others.map(|other| load(other).copies).max().unwrap_or(0) > copies + 1
            }
        };
        // In a ring at rest each slot ends here. Looking at all nodes for each slot would occupy the group's
        // only thread for a while, with each plan.
        if !gets_one(self.least_copies) {
            return;
        }
        let least = self.least_loaded(|node| !configuration.has(node));
        let Some(node) = least.filter(|&node| gets_one(load(node).copies)) else { return };
        self.load(node, |load| load.copies += 1);
        if is_only_copy {
            self.load(primary, |load| load.copies -= 1);
        }
        self.changes.push(Change::Copy { slot, node });
    }

    /// Only a few slots at a time: the others stay in service meanwhile.
    fn hand_over(&mut self, slot: Slot, configuration: &Configuration, node: NodeId) {
        if self.handed_over >= HANDED_OVER_MAX {
            return;
        }
        self.handed_over += 1;
        self.load(node, |load| load.leads += 1);
        if let Some(primary) = configuration.primary {
            self.load(primary, |load| load.leads = load.leads.saturating_sub(1));
        }
        self.changes.push(Change::HandOver { slot, epoch: configuration.epoch, node });
    }

    /// The in-sync copy that leads the fewest slots, on a node that is up and stays.
    fn idlest(&self, configuration: &Configuration) -> Option<NodeId> {
        let is_any = planted::is(Bug::HandedToAny);
        let joining = configuration.joining.iter().filter(|_| is_any);
        let loads = configuration
            .in_sync
            .iter()
            .chain(joining)
            .filter_map(|node| Some((node, self.loads.get(&node)?)));
        loads.min_by_key(|(node, load)| (load.leads, *node)).map(|(node, _)| node)
    }

    fn take_out_those_that_left(&mut self, table: &Table) {
        let is_busy = |node: NodeId| table.slots.any(|slot| slot.has(node));
        let is_free = |node: &&NodeId| !is_busy(**node) || planted::is(Bug::RemovedWithCopies);
        let free = self.leaving.iter().filter(is_free);
        let removed =
            free.filter_map(|&node| Some(Change::Remove { node, incarnation: table.incarnation(node)? }));
        self.changes.extend(removed);
    }

    fn least_loaded(&self, may: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let free = self.loads.iter().filter(|(node, _)| may(**node));
        free.min_by_key(|(node, load)| (load.copies, **node)).map(|(&node, _)| node)
    }

    /// Updates a node's load; nodes that leave or are down are not counted.
    fn load(&mut self, node: NodeId, change: impl FnOnce(&mut Load)) {
        if let Some(load) = self.loads.get_mut(&node) {
            change(load);
            self.least_copies = self.least_copies.min(load.copies);
        }
    }
}

//! Where copies are to be: what the configuration group would change now, if anything.
//!
//! Each call gives a few changes that can be applied one by one; what has become of them is looked at in the
//! next.
//!
//! Invariant: a node that leaves drops a copy only where those who stay have as many in sync as there can be.

use crate::planted::{self, Bug};
use crate::{COPIES_MAX, Change, Configuration, Copies, Epoch, Group, NodeId, Slot, Table};
use std::collections::{BTreeMap, BTreeSet};

/// Changes that one call gives at most, slots that are founded aside.
const CHANGES_MAX: usize = 256;

/// Slots that are being handed over at once: each of them takes no writes until the group has decided about
/// all of them.
const HANDED_OVER_MAX: usize = 64;

/// How many slots each node has a copy of, and leads or is about to.
#[derive(Clone, Copy, Default)]
struct Load {
    copies: usize,
    leads: usize,
}

impl Group {
    /// What is to be changed so that every slot has its copies, on nodes that are up and stay, and none leads
    /// many more than another. Slots are founded once as many nodes are there as each is to have copies.
    /// Nodes that are `gone` were not heard for so long that their copies are made elsewhere.
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
    /// The same, in their order, once a slot is founded.
    nodes: Vec<NodeId>,
    leaving: BTreeSet<NodeId>,
    table: &'a Table,
    /// Copies that each slot of the first keyspace is to have.
    copies: usize,
    /// Nodes that stay and are not gone: those that are down may come back, and are waited for.
    there: usize,
    gone: &'a [NodeId],
    handed_over: usize,
    /// How many copies each node would have if all had as many, rounded up.
    fair_copies: usize,
    /// No node has fewer copies.
    least_copies: usize,
    /// Whether the only copy of some slot is on its way: until it has come and gone, nobody can tell who has
    /// how many.
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
            // What is left of its copies may be all that there is of it.
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
            // Before one that leaves drops its own.
            if in_sync >= copies.min(self.there).max(1) {
                self.leave(slot, configuration, primary);
            }
        } else if in_sync > wanted {
            self.drop_one(slot, configuration);
        } else if configuration.joining.is_empty() && configuration.successor.is_none() {
            self.balance(slot, configuration, primary);
        }
    }

    /// Neighbouring slots go to the same nodes: clients are told of ranges, and a few of them are told soon.
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

    /// A node that leaves hands the slot over, and then its copy goes.
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

    /// One copy too many goes: that of whoever has most. Where one is to be left, it is handed over first if
    /// it is the one that leads.
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

    /// A copy that leads fewer slots takes this one, or a node that has fewer copies gets one.
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
        // Of a ring at rest each slot ends here: to look at all nodes for each would take the group's only
        // thread for a moment, with each plan.
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

    /// A few slots at a time: the others go on meanwhile.
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

    /// The in-sync copy that leads fewest slots, on a node that is up and stays.
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

    /// Nodes that leave or are down are counted no more.
    fn load(&mut self, node: NodeId, change: impl FnOnce(&mut Load)) {
        if let Some(load) = self.loads.get_mut(&node) {
            change(load);
            self.least_copies = self.least_copies.min(load.copies);
        }
    }
}

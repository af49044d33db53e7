//! Where copies are to be: what the configuration group would change now, if anything.
//!
//! Each call gives a few changes that can be applied one by one; what has become of them is looked at in the next.

use crate::{COPIES_MAX, Change, Configuration, Copies, Epoch, Group, NodeId, Slot, Table};
use std::collections::BTreeMap;

/// Changes that one call gives at most, slots that are founded aside.
const CHANGES_MAX: usize = 1024;

/// How many slots each node has a copy of, and leads.
#[derive(Clone, Copy, Default)]
struct Load {
    copies: usize,
    leads: usize,
}

impl Group {
    /// What is to be changed so that every slot has its copies, on nodes that are up, and none leads many more than another.
    /// Slots are founded once as many nodes are there as each is to have copies.
    /// Nodes that are `gone` were not heard for so long that their copies are made elsewhere.
    #[must_use]
    pub fn plan(&self, gone: &[NodeId]) -> Vec<Change> {
        let table = self.table();
        let mut plan = Plan::of(&table, self.options().copies.min(COPIES_MAX), gone);
        for (slot, configuration) in (0..).map(Slot).zip(table.slots.iter()) {
            if plan.changes.len() >= CHANGES_MAX && configuration.epoch != Epoch(0) {
                break;
            }
            plan.look_at(slot, configuration);
        }
        plan.changes
    }
}

struct Plan<'a> {
    loads: BTreeMap<NodeId, Load>,
    wanted: usize,
    slots: u32,
    may_found: bool,
    gone: &'a [NodeId],
    changes: Vec<Change>,
}

impl<'a> Plan<'a> {
    fn of(table: &Table, wanted: usize, gone: &'a [NodeId]) -> Self {
        let up = table.members.iter().filter(|(_, member)| member.is_up);
        let mut loads: BTreeMap<NodeId, Load> = up.map(|(&node, _)| (node, Load::default())).collect();
        for configuration in table.slots.iter() {
            for node in configuration.in_sync.iter().chain(configuration.joining.iter()) {
                if let Some(load) = loads.get_mut(&node) {
                    load.copies += 1;
                    load.leads += usize::from(configuration.primary == Some(node));
                }
            }
        }
        Self {
            wanted: wanted.min(loads.len()),
            slots: u32::try_from(table.slots.len()).unwrap_or(u32::MAX),
            may_found: loads.len() >= wanted,
            loads,
            gone,
            changes: Vec::new(),
        }
    }

    fn look_at(&mut self, slot: Slot, configuration: &Configuration) {
        if configuration.epoch == Epoch(0) {
            return if self.may_found {
                self.found(slot)
            };
        }
        if configuration.primary.is_none() {
            // What is left of its copies may be all that there is of it.
            return;
        }
        let lost = configuration.joining.iter().find(|node| self.gone.contains(node));
        let there = configuration.in_sync.len() + configuration.joining.len();
        if let Some(node) = lost {
            self.changes.push(Change::Drop { slot, node });
        } else if there < self.wanted {
            if let Some(node) = self.least_loaded(|node| !configuration.has(node)) {
                self.load(node, |load| load.copies += 1);
                self.changes.push(Change::Copy { slot, node });
            }
        } else if configuration.in_sync.len() > self.wanted {
            self.drop_one(slot, configuration);
        } else if configuration.joining.is_empty() {
            self.balance(slot, configuration);
        }
    }

    /// Neighbouring slots go to the same nodes: clients are told of ranges, and a few of them are told soon.
    fn found(&mut self, slot: Slot) {
        let nodes: Vec<NodeId> = self.loads.keys().copied().collect();
        let first = usize::try_from(u64::from(slot.0) * nodes.len() as u64 / u64::from(self.slots.max(1)));
        let mut copies = Copies::default();
        for node in nodes.iter().cycle().skip(first.unwrap_or(0)).take(self.wanted) {
            copies.insert(*node);
        }
        if !copies.is_empty() {
            self.changes.push(Change::Found { slot, copies });
        }
    }

    /// One copy too many goes: that of whoever has most.
    fn drop_one(&mut self, slot: Slot, configuration: &Configuration) {
        let copies = |node: &NodeId| self.loads.get(node).map_or(0, |load| load.copies);
        let others = configuration.in_sync.iter().filter(|&node| configuration.primary != Some(node));
        if let Some(node) = others.max_by_key(copies) {
            self.load(node, |load| load.copies = load.copies.saturating_sub(1));
            self.changes.push(Change::Drop { slot, node });
        }
    }

    /// A copy that leads fewer slots takes this one, or a node that has fewer copies gets one.
    fn balance(&mut self, slot: Slot, configuration: &Configuration) {
        let Some(primary) = configuration.primary else { return };
        let load = |node: NodeId| self.loads.get(&node).copied().unwrap_or_default();
        let idlest = configuration.in_sync.iter().min_by_key(|&node| (load(node).leads, node));
        if let Some(node) = idlest.filter(|&node| load(node).leads + 1 < load(primary).leads) {
            self.load(node, |load| load.leads += 1);
            self.load(primary, |load| load.leads = load.leads.saturating_sub(1));
            return self.changes.push(Change::Lead { slot, epoch: configuration.epoch, node });
        }
        let Some(node) = self.least_loaded(|node| !configuration.has(node)) else { return };
        let others = configuration.in_sync.iter().filter(|&other| other != primary);
        let fullest = others.map(|other| load(other).copies).max().unwrap_or(0);
        if load(node).copies + 1 < fullest {
            self.load(node, |load| load.copies += 1);
            self.changes.push(Change::Copy { slot, node });
        }
    }

    fn least_loaded(&self, may: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let free = self.loads.iter().filter(|(node, _)| may(**node));
        free.min_by_key(|(node, load)| (load.copies, **node)).map(|(&node, _)| node)
    }

    fn load(&mut self, node: NodeId, change: impl FnOnce(&mut Load)) {
        change(self.loads.entry(node).or_default());
    }
}

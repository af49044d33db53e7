//! Placement: what the configuration group should change to give every slot its copies.
//!
//! Each call returns a few changes that can be applied one by one; the next call looks at the result.
//!
//! Invariant: a node that leaves drops a copy, in sync or not, only where the nodes that stay have as many in
//! sync as there can be, or where the slot has no place left for a copy that catches up.
//! Invariant: a copy on a node that is gone is dropped only where the slot has its full number in sync, or
//! has no place left: if the copies in sync are lost too, that one may be all that is left.
//! Invariant: no copy is made or dropped so that a slot has copies in fewer zones than before, unless its
//! node leaves or is gone. So copies that move for a better zone or a better share never move back.

mod founding;
mod load;
mod spread;

use crate::planted::{self, Bug};
use crate::{COPIES_MAX, Change, Configuration, Epoch, Group, NodeId, Slot, Table};
use founding::{Candidate, Circle};
use load::Load;
use spread::Spread;
use std::collections::{BTreeMap, BTreeSet};

/// Most changes that one call returns, not counting the founding of slots.
const CHANGES_MAX: usize = 256;

/// Most slots that are handed over at a time: each of them accepts no writes until the group has decided
/// about all.
const HANDED_OVER_MAX: usize = 64;

impl Group {
    /// Plans changes so that every slot has its copies, on nodes that are up and stay, in as many zones as
    /// can be, and nodes have copies and lead slots in proportion to their weights. Slots are founded once
    /// there are as many nodes as each slot is to have copies. The nodes in `gone` were not heard for so long
    /// that their copies are made elsewhere.
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
    /// The zones of all nodes that stay and are not gone.
    spread: Spread,
    /// How slots with this many copies are founded, from when the first one is.
    circles: BTreeMap<usize, Circle>,
    leaving: BTreeSet<NodeId>,
    table: &'a Table,
    /// How many copies each slot of the first keyspace is to have.
    copies: usize,
    /// How many nodes stay and are not gone: those that are down may come back, and are waited for.
    there: usize,
    gone: &'a [NodeId],
    handed_over: usize,
    /// How many copies there are on nodes that are up and stay, and the weight of all these nodes.
    total: (usize, usize),
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
        let empty = |weight| Load { weight, ..Load::default() };
        let mut loads: BTreeMap<NodeId, Load> =
            up.map(|(&node, member)| (node, empty(member.weight))).collect();
        let (mut handed_over, mut moves_only_copies) = (0, false);
        for (slot, configuration) in (0..).map(Slot).zip(table.slots.iter()) {
            let has_more = configuration.in_sync.len() + configuration.joining.len() > 1;
            let is_served = configuration.primary.is_some_and(|primary| loads.contains_key(&primary));
            moves_only_copies |= has_more && is_served && table.copies_of(slot, (copies, 1)).0 == 1;
            let leads = configuration.successor.or(configuration.primary);
            let is_led = || {
                configuration.primary.and_then(|node| table.members.get(&node)).is_some_and(|node| node.is_up)
            };
            // One whose copies are all down accepts no writes anyhow, and may stay so for ever.
            handed_over += usize::from(configuration.successor.is_some() && is_led());
            for node in configuration.in_sync.iter().chain(configuration.joining.iter()) {
                if let Some(load) = loads.get_mut(&node) {
                    load.copies += 1;
                    load.leads += usize::from(leads == Some(node));
                }
            }
        }
        let leaving = table.members.iter().filter(|(_, member)| member.is_leaving);
        let total = loads.values().map(|load| (load.copies, usize::from(load.weight.get())));
        Self {
            total: total.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
            spread: Spread::of(table, gone, &loads),
            moves_only_copies,
            leaving: leaving.map(|(&node, _)| node).collect(),
            table,
            copies,
            there,
            loads,
            circles: BTreeMap::new(),
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
        let Some(primary) = configuration.primary.filter(|primary| self.is_up(*primary)) else {
            return self.revive(slot, configuration);
        };
        let stays = |node: &NodeId| !self.leaving.contains(node);
        let is_gone = |node: NodeId| self.gone.contains(&node);
        let in_sync = configuration.in_sync.iter().filter(stays).count();
        let joining = configuration.joining.iter().filter(stays);
        let there = in_sync + joining.filter(|node| !is_gone(*node)).count();
        if let Some(node) = self.needless(slot, configuration, in_sync) {
            self.changes.push(Change::Drop { slot, node });
        } else if there < wanted {
            if let Some(node) = self.for_one_more(configuration) {
                self.copy(slot, node);
            }
        } else if in_sync < configuration.in_sync.len() {
            // Before a leaving node drops its own.
            if in_sync >= copies.min(self.there).max(1) {
                self.leave(slot, configuration, primary);
            }
        } else if in_sync > wanted {
            self.drop_one(slot, configuration);
        } else if configuration.joining.iter().all(is_gone) && configuration.successor.is_none() {
            self.balance(slot, configuration, primary);
        }
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.table.members.get(&node).is_some_and(|member| member.is_up)
    }

    /// A copy that catches up, on a node that leaves or is gone, and that the slot can do without: `in_sync`
    /// copies are there that stay. Of several it is the last one, which has least.
    fn needless(&self, slot: Slot, configuration: &Configuration, in_sync: usize) -> Option<NodeId> {
        let copies = self.copies_of(slot);
        let is_full = !configuration.joining.has_room();
        let is_needless = |node: &NodeId| match (self.leaving.contains(node), self.gone.contains(node)) {
            (true, _) => is_full || in_sync >= copies.min(self.there).max(1),
            (false, true) => is_full || in_sync >= copies,
            (false, false) => false,
        };
        configuration.joining.iter().filter(is_needless).last()
    }

    /// A slot without a live primary. If a copy in sync is up, as where the primary went down while that one
    /// was admitted, it leads. Otherwise the other copies may be all that is left of the slot, and stay.
    fn revive(&mut self, slot: Slot, configuration: &Configuration) {
        let mut in_sync = configuration.in_sync.iter();
        if let Some(node) = self.idlest(configuration).or_else(|| in_sync.find(|node| self.is_up(*node))) {
            self.changes.push(Change::Lead { slot, epoch: configuration.epoch, node });
        }
    }

    fn found(&mut self, slot: Slot, wanted: usize) {
        let each = self.table.slots_each().max(1);
        let (spread, loads) = (&self.spread, &self.loads);
        let circle = self.circles.entry(wanted).or_insert_with(|| {
            let candidate = |(&node, load): (&NodeId, &Load)| {
                let zone = spread.zone(node).unwrap_or_default();
                Candidate { node, zone, weight: load.weight }
            };
            Circle::of(loads.iter().map(candidate).collect(), wanted)
        });
        let copies = circle.copies(slot.0 % each, each);
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

    /// Drops one surplus copy: one that shares its zone with another copy, if any does, and of these that of
    /// the node with most copies for its weight. Where only one is to remain, and the surplus one is the
    /// primary's, the slot is handed over first.
    fn drop_one(&mut self, slot: Slot, configuration: &Configuration) {
        let share = |node: &NodeId| self.load_of(*node).copies();
        if self.copies_of(slot) == 1
            && let Some(primary) = configuration.primary
        {
            let others = configuration.in_sync.iter().filter(|&node| self.loads.contains_key(&node));
            let idlest = others.min_by_key(share);
            if let Some(node) = idlest.filter(|node| share(node) < share(&primary)) {
                if configuration.successor.is_none() {
                    self.hand_over(slot, configuration, node);
                }
                return;
            }
        }
        let leads = [configuration.primary, configuration.successor];
        let others = configuration.in_sync.iter().filter(|&node| !leads.contains(&Some(node)));
        let crowded = self.spread.crowded(&configuration.in_sync);
        let is_crowded = |node: &NodeId| crowded.contains(*node);
        let Some(node) = others.max_by_key(|node| (is_crowded(node), share(node))) else { return };
        if !crowded.is_empty() && !is_crowded(&node) && configuration.successor.is_some() {
            // The two that share a zone are the primary and its successor, and one of them is free soon.
            return;
        }
        self.change_load(node, |load| load.copies = load.copies.saturating_sub(1));
        self.changes.push(Change::Drop { slot, node });
    }

    /// Hands the slot over to a copy that leads less, or makes a copy in a zone without one, or on a node
    /// that has fewer.
    fn balance(&mut self, slot: Slot, configuration: &Configuration, primary: NodeId) {
        let leads = |node: NodeId| self.load_of(node).leads();
        let idlest = self.idlest(configuration);
        if let Some(node) = idlest.filter(|&node| leads(node).and_one() < leads(primary)) {
            return self.hand_over(slot, configuration, node);
        }
        if self.copies_of(slot) == 1 {
            return self.balance_only_copy(slot, configuration, primary);
        }
        let node = match self.spread.lacks_zone(configuration) {
            true => self.for_one_more(configuration),
            false => {
                let share = |node| (node != primary).then(|| self.load_of(node).copies());
                self.spread.instead_of_another(&configuration.in_sync, share)
            }
        };
        if let Some(node) = node {
            self.copy(slot, node);
        }
    }

    /// Makes a second copy of a slot that has one, on a node with fewer: the first one is dropped then.
    fn balance_only_copy(&mut self, slot: Slot, configuration: &Configuration, primary: NodeId) {
        let (from, (copies, weight)) = (self.load_of(primary), self.total);
        let fair = (copies * usize::from(from.weight.get())).div_ceil(weight.max(1));
        let may_give = !self.moves_only_copies && from.copies > fair;
        // In a ring at rest each slot ends here. Looking at all nodes for each slot would occupy the group's
        // only thread for a while, with each plan.
        if !may_give || self.spread.least() >= from.copies() {
            return;
        }
        let least = self.least_loaded(|node| !configuration.has(node));
        let Some(node) = least.filter(|&node| self.load_of(node).copies().and_one() < from.copies()) else {
            return;
        };
        self.change_load(primary, |load| load.copies -= 1);
        self.copy(slot, node);
    }

    /// The node for one copy more: in a zone that has none if there is one, and there the one with fewest
    /// copies for its weight.
    fn for_one_more(&self, configuration: &Configuration) -> Option<NodeId> {
        let is_new = |node: NodeId| !configuration.has(node);
        let has_no_zone = |node: NodeId| is_new(node) && !self.spread.has_zone_of(configuration, node);
        self.least_loaded(has_no_zone).or_else(|| self.least_loaded(is_new))
    }

    /// Only a few slots at a time: the others stay in service meanwhile.
    fn hand_over(&mut self, slot: Slot, configuration: &Configuration, node: NodeId) {
        if self.handed_over >= HANDED_OVER_MAX {
            return;
        }
        self.handed_over += 1;
        self.change_load(node, |load| load.leads += 1);
        if let Some(primary) = configuration.primary {
            self.change_load(primary, |load| load.leads = load.leads.saturating_sub(1));
        }
        self.changes.push(Change::HandOver { slot, epoch: configuration.epoch, node });
    }

    /// The in-sync copy on a node that leads the fewest slots for its weight, is up and stays.
    fn idlest(&self, configuration: &Configuration) -> Option<NodeId> {
        let is_any = planted::is(Bug::HandedToAny);
        let joining = configuration.joining.iter().filter(|_| is_any);
        let loads = configuration
            .in_sync
            .iter()
            .chain(joining)
            .filter_map(|node| Some((node, self.loads.get(&node)?)));
        loads.min_by_key(|(node, load)| (load.leads(), *node)).map(|(node, _)| node)
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
        free.min_by_key(|(node, load)| (load.copies(), **node)).map(|(&node, _)| node)
    }

    fn copy(&mut self, slot: Slot, node: NodeId) {
        self.change_load(node, |load| load.copies += 1);
        self.changes.push(Change::Copy { slot, node });
    }

    /// What a node has; nothing if it leaves or is down.
    fn load_of(&self, node: NodeId) -> Load {
        self.loads.get(&node).copied().unwrap_or_default()
    }

    /// Updates a node's load; nodes that leave or are down are not counted.
    fn change_load(&mut self, node: NodeId, change: impl FnOnce(&mut Load)) {
        if let Some(load) = self.loads.get_mut(&node) {
            let before = load.copies();
            change(load);
            self.spread.has_changed(node, before, load.copies());
        }
    }
}

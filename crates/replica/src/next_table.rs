//! The changes that lead from one table to the next.
//!
//! Invariant: a change without effect leaves the table exactly as it was, including its version.
//! Invariant: no copy is both in sync and catching up; before a slot is founded, no copy of it catches up.
//! Invariant: among the copies that are catching up, those come first that were in sync last: an accepted
//! loss continues with theirs.
//! Invariant: a slot's successor is one of its in-sync copies and not its primary; a change of either clears
//! it.

use crate::planted::{self, Bug};
use crate::{
    Configuration, Copies, Epoch, Incarnation, KeyspaceRules, Member, NodeId, Proposal, Slot, Survived,
    Table, Version, ZoneId,
};
use std::collections::BTreeMap;

/// A table on its way to the next one.
pub(crate) struct NextTable<'a> {
    table: &'a mut Table,
    /// The version that the table gets if something changes.
    version: Version,
    is_changed: bool,
    /// How many slots each node leads, counted when first needed.
    leads: Option<BTreeMap<NodeId, i64>>,
    /// The node that was chosen last to lead a slot, and that slot.
    chosen: Option<(Slot, NodeId)>,
}

/// How many runs of slots are handed out where other nodes take over: clients learn ranges of slots, and
/// learn few of them quickly.
const TAKEOVER_RUNS: usize = 256;

impl<'a> NextTable<'a> {
    pub(crate) fn of(table: &'a mut Table) -> Self {
        let version = table.version.next();
        Self { table, version, is_changed: false, leads: None, chosen: None }
    }

    /// Finishes; returns whether the table changed.
    pub(crate) fn end(self) -> bool {
        if self.is_changed {
            self.table.version = self.version;
        }
        self.is_changed
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.table.members.get(&node).is_some_and(|member| member.is_up)
    }

    /// Changes the configuration of a slot; another primary or other in-sync copies start a new epoch.
    fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Configuration)) {
        let Some(before) = self.table.slots.get(slot.0 as usize) else { return };
        let mut now = before;
        change(&mut now);
        if now.primary != before.primary || now.successor.is_some_and(|node| !now.may_succeed(node)) {
            now.successor = None;
        }
        if now == before {
            return;
        }
        if now.primary != before.primary || now.in_sync != before.in_sync {
            now.epoch = now.epoch.max(before.epoch.next());
        }
        now.since = self.version;
        self.is_changed |= self.table.slots.set(slot.0 as usize, now);
        let (former, next) = (before.primary, now.primary);
        if let Some(leads) = self.leads.as_mut().filter(|_| former != next) {
            former.into_iter().for_each(|node| *leads.entry(node).or_default() -= 1);
            next.into_iter().for_each(|node| *leads.entry(node).or_default() += 1);
        }
    }

    fn each_slot_of(&mut self, node: NodeId, mut change: impl FnMut(&mut Self, Slot)) {
        let slots: Vec<Slot> = self.table.slots.of_node(node).collect();
        slots.into_iter().for_each(|slot| change(self, slot));
    }

    /// The number of a zone.
    pub(crate) fn zone(&mut self, name: &str) -> Option<ZoneId> {
        let number = self.table.zones.number(name, &self.table.members, self.version);
        self.is_changed |= self.table.zones.since == self.version;
        number
    }

    /// A node begins a life. Where it was in sync and still has everything of the slot's keyspace, it stays
    /// in sync, in a new epoch; otherwise it has to catch up.
    pub(crate) fn begin(&mut self, node: NodeId, member: Member, survived: &Survived) {
        self.table.members.insert(node, member);
        self.is_changed = true;
        self.each_slot_of(node, |table, slot| {
            let keyspace = table.table.keyspace_of(slot);
            let has_everything = survived.has(keyspace) || planted::is(Bug::LossForgotten);
            if !table.table.slot(slot).in_sync.contains(node) {
                // A slot that is to be handed over stays as it is: the primary's proposal counts only for
                // exactly that configuration.
                if !has_everything && table.table.slot(slot).successor.is_none() {
                    table.change(slot, |configuration| configuration.empty(node));
                }
                return;
            }
            table.change(slot, |configuration| {
                if !has_everything {
                    configuration.demote(node);
                    configuration.empty(node);
                }
                configuration.epoch = configuration.epoch.next();
            });
            table.settle(slot);
        });
    }

    /// Nodes are up or down from now on. All of them are marked before the first slot is settled: of copies
    /// that fail together none is demoted because of another one.
    pub(crate) fn hear(&mut self, nodes: &[(NodeId, Incarnation)], is_up: bool) {
        let mut changed = Vec::new();
        for &(node, incarnation) in nodes {
            let Some(member) = self.table.members.get_mut(&node) else { continue };
            if member.incarnation == incarnation && member.is_up != is_up {
                member.is_up = is_up;
                changed.push(node);
            }
        }
        self.is_changed |= !changed.is_empty();
        for node in changed {
            self.each_slot_of(node, |table, slot| {
                if table.table.slot(slot).in_sync.contains(node) {
                    table.settle(slot);
                }
            });
        }
    }

    /// If any in-sync copy is up, demotes those that are down to catching up, and lets one that is up lead.
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
        let idlest = up.iter().copied().min_by_key(led).unwrap_or(first);
        let run = |slot: Slot| slot.0 as usize / (self.table.slots.len() / TAKEOVER_RUNS).max(1);
        let neighbour = self.chosen.filter(|&(other, node)| run(other) == run(slot) && up.contains(&node));
        let chosen = neighbour.map_or(idlest, |(_, node)| node);
        self.chosen = Some((slot, chosen));
        self.change(slot, |configuration| {
            in_sync.iter().filter(|node| !up.contains(node)).for_each(|node| configuration.demote(node));
            if configuration.primary.is_none_or(|primary| !up.contains(&primary)) {
                configuration.primary = Some(chosen);
            }
        });
    }

    pub(crate) fn propose(&mut self, proposal: Proposal) {
        let (slot, epoch) = match proposal {
            Proposal::Admit { slot, epoch, .. }
            | Proposal::Dismiss { slot, epoch, .. }
            | Proposal::HandOver { slot, epoch, .. }
            | Proposal::Keep { slot, epoch, .. } => (slot, epoch),
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
                    // Without room it keeps catching up, and keeps its place.
                    if configuration.in_sync.has_room() && configuration.joining.remove(node) {
                        configuration.in_sync.insert(node);
                    }
                });
            }
            Proposal::Dismiss { node, .. } => self.change(slot, |configuration| {
                if configuration.primary != Some(node) {
                    configuration.demote(node);
                    // Also if it was not in sync: the primary that asked waits for this epoch to end.
                    configuration.epoch = epoch.next();
                }
            }),
            Proposal::HandOver { since, node, .. } => self.take_over(slot, since, node),
            Proposal::Keep { since, .. } => self.change(slot, |configuration| {
                if configuration.since == since {
                    configuration.successor = None;
                }
            }),
        }
    }

    /// Carries out a handover. A proposal made before any later change of the slot counts for nothing: the
    /// primary may have accepted writes since.
    fn take_over(&mut self, slot: Slot, since: Version, node: NodeId) {
        if !self.is_up(node) {
            return;
        }
        self.change(slot, |configuration| {
            if configuration.since == since && configuration.successor == Some(node) {
                if planted::is(Bug::HandedToAny) && configuration.joining.remove(node) {
                    configuration.in_sync.insert(node);
                }
                configuration.primary = Some(node);
            }
        });
    }

    pub(crate) fn found(&mut self, slot: Slot, copies: Copies) {
        self.change(slot, |configuration| {
            if configuration.epoch == Epoch(0) {
                configuration.in_sync = copies;
                configuration.primary = copies.iter().next();
            }
        });
    }

    pub(crate) fn copy(&mut self, slot: Slot, node: NodeId) {
        let stays = self.table.members.get(&node).is_some_and(|member| !member.is_leaving);
        let configuration = self.table.slot(slot);
        if stays && configuration.epoch != Epoch(0) && !configuration.has(node) {
            self.change(slot, |configuration| {
                configuration.joining.insert(node);
            });
        }
    }

    pub(crate) fn drop_copy(&mut self, slot: Slot, node: NodeId) {
        self.change(slot, |configuration| {
            let is_last = configuration.in_sync.len() == 1 && configuration.in_sync.contains(node);
            if configuration.primary == Some(node) || is_last {
                return;
            }
            if configuration.joining.remove(node) | configuration.in_sync.remove(node) {
                // The primary may have proposed to admit this copy. That proposal must not succeed when the
                // copy is back one day.
                configuration.epoch = configuration.epoch.next();
            }
        });
    }

    pub(crate) fn lead(&mut self, slot: Slot, epoch: Epoch, node: NodeId) {
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

    pub(crate) fn hand_over(&mut self, slot: Slot, epoch: Epoch, node: NodeId) {
        if !self.is_up(node) {
            return;
        }
        self.change(slot, |configuration| {
            if configuration.epoch == epoch && configuration.may_succeed(node) {
                configuration.successor = Some(node);
            }
        });
    }

    pub(crate) fn leave(&mut self, node: NodeId, is_leaving: bool) {
        let Some(member) = self.table.members.get_mut(&node) else { return };
        self.is_changed |= member.is_leaving != is_leaving;
        member.is_leaving = is_leaving;
    }

    /// Removes a node that was to leave; returns whether it did.
    pub(crate) fn remove(&mut self, node: NodeId, incarnation: Incarnation) -> bool {
        let is_leaving = |member: &Member| member.is_leaving && member.incarnation == incarnation;
        let may = self.table.members.get(&node).is_some_and(is_leaving);
        let has_copies = self.table.slots.any(|slot| slot.has(node)) && !planted::is(Bug::RemovedWithCopies);
        if !may || has_copies {
            return false;
        }
        self.is_changed = true;
        self.table.members.remove(&node).is_some()
    }

    /// Adds a keyspace. Its slots have no copies until there are nodes for them.
    pub(crate) fn add_keyspace(&mut self, rules: KeyspaceRules) {
        let is_there = self.table.keyspace_named(&rules.name).is_some();
        if is_there || rules.problem().is_some() || !self.table.has_room_for_keyspace() {
            return;
        }
        let slots = self.table.slots.len() as u32 + self.table.slots_each();
        self.table.slots.grow(slots);
        self.table.keyspaces = self.table.keyspaces.iter().cloned().chain([rules]).collect();
        self.is_changed = true;
    }

    /// Accepts a loss as it was seen in an earlier table: the chosen node leads with whatever it has, be it
    /// the log of a copy that was catching up or nothing.
    pub(crate) fn recover(&mut self, slot: Slot, seen: Version) {
        let configuration = self.table.slot(slot);
        if configuration.since > seen {
            return;
        }
        if configuration.epoch == Epoch(0) || configuration.in_sync.iter().any(|node| self.is_up(node)) {
            return;
        }
        let all = self.table.members.iter().filter(|(_, member)| !member.is_leaving).map(|(&node, _)| node);
        let chosen = configuration.joining.iter().chain(all).find(|&node| self.is_up(node));
        let Some(chosen) = chosen else { return };
        let branch = self.version;
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
    /// Whether a node may be named as successor.
    fn may_succeed(&self, node: NodeId) -> bool {
        let is_any = planted::is(Bug::HandedToAny) && self.has(node);
        self.primary.is_some_and(|primary| primary != node) && (self.in_sync.contains(node) || is_any)
    }

    /// Demotes an in-sync copy to catching up. It goes to the front, because it has more than copies that
    /// never were in sync or were demoted earlier.
    fn demote(&mut self, node: NodeId) {
        if self.in_sync.remove(node) {
            self.joining.put_first(node);
        }
        if self.primary == Some(node) {
            self.primary = None;
        }
    }

    /// A copy that is catching up has lost its data: it goes behind the others.
    fn empty(&mut self, node: NodeId) {
        if self.joining.remove(node) {
            self.joining.insert(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        Change, Copies, Decision, Epoch, Group, GroupOptions, Incarnation, NodeId, PlacementHints, Slot,
        Survived,
    };

    fn register(group: &mut Group, node: u32, nonce: u64) {
        let (node, survived) = (NodeId(node), Survived::Nothing);
        group.apply(Change::Register {
            node,
            nonce,
            address: String::new(),
            hints: PlacementHints::default(),
            survived,
        });
    }

    /// A slot whose copies were 1 and 2, of which 1 was lost for a moment, while 4 gets its first copy.
    fn flapped() -> Group {
        let mut group = Group::new(GroupOptions { slots: 1, copies: 2 });
        (1..=4).for_each(|node| register(&mut group, node, 1));
        group.apply(Change::Found { slot: Slot(0), copies: Copies::of(&[NodeId(1), NodeId(2)]) });
        group.apply(Change::Copy { slot: Slot(0), node: NodeId(4) });
        group.apply(Change::Fail { node: NodeId(1), incarnation: Incarnation(1) });
        group.apply(Change::Hear { node: NodeId(1), incarnation: Incarnation(1) });
        group
    }

    #[test]
    fn a_loss_leaves_the_copy_that_was_in_sync_last() {
        let mut group = flapped();
        register(&mut group, 2, 2);
        assert_eq!(group.table().slot(Slot(0)).primary, None, "2 lost what it had");
        group.apply(Change::Recover { slot: Slot(0), seen: group.table().version });
        assert_eq!(group.table().slot(Slot(0)).primary, Some(NodeId(1)));
        // It stood before 4 because of the data that it had.
        let mut group = flapped();
        register(&mut group, 1, 2);
        assert_eq!(group.table().slot(Slot(0)).joining, Copies::of(&[NodeId(4), NodeId(1)]));
        register(&mut group, 2, 2);
        group.apply(Change::Recover { slot: Slot(0), seen: group.table().version });
        assert_eq!(group.table().slot(Slot(0)).primary, Some(NodeId(4)));
    }

    #[test]
    fn an_accepted_loss_is_of_the_configuration_that_was_seen() {
        let mut group = Group::new(GroupOptions { slots: 1, copies: 1 });
        (1..=2).for_each(|node| register(&mut group, node, 1));
        let (slot, incarnation) = (Slot(0), Incarnation(1));
        group.apply(Change::Found { slot, copies: Copies::of(&[NodeId(1)]) });
        group.apply(Change::Fail { node: NodeId(1), incarnation });
        let seen = group.table().version;
        let accepted = Change::Recover { slot, seen };
        assert_eq!(group.apply(accepted.clone()), Decision::Changed);
        assert_eq!(group.table().slot(slot).primary, Some(NodeId(2)));
        // Node 2 has served the slot since, and fails. The request was sent twice, and is late.
        group.apply(Change::Fail { node: NodeId(2), incarnation });
        group.apply(Change::Hear { node: NodeId(1), incarnation });
        assert_eq!(group.apply(accepted), Decision::Unchanged);
        assert_eq!(group.table().slot(slot).primary, Some(NodeId(2)), "what it has is waited for");
        let seen = group.table().slot(slot).since;
        assert_eq!(group.apply(Change::Recover { slot, seen }), Decision::Changed);
        assert_eq!(group.table().slot(slot).primary, Some(NodeId(1)));
    }

    #[test]
    fn what_nobody_has_is_copied_to_nobody() {
        let mut group = Group::new(GroupOptions { slots: 1, copies: 2 });
        for node in [1, 2] {
            let survived = Survived::Nothing;
            group.apply(Change::Register {
                node: NodeId(node),
                nonce: 1,
                address: String::new(),
                hints: PlacementHints::default(),
                survived,
            });
        }
        let slot = Slot(0);
        let copy = Change::Copy { slot, node: NodeId(2) };
        assert_eq!(group.apply(copy), Decision::Unchanged);
        group.apply(Change::Found { slot, copies: Copies::of(&[NodeId(1), NodeId(2)]) });
        let founded = group.table().slot(slot);
        assert_eq!((founded.epoch, founded.in_sync.len(), founded.joining.len()), (Epoch(1), 2, 0));
    }

    #[test]
    fn others_take_over_runs_of_slots_and_about_as_many_each() {
        let mut group = Group::new(GroupOptions { slots: 16_384, copies: 3 });
        for node in 1..=3 {
            let survived = Survived::Nothing;
            group.apply(Change::Register {
                node: NodeId(node),
                nonce: 1,
                address: String::new(),
                hints: PlacementHints::default(),
                survived,
            });
        }
        for change in group.plan(&[]) {
            group.apply(change);
        }
        group.apply(Change::Fail { node: NodeId(2), incarnation: Incarnation(1) });
        let table = group.table();
        let primaries: Vec<_> = table.slots.iter().map(|slot| slot.primary).collect();
        let leads = |node| primaries.iter().filter(|primary| **primary == Some(NodeId(node))).count();
        assert_eq!((leads(1) + leads(3), leads(2)), (16_384, 0));
        assert!(leads(1).abs_diff(leads(3)) <= 64, "{} {}", leads(1), leads(3));
        let ranges = primaries.chunk_by(|one, other| one == other).count();
        assert!(ranges <= 100, "{ranges}");
    }
}

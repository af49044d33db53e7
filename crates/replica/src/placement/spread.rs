//! How the copies of slots are spread over zones, and which nodes have room.
//!
//! Invariant: a plan for a ring at rest looks at a few zones for each slot, however many there are.

use super::load::{Load, Share};
use crate::members::Host;
use crate::{Configuration, Copies, NodeId, Table, ZoneId};
use std::collections::{BTreeMap, BTreeSet};

/// The zones of nodes, numbered from 0 for one plan.
pub(super) struct Spread {
    /// The zone of each node that stays and is not gone, whether it is up or not.
    zones: BTreeMap<NodeId, usize>,
    /// The nodes of each zone that are up and stay, with what each would have, for its weight, with one copy
    /// more; the emptiest first.
    nodes: BTreeMap<usize, BTreeSet<(Share, NodeId)>>,
    /// These zones, the one with the emptiest node first.
    order: BTreeSet<(Share, usize)>,
}

/// What nodes of one zone have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Zone<'a> {
    Named(ZoneId),
    Host(Host<'a>),
    /// That of a single node.
    Own(NodeId),
}

impl Spread {
    pub(super) fn of(table: &Table, gone: &[NodeId], loads: &BTreeMap<NodeId, Load>) -> Self {
        let mut numbers = BTreeMap::new();
        let mut spread = Self { zones: BTreeMap::new(), nodes: BTreeMap::new(), order: BTreeSet::new() };
        for (&node, member) in table.members.iter() {
            if member.is_leaving || gone.contains(&node) {
                continue;
            }
            let zone = match (member.zone, member.address.host()) {
                (Some(zone), _) => Zone::Named(zone),
                (None, Some(host)) => Zone::Host(host),
                (None, None) => Zone::Own(node),
            };
            let next = numbers.len();
            let zone = *numbers.entry(zone).or_insert(next);
            spread.zones.insert(node, zone);
            if let Some(load) = loads.get(&node) {
                spread.nodes.entry(zone).or_default().insert((load.copies().and_one(), node));
            }
        }
        spread.order = spread.nodes.keys().filter_map(|&zone| Some((spread.least_of(zone)?, zone))).collect();
        spread
    }

    fn least_of(&self, zone: usize) -> Option<Share> {
        self.nodes.get(&zone)?.first().map(|(share, _)| *share)
    }

    /// The zone of a node that stays and is not gone.
    pub(super) fn zone(&self, node: NodeId) -> Option<usize> {
        self.zones.get(&node).copied()
    }

    /// What the emptiest node would have, for its weight, with one copy more.
    pub(super) fn least(&self) -> Share {
        self.order.first().map(|(share, _)| *share).unwrap_or_default()
    }

    /// A node that is up and stays has another number of copies.
    pub(super) fn has_changed(&mut self, node: NodeId, before: Share, now: Share) {
        let Some(zone) = self.zone(node) else { return };
        let former = self.least_of(zone);
        let Some(nodes) = self.nodes.get_mut(&zone) else { return };
        nodes.remove(&(before.and_one(), node));
        nodes.insert((now.and_one(), node));
        if let (Some(former), Some(least)) = (former, self.least_of(zone)) {
            self.order.remove(&(former, zone));
            self.order.insert((least, zone));
        }
    }

    /// Whether a slot could have its copies in more zones.
    pub(super) fn lacks_zone(&self, configuration: &Configuration) -> bool {
        let crowded = self.order.len() > 1 && !self.crowded(&configuration.in_sync).is_empty();
        let has = |zone: usize| configuration.in_sync.iter().any(|node| self.zone(node) == Some(zone));
        crowded && self.nodes.keys().any(|&zone| !has(zone))
    }

    /// Whether a slot has a copy, in sync or not, in the zone of a node.
    pub(super) fn has_zone_of(&self, configuration: &Configuration, node: NodeId) -> bool {
        let zone = self.zone(node);
        let mut copies = configuration.in_sync.iter().chain(configuration.joining.iter());
        copies.any(|other| self.zone(other).is_some() && self.zone(other) == zone)
    }

    /// The copies that share their zone with another one of them.
    pub(super) fn crowded(&self, copies: &Copies) -> Copies {
        let shares = |node: &NodeId| {
            let zone = self.zone(*node);
            zone.is_some() && copies.iter().any(|other| other != *node && self.zone(other) == zone)
        };
        let mut crowded = Copies::default();
        crowded.extend(copies.iter().filter(shares));
        crowded
    }

    /// A node that should have a copy of a slot instead of one that has: with one copy more it still has
    /// less, for its weight, than that one, and the slot stays in as many zones. `share` tells what each of
    /// the copies that may go has; the primary's may not.
    pub(super) fn instead_of_another(
        &self,
        in_sync: &Copies,
        share: impl Fn(NodeId) -> Option<Share>,
    ) -> Option<NodeId> {
        let most_of_all = in_sync.iter().filter_map(&share).max()?;
        // In a ring at rest each slot ends here. Looking at all nodes for each slot would occupy the group's
        // only thread for a while, with each plan.
        if self.least() >= most_of_all {
            return None;
        }
        let crowded = self.crowded(in_sync);
        let most_of_crowded = crowded.iter().filter_map(&share).max();
        for &(least, zone) in self.order.iter().take_while(|(least, _)| *least < most_of_all) {
            // Where the slot has a copy in this zone already, either of the two goes, or one that shares
            // another zone.
            let of_zone = in_sync.iter().filter(|node| self.zone(*node) == Some(zone));
            let of_zone: Vec<_> = of_zone.map(&share).collect();
            let most = match of_zone.is_empty() && crowded.is_empty() {
                true => Some(most_of_all),
                false => of_zone.into_iter().flatten().chain(most_of_crowded).max(),
            };
            let Some(most) = most.filter(|most| least < *most) else { continue };
            let nodes =
                self.nodes.get(&zone).into_iter().flatten().take_while(|(with_one, _)| *with_one < most);
            if let Some((_, node)) = nodes.into_iter().find(|(_, node)| !in_sync.contains(*node)) {
                return Some(*node);
            }
        }
        None
    }
}

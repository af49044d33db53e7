//! How the copies of slots are spread over zones.

use super::load::{Load, Share};
use crate::members::Host;
use crate::{Configuration, Copies, NodeId, Table, ZoneId};
use std::collections::BTreeMap;

/// The zones of nodes, numbered from 0 for one plan.
pub(super) struct Spread {
    /// The zone of each node that stays and is not gone, whether it is up or not.
    zones: BTreeMap<NodeId, usize>,
    /// For each zone with nodes that are up and stay: no such node that gets one copy more has less than this.
    least: BTreeMap<usize, Share>,
    /// The smallest of these.
    least_of_all: Share,
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
        let (mut numbers, mut zones, mut least) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
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
            zones.insert(node, zone);
            if let Some(load) = loads.get(&node) {
                let share = load.copies().and_one();
                least.entry(zone).and_modify(|least: &mut Share| *least = share.min(*least)).or_insert(share);
            }
        }
        let least_of_all = least.values().copied().min().unwrap_or_default();
        Self { zones, least, least_of_all }
    }

    /// The zone of a node that stays and is not gone.
    pub(super) fn zone(&self, node: NodeId) -> Option<usize> {
        self.zones.get(&node).copied()
    }

    /// Each zone with nodes that are up and stay. None of these nodes that gets one copy more has less, for its
    /// weight, than what stands beside the zone.
    pub(super) fn zones(&self) -> impl Iterator<Item = (usize, Share)> + '_ {
        self.least.iter().map(|(&zone, &least)| (zone, least))
    }

    /// The same for all zones together.
    pub(super) fn least(&self) -> Share {
        self.least_of_all
    }

    /// A node of a zone may have as little as this from now on.
    pub(super) fn at_least(&mut self, node: NodeId, share: Share) {
        if let Some(least) = self.zones.get(&node).and_then(|zone| self.least.get_mut(zone)) {
            *least = share.min(*least);
            self.least_of_all = share.min(self.least_of_all);
        }
    }

    /// Whether a slot could have its copies in more zones.
    pub(super) fn lacks_zone(&self, configuration: &Configuration) -> bool {
        let crowded = self.least.len() > 1 && !self.crowded(&configuration.in_sync).is_empty();
        let has = |zone: usize| configuration.in_sync.iter().any(|node| self.zone(node) == Some(zone));
        crowded && self.least.keys().any(|&zone| !has(zone))
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

    /// The same once there is another copy in `zone`, without that one; none if no two copies share a zone
    /// then.
    pub(super) fn crowded_with(&self, copies: &Copies, zone: usize) -> Option<Copies> {
        let mut crowded = self.crowded(copies);
        crowded.extend(copies.iter().filter(|node| self.zone(*node) == Some(zone)));
        (!crowded.is_empty()).then_some(crowded)
    }
}

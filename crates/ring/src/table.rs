//! The table of slots as clients see it: which node to ask for which slot.
//!
//! Invariant: what it says never changes; when something changes there is another one.

mod render;

use crate::address::{HostPort, NodeAddress};
use atoll_keyspace::SLOTS;
use atoll_replica::{Copies, NodeId, Table, Version};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Which node to ask for which slot.
#[derive(Debug)]
pub struct SlotTable {
    version: Version,
    /// The place of this node among all.
    me: Option<u16>,
    nodes: Vec<TableNode>,
    /// For each slot the place of its primary.
    routes: Box<[u16]>,
    ranges: Vec<SlotRange>,
    rendered: [OnceLock<Box<[u8]>>; 2],
}

/// A node in it.
#[derive(Debug)]
struct TableNode {
    id: NodeId,
    address: NodeAddress,
    is_up: bool,
    is_leaving: bool,
    /// The highest epoch of a slot that it leads.
    epoch: u64,
    /// How many slots it leads.
    leads: u16,
    /// Of how many slots it has a copy in sync, those that it leads included.
    in_sync: u16,
    /// Of how many it is catching up.
    joining: u16,
}

/// Slots beside each other that the same nodes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotRange {
    first: u16,
    last: u16,
    /// The place of the primary.
    primary: Option<u16>,
    in_sync: Copies,
}

/// Who has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// This node is its primary.
    Here,
    /// That one is.
    There(&'a NodeAddress),
    /// None is.
    Nowhere,
}

/// In the place of a node: none.
const NONE: u16 = u16::MAX;

impl SlotTable {
    /// What a table says to clients, seen from one of its nodes. Nodes whose address cannot be read are left out.
    #[must_use]
    pub fn of(table: &Table, me: NodeId) -> Self {
        let mut nodes: Vec<TableNode> = table
            .members
            .iter()
            .filter_map(|(&id, member)| {
                let address = member.address.parse().ok()?;
                let (epoch, leads, in_sync, joining) = Default::default();
                let (is_up, is_leaving) = (member.is_up, member.is_leaving);
                Some(TableNode { id, address, is_up, is_leaving, epoch, leads, in_sync, joining })
            })
            .take(usize::from(NONE))
            .collect();
        let places = Places::of(&nodes);
        let mut routes = vec![NONE; usize::from(SLOTS)].into_boxed_slice();
        let mut ranges: Vec<SlotRange> = Vec::new();
        for ((slot, route), configuration) in (0..).zip(&mut routes).zip(&table.slots) {
            let primary = configuration.primary.and_then(|id| places.place(id));
            *route = primary.unwrap_or(NONE);
            if let Some(node) = nodes.get_mut(usize::from(*route)) {
                node.epoch = node.epoch.max(configuration.epoch.0);
                node.leads += 1;
            }
            // Of each slot few nodes have a copy, however many there are.
            for id in configuration.in_sync.iter() {
                places.node_mut(&mut nodes, id).into_iter().for_each(|node| node.in_sync += 1);
            }
            for id in configuration.joining.iter() {
                places.node_mut(&mut nodes, id).into_iter().for_each(|node| node.joining += 1);
            }
            let in_sync = configuration.in_sync;
            match ranges.last_mut() {
                Some(range) if range.primary == primary && range.in_sync == in_sync => range.last = slot,
                _ => ranges.push(SlotRange { first: slot, last: slot, primary, in_sync }),
            }
        }
        let me = places.place(me);
        Self { version: table.version, me, nodes, routes, ranges, rendered: Default::default() }
    }

    /// Which table this is.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Who has a slot.
    pub(crate) fn route(&self, slot: u16) -> Route<'_> {
        let place = self.routes.get(usize::from(slot)).copied().unwrap_or(NONE);
        if Some(place) == self.me {
            return Route::Here;
        }
        match self.nodes.get(usize::from(place)) {
            Some(node) => Route::There(&node.address),
            None => Route::Nowhere,
        }
    }

    /// How many slots a node should answer for, and how many have somebody who does.
    pub(crate) fn served(&self) -> (u64, u64) {
        // A node that is down still leads the slots of which it has the last copy, and answers nothing.
        let up = self.nodes.iter().filter(|node| node.is_up);
        (self.routes.len() as u64, up.map(|node| u64::from(node.leads)).sum())
    }

    /// Each node: its number, its address for clients, and whether others hear it.
    pub(crate) fn each_node(&self) -> impl Iterator<Item = (NodeId, &HostPort, bool)> {
        self.nodes.iter().map(|node| (node.id, &node.address.clients, node.is_up))
    }

    /// How many slots this node leads, has copies in sync of, those included, and catches up.
    pub(crate) fn own_counts(&self) -> (u64, u64, u64) {
        let me = self.me.and_then(|place| self.nodes.get(usize::from(place)));
        me.map_or((0, 0, 0), |node| (node.leads.into(), node.in_sync.into(), node.joining.into()))
    }

    /// How many copies in sync the slot has that has fewest.
    pub(crate) fn copies_in_sync_min(&self) -> u64 {
        self.ranges.iter().map(|range| range.in_sync.len()).min().unwrap_or(0) as u64
    }

    /// The slots that this node is the primary of.
    pub(crate) fn own_slots(&self) -> impl Iterator<Item = u16> + '_ {
        let own = self.ranges.iter().filter(|range| range.primary.is_some() && range.primary == self.me);
        own.flat_map(|range| range.first..=range.last)
    }

    fn slots_of(&self, place: usize) -> impl Iterator<Item = (u16, u16)> + '_ {
        let of_it = move |range: &&SlotRange| range.primary.map(usize::from) == Some(place);
        let mut ranges = self.ranges.iter().filter(of_it).map(|range| (range.first, range.last)).peekable();
        std::iter::from_fn(move || {
            // Ranges that only other copies divide are one to clients.
            let (first, mut last) = ranges.next()?;
            while let Some((_, further)) = ranges.next_if(|&(next, _)| next == last + 1) {
                last = further;
            }
            Some((first, last))
        })
    }
}

/// Where nodes are among all, by their numbers: each slot names several, and while slots move there are many tables.
struct Places {
    /// Of nodes with small numbers, as most have.
    small: Vec<u16>,
    others: BTreeMap<NodeId, u16>,
}

/// Numbers below this are small.
const SMALL: u32 = 1 << 16;

impl Places {
    fn of(nodes: &[TableNode]) -> Self {
        let mut places = Self { small: Vec::new(), others: BTreeMap::new() };
        for (place, node) in (0..).zip(nodes) {
            if node.id.0 >= SMALL {
                places.others.insert(node.id, place);
                continue;
            }
            let number = node.id.0 as usize;
            places.small.resize(places.small.len().max(number + 1), NONE);
            if let Some(known) = places.small.get_mut(number) {
                *known = place;
            }
        }
        places
    }

    fn place(&self, id: NodeId) -> Option<u16> {
        match self.small.get(id.0 as usize) {
            Some(&place) => (place != NONE).then_some(place),
            None => self.others.get(&id).copied(),
        }
    }

    fn node_mut<'a>(&self, nodes: &'a mut [TableNode], id: NodeId) -> Option<&'a mut TableNode> {
        nodes.get_mut(usize::from(self.place(id)?))
    }
}

#[cfg(test)]
mod tests;

//! The table of slots as clients see it: which node to ask for which slot.
//!
//! It shares the table that copies follow, and adds only what each request needs at once: two bytes for a
//! slot, four for a node. What operators ask for is counted at the first such request.
//!
//! Invariant: a table never changes; a change makes a new one.

mod count;
mod keyspaces;
mod render;

use crate::address::{HostPort, NodeAddress};
use atoll_replica::{Configuration, Member, NodeId, Slot, Table, Version};
use count::Counts;
use std::sync::{Arc, OnceLock};

/// Which node to ask for which slot.
#[derive(Debug)]
pub struct SlotTable {
    table: Arc<Table>,
    /// The index of this node in `nodes`.
    me: Option<u16>,
    /// The nodes with a readable address, in order.
    nodes: Box<[NodeId]>,
    /// For each slot the index of its primary.
    routes: Box<[u16]>,
    /// For each keyspace what clients ask for most: the reply to `CLUSTER SLOTS`, and the list of `AT.TABLE`.
    rendered: Box<[Rendered]>,
    /// Counts for each node, once they were asked for.
    counts: OnceLock<Box<[Counts]>>,
    /// For each keyspace, how many slots have a primary that is up, and the fewest in-sync copies that any
    /// slot has.
    seen: Box<[OnceLock<(u64, u64)>]>,
}

/// A reply for the second and one for the third version of the Redis protocol, and a list that is the same in
/// both.
type Rendered = [OnceLock<Box<[u8]>>; 3];

/// Which node answers for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// This node.
    Here,
    /// Another node, which clients reach here.
    There(HostPort),
    /// None.
    Nowhere,
}

/// Stands for no node.
const NONE: u16 = u16::MAX;

impl SlotTable {
    /// Makes the table that clients see, from the point of view of one node. Nodes whose address cannot be
    /// read are left out.
    #[must_use]
    pub fn of(table: Arc<Table>, me: NodeId) -> Self {
        let nodes = readable(&table);
        // Adjacent slots mostly have the same primary.
        let mut last = (None, NONE);
        let routes = table.slots.iter().map(|configuration| {
            if configuration.primary != last.0 {
                last = (configuration.primary, place_of(configuration.primary, &nodes));
            }
            last.1
        });
        let routes = routes.collect();
        Self::new(table, me, nodes, routes)
    }

    /// Makes the table that clients see of a later table, without looking again at what both have in common.
    pub(crate) fn followed_by(&self, table: Arc<Table>, me: NodeId) -> Self {
        let nodes = readable(&table);
        if nodes != self.nodes || table.slots.len() != self.routes.len() {
            return Self::of(table, me);
        }
        let mut routes = self.routes.clone();
        for (slot, configuration) in table.slots.changed(&self.table.slots) {
            let route = usize::try_from(slot.0).ok().and_then(|slot| routes.get_mut(slot));
            route.into_iter().for_each(|route| *route = place_of(configuration.primary, &nodes));
        }
        Self::new(table, me, nodes, routes)
    }

    fn new(table: Arc<Table>, me: NodeId, nodes: Box<[NodeId]>, routes: Box<[u16]>) -> Self {
        let me = Some(place_of(Some(me), &nodes)).filter(|place| *place != NONE);
        let rendered = (0..table.keyspace_count()).map(|_| Rendered::default()).collect();
        let seen = (0..table.keyspace_count()).map(|_| OnceLock::new()).collect();
        Self { table, me, nodes, routes, rendered, counts: OnceLock::new(), seen }
    }

    /// The version of the table.
    #[must_use]
    pub fn version(&self) -> Version {
        self.table.version
    }

    /// Whether this node is the primary of a slot.
    pub(crate) fn is_here(&self, slot: Slot) -> bool {
        let place = self.place(slot);
        place != NONE && Some(place) == self.me
    }

    /// Which node answers for a slot.
    pub(crate) fn route(&self, slot: Slot) -> Route {
        let place = self.place(slot);
        if place != NONE && Some(place) == self.me {
            return Route::Here;
        }
        match self.address(usize::from(place)) {
            Some(address) => Route::There(address.clients),
            None => Route::Nowhere,
        }
    }

    fn place(&self, slot: Slot) -> u16 {
        usize::try_from(slot.0).ok().and_then(|slot| self.routes.get(slot)).copied().unwrap_or(NONE)
    }

    fn address(&self, place: usize) -> Option<NodeAddress> {
        self.table.members.get(self.nodes.get(place)?)?.address.parse().ok()
    }

    /// How many slots there are, and how many of them have a primary that is up.
    pub(crate) fn served(&self) -> (u64, u64) {
        // A node that is down still leads the slots of which it has the last copy, and answers nothing.
        let is_up = self.counts().iter().map(|node| if node.is_up { u64::from(node.leads) } else { 0 }).sum();
        (self.routes.len() as u64, is_up)
    }

    /// Each node: its number, its address for clients, and whether it is up.
    pub(crate) fn each_node(&self) -> impl Iterator<Item = (NodeId, HostPort, bool)> + '_ {
        let node = |(place, id): (usize, &NodeId)| {
            let is_up = self.table.members.get(id).is_some_and(|member| member.is_up);
            Some((*id, self.address(place)?.clients, is_up))
        };
        self.nodes.iter().enumerate().filter_map(node)
    }

    /// How many slots this node leads, has in-sync copies of (including those), and is catching up with.
    pub(crate) fn own_counts(&self) -> (u64, u64, u64) {
        let counts = self.counts();
        let me = self.me.and_then(|place| counts.get(usize::from(place)));
        me.map_or((0, 0, 0), |node| (node.leads.into(), node.in_sync.into(), node.joining.into()))
    }

    /// The table that copies follow.
    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The configurations of a keyspace's slots, in order.
    fn slots_of(&self, keyspace: u8) -> impl Iterator<Item = Configuration> + '_ {
        let each = self.table.slots_each();
        self.table.slots.from(Slot(u32::from(keyspace) * each)).take(each as usize)
    }

    /// The fewest in-sync copies that any slot has.
    pub(crate) fn copies_in_sync_min(&self) -> u64 {
        self.table.slots.iter().map(|slot| slot.in_sync.len()).min().unwrap_or(0) as u64
    }

    /// The slots of a keyspace that this node leads.
    pub(crate) fn own_slots(&self, keyspace: u8) -> impl Iterator<Item = Slot> + '_ {
        let first = u32::from(keyspace) * self.table.slots_each();
        let slots = (first..).map(Slot).zip(self.routes_of(keyspace));
        slots.filter(|(_, place)| self.me == Some(**place)).map(|(slot, _)| slot)
    }

    /// For each slot of a keyspace the index of its primary.
    fn routes_of(&self, keyspace: u8) -> &[u16] {
        let each = self.table.slots_each() as usize;
        let first = usize::from(keyspace) * each;
        self.routes.get(first..first + each).unwrap_or_default()
    }

    /// Runs of slots with the same primary: the first slot, the last, and the index of the primary.
    fn ranges(&self, keyspace: u8) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let mut next = 0;
        let runs = self.routes_of(keyspace).chunk_by(|one, other| one == other).map(move |run| {
            let first = next;
            next += run.len();
            (first, next - 1, run.first().copied().unwrap_or(NONE))
        });
        runs.filter(|&(.., place)| place != NONE).map(|(first, last, place)| (first, last, place.into()))
    }
}

/// The nodes whose address can be read, in order.
fn readable(table: &Table) -> Box<[NodeId]> {
    let is_read = |member: &Member| member.address.parse::<NodeAddress>().is_ok();
    let nodes = table.members.iter().filter(|(_, member)| is_read(member)).map(|(&id, _)| id);
    nodes.take(usize::from(NONE)).collect()
}

fn place_of(node: Option<NodeId>, nodes: &[NodeId]) -> u16 {
    let place = node.and_then(|node| nodes.binary_search(&node).ok());
    place.and_then(|place| u16::try_from(place).ok()).unwrap_or(NONE)
}

#[cfg(test)]
mod tests;

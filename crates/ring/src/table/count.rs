//! Counts for each node that operators ask for. They are made at the first request, because that takes a look
//! at every slot of every keyspace.

use super::SlotTable;
use atoll_replica::NodeId;

/// A node and its slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) id: NodeId,
    pub(super) is_up: bool,
    pub(super) is_leaving: bool,
    /// The highest epoch of a slot that it leads.
    pub(super) epoch: u64,
    /// How many slots it leads.
    pub(super) leads: u32,
    /// How many slots it has an in-sync copy of, including those that it leads.
    pub(super) in_sync: u32,
    /// How many slots it is catching up with.
    pub(super) joining: u32,
}

impl SlotTable {
    /// The counts of all nodes, in order.
    pub(super) fn counts(&self) -> &[Counts] {
        self.counts.get_or_init(|| self.count().into_boxed_slice())
    }

    fn count(&self) -> Vec<Counts> {
        let node = |&id: &NodeId| {
            let member = self.table.members.get(&id);
            let is_up = member.is_some_and(|member| member.is_up);
            let is_leaving = member.is_some_and(|member| member.is_leaving);
            Counts { id, is_up, is_leaving, epoch: 0, leads: 0, in_sync: 0, joining: 0 }
        };
        let mut counts: Vec<Counts> = self.nodes.iter().map(node).collect();
        let mut count = |id: NodeId, count: &dyn Fn(&mut Counts)| {
            let node = self.nodes.binary_search(&id).ok().and_then(|place| counts.get_mut(place));
            node.into_iter().for_each(count);
        };
        for slot in self.table.slots.iter() {
            if let Some(primary) = slot.primary {
                count(primary, &|node| {
                    node.epoch = node.epoch.max(slot.epoch.0);
                    node.leads += 1;
                });
            }
            slot.in_sync.iter().for_each(|id| count(id, &|node| node.in_sync += 1));
            slot.joining.iter().for_each(|id| count(id, &|node| node.joining += 1));
        }
        counts
    }

    /// For each node the slots of a keyspace that it leads, as ranges.
    pub(super) fn ranges_of_nodes(&self, keyspace: u8) -> Vec<Vec<(usize, usize)>> {
        let mut of_nodes = vec![Vec::new(); self.nodes.len()];
        for (first, last, place) in self.ranges(keyspace) {
            of_nodes.get_mut(place).into_iter().for_each(|ranges: &mut Vec<_>| ranges.push((first, last)));
        }
        of_nodes
    }
}

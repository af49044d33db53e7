//! The slots that a node leads, and the nodes that share them: known at once when a table arrives, whatever
//! the number of slots.
//!
//! Invariant: matches the table that the node goes by, slot by slot.

use crate::{Configuration, NodeId, Slot};
use std::collections::BTreeMap;

/// The slots that this node leads.
#[derive(Debug, Default)]
pub(super) struct Led {
    slots: BTreeMap<Slot, Configuration>,
    /// How many of these slots each other node has a copy of, in sync or not.
    shares: BTreeMap<NodeId, usize>,
}

impl Led {
    /// Sets the configuration of a slot that this node leads; `None` if it does not lead the slot.
    pub(super) fn change(&mut self, slot: Slot, configuration: Option<Configuration>, me: NodeId) {
        let before = match configuration {
            Some(configuration) => self.slots.insert(slot, configuration),
            None => self.slots.remove(&slot),
        };
        for node in before.iter().flat_map(copies).filter(|node| *node != me) {
            if let Some(shares) = self.shares.get_mut(&node) {
                *shares -= 1;
            }
        }
        for node in configuration.iter().flat_map(copies).filter(|node| *node != me) {
            *self.shares.entry(node).or_default() += 1;
        }
        self.shares.retain(|_, shares| *shares > 0);
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        self.slots.contains_key(&slot)
    }

    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// All of these slots, in order.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.keys().copied()
    }

    /// The other nodes that have copies of these slots.
    pub(super) fn partners(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.shares.keys().copied()
    }
}

fn copies(configuration: &Configuration) -> impl Iterator<Item = NodeId> + '_ {
    configuration.in_sync.iter().chain(configuration.joining.iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Copies;

    fn led_with(in_sync: &[u32], joining: &[u32]) -> Option<Configuration> {
        let nodes = |numbers: &[u32]| Copies::of(&numbers.iter().copied().map(NodeId).collect::<Vec<_>>());
        let (in_sync, joining) = (nodes(in_sync), nodes(joining));
        Some(Configuration { primary: Some(NodeId(1)), in_sync, joining, ..Configuration::default() })
    }

    #[test]
    fn a_node_is_a_partner_as_long_as_it_has_a_copy_of_any_slot_that_is_led() {
        let (mut led, me) = (Led::default(), NodeId(1));
        let partners = |led: &Led| led.partners().map(|node| node.0).collect::<Vec<_>>();
        led.change(Slot(3), led_with(&[1, 2], &[4]), me);
        led.change(Slot(7), led_with(&[1, 2, 3], &[]), me);
        assert_eq!((partners(&led), led.slots().count()), (vec![2, 3, 4], 2));
        led.change(Slot(3), led_with(&[1, 4], &[]), me);
        assert_eq!(partners(&led), [2, 3, 4], "2 still has a copy of slot 7");
        led.change(Slot(7), None, me);
        led.change(Slot(9), None, me);
        assert_eq!((partners(&led), led.has(Slot(3)), led.has(Slot(7))), (vec![4], true, false));
    }
}

//! Applied entries that are kept in memory for copies that lag, within limits.
//!
//! Invariant: all slots of a node together keep at most about twice [`KEPT_OF_ALL_BYTES_MAX`], however many
//! copies lag, not counting what is held for copies that are being sent cells. What is held does count
//! towards the total that restricts the other slots to their shares.

use super::Replica;
use crate::copy::Replicated;
use crate::log::KEPT_OF_ALL_BYTES_MAX;

impl Replica {
    /// Roughly how much memory the applied entries take that are kept for copies that lack them.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// How many of these bytes a slot may keep: as many as suit it alone, until all slots together keep much.
    /// From then on a slot that is written to keeps its share, and one that is not keeps what it has.
    pub(super) fn kept_bytes_max(&self) -> usize {
        match self.kept_bytes <= KEPT_OF_ALL_BYTES_MAX {
            true => usize::MAX,
            false => KEPT_OF_ALL_BYTES_MAX / self.led.count().max(1),
        }
    }
}

/// The total for all slots after one copy has changed; `before` is what that copy kept before.
pub(super) fn changed(all: usize, before: usize, copy: &Replicated) -> usize {
    (all + copy.log.kept_bytes()).saturating_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Change, Effect, Group, GroupOptions, Incarnation, Input, Moment, NodeId, Options, PlacementHints,
        Slot,
    };
    use crate::{Copies, Survived, Table, Ticket};
    use std::sync::Arc;

    const SLOTS: u32 = 1_000;
    const NOW: Moment = Moment(1);

    /// A node that leads all slots, each with a copy that never answers.
    fn leading(group: &mut Group) -> Replica {
        for node in [1, 2].map(NodeId) {
            let (address, survived) = (String::new(), Survived::Nothing);
            group.apply(Change::Register {
                node,
                nonce: 1,
                address,
                hints: PlacementHints::default(),
                survived,
            });
        }
        for change in group.plan(&[]) {
            group.apply(change);
        }
        group.apply(Change::Fail { node: NodeId(2), incarnation: Incarnation(1) });
        let options = Options { in_sync_min: 1, logs: false, ..Options::default() };
        let mut replica = Replica::new(NodeId(1), options);
        replica.begin(NOW, Incarnation(1), Vec::new());
        replica.step(NOW, Input::Table(group.table()), &mut Vec::new());
        replica.step(NOW, Input::GroupHeard { asked_at: NOW }, &mut Vec::new());
        replica
    }

    /// Writes to a slot; returns whether the write was applied.
    fn write(replica: &mut Replica, slot: u32, body: &Arc<[u8]>) -> bool {
        let (mut effects, keys, body) = (Vec::new(), vec![1], body.clone());
        let input = Input::Write { slot: Slot(slot), ticket: Ticket(1), time_ms: 1, body, keys };
        replica.step(NOW, input, &mut effects);
        effects.iter().any(|effect| matches!(effect, Effect::Apply { .. }))
    }

    fn recounted(replica: &Replica) -> usize {
        let copies = (0..SLOTS).filter_map(|slot| replica.slots.get(Slot(slot)));
        copies.map(|copy| copy.log.kept_bytes()).sum()
    }

    #[test]
    fn what_is_kept_for_copies_that_lag_is_bounded_for_all_slots_of_a_node_together() {
        let mut group = Group::new(GroupOptions { slots: SLOTS, copies: 2 });
        let mut replica = leading(&mut group);
        let body: Arc<[u8]> = vec![7; 10_000].into();
        assert!((0..100).all(|_| write(&mut replica, 0, &body)));
        assert!(replica.kept_bytes() >= 100 * body.len(), "one slot alone keeps all of that");
        for _ in 0..100 {
            assert!((1..SLOTS).all(|slot| write(&mut replica, slot, &body)));
        }
        assert_eq!(replica.kept_bytes(), recounted(&replica));
        let kept = replica.kept_bytes() / KEPT_OF_ALL_BYTES_MAX;
        assert!((1..2).contains(&kept), "{}", replica.kept_bytes());
        // Another node takes over a slot: everything that was kept for it is dropped.
        let mut table = Table::clone(replica.table());
        let (mut configuration, before) = (table.slot(Slot(5)), replica.kept_bytes());
        table.version = table.version.next();
        (configuration.epoch, configuration.since) = (configuration.epoch.next(), table.version);
        (configuration.primary, configuration.in_sync) = (Some(NodeId(2)), Copies::of(&[NodeId(2)]));
        configuration.joining = Copies::default();
        table.slots.set(5, configuration);
        replica.step(NOW, Input::Table(Arc::new(table)), &mut Vec::new());
        assert!(!replica.slots.has(Slot(5)) && replica.kept_bytes() < before);
        assert_eq!(replica.kept_bytes(), recounted(&replica));
    }
}

//! Slots that are to be sent to other nodes, in the order in which they were asked for.
//!
//! Invariant: a slot that is asked for again keeps its place, and its moment once some of it was sent.
//! Invariant: a slot in the queue costs no more than its name. Its cells are read as of the moment at which
//! the first of them are sent.

use atoll_keyspace::Exporter;
use atoll_replica::{Moment, NodeId, Position, Slot, Version};
use std::collections::{BTreeMap, HashSet};

/// A slot that is being sent to a node, or waits for that.
pub(super) struct Outgoing {
    pub(super) slot: Slot,
    pub(super) to: NodeId,
    /// None until the first piece is made.
    pub(super) begun: Option<Begun>,
}

/// A transfer that has begun: the cells of one moment.
pub(super) struct Begun {
    /// The branch of the slot that they belong to.
    pub(super) branch: Version,
    pub(super) position: Position,
    pub(super) time_ms: u64,
    /// The number of the next piece.
    pub(super) number: u32,
    pub(super) cells: Exporter,
}

/// All transfers that are under way or wait.
#[derive(Default)]
pub(super) struct Queue {
    outgoing: Vec<Outgoing>,
    /// The same as a set: there are thousands while a node joins, and each is asked for again and again.
    known: HashSet<(Slot, NodeId)>,
    /// Slots that could not be read, and until when they are not tried again.
    resting: BTreeMap<Slot, Moment>,
}

/// How long such a slot is not tried again, in microseconds. It is asked for again and again meanwhile.
const REST_US: u64 = 60_000_000;

impl Queue {
    /// Appends a transfer, unless it is queued already, or the slot could not be read a short while ago.
    pub(super) fn add(&mut self, slot: Slot, to: NodeId, now: Moment) {
        if self.resting.get(&slot).is_some_and(|until| now < *until) {
            return;
        }
        if self.known.insert((slot, to)) {
            self.outgoing.push(Outgoing { slot, to, begun: None });
        }
    }

    /// Marks a slot as unreadable for a while.
    pub(super) fn rest(&mut self, slot: Slot, now: Moment) {
        self.resting.retain(|_, until| now < *until);
        self.resting.insert(slot, now.after(REST_US));
    }

    /// Takes all transfers to work on them; [`put_back`](Self::put_back) returns those that are not over.
    pub(super) fn take(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    /// Returns the transfers that are left, in order, and names those that are over.
    pub(super) fn put_back(&mut self, left: Vec<Outgoing>, ended: &[(Slot, NodeId)]) {
        self.outgoing = left;
        for one in ended {
            self.known.remove(one);
        }
    }

    /// Drops the transfers of these slots.
    pub(super) fn forget(&mut self, slots: &[Slot]) {
        if self.outgoing.is_empty() {
            return;
        }
        let slots: HashSet<Slot> = slots.iter().copied().collect();
        self.outgoing.retain(|one| !slots.contains(&one.slot));
        self.known.retain(|(slot, _)| !slots.contains(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(queue: &mut Queue) -> Vec<(u32, u32)> {
        let all = queue.take();
        assert!(all.iter().all(|one| one.begun.is_none()), "what waits has no cells yet");
        let names = all.iter().map(|one| (one.slot.0, one.to.0)).collect();
        queue.put_back(all, &[]);
        names
    }

    #[test]
    fn what_is_asked_for_again_keeps_its_place() {
        let mut queue = Queue::default();
        for (slot, node) in [(1, 2), (2, 2), (1, 3), (1, 2), (2, 2)] {
            queue.add(Slot(slot), NodeId(node), Moment(1));
        }
        assert_eq!(names(&mut queue), [(1, 2), (2, 2), (1, 3)]);
        let mut all = queue.take();
        let done = all.remove(0);
        queue.put_back(all, &[(done.slot, done.to)]);
        queue.add(done.slot, done.to, Moment(1));
        assert_eq!(names(&mut queue), [(2, 2), (1, 3), (1, 2)], "what is over can be asked for again");
        queue.forget(&[Slot(1), Slot(7)]);
        queue.add(Slot(1), NodeId(3), Moment(1));
        assert_eq!(names(&mut queue), [(2, 2), (1, 3)]);
    }
}

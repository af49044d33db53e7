//! Cells that are to be sent to other nodes, in the order in which they were asked for.
//!
//! Invariant: what is asked for again keeps its place, and stays what it is once some of it was sent.
//! Invariant: what waits costs no more than its name: its cells are those of the moment at which the first of
//! them are sent.

use atoll_keyspace::Exporter;
use atoll_replica::{Moment, NodeId, Position, Slot, Version};
use std::collections::{BTreeMap, HashSet};

/// A slot on its way to a node, or waiting for that.
pub(super) struct Outgoing {
    pub(super) slot: Slot,
    pub(super) to: NodeId,
    /// None until the first piece is made.
    pub(super) begun: Option<Begun>,
}

/// The cells of one moment, of which some were sent.
pub(super) struct Begun {
    /// Of which branch of the slot they are.
    pub(super) branch: Version,
    pub(super) position: Position,
    pub(super) time_ms: u64,
    /// The number of the next piece.
    pub(super) number: u32,
    pub(super) cells: Exporter,
}

/// All that are on their way or wait.
#[derive(Default)]
pub(super) struct Queue {
    outgoing: Vec<Outgoing>,
    /// The same: there are thousands while a node joins, and each is asked for again and again.
    known: HashSet<(Slot, NodeId)>,
    /// Slots that could not be read, and until when they are not begun again.
    resting: BTreeMap<Slot, Moment>,
}

/// For how long, in microseconds. It is asked for again and again meanwhile.
const REST_US: u64 = 60_000_000;

impl Queue {
    /// Puts one behind all others, unless it is there, or could not be read just now.
    pub(super) fn add(&mut self, slot: Slot, to: NodeId, now: Moment) {
        if self.resting.get(&slot).is_some_and(|until| now < *until) {
            return;
        }
        if self.known.insert((slot, to)) {
            self.outgoing.push(Outgoing { slot, to, begun: None });
        }
    }

    /// A slot could not be read.
    pub(super) fn rest(&mut self, slot: Slot, now: Moment) {
        self.resting.retain(|_, until| now < *until);
        self.resting.insert(slot, now.after(REST_US));
    }

    /// All of them, to be worked on; those that are not done are put [back](Self::put_back).
    pub(super) fn take(&mut self) -> Vec<Outgoing> {
        std::mem::take(&mut self.outgoing)
    }

    /// Those that are left, in their order, and those that are over.
    pub(super) fn put_back(&mut self, left: Vec<Outgoing>, ended: &[(Slot, NodeId)]) {
        self.outgoing = left;
        for one in ended {
            self.known.remove(one);
        }
    }

    /// Nothing of these slots is sent any more.
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

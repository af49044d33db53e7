//! What is to happen, in the order of true time; of two things at the same time, in the order in which they
//! were told.

use crate::cells::State;
use crate::clients::Told;
use crate::council::Asking;
use atoll_replica::{Incarnation, Message, Moment, NodeId, Position, Slot, Table, Version};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Something that happens.
pub(crate) enum Event {
    /// To the machine of a node: it waits while that is paused.
    ToNode { node: NodeId, what: ToNode },
    /// To the configuration group.
    ToGroup { from: NodeId, what: Asking },
    /// To a client.
    ToClient { client: usize, operation: usize, attempt: u32, told: Told },
    /// A client begins its next operation.
    Begin { client: usize },
    /// A client asks again, after it was refused.
    Again { client: usize, operation: usize },
    /// A client has waited for a while.
    Hurry { client: usize, operation: usize, attempt: u32 },
    /// A client waits no longer.
    GiveUp { client: usize, operation: usize },
    /// The group looks at who is silent and what is to be where.
    GroupLooks,
    /// Something breaks.
    Fault,
    /// Links that were cut are whole again.
    Mend { faults: u64 },
    /// A node that was stopped starts.
    Start { node: NodeId },
    /// A node that left the ring stops.
    Left { node: NodeId },
    /// An operator has something moved.
    Operator,
    /// A paused node goes on.
    Resume { node: NodeId, pause: u64 },
}

/// What comes to a node.
pub(crate) enum ToNode {
    /// Another node says something.
    Said {
        from: NodeId,
        incarnation: Incarnation,
        message: Message,
    },
    /// The group has a table.
    Table(Arc<Table>),
    /// The group heard this life, asked then, and had this table.
    Heard {
        life: u64,
        asked_at: Moment,
        version: Version,
    },
    /// The group knows this life under that number.
    Registered {
        life: u64,
        incarnation: Incarnation,
    },
    /// A client asks.
    Request {
        client: usize,
        operation: usize,
        attempt: u32,
    },
    /// Cells came.
    Cells {
        from: NodeId,
        cells: Box<Cells>,
    },
    /// Cells are written beside the old ones, and may be put in place.
    Staged {
        life: u64,
        from: NodeId,
        /// The branch of the slot when they came.
        branch: Version,
        cells: Box<Cells>,
    },
    /// Some more cells of a slot whose cells are put in place one after the other.
    Part {
        life: u64,
        slot: Slot,
        number: u64,
        is_last: bool,
    },
    /// Some of the cells that it sends are sent, and the rest follows at once if it is still needed; all of
    /// it arrives then, or not.
    Sending {
        life: u64,
        to: NodeId,
        cells: Box<Cells>,
        arrives_at: Option<u64>,
    },
    /// Its timer.
    Tick {
        life: u64,
    },
    /// Its other timer: it tells the group that it lives.
    /// Another life of it counts.
    Replaced {
        life: u64,
    },
    Beat {
        life: u64,
    },
    /// Requests have waited for each other long enough.
    Gathered {
        life: u64,
    },
    /// It asks the group to be registered, if it is not.
    Register {
        life: u64,
    },
    /// Its disk wrote so much.
    Written {
        life: u64,
        through: u64,
    },
    /// Its disk synced so much.
    Synced {
        life: u64,
        through: u64,
    },
    /// It syncs what is written.
    SyncDue {
        life: u64,
    },
}

/// A copy of the applied cells of a slot.
#[derive(Clone, Debug)]
pub(crate) struct Cells {
    pub(crate) slot: Slot,
    pub(crate) position: Position,
    pub(crate) time_ms: u64,
    pub(crate) state: State,
}

struct Scheduled {
    at: u64,
    order: u64,
    event: Event,
}

/// All that is to happen.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Scheduled>,
    order: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.heap.push(Scheduled { at, order: self.order, event });
    }

    /// The next thing, if it happens before `end`.
    pub(crate) fn pop_before(&mut self, end: u64) -> Option<(u64, Event)> {
        if self.heap.peek()?.at >= end {
            return None;
        }
        self.heap.pop().map(|scheduled| (scheduled.at, scheduled.event))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

//! The events to come, in the order of true time; events at the same time are in the order in which they
//! were added.

use crate::cells::State;
use crate::clients::ClientReply;
use crate::council::GroupRequest;
use atoll_replica::{Incarnation, Message, Moment, NodeId, Position, Slot, Table, Version};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// An event.
pub(crate) enum Event {
    /// A message to the machine of a node, which is held while the machine is paused.
    ToNode { node: NodeId, what: ToNode },
    /// To the configuration group.
    ToGroup { from: NodeId, what: GroupRequest },
    /// To a client.
    ToClient { client: usize, operation: usize, attempt: u32, told: ClientReply },
    /// A client begins its next operation.
    Begin { client: usize },
    /// A client asks again after a refusal.
    Again { client: usize, operation: usize },
    /// A client has waited for a while.
    Hurry { client: usize, operation: usize, attempt: u32 },
    /// A client stops waiting.
    GiveUp { client: usize, operation: usize },
    /// The group checks for silent nodes and plans where copies go.
    GroupLooks,
    /// A fault occurs.
    Fault,
    /// Links that were cut are mended.
    Mend { faults: u64 },
    /// A node that was stopped starts.
    Start { node: NodeId },
    /// A node that left the ring stops.
    Left { node: NodeId },
    /// An operator requests a move.
    Operator,
    /// A paused node resumes.
    Resume { node: NodeId, pause: u64 },
}

/// A message or a timer for a node.
pub(crate) enum ToNode {
    /// A message from another node.
    Said { from: NodeId, incarnation: Incarnation, message: Message },
    /// A table from the group.
    Table(Arc<Table>),
    /// The group answers a heartbeat of this life, with the time of the request and the group's table.
    Heard { life: u64, asked_at: Moment, version: Version },
    /// The group registered this life under that number.
    Registered { life: u64, incarnation: Incarnation },
    /// A request of a client.
    Request { client: usize, operation: usize, attempt: u32 },
    /// Cells from another node.
    Cells { from: NodeId, cells: Box<Cells> },
    /// Received cells are written beside the old ones and may be put in place.
    Staged {
        life: u64,
        from: NodeId,
        /// The branch of the slot when they arrived.
        branch: Version,
        cells: Box<Cells>,
    },
    /// Another part of an import.
    Part { life: u64, slot: Slot, number: u64, is_last: bool },
    /// Some of the cells of a transfer are sent, and the rest follows at once if it is still needed; all of
    /// it arrives then, or nothing.
    Sending { life: u64, to: NodeId, cells: Box<Cells>, arrives_at: Option<u64> },
    /// The protocol's timer.
    Tick { life: u64 },
    /// Another life of the node counts.
    Replaced { life: u64 },
    /// The heartbeat timer: the node tells the group that it is alive.
    Beat { life: u64 },
    /// Held requests have waited long enough.
    Gathered { life: u64 },
    /// The node asks the group for registration, unless it is registered.
    Register { life: u64 },
    /// Its disk has written records up to `through`.
    Written { life: u64, through: u64 },
    /// Its disk has synced records up to `through`.
    Synced { life: u64, through: u64 },
    /// It is time to sync what is written.
    SyncDue { life: u64 },
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

/// All events to come.
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

    /// The next event, if it happens before `end`.
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

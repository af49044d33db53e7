//! The types of the group's log, for openraft.

use atoll_replica::{Change, Decision, NodeId};
use std::fmt;
use std::sync::Arc;

/// A seat in the group: one log with its vote. A member that lost either comes back on another seat, because
/// it no longer knows what it promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeatId(pub u64);

impl fmt::Display for SeatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seat {:016x}", self.0)
    }
}

/// The node that holds a seat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) node: NodeId,
}

/// One entry of the log: changes to be decided in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changes(pub(crate) Arc<Vec<Change>>);

impl Changes {
    pub(crate) fn new(changes: Vec<Change>) -> Self {
        Self(Arc::new(changes))
    }

    /// The approximate weight of these changes, in changes of one slot.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().map(weight_of).sum()
    }
}

/// The approximate weight of a change, in changes of one slot.
pub(crate) fn weight_of(change: &Change) -> usize {
    match change {
        Change::Register { .. } => 4,
        Change::FailTogether { nodes } => nodes.len(),
        _ => 1,
    }
}

/// The outcome of each change of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decisions(pub(crate) Vec<Decision>);

/// The bytes of a snapshot. Clones share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SnapshotBytes(pub(crate) Arc<Vec<u8>>);

impl fmt::Debug for SnapshotBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

openraft::declare_raft_types!(
    /// The types of the group.
    pub(crate) Types:
        D = Changes,
        R = Decisions,
        NodeId = SeatId,
        Node = Seat,
        Entry = openraft::Entry<Types>,
        SnapshotData = SnapshotBytes,
);

pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type EntryOf = openraft::Entry<Types>;
pub(crate) type LogIdOf = openraft::LogId<SeatId>;
pub(crate) type VoteOf = openraft::Vote<SeatId>;
pub(crate) type MembershipOf = openraft::Membership<SeatId, Seat>;
pub(crate) type SnapshotMetaOf = openraft::SnapshotMeta<SeatId, Seat>;
pub(crate) type SnapshotOf = openraft::Snapshot<Types>;
pub(crate) type StorageError = openraft::StorageError<SeatId>;

//! What the log of the group is made of, for openraft.

use atoll_replica::{Change, Decision, NodeId};
use std::fmt;
use std::sync::Arc;

/// A place in the group: one log with its vote. A member that lost either comes back under another one, since
/// it no longer knows what it promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SeatId(pub u64);

impl fmt::Display for SeatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seat {:016x}", self.0)
    }
}

/// Which node sits there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) node: NodeId,
}

/// One entry of the log: changes, decided in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changes(pub(crate) Arc<Vec<Change>>);

impl Changes {
    pub(crate) fn new(changes: Vec<Change>) -> Self {
        Self(Arc::new(changes))
    }

    /// About how much they are, in changes of one slot.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().map(weight_of).sum()
    }
}

/// About how much a change is, in changes of one slot.
pub(crate) fn weight_of(change: &Change) -> usize {
    match change {
        Change::Register { .. } => 4,
        _ => 1,
    }
}

/// What came of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decisions(pub(crate) Vec<Decision>);

openraft::declare_raft_types!(
    /// The types of the group.
    pub(crate) Types:
        D = Changes,
        R = Decisions,
        NodeId = SeatId,
        Node = Seat,
        Entry = openraft::Entry<Types>,
        SnapshotData = Vec<u8>,
);

pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type EntryOf = openraft::Entry<Types>;
pub(crate) type LogIdOf = openraft::LogId<SeatId>;
pub(crate) type VoteOf = openraft::Vote<SeatId>;
pub(crate) type MembershipOf = openraft::Membership<SeatId, Seat>;
pub(crate) type StorageError = openraft::StorageError<SeatId>;

//! The numbers that copies know each other by, and the places in a log.
//!
//! Invariant: none of these is ever used again for something else.

use std::fmt;

/// A node of the ring. Its number is given once and stays with its store; starting again changes its
/// [`Incarnation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// How often a node has begun. What a node says counts only in the life that the table names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// One of the parts that keys are divided into, by CRC16: 16,384 for clients of Redis, up to 2^20 otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// The number of a slot's configuration: within one there is one primary, and each change of it is one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// The place of a write in the log of its slot, from 1 on; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// The number of a table: each change of any slot or member is one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

/// A place in a log and the epoch in which it was written: two entries with the same position are the same
/// entry.
///
/// Positions are ordered as logs are compared: by epoch first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The epoch of the primary that wrote it.
    pub epoch: Epoch,
    /// Its place.
    pub sequence: Sequence,
}

/// A moment of this node's own clock, in microseconds, which goes on while the machine sleeps. Never compared
/// between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// What a client's request is called until it is answered; the runtime chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What of a slot's log a write to it belongs to: all that was written since the copy began, or since entries
/// were cut off last. Cut off and written again, an entry has the same position, and its second write is not
/// done with the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRun {
    /// Which copy of this node, of all that it ever had in this life.
    pub(crate) copy: u64,
    /// How often entries of it were cut off, or all that it had went.
    pub(crate) cuts: u64,
}

impl Epoch {
    /// The one behind it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Sequence {
    /// The place behind it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place before it.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl Version {
    /// The one behind it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Moment {
    /// So many microseconds later.
    #[must_use]
    pub fn after(self, microseconds: u64) -> Self {
        Self(self.0.saturating_add(microseconds))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch.0, self.sequence.0)
    }
}

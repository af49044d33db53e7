//! The numbers that identify nodes, slots, epochs and tables, and the positions in a log.
//!
//! Invariant: none of these numbers is ever reused for something else.

use std::fmt;

/// A node of the ring. Its number is assigned once and stays with its store; a restart changes its
/// [`Incarnation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Counts the lives of a node. What a node says counts only in the life that the table names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// One of the parts into which CRC16 divides the keys: 16,384 for clients of Redis, up to 2^20 otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// Counts the changes of a slot's primary and in-sync copies: an epoch has one primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// The place of a write in the log of its slot, counted from 1; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// The version of a table, which counts the changes of any slot or member.
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
    /// Its place in the log.
    pub sequence: Sequence,
}

/// A moment of this node's own clock, in microseconds, which keeps running while the machine sleeps. Never
/// compared between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub u64);

/// Identifies a client's request until it is answered; the runtime chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The stretch of a slot's log that a write belongs to: everything written since the copy began, or since
/// entries were last cut off. An entry that was cut off and written again has the same position as before,
/// but its second write is not done when the first one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRun {
    /// The copy, among all that this node has had in this life.
    pub(crate) copy: u64,
    /// How often entries of it were cut off, or all its contents dropped.
    pub(crate) cuts: u64,
}

impl Epoch {
    /// The next epoch.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Sequence {
    /// The next place.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The place before; 0 stays 0.
    #[must_use]
    pub fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl Version {
    /// The next version.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Moment {
    /// The moment this many microseconds later.
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

//! Names of versions, sessions, objects, edits and runs.

use std::sync::Arc;

/// The number of a version; it identifies one content, for ever.
///
/// A new table is at version 0, and each edit makes the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// The version of a newly created table.
    pub const EMPTY: Self = Self(0);

    /// The version after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Identifies the session of one table handle, from its first write to its close. Random, so that it is never
/// used twice.
///
/// A process whose session ended while it was suspended gets another one, and with it new names for
/// everything that it writes. That is what lets a vacuum remove the objects that an ended session left
/// behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u128);

/// An object: immutable bytes, written with `create` before the edit that first names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// The session that wrote it.
    pub session: SessionId,
    /// Its number in that session. A retry with the same bytes keeps the number; other bytes get another.
    pub sequence: u64,
}

/// Identifies one edit of one session; a retry keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EditId {
    /// The session that makes the edit.
    pub session: SessionId,
    /// Its number in that session.
    pub sequence: u64,
}

/// The name of a run: one simulation over all its attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub Arc<str>);

/// The time of a step in the unit of the simulation, as the bits of an `f64`: stored and compared bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepTime(pub u64);

impl StepTime {
    /// The time as a number.
    #[must_use]
    pub const fn number(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for StepTime {
    fn from(time: f64) -> Self {
        Self(time.to_bits())
    }
}

impl std::borrow::Borrow<str> for RunId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for RunId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}/{}", self.session.0, self.sequence)
    }
}

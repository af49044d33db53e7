//! Vacuum: which objects nobody needs any more, and which history.
//!
//! A vacuum goes in this order, and the order is what makes it safe:
//!
//! 1. [`super::Edit::RaiseFloor`]: from now on nobody begins to read an older version.
//! 2. Remove the cells of sessions that have expired, each under the condition that it is as it was read.
//! 3. Read the partition: [`Holders`] and the manifest at one point. Whoever began to read an older version
//!    before the floor rose is seen here, because a session is written before its version is resolved.
//! 4. Remove the [`Manifest::removable`] objects, then [`super::Edit::Forget`] them.
//! 5. List the objects of the store, and *after* that read the partition again. Remove the
//!    [`Manifest::orphans`].
//!
//! Every removal may be repeated, and a crash in between leaves only work for the next vacuum.

use super::{Life, Manifest, ObjectId, SessionId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// The session of one handle of a table, as its cell says it.
///
/// The cell is put under the condition that it is absent, and changed under the condition that it is as it
/// was, so that no write that comes late brings back a session that a vacuum ended. A process that does not
/// learn whether its cell was put takes another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// It may read every version from this one on, and look up who made them. It only rises.
    pub from: Version,
}

/// Who needs old versions, as one read of the manifest partition saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holders {
    /// The sessions whose cells are there, whether expired or not.
    pub sessions: BTreeMap<SessionId, Session>,
    /// The versions that snapshots keep.
    pub snapshots: BTreeSet<Version>,
}

impl Holders {
    /// The lowest version that a session reads; none without sessions.
    fn lowest(&self) -> Option<Version> {
        self.sessions.values().map(|session| session.from).min()
    }

    /// Whether somebody may read a version that names the object.
    fn need(&self, life: Life) -> bool {
        let in_session = self.lowest().is_some_and(|from| from < life.retired);
        in_session || self.snapshots.range(life.born..life.retired).next().is_some()
    }
}

impl Manifest {
    /// Whether version `wanted` can be read, by a process that wrote its session before it read this one.
    #[must_use]
    pub fn is_readable(&self, wanted: Version, holders: &Holders) -> bool {
        wanted <= self.version && (wanted >= self.floor || holders.snapshots.contains(&wanted))
    }

    /// The retired objects that no reader and no snapshot needs. The floor has been raised before `holders`
    /// was read.
    #[must_use]
    pub fn removable(&self, holders: &Holders) -> Vec<ObjectId> {
        let retired = self.retired.iter();
        let free = retired.filter(|(_, life)| life.retired <= self.floor && !holders.need(**life));
        free.map(|(object, _)| *object).collect()
    }

    /// Those of the listed objects that no version names or will ever name: their session is gone, so nothing
    /// that it wrote can become true any more. The list was made before the partition was read.
    #[must_use]
    pub fn orphans(&self, listed: &[ObjectId], holders: &Holders) -> Vec<ObjectId> {
        let named: BTreeSet<ObjectId> = self.objects().chain(self.retired.keys().copied()).collect();
        let is_orphan =
            |object: &&ObjectId| !named.contains(object) && !holders.sessions.contains_key(&object.session);
        listed.iter().filter(is_orphan).copied().collect()
    }

    /// The lowest version whose edit must stay in its cell, snapshots apart: whatever may still be read or
    /// looked up.
    #[must_use]
    pub fn history_from(&self, holders: &Holders) -> Version {
        holders.lowest().map_or(self.floor, |from| from.min(self.floor))
    }
}

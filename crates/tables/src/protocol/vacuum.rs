//! Vacuum: which objects and which history can be removed.
//!
//! A vacuum is safe because of the order of its steps:
//!
//! 1. [`super::Edit::RaiseFloor`]: from this point on, no reader starts on an older version.
//! 2. Remove the cells of expired sessions, each on the condition that it is unchanged since it was read.
//! 3. Read the partition: [`Holders`] and the manifest in one consistent read. It shows every reader that
//!    started on an older version before the floor rose, because a session is written before its version is
//!    resolved.
//! 4. Remove the [`Manifest::removable`] objects, then [`super::Edit::Forget`] them.
//! 5. List the objects of the store, and *after* that read the partition again. Remove the
//!    [`Manifest::orphans`].
//!
//! Every removal is idempotent. A crash in between only leaves work for the next vacuum.

use super::{Life, Manifest, ObjectId, SessionId, Version};
use std::collections::{BTreeMap, BTreeSet};

/// The session of one table handle, as stored in its cell.
///
/// The cell is created on the condition that it is absent, and changed on the condition that it is unchanged,
/// so that no late write can bring back a session that a vacuum ended. A process that does not learn whether
/// its cell was created takes another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// The lowest version that the session may read, and whose author it may look up. It only rises.
    pub from: Version,
}

/// The sessions and snapshots that need old versions, from one read of the manifest partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holders {
    /// The sessions whose cells exist, expired or not.
    pub sessions: BTreeMap<SessionId, Session>,
    /// The versions that snapshots keep.
    pub snapshots: BTreeSet<Version>,
}

impl Holders {
    /// The lowest version that any session reads; `None` without sessions.
    fn lowest(&self) -> Option<Version> {
        self.sessions.values().map(|session| session.from).min()
    }

    /// Whether a session or snapshot may read a version that names the object.
    fn need(&self, life: Life) -> bool {
        let in_session = self.lowest().is_some_and(|from| from < life.retired);
        in_session || self.snapshots.range(life.born..life.retired).next().is_some()
    }
}

impl Manifest {
    /// Whether version `wanted` can be read by a process that wrote its session before it read this manifest.
    #[must_use]
    pub fn is_readable(&self, wanted: Version, holders: &Holders) -> bool {
        wanted <= self.version && (wanted >= self.floor || holders.snapshots.contains(&wanted))
    }

    /// The retired objects that no reader and no snapshot needs. The caller must have raised the floor before
    /// it read `holders`.
    #[must_use]
    pub fn removable(&self, holders: &Holders) -> Vec<ObjectId> {
        let retired = self.retired.iter();
        let free = retired.filter(|(_, life)| life.retired <= self.floor && !holders.need(**life));
        free.map(|(object, _)| *object).collect()
    }

    /// Those of the listed objects that no version names or will ever name. Their session is gone, so none of
    /// its writes can be committed any more. The caller must have made the list before it read the partition.
    #[must_use]
    pub fn orphans(&self, listed: &[ObjectId], holders: &Holders) -> Vec<ObjectId> {
        let named: BTreeSet<ObjectId> = self.objects().chain(self.retired.keys().copied()).collect();
        let is_orphan =
            |object: &&ObjectId| !named.contains(object) && !holders.sessions.contains_key(&object.session);
        listed.iter().filter(is_orphan).copied().collect()
    }

    /// The lowest version whose edit must stay in its cell because it may still be read or looked up, not
    /// counting snapshots.
    #[must_use]
    pub fn history_from(&self, holders: &Holders) -> Version {
        holders.lowest().map_or(self.floor, |from| from.min(self.floor))
    }
}

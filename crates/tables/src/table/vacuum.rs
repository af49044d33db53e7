//! Vacuum: removes what is needed by no readable version and no snapshot, in the order that
//! [`crate::protocol`] requires.
//!
//! Readers of this release hold no lease. A query that finds an object missing starts again with the current
//! version; a query of a given older version, and a refinement, end with [`TableError::VersionGone`].
//!
//! Invariant: an object is removed only after the floor rose above every version that names it, except
//! snapshots.
//! Invariant: every removal is idempotent; an interrupted vacuum only leaves work for the next one.

mod history;

use super::names::Names;
use super::{Table, TableError, codec, dropped};
use crate::protocol::{Cell, Edit, Holders, ObjectId, Session, SessionId, Version};
use atoll_store::{Batch, PartitionQuery, Store, StoreError, WriteOptions};
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};

/// Number of concurrent removals.
const REMOVALS_AT_ONCE: usize = 32;

/// How many removed objects one edit forgets.
const FORGOTTEN_EACH: usize = 4096;

/// If only history can be removed, the floor rises once this many versions are above it.
const HISTORY_MIN: u64 = 64;

/// What a vacuum removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacuumReport {
    /// The oldest readable version, not counting snapshots.
    pub oldest: u64,
    /// Objects removed that only older versions named.
    pub objects: u64,
    /// Objects removed that never became part of a version, left by sessions that have ended.
    pub orphans: u64,
    /// Edits and whole manifests removed that led to older versions only.
    pub history: u64,
}

impl Table {
    /// Removes what only versions before the current one need. Those can no longer be read afterwards, except
    /// ones that a snapshot keeps. Also removes what processes that ended while writing left behind, in this
    /// table and in a few of those that were dropped.
    ///
    /// May run at any time, in any process, alongside writers, readers and packers, and again after a crash.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn vacuum(&self) -> Result<VacuumReport, TableError> {
        let objects = self.remove_retired().await?;
        self.end_expired().await?;
        let orphans = self.remove_orphans().await?;
        let (oldest, history) = self.remove_past().await?;
        dropped::sweep(&*self.store).await?;
        Ok(VacuumReport { oldest: oldest.0, objects, orphans, history })
    }

    /// Raises the floor, then removes the objects that were retired below it.
    async fn remove_retired(&self) -> Result<u64, TableError> {
        let state = self.ledger.current().await?;
        let floor = state.manifest.floor;
        let has_history = state.head.version.0.saturating_sub(floor.0) > HISTORY_MIN;
        if has_history || state.manifest.retired.values().any(|life| life.retired > floor) {
            self.ledger.commit(Edit::RaiseFloor { to: state.head.version }).await?;
        }
        // Read the manifest before the snapshots: everything to be removed lies below the floor of this
        // manifest. A snapshot below that floor was made before the floor rose, and is therefore seen. In the
        // other order, another vacuum might have raised the floor beyond a snapshot that was made after the
        // snapshots were read.
        let manifest = self.ledger.current().await?.manifest;
        let holders = Holders { sessions: BTreeMap::new(), snapshots: self.kept_versions().await? };
        let free = manifest.removable(&holders);
        for some in free.chunks(FORGOTTEN_EACH) {
            self.remove_objects(some).await?;
            self.ledger.commit(Edit::Forget { objects: some.to_vec() }).await?;
        }
        Ok(free.len() as u64)
    }

    /// Removes the history below the floor; returns the floor and the number of cells removed.
    async fn remove_past(&self) -> Result<(Version, u64), TableError> {
        // In the order of [`Table::remove_retired`], for the same reason.
        let manifest = self.ledger.current().await?.manifest;
        let holders = Holders { sessions: self.sessions().await?, snapshots: self.kept_versions().await? };
        Ok((manifest.floor, self.remove_history(&manifest, &holders).await?))
    }

    /// The versions that snapshots keep.
    async fn kept_versions(&self) -> Result<BTreeSet<Version>, TableError> {
        // Listed twice, because a listing of many pages may miss a snapshot that is renamed in the meantime:
        // the new name may lie before the current page, and the old one be gone when its page is read. The
        // new name is created before the old one is deleted, so the second listing has what the first one
        // missed.
        let (first, second) = (self.ledger.snapshots().await?, self.ledger.snapshots().await?);
        Ok(first.values().chain(second.values()).map(|kept| kept.version).collect())
    }

    /// The sessions whose cells exist.
    async fn sessions(&self) -> Result<BTreeMap<SessionId, Session>, TableError> {
        let mut sessions = BTreeMap::new();
        for (name, cell) in self.ledger.cells_of(Cell::Session(SessionId(0))).await? {
            let (from, _) = codec::session_from_json(&self.name, &cell)?;
            sessions.extend(session_of(&name).map(|id| (id, Session { from })));
        }
        Ok(sessions)
    }

    /// Ends expired sessions, each on the condition that its cell is unchanged.
    async fn end_expired(&self) -> Result<(), TableError> {
        let now = self.store.now().await?.0;
        for (name, cell) in self.ledger.cells_of(Cell::Session(SessionId(0))).await? {
            let (_, expires) = codec::session_from_json(&self.name, &cell)?;
            let Some(id) = session_of(&name).filter(|_| expires < now) else { continue };
            let key = Cell::Session(id).sort_key();
            let end = Batch::on(self.names.manifest()).if_equals(key.as_slice(), cell).delete(key.as_slice());
            match self.store.write(end, WriteOptions::default()).await {
                // Renewed in the meantime, or ended by another process.
                Ok(_) | Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes objects of ended sessions that no version names.
    async fn remove_orphans(&self) -> Result<u64, TableError> {
        let listed = listed_objects(&*self.store, &self.names).await?;
        // Read the sessions before the manifest: whatever a session committed before it ended is then in the
        // manifest.
        let holders = Holders { sessions: self.sessions().await?, ..Holders::default() };
        let manifest = self.ledger.current().await?.manifest;
        let orphans = manifest.orphans(&listed, &holders);
        self.remove_objects(&orphans).await?;
        Ok(orphans.len() as u64)
    }

    pub(super) async fn remove_objects(&self, objects: &[ObjectId]) -> Result<(), TableError> {
        let removals = objects.iter().copied().map(|object| {
            let partition = self.names.object(object);
            async move { self.store.delete_partition(&partition, WriteOptions::default()).await }
        });
        let removals: Vec<_> = removals.collect();
        futures::stream::iter(removals)
            .buffer_unordered(REMOVALS_AT_ONCE)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        Ok(())
    }

    /// Replaces the error of a query that misses an object by [`TableError::VersionGone`] if a vacuum is the
    /// reason.
    pub(super) async fn if_vacuumed(&self, version: Version, error: TableError) -> TableError {
        if !matches!(error, TableError::ObjectGone { .. }) {
            return error;
        }
        match self.ledger.current().await {
            Ok(state) if state.manifest.floor > version => match self.ledger.snapshots().await {
                // A vacuum never removes what a snapshot keeps, so this is damage.
                Ok(kept) if kept.values().any(|kept| kept.version == version) => error,
                Ok(_) => {
                    let oldest = state.manifest.floor;
                    TableError::VersionGone { table: self.name.clone(), asked: version, oldest }
                }
                Err(why) => why,
            },
            Ok(_) => error,
            // The table was dropped or the store fails, so damage cannot be inferred.
            Err(why) => why,
        }
    }
}

/// The existing objects of a table, whether a version names them or not.
pub(super) async fn listed_objects(store: &dyn Store, names: &Names) -> Result<Vec<ObjectId>, TableError> {
    let prefix = names.objects();
    let mut query = PartitionQuery::prefix(prefix.clone());
    let mut listed = Vec::new();
    loop {
        let page = store.partition_keys(query.clone()).await?;
        listed.extend(page.partitions.iter().filter_map(|name| object_of(name.get(prefix.len()..)?)));
        query.resume = page.resume;
        if query.resume.is_none() {
            return Ok(listed);
        }
    }
}

/// The session id at the beginning of a cell's or object's name.
fn session_of(name: &[u8]) -> Option<SessionId> {
    Some(SessionId(u128::from_be_bytes(*name.first_chunk()?)))
}

fn object_of(name: &[u8]) -> Option<ObjectId> {
    let sequence = u64::from_be_bytes(name.get(16..)?.try_into().ok()?);
    Some(ObjectId { session: session_of(name)?, sequence })
}

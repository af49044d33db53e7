//! Vacuum: takes away what no version that can still be asked, and no snapshot, needs; in the order that
//! [`crate::protocol`] gives.
//!
//! Readers of this release hold no lease. A query that finds an object gone begins again with the current
//! version; one that was pinned to an older version, and a refinement, end with [`TableError::VersionGone`].
//!
//! Invariant: an object is removed only after the floor rose above every version that names it, snapshots
//! apart.
//! Invariant: every removal may be repeated; a vacuum that is broken off leaves only work for the next one.

mod history;

use super::names::Names;
use super::{Table, TableError, codec};
use crate::protocol::{Cell, Edit, Holders, ObjectId, Session, SessionId, Version};
use atoll_store::{Batch, PartitionQuery, Store, StoreError, WriteOptions};
use futures::{StreamExt, TryStreamExt};
use std::collections::{BTreeMap, BTreeSet};

/// How many removals are on their way at a time.
const AT_ONCE: usize = 32;

/// How many removed objects one edit forgets.
const FORGOTTEN_EACH: usize = 4096;

/// The floor rises for the sake of history alone once this many versions lie above it.
const HISTORY_MIN: u64 = 64;

/// What a vacuum did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacuumReport {
    /// The oldest version that can still be asked, snapshots apart.
    pub oldest: u64,
    /// Objects that only older versions had, and that are gone now.
    pub objects: u64,
    /// Objects that never became part of a version, left by processes that ended, and that are gone now.
    pub orphans: u64,
    /// Edits and whole manifests that lead to older versions alone, and that are gone now.
    pub history: u64,
}

impl Table {
    /// Removes what only versions before the current one need; they can be asked no longer then, but for
    /// those that a snapshot keeps. Also removes what processes left that ended while they wrote.
    ///
    /// May run at any time, in any process, beside writers, readers and packers; again after a crash.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn vacuum(&self) -> Result<VacuumReport, TableError> {
        let objects = self.remove_retired().await?;
        self.end_expired().await?;
        let orphans = self.remove_orphans().await?;
        let (oldest, history) = self.remove_past().await?;
        Ok(VacuumReport { oldest: oldest.0, objects, orphans, history })
    }

    /// Raises the floor, then removes what lies below it.
    async fn remove_retired(&self) -> Result<u64, TableError> {
        let state = self.ledger.current().await?;
        let floor = state.manifest.floor;
        let has_history = state.head.version.0.saturating_sub(floor.0) > HISTORY_MIN;
        if has_history || state.manifest.retired.values().any(|life| life.retired > floor) {
            self.ledger.commit(Edit::RaiseFloor { to: state.head.version }).await?;
        }
        // The manifest first, and then the snapshots: what goes lies below the floor of this manifest.
        // Whoever made a snapshot below it did so before that floor was there, and is seen; the other way
        // round, another vacuum may have raised the floor beyond a snapshot that was not there yet.
        let manifest = self.ledger.current().await?.manifest;
        let holders = Holders { sessions: BTreeMap::new(), snapshots: self.kept_versions().await? };
        let free = manifest.removable(&holders);
        for some in free.chunks(FORGOTTEN_EACH) {
            self.remove_objects(some).await?;
            self.ledger.commit(Edit::Forget { objects: some.to_vec() }).await?;
        }
        Ok(free.len() as u64)
    }

    /// Removes history below the floor; the floor, and how much that was.
    async fn remove_past(&self) -> Result<(Version, u64), TableError> {
        // In the order of [`Table::remove_retired`], and for the same reason.
        let manifest = self.ledger.current().await?.manifest;
        let holders = Holders { sessions: self.sessions().await?, snapshots: self.kept_versions().await? };
        Ok((manifest.floor, self.remove_history(&manifest, &holders).await?))
    }

    /// The versions that snapshots keep.
    async fn kept_versions(&self) -> Result<BTreeSet<Version>, TableError> {
        // Twice, since a listing of many pages may miss a snapshot that is given another name meanwhile: the
        // new name comes before the page that is read, and the old one is gone by its own. The new one was
        // there before the old one went, so the second listing has what the first one missed.
        let (first, second) = (self.ledger.snapshots().await?, self.ledger.snapshots().await?);
        Ok(first.values().chain(second.values()).map(|kept| kept.version).collect())
    }

    /// The sessions whose cells are there.
    async fn sessions(&self) -> Result<BTreeMap<SessionId, Session>, TableError> {
        let mut sessions = BTreeMap::new();
        for (name, cell) in self.ledger.cells_of(Cell::Session(SessionId(0))).await? {
            let (from, _) = codec::session_from_json(&self.name, &cell)?;
            sessions.extend(session_of(&name).map(|id| (id, Session { from })));
        }
        Ok(sessions)
    }

    /// Ends sessions whose time is over, each as it was read.
    async fn end_expired(&self) -> Result<(), TableError> {
        let now = self.store.now().await?.0;
        for (name, cell) in self.ledger.cells_of(Cell::Session(SessionId(0))).await? {
            let (_, expires) = codec::session_from_json(&self.name, &cell)?;
            let Some(id) = session_of(&name).filter(|_| expires < now) else { continue };
            let key = Cell::Session(id).sort_key();
            let end = Batch::on(self.names.manifest()).if_equals(key.as_slice(), cell).delete(key.as_slice());
            match self.store.write(end, WriteOptions::default()).await {
                // Renewed meanwhile, or ended by another.
                Ok(_) | Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes objects of sessions that have ended which no version names.
    async fn remove_orphans(&self) -> Result<u64, TableError> {
        let listed = listed_objects(&*self.store, &self.names).await?;
        // The sessions before the manifest: what a session made true before it ended is in the manifest then.
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
        futures::stream::iter(removals).buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await?;
        Ok(())
    }

    /// What became of a query that found something missing: whether a vacuum took it away meanwhile.
    pub(super) async fn if_vacuumed(&self, version: Version, error: TableError) -> TableError {
        if !matches!(error, TableError::ObjectGone { .. }) {
            return error;
        }
        match self.ledger.current().await {
            Ok(state) if state.manifest.floor > version => match self.ledger.snapshots().await {
                // What a snapshot keeps, no vacuum takes away: it is damaged.
                Ok(kept) if kept.values().any(|kept| kept.version == version) => error,
                Ok(_) => {
                    let oldest = state.manifest.floor;
                    TableError::VersionGone { table: self.name.clone(), asked: version, oldest }
                }
                Err(why) => why,
            },
            Ok(_) => error,
            // The table was dropped, or the store fails: that anything is damaged is not known.
            Err(why) => why,
        }
    }
}

/// The objects of a table that are there, whether a version names them or not.
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

/// The session that the rest of a cell's name, or of an object's, says.
fn session_of(name: &[u8]) -> Option<SessionId> {
    Some(SessionId(u128::from_be_bytes(*name.first_chunk()?)))
}

fn object_of(name: &[u8]) -> Option<ObjectId> {
    let sequence = u64::from_be_bytes(name.get(16..)?.try_into().ok()?);
    Some(ObjectId { session: session_of(name)?, sequence })
}

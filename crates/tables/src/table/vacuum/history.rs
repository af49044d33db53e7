//! The history that a vacuum removes: edits and whole manifests that lead to no readable version.
//!
//! ```text
//!  edits   1 2 3 4 5 6 7 8 9 . . .        floor 9, a snapshot of 4
//!  wholes      3     6     9
//!  kept          4           . . .        4 by 3 and edit 4; everything since 9 by 9
//! ```
//!
//! Invariant: for each kept version, the whole manifest that it starts from is kept, and every edit in
//! between.
//! Invariant: the floor was raised before the snapshots were read, so no snapshot of an older version can
//! follow.
//! Invariant: the edits that a session may look up, from [`Session::from`] on, are kept.

use super::{Table, TableError, session_of};
use crate::protocol::{Cell, Holders, Manifest, ObjectId, Version};
use atoll_store::{Batch, WriteOptions};
use std::collections::BTreeSet;

/// Number of cells that one write removes.
const REMOVED_EACH: usize = 500;

/// The edits and whole manifests that must be kept.
#[derive(Debug, PartialEq, Eq)]
struct KeptHistory {
    /// The edits of all versions from this one on.
    from: Version,
    /// All whole manifests from this version on.
    whole_from: Version,
    /// For each earlier snapshot: the whole manifest that it starts from, and its version.
    chains: Vec<(Version, Version)>,
}

impl KeptHistory {
    /// What must be kept for readers from `lowest` on and for snapshots, in a table with these whole
    /// manifests.
    fn of(lowest: Version, snapshots: &BTreeSet<Version>, wholes: &BTreeSet<Version>) -> Self {
        let whole_before = |version: Version| wholes.range(..=version).next_back().copied();
        let whole_from = whole_before(lowest).unwrap_or(Version::EMPTY);
        // The edit of the lowest version is always kept, because a session may look up who made it.
        let from = whole_from.next().min(lowest);
        let below = snapshots.range(..lowest);
        let chains = below.map(|kept| (whole_before(*kept).unwrap_or(Version::EMPTY), *kept)).collect();
        Self { from, whole_from, chains }
    }

    fn has_edit(&self, version: Version) -> bool {
        version >= self.from || self.chains.iter().any(|(whole, kept)| version > *whole && version <= *kept)
    }

    fn has_whole(&self, version: Version) -> bool {
        version >= self.whole_from || self.chains.iter().any(|(whole, _)| version == *whole)
    }
}

impl Table {
    /// Removes the history that `manifest` no longer needs; returns the number of edits and whole manifests
    /// removed.
    pub(super) async fn remove_history(
        &self,
        manifest: &Manifest,
        holders: &Holders,
    ) -> Result<u64, TableError> {
        let lowest = manifest.history_from(holders);
        let wholes = self.ledger.versions_of(Cell::Full, lowest.next()).await?;
        let kept = KeptHistory::of(lowest, &holders.snapshots, &wholes);
        let edits = self.ledger.versions_of(Cell::Edit, kept.from).await?;
        let gone_edits = edits.into_iter().filter(|version| !kept.has_edit(*version)).map(Cell::Edit);
        let gone_wholes = wholes.into_iter().filter(|version| !kept.has_whole(*version)).map(Cell::Full);
        let gone: Vec<Cell> = gone_edits.chain(gone_wholes).collect();
        self.remove_cells(&gone).await?;
        self.remove_parts().await?;
        Ok(gone.len() as u64)
    }

    /// Removes parts that no whole manifest names: those of removed manifests, and of edits that were not
    /// committed.
    async fn remove_parts(&self) -> Result<(), TableError> {
        // Listed before the names are read, so that the list has nothing that is written in the meantime.
        let listed = self.ledger.names_of(Cell::Part(LOWEST_OBJECT, 0)).await?;
        let parts: Vec<(ObjectId, u32)> = listed.iter().filter_map(|name| part_of(name)).collect();
        if parts.is_empty() {
            return Ok(());
        }
        // Read after the list, because the session of each listed part had begun by then; and before the
        // names, because they include whatever a session committed before it ended.
        let sessions = self.sessions().await?;
        let named = self.ledger.named_parts().await?;
        // An active session may be about to name its own parts.
        let is_free =
            |(name, _): &&(ObjectId, u32)| !named.contains(name) && !sessions.contains_key(&name.session);
        let gone: Vec<Cell> =
            parts.iter().filter(is_free).map(|(name, number)| Cell::Part(*name, *number)).collect();
        self.remove_cells(&gone).await
    }

    async fn remove_cells(&self, cells: &[Cell]) -> Result<(), TableError> {
        for some in cells.chunks(REMOVED_EACH) {
            let empty = Batch::on(self.names.manifest());
            let batch = some.iter().fold(empty, |batch, cell| batch.delete(cell.sort_key()));
            self.store.write(batch, WriteOptions::default()).await?;
        }
        Ok(())
    }
}

/// An id before that of every other object.
const LOWEST_OBJECT: ObjectId = ObjectId { session: crate::protocol::SessionId(0), sequence: 0 };

/// The part named by the rest of a cell's name.
fn part_of(name: &[u8]) -> Option<(ObjectId, u32)> {
    let sequence = u64::from_be_bytes(name.get(16..24)?.try_into().ok()?);
    let number = u32::from_be_bytes(name.get(24..)?.try_into().ok()?);
    Some((ObjectId { session: session_of(name)?, sequence }, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_conformance::{Relay, Relayed};
    use atoll_memory::MemoryStore;
    use atoll_store::{ScanPage, ScanRequest, Store, StoreFuture};
    use std::sync::Arc;

    /// A store in which another process begins a session, and writes a part of a whole manifest under it,
    /// right before the parts are listed.
    struct Beside {
        inner: Arc<dyn Store>,
        other: Table,
    }

    impl Beside {
        async fn write_part(&self) -> Result<(), atoll_store::StoreError> {
            let session = self.other.ledger.session().await.unwrap().id;
            let part = Cell::Part(ObjectId { session, sequence: 1 }, 0).sort_key();
            let write = Batch::on(self.other.names.manifest()).put(part, b"on its way".to_vec());
            self.inner.write(write, WriteOptions::default()).await.map(drop)
        }
    }

    impl Relay for Beside {
        fn inner(&self) -> &dyn Store {
            &*self.inner
        }

        fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
            let lists_parts = request.partition == self.other.names.manifest()
                && request.range.contains(&Cell::Part(LOWEST_OBJECT, 0).sort_key());
            Box::pin(async move {
                if lists_parts {
                    self.write_part().await?;
                }
                self.inner.scan(request).await
            })
        }
    }

    #[tokio::test]
    async fn a_part_stays_whose_session_began_while_a_vacuum_was_under_way() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let other = Table::create(Arc::clone(&inner), "run", crate::table::tests::schema()).await.unwrap();
        let store = Relayed(Beside { inner, other: other.clone() });
        let table = Table::open(Arc::new(store), "run").await.unwrap();
        table.vacuum().await.unwrap();
        assert_eq!(other.ledger.names_of(Cell::Part(LOWEST_OBJECT, 0)).await.unwrap().len(), 1);
    }

    fn set<const N: usize>(versions: [u64; N]) -> BTreeSet<Version> {
        versions.map(Version).into()
    }

    fn edits(kept: &KeptHistory, up_to: u64) -> Vec<u64> {
        (1..=up_to).filter(|version| kept.has_edit(Version(*version))).collect()
    }

    #[test]
    fn every_version_that_may_be_asked_has_its_whole_manifest_and_all_edits_after_it() {
        let kept = KeptHistory::of(Version(10), &set([4, 12]), &set([3, 6, 9, 12]));
        assert_eq!(edits(&kept, 12), [4, 10, 11, 12]);
        let wholes = [3, 6, 9, 12].map(|version| kept.has_whole(Version(version)));
        assert_eq!(wholes, [true, false, true, true]);
    }

    #[test]
    fn before_the_first_whole_manifest_nothing_goes() {
        let kept = KeptHistory::of(Version(5), &set([2]), &set([]));
        assert_eq!(edits(&kept, 6), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_edit_of_a_version_with_a_whole_manifest_stays_for_sessions_that_begin_there() {
        let kept = KeptHistory::of(Version(6), &set([6]), &set([3, 6]));
        assert_eq!(edits(&kept, 7), [6, 7]);
        assert!(kept.has_whole(Version(6)) && !kept.has_whole(Version(3)));
    }
}

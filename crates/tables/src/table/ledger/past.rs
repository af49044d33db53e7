//! Older versions: the content of the table before the current version.

use super::{Ledger, TableError};
use crate::planted::{self, Bug};
use crate::protocol::{Cell, EditError, Manifest, Version};
use atoll_store::{Direction, Projection, ScanRequest, SortRange};
use std::sync::Arc;

impl Ledger {
    /// The manifest of a version.
    pub(in crate::table) async fn as_of(&self, version: Version) -> Result<Arc<Manifest>, TableError> {
        let current = self.current().await?;
        if version == current.head.version {
            return Ok(current.manifest);
        }
        if version > current.head.version {
            return Err(EditError::Ahead { asked: version, current: current.head.version }.into());
        }
        let oldest = current.manifest.floor;
        let is_kept = |kept: &super::SnapshotCell| kept.version == version;
        if version < oldest && !self.snapshots().await?.values().any(is_kept) {
            return Err(self.gone(version, oldest));
        }
        if planted::is(Bug::PastReadsPresent) {
            return Ok(Arc::new(Manifest { version, ..Arc::unwrap_or_clone(current.manifest) }));
        }
        match self.read_past(version).await {
            Err(error @ TableError::Damaged { .. }) => Err(self.if_gone(version, error).await),
            ended => ended,
        }
    }

    async fn read_past(&self, version: Version) -> Result<Arc<Manifest>, TableError> {
        let whole = self.full(self.full_before(version).await?).await?;
        self.advance(whole, version).await
    }

    /// The error for a version with missing history: it is gone if a vacuum removed it in the meantime.
    async fn if_gone(&self, version: Version, error: TableError) -> TableError {
        match (self.current().await, self.snapshots().await) {
            (Ok(state), Ok(kept)) if kept.values().all(|kept| kept.version != version) => {
                let oldest = state.manifest.floor;
                if version < oldest { self.gone(version, oldest) } else { error }
            }
            _ => error,
        }
    }

    fn gone(&self, asked: Version, oldest: Version) -> TableError {
        TableError::VersionGone { table: self.table.clone(), asked, oldest }
    }

    /// The last version up to `version` that has a whole manifest.
    async fn full_before(&self, version: Version) -> Result<Version, TableError> {
        let request = ScanRequest {
            range: SortRange::half_open(
                Cell::Full(Version::EMPTY).sort_key(),
                Cell::Full(version.next()).sort_key(),
            ),
            direction: Direction::Backward,
            projection: Projection::KeysOnly,
            limit: 1,
            ..ScanRequest::all(self.partition.as_slice())
        };
        let page = self.store.scan(request).await?;
        let number = page.entries.first().and_then(|entry| entry.sort.get(1..)?.try_into().ok());
        Ok(number.map_or(Version::EMPTY, |number| Version(u64::from_be_bytes(number))))
    }
}

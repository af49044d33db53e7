//! Snapshots in the ledger: cells that each keep a version under a name.
//!
//! Invariant: a snapshot's cell is written on the condition that the head is unchanged since the version was
//! found readable, and so is the snapshot that kept the version until then, if one did.

use super::super::codec;
use super::{Ledger, TableError, is_unknown};
use crate::protocol::{Cell, EditError, Version};
use atoll_store::{Batch, StoreError, WriteOptions};
use std::collections::BTreeMap;

/// How often a write with an unknown outcome is repeated.
const UNKNOWN_MAX: usize = 16;

/// The content of a snapshot's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct SnapshotCell {
    pub(in crate::table) version: Version,
    /// Time of creation, in nanoseconds of the store's clock.
    pub(in crate::table) made: u64,
}

impl Ledger {
    /// The snapshots, by name.
    pub(in crate::table) async fn snapshots(&self) -> Result<BTreeMap<Vec<u8>, SnapshotCell>, TableError> {
        let mut snapshots = BTreeMap::new();
        for (name, cell) in self.cells_of(Cell::Snapshot(Vec::new())).await? {
            snapshots.insert(name, codec::snapshot_from_json(&self.table, &cell)?);
        }
        Ok(snapshots)
    }

    /// Keeps a version, by default the current one, under a name. Idempotent.
    pub(in crate::table) async fn keep_snapshot(
        &self,
        name: &str,
        mut wanted: Option<Version>,
    ) -> Result<Version, TableError> {
        let cell = Cell::Snapshot(name.as_bytes().to_vec()).sort_key();
        let is_current = wanted.is_none();
        let mut unknown = 0;
        loop {
            let state = self.current().await?;
            // Every try keeps the same version if an earlier one may have succeeded.
            let version = *wanted.get_or_insert(state.head.version);
            let snapshots = self.snapshots().await?;
            if let Some(kept) = snapshots.get(name.as_bytes()) {
                let is_same = kept.version == version;
                return if is_same { Ok(version) } else { Err(self.exists(name, kept.version)) };
            }
            let holder = snapshots.iter().find(|(_, kept)| kept.version == version);
            self.check_readable(version, &state, holder.is_some())?;
            let kept = SnapshotCell { version, made: self.store.now().await?.0 };
            let head = Cell::Head.sort_key();
            let is =
                (state.head != crate::protocol::Head::default()).then(|| codec::head_to_bytes(state.head));
            let mut batch = Batch::on(self.partition.as_slice())
                .if_is(head.as_slice(), is)
                .if_absent(Cell::Dropped.sort_key())
                .if_absent(cell.as_slice())
                .put(cell.as_slice(), codec::snapshot_to_json(kept).into_bytes());
            if let Some((holder, kept)) = holder {
                let key = Cell::Snapshot(holder.clone()).sort_key();
                batch = batch.if_equals(key, codec::snapshot_to_json(*kept).into_bytes());
            }
            match self.store.write(batch, WriteOptions::default()).await {
                Ok(_) => return Ok(version),
                // An edit was committed, or another process was faster: look again. A vacuum may have removed
                // the version that was current, and the caller did not ask for that one in particular.
                Err(StoreError::Conflict(_)) if is_current && unknown == 0 => wanted = None,
                Err(StoreError::Conflict(_)) => {}
                Err(error) if is_unknown(&error) && unknown < UNKNOWN_MAX => unknown += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn check_readable(
        &self,
        version: Version,
        state: &super::State,
        is_kept: bool,
    ) -> Result<(), TableError> {
        let current = state.head.version;
        if version > current {
            return Err(EditError::Ahead { asked: version, current }.into());
        }
        let oldest = state.manifest.floor;
        if version < oldest && !is_kept {
            return Err(TableError::VersionGone { table: self.table.clone(), asked: version, oldest });
        }
        Ok(())
    }

    fn exists(&self, name: &str, version: Version) -> TableError {
        TableError::SnapshotExists { table: self.table.clone(), name: name.to_owned(), version }
    }

    /// Deletes a snapshot; returns whether it existed.
    pub(in crate::table) async fn forget_snapshot(&self, name: &str) -> Result<bool, TableError> {
        let is_there = self.snapshots().await?.contains_key(name.as_bytes());
        let key = Cell::Snapshot(name.as_bytes().to_vec()).sort_key();
        let cell = atoll_store::Cell::new(&self.partition, &key);
        self.store.delete(cell, WriteOptions::default()).await?;
        Ok(is_there)
    }
}

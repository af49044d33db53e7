//! Snapshots: versions that stay readable under a name, unaffected by vacuums.

use super::{Table, TableError, check_name};
use crate::protocol::Version;

/// A snapshot of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// Its name.
    pub name: String,
    /// The version that it keeps.
    pub version: Version,
    /// When it was made, in nanoseconds of the store's clock, usually since 1970.
    pub made: u64,
}

impl Table {
    /// Keeps a version, by default the current one, under a name; returns the version. Idempotent, unless a
    /// snapshot of that name keeps another version.
    ///
    /// A name is not empty, has at most 255 bytes and no control characters, and is not a number, since
    /// numbers denote versions.
    ///
    /// # Errors
    /// [`TableError::Name`], [`TableError::SnapshotExists`], [`TableError::VersionGone`],
    /// [`TableError::Edit`] for a version that does not exist yet, errors of the store.
    pub async fn create_snapshot(&self, name: &str, version: Option<Version>) -> Result<Version, TableError> {
        check_name("snapshot", name)?;
        let digits = name.strip_prefix(['+', '-']).unwrap_or(name);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TableError::Name {
                what: "snapshot",
                name: name.to_owned(),
                problem: "it is a number, like those of versions",
            });
        }
        self.ledger.keep_snapshot(name, version).await
    }

    /// The snapshots, sorted by name.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotSummary>, TableError> {
        let snapshots = self.ledger.snapshots().await?.into_iter();
        let summary = |(name, kept): (Vec<u8>, super::ledger::SnapshotCell)| SnapshotSummary {
            name: String::from_utf8_lossy(&name).into_owned(),
            version: kept.version,
            made: kept.made,
        };
        Ok(snapshots.map(summary).collect())
    }

    /// The version that a snapshot keeps.
    ///
    /// # Errors
    /// [`TableError::NoSnapshot`], [`TableError::Damaged`], errors of the store.
    pub async fn snapshot_version(&self, name: &str) -> Result<Version, TableError> {
        let snapshots = self.ledger.snapshots().await?;
        snapshots.get(name.as_bytes()).map(|kept| kept.version).ok_or_else(|| self.no_snapshot(name))
    }

    /// Deletes a snapshot. The next vacuum removes what only this snapshot kept.
    ///
    /// # Errors
    /// [`TableError::NoSnapshot`], errors of the store.
    pub async fn delete_snapshot(&self, name: &str) -> Result<(), TableError> {
        match self.ledger.forget_snapshot(name).await? {
            true => Ok(()),
            false => Err(self.no_snapshot(name)),
        }
    }

    fn no_snapshot(&self, name: &str) -> TableError {
        TableError::NoSnapshot { table: self.name.clone(), name: name.to_owned() }
    }
}

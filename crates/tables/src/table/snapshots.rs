//! Snapshots: versions that stay readable under a name, whatever a vacuum takes away.

use super::{Table, TableError, check_name};
use crate::protocol::Version;

/// A snapshot of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// Its name.
    pub name: String,
    /// The version that it keeps.
    pub version: Version,
    /// When it was made, in nanoseconds of the store's clock, which count from 1970 as a rule.
    pub made: u64,
}

impl Table {
    /// Keeps a version under a name, the current one if none is given; the version. Doing it again changes
    /// nothing, unless there is one of that name with another version.
    ///
    /// A name is not empty, has at most 255 bytes and no control characters, and is no number: versions are
    /// asked by numbers.
    ///
    /// # Errors
    /// [`TableError::Name`], [`TableError::SnapshotExists`], [`TableError::VersionGone`],
    /// [`TableError::Edit`] for a version that is not there yet, errors of the store.
    pub async fn create_snapshot(&self, name: &str, version: Option<Version>) -> Result<Version, TableError> {
        check_name("snapshot", name)?;
        let digits = name.strip_prefix(['+', '-']).unwrap_or(name);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(TableError::Name {
                what: "snapshot",
                name: name.to_owned(),
                problem: "it is a number, as those of versions are",
            });
        }
        self.ledger.keep_snapshot(name, version).await
    }

    /// The snapshots, by name.
    ///
    /// # Errors
    /// [`TableError::Damaged`], errors of the store.
    pub async fn snapshots(&self) -> Result<Vec<SnapshotSummary>, TableError> {
        let snapshots = self.ledger.snapshots().await?.into_iter();
        let summary = |(name, kept): (Vec<u8>, super::ledger::Kept)| SnapshotSummary {
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

    /// Forgets a snapshot. What only it kept goes with the next vacuum.
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

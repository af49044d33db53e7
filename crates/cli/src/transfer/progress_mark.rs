//! How far an import came: a small record in the store itself, beside the imported data.
//!
//! It is kept in the store and not beside the source, so that it can never be ahead of the data: a power cut
//! loses a suffix of the commits, and the mark is committed after the data that it covers.
//!
//! Invariant: the mark is found by the path of the source, and trusted only if the part that was imported
//! still has the same checksum.

use crate::Failure;
use crate::transfer::{RESERVED_PREFIX, SourcePosition};
use atoll_store::{Cell, ReadOptions, Store, WriteOptions};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use twox_hash::XxHash3_128;

/// The state of an interrupted import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    version: u32,
    pub(crate) offset: u64,
    pub(crate) lines: u64,
    pub(crate) records: u64,
    pub(crate) skipped: u64,
    pub(crate) checksum: u64,
    /// How the source was read; read differently, the same bytes would become other records.
    pub(crate) plan: String,
}

impl Mark {
    pub(crate) fn new(
        place: SourcePosition,
        records: u64,
        skipped: u64,
        checksum: u64,
        plan: String,
    ) -> Self {
        Self { version: 1, offset: place.offset, lines: place.lines, records, skipped, checksum, plan }
    }

    pub(crate) fn place(&self) -> SourcePosition {
        SourcePosition { offset: self.offset, lines: self.lines }
    }
}

/// The cell that holds the mark of one source.
pub(crate) struct MarkCell {
    partition: Vec<u8>,
    sort: Vec<u8>,
}

impl MarkCell {
    /// The cell for the file at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        // Only a digest, so that no path of this machine ends up in a store that is copied elsewhere.
        let digest = XxHash3_128::oneshot(canonical.as_os_str().as_encoded_bytes());
        let partition = [RESERVED_PREFIX, b"import"].concat();
        Self { partition, sort: format!("{digest:032x}").into_bytes() }
    }

    pub(crate) fn cell(&self) -> Cell<'_> {
        Cell::new(&self.partition, &self.sort)
    }

    /// The mark, if an import of this source was interrupted.
    pub(crate) async fn read(
        &self,
        store: &dyn Store,
        deadline: Option<Duration>,
    ) -> Result<Option<Mark>, Failure> {
        let options = ReadOptions { deadline, ..ReadOptions::default() };
        let bytes = store.get(self.cell(), options).await?;
        // A mark of another version is ignored: the import starts over, which duplicates nothing.
        Ok(bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .filter(|mark: &Mark| mark.version == 1))
    }

    pub(crate) async fn write(
        &self,
        store: &dyn Store,
        mark: &Mark,
        options: WriteOptions,
    ) -> Result<(), Failure> {
        let bytes = serde_json::to_vec(mark).unwrap_or_default();
        store.put(self.cell(), &bytes, options).await?;
        Ok(())
    }

    pub(crate) async fn clear(&self, store: &dyn Store, options: WriteOptions) -> Result<(), Failure> {
        store.delete(self.cell(), options).await?;
        Ok(())
    }
}

//! Parts: the pieces in which a file is read.
//!
//! Invariant: records are counted alike whatever the sizes of the parts, so a reader that skips the first `n`
//! continues exactly after them.

use crate::RowFileError;
use arrow_array::RecordBatch;

/// Limits on the size of a part.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    /// The most rows.
    pub rows: usize,
    /// The approximate size of the columns in bytes.
    pub bytes: usize,
}

/// Consecutive rows of a file.
#[derive(Clone, Debug)]
pub struct Part {
    /// The rows, as the wanted columns.
    pub rows: RecordBatch,
    /// The number of records of the file up to the end of this part, including bad and skipped ones.
    pub end: u64,
    /// The bad records in it, which were skipped.
    pub bad: Vec<BadRecord>,
}

/// A record that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its line, counted from 1.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
}

/// The lines of a text file at which reading failed, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedAt {
    /// The line of the record.
    pub record: u64,
    /// The first line of the snapshot that was being read; where a format has no snapshots, that of the
    /// record. While the head of the next snapshot is read, this is still the one before it, since the two
    /// may be of the same step.
    pub snapshot: u64,
}

/// Reads rows part by part.
pub trait RowReader: Send {
    /// The next part; `None` at the end. Good rows before a failure are returned as a part first.
    ///
    /// # Errors
    /// [`RowFileError`] for what cannot be read; no parts follow it.
    fn next(&mut self, limits: PartLimits) -> Result<Option<Part>, RowFileError>;

    /// Skips this many records from the beginning, before anything is read. Returns how many there were.
    ///
    /// # Errors
    /// As for [`RowReader::next`].
    fn skip(&mut self, records: u64) -> Result<u64, RowFileError>;

    /// The number of bytes read from the file so far, for reporting progress.
    fn bytes_read(&self) -> u64;

    /// Where reading failed, once it did; `None` for formats without lines.
    fn failed_at(&self) -> Option<FailedAt> {
        None
    }
}

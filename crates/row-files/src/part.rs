//! Parts: what is read of a file at a time.
//!
//! Invariant: records are counted the same way whatever the sizes of the parts, so that a reader that passes
//! over the first `n` goes on exactly behind them.

use crate::RowFileError;
use arrow_array::RecordBatch;

/// How large a part may become.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    /// Rows.
    pub rows: usize,
    /// About how many bytes of columns.
    pub bytes: usize,
}

/// Rows that follow each other in a file.
#[derive(Clone, Debug)]
pub struct Part {
    /// The rows, as the columns that were asked for.
    pub rows: RecordBatch,
    /// Records of the file up to the end of this part, bad ones and those passed over included.
    pub end: u64,
    /// Bad records in it that were passed over.
    pub bad: Vec<BadRecord>,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// Its line, from 1.
    pub line: u64,
    /// What is wrong.
    pub problem: String,
}

/// Reads rows part by part.
pub trait RowReader: Send {
    /// The next part; none at the end. What was good before a failure comes as a part of its own, first.
    ///
    /// # Errors
    /// [`RowFileError`] for what cannot be read; nothing comes after it.
    fn next(&mut self, limits: PartLimits) -> Result<Option<Part>, RowFileError>;

    /// Passes over this many records from the beginning, before anything was read; how many there were.
    ///
    /// # Errors
    /// As for [`RowReader::next`].
    fn skip(&mut self, records: u64) -> Result<u64, RowFileError>;

    /// Bytes of the file that were read, for somebody who waits.
    fn bytes_read(&self) -> u64;
}

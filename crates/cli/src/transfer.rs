//! Import and export of cells as JSON Lines, CSV or length-prefixed binary.
//!
//! Invariant: memory does not grow with the size of the source; the size of a record is limited.
//! Invariant: an import only puts, so repeating a part of it changes nothing.

mod binary;
mod csv_rows;
mod error;
mod export;
mod import;
mod json_lines;
mod progress_mark;
mod source;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use binary::BinaryReader;
pub(crate) use csv_rows::{Columns, CsvReader};
pub(crate) use error::TransferError;
pub(crate) use export::{Export, export};
pub(crate) use import::{Import, ProgressReport, import};
pub(crate) use json_lines::JsonLinesReader;
pub(crate) use source::{Input, Tracked};

use clap::ValueEnum;
use std::path::Path;

/// One cell on its way in or out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) partition: Vec<u8>,
    pub(crate) sort: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Record {
    pub(crate) fn bytes(&self) -> usize {
        self.partition.len() + self.sort.len() + self.value.len()
    }
}

/// What a reader found at one position of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// The record, or what is wrong at this position.
    pub(crate) record: Result<Record, String>,
    /// Line of the position, from 1; the number of the record in a format without lines.
    pub(crate) line: u64,
    /// Where the next record starts.
    pub(crate) end: SourcePosition,
}

/// A position between two records of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SourcePosition {
    /// Bytes before this position.
    pub(crate) offset: u64,
    /// Lines before this position.
    pub(crate) lines: u64,
}

/// Reads records one by one.
pub(crate) trait RecordReader: Send {
    /// The next record or bad position; none at the end.
    ///
    /// # Errors
    /// If nothing after this position can be read.
    fn next(&mut self) -> Result<Option<Parsed>, TransferError>;

    /// The source, which keeps the checksum of what was read.
    fn tracked(&mut self) -> &mut Tracked;
}

/// Formats of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON Lines: {"partition": ..., "sort": ..., "value": ...}
    Jsonl,
    /// Comma-separated values with a header line
    Csv,
    /// Length-prefixed binary with a checksum for each record
    Binary,
}

impl Format {
    /// The format of a file name's ending.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "csv" => Some(Self::Csv),
            "atoll" | "bin" => Some(Self::Binary),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::Csv => "csv",
            Self::Binary => "binary",
        }
    }
}

/// Partitions with this prefix belong to Atoll: listings and exports leave them out.
pub(crate) const RESERVED_PREFIX: &[u8] = b"\0atoll.";

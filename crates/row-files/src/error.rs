//! Errors of row files, with file, place and column.

use crate::{Compression, Format, Input};
use atoll_errors::ErrorKind;
use std::io;

/// Why rows could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowFileError {
    /// The file cannot be opened.
    #[error("cannot open {file}")]
    Open {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {file}")]
    Write {
        /// The file.
        file: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A record cannot be read.
    #[error("{file}, {unit} {number}: {problem}")]
    Record {
        /// The file.
        file: String,
        /// The unit of `number`: lines or rows.
        unit: &'static str,
        /// The place of the record, counted from 1.
        number: u64,
        /// What is wrong.
        problem: String,
        /// The number of bad records that were skipped before it.
        skipped: u64,
    },
    /// The file does not have the format that it was read as, or is damaged.
    #[error("{file} cannot be read as {format}: {problem}")]
    Malformed {
        /// The file.
        file: String,
        /// The format it was read as.
        format: Format,
        /// What is wrong.
        problem: String,
    },
    /// A CSV file has no header line.
    #[error("there is no header line in {file}")]
    Header {
        /// The file.
        file: String,
    },
    /// The file is cut off.
    #[error("{file} ends early: {problem}")]
    Torn {
        /// The file.
        file: String,
        /// What is missing.
        problem: String,
    },
    /// A column that is not nullable is missing from the file.
    #[error("{file} has no column \"{column}\"")]
    Missing {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The column of the file with the most similar name.
        nearest: Option<String>,
        /// The columns of the file.
        present: Vec<String>,
    },
    /// A column that is to be renamed is missing from the file.
    #[error("{file} has no column \"{column}\" that could be renamed")]
    Rename {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The column of the file with the most similar name.
        nearest: Option<String>,
        /// The columns of the file.
        present: Vec<String>,
    },
    /// The file has a column that the table lacks.
    #[error("{file} has a column \"{column}\", which the table lacks")]
    Extra {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The column of the table with the most similar name.
        nearest: Option<String>,
    },
    /// Two columns of the file have the same name.
    #[error("{file} has two columns \"{column}\"")]
    Twice {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// A column of the file has a type that cannot be converted to the wanted one.
    #[error("column \"{column}\" of {file} is {found}, which cannot be converted to {wanted}")]
    Type {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// The type of the table's column.
        wanted: String,
    },
    /// A value does not fit the wanted type.
    #[error("column \"{column}\" of {file}: {problem}")]
    Value {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The value, and what is wrong with it.
        problem: String,
    },
    /// The file is compressed as a whole.
    #[error("{} is compressed with {compression}; decompress it to read it as {format}", .input.name())]
    Compressed {
        /// The file, or standard input.
        input: Input,
        /// The compression.
        compression: Compression,
        /// The format it was to be read as.
        format: Format,
    },
    /// The file is intact, but does not fit what was asked of it.
    #[error("{file}: {problem}")]
    Misfit {
        /// The file.
        file: String,
        /// What does not fit.
        problem: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// The format does not support the request, or the file holds something that is not supported.
    #[error("{what}")]
    Unsupported {
        /// What is not supported.
        what: String,
        /// What to do instead.
        hint: &'static str,
    },
}

impl RowFileError {
    /// The error kind that all doors share.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Open { source, .. } | Self::Read { source, .. } | Self::Write { source, .. } => {
                kind_of_io(source)
            }
            Self::Malformed { .. } | Self::Torn { .. } => ErrorKind::Corrupt,
            Self::Unsupported { .. } | Self::Compressed { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::InvalidInput,
        }
    }

    /// The underlying error of the operating system, if there is one.
    #[must_use]
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Open { source, .. } | Self::Read { source, .. } | Self::Write { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}

fn kind_of_io(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => ErrorKind::Conflict,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::OutOfSpace,
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        io::ErrorKind::PermissionDenied => ErrorKind::Unauthenticated,
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
            ErrorKind::InvalidInput
        }
        _ => ErrorKind::Unavailable,
    }
}

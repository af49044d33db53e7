//! What can go wrong with a file of rows, with file, place and column.

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
    /// A record that cannot be read.
    #[error("{file}, {unit} {number}: {problem}")]
    Record {
        /// The file.
        file: String,
        /// What `number` counts: lines or rows.
        unit: &'static str,
        /// Where, from 1.
        number: u64,
        /// What is wrong.
        problem: String,
        /// How many bad records were passed over before.
        skipped: u64,
    },
    /// The file is not what its name says, or it is damaged.
    #[error("{file} cannot be read as {format}: {problem}")]
    Malformed {
        /// The file.
        file: String,
        /// What it was read as.
        format: Format,
        /// What is wrong.
        problem: String,
    },
    /// A CSV file does not say what its columns are called.
    #[error("there is no header line in {file}")]
    Header {
        /// The file.
        file: String,
    },
    /// The file ends in the middle.
    #[error("{file} ends early: {problem}")]
    Torn {
        /// The file.
        file: String,
        /// What is missing.
        problem: String,
    },
    /// A column that may not be null is not in the file.
    #[error("{file} has no column \"{column}\"")]
    Missing {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The column of the file whose name is nearest.
        nearest: Option<String>,
        /// The columns of the file.
        present: Vec<String>,
    },
    /// A column that is to be called otherwise is not in the file.
    #[error("{file} has no column \"{column}\" that could be renamed")]
    Rename {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The column of the file whose name is nearest.
        nearest: Option<String>,
        /// The columns of the file.
        present: Vec<String>,
    },
    /// The file has a column that nobody asked for.
    #[error("{file} has a column \"{column}\", and the table has none")]
    Extra {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The column of the table whose name is nearest.
        nearest: Option<String>,
    },
    /// Two columns of the file have one name.
    #[error("{file} has two columns \"{column}\"")]
    Twice {
        /// The file.
        file: String,
        /// The column.
        column: String,
    },
    /// A column of the file has a type that does not become the wanted one.
    #[error("column \"{column}\" of {file} is {found}, which does not become {wanted}")]
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
        /// Which value, and what is wrong.
        problem: String,
    },
    /// The file is compressed as a whole.
    #[error("{} is compressed with {compression}, and is read as {format} only once it is not", .input.name())]
    Compressed {
        /// The file, or standard input.
        input: Input,
        /// How it begins.
        compression: Compression,
        /// What it was to be read as.
        format: Format,
    },
    /// The file is sound, and what was asked of it does not go together with what is in it.
    #[error("{file}: {problem}")]
    Misfit {
        /// The file.
        file: String,
        /// What does not go together.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// What is asked for cannot be done with this format, or the file holds what is not read.
    #[error("{what}")]
    Unsupported {
        /// What cannot be done.
        what: String,
        /// What to do instead.
        hint: &'static str,
    },
}

impl RowFileError {
    /// The kind of error, as all doors name it.
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

    /// The error of the operating system below it, if there is one.
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

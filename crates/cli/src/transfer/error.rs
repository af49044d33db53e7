//! Errors of imports and exports, with file, line and offset.

use atoll_errors::ErrorKind;
use std::io;

/// Why an import or export ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// A record that cannot be imported.
    #[error("{file}, {unit} {line}: {problem}")]
    Record {
        /// The source.
        file: String,
        /// What `line` counts.
        unit: &'static str,
        /// Where, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
        /// How many bad records were skipped before.
        skipped: u64,
    },
    /// The source cannot be read.
    #[error("cannot read {file} at byte {offset}")]
    Read {
        /// The source.
        file: String,
        /// About where.
        offset: u64,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The source cannot be opened.
    #[error("cannot open {file}")]
    Open {
        /// The source.
        file: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A record does not end within the size limit.
    #[error("{file}, line {line}: the record is longer than {bytes_max} bytes")]
    TooLong {
        /// The source.
        file: String,
        /// The line at which it starts, from 1.
        line: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The header of a CSV file lacks columns.
    #[error("{file}: {problem}")]
    Columns {
        /// The source.
        file: String,
        /// What is wrong.
        problem: String,
        /// The columns of the file.
        present: Vec<String>,
    },
    /// The bytes are not what was written.
    #[error("{file} is damaged at byte {offset}: {problem}")]
    Damaged {
        /// The source.
        file: String,
        /// Where the damage starts.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// The file is truncated.
    #[error("{file} ends early, at byte {offset}: {problem}")]
    Torn {
        /// The source.
        file: String,
        /// Where the incomplete part starts.
        offset: u64,
        /// What is missing.
        problem: &'static str,
    },
    /// The file ends inside quotes.
    #[error("{file} ends early: the record that begins on line {line} ends within quotes")]
    OpenQuote {
        /// The source.
        file: String,
        /// The line at which the record starts, from 1.
        line: u64,
    },
    /// Not a binary export.
    #[error("{file} is not a binary export of atoll")]
    NotBinary {
        /// The source.
        file: String,
    },
    /// A binary export of a newer release.
    #[error("{file} has format {found}; this build reads up to {supported}")]
    NewerFormat {
        /// The source.
        file: String,
        /// Format found.
        found: u32,
        /// The newest format that this build reads.
        supported: u32,
    },
    /// The part of the source that was imported before has changed.
    #[error("{file} changed since its import was interrupted at byte {offset}")]
    Changed {
        /// The source.
        file: String,
        /// How far the earlier import came.
        offset: u64,
    },
    /// The interrupted import read the source with other options.
    #[error("the interrupted import of {file} used another format, other columns or another encoding")]
    OtherPlan {
        /// The source.
        file: String,
    },
    /// The reading thread ended without a result: a bug.
    #[error("reading {file} ended without a result")]
    ReaderLost {
        /// The source.
        file: String,
    },
}

impl TransferError {
    /// The kind, the same for all doors.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Record { .. } | Self::TooLong { .. } | Self::Columns { .. } | Self::NotBinary { .. } => {
                ErrorKind::InvalidInput
            }
            Self::Read { source, .. } | Self::Open { source, .. } => crate::failure::kind_of_io(source),
            Self::Damaged { .. } | Self::Torn { .. } | Self::OpenQuote { .. } => ErrorKind::Corrupt,
            Self::NewerFormat { .. } => ErrorKind::NewerFormat,
            Self::Changed { .. } | Self::OtherPlan { .. } => ErrorKind::Conflict,
            Self::ReaderLost { .. } => ErrorKind::Internal,
        }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Record { skipped, .. } => {
                return Some(format!(
                    "repair it and run the same command again, which continues from there; or skip up to N bad \
                     records with --skip-bad N (skipped so far: {skipped})"
                ));
            }
            Self::Open { source, .. } | Self::Read { source, .. } => {
                crate::failure::hint_of_io(source).unwrap_or("look at it with `ls -l`")
            }
            Self::TooLong { .. } => "a value has at most 64 MiB; is the format right? name it with --format",
            Self::Columns { present, .. } if present.is_empty() => {
                "the first line of a CSV file names its columns"
            }
            Self::Columns { present, .. } => {
                return Some(format!(
                    "the columns are: {}; name some with --partition-columns, --sort-columns and --value-columns",
                    crate::text::listed(present)
                ));
            }
            Self::Damaged { .. } | Self::Torn { .. } => {
                "everything before that byte was imported; make the export again, then import it again"
            }
            Self::OpenQuote { .. } => {
                "was it cut, or a quote never closed? repair it and run the same command again, which continues from there"
            }
            Self::NotBinary { .. } => "name the format with --format jsonl or --format csv",
            Self::NewerFormat { .. } => "use the release that wrote it, or a later one",
            Self::Changed { .. } => {
                "put the former file back, or start again from its beginning with --restart"
            }
            Self::OtherPlan { .. } => "use the same options as then, or start again with --restart",
            Self::ReaderLost { .. } => {
                "this is a bug in Atoll: please report it with the command that you ran"
            }
        };
        Some(hint.to_owned())
    }
}

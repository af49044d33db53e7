//! How a disk fails: the operation, the place and the cause, sorted by what a caller can do.

use atoll_errors::ErrorKind;
use std::io;

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening or creating the file.
    Open,
    /// Reading.
    Read,
    /// Writing or reserving space.
    Write,
    /// Syncing.
    Sync,
    /// Changing or asking the length.
    Resize,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Resize => "resize",
        })
    }
}

/// A failed operation on a disk.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {name} at offset {offset}")]
pub struct DiskError {
    /// The operation that failed.
    pub operation: Operation,
    /// Name of the disk.
    pub name: String,
    /// Where.
    pub offset: u64,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// The kind of error, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ErrorKind::OutOfSpace
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => ErrorKind::ReadOnly,
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            _ => ErrorKind::Unavailable,
        }
    }
}

/// A read that reached beyond the last byte.
pub(crate) fn past_end(name: &str, offset: u64) -> DiskError {
    DiskError {
        operation: Operation::Read,
        name: name.to_owned(),
        offset,
        source: io::Error::new(io::ErrorKind::UnexpectedEof, "the read reaches past the end"),
    }
}

/// `offset + len`, or the error for a range past the end of the largest possible file.
pub(crate) fn check_end(name: &str, operation: Operation, offset: u64, len: u64) -> Result<usize, DiskError> {
    offset.checked_add(len).and_then(|end| isize::try_from(end).ok()).map(isize::unsigned_abs).ok_or_else(
        || DiskError {
            operation,
            name: name.to_owned(),
            offset,
            source: io::Error::new(io::ErrorKind::FileTooLarge, "the range ends past the largest file"),
        },
    )
}

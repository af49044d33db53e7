//! The file that holds a list of users.

use super::Users;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Largest file, in bytes.
const BYTES_MAX: u64 = 4 << 20;

/// A file with a list of users, which can be read again while the node serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessFile {
    path: PathBuf,
}

/// Why a list of users cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The file can be read by others than its owner. Passwords that people choose can be guessed from
    /// hashes.
    #[error("users other than its owner may read {path}; chmod 600")]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// The path is not a file, the file is not text, or it is too long.
    #[error("{path} is not a list of users: a file with at most 4 MiB of text is expected")]
    Text {
        /// The file.
        path: PathBuf,
    },
    /// A line is wrong.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with the line.
        what: String,
    },
}

impl AccessError {
    /// What would help.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "name an existing file, or start without --acl-file",
            Self::Open { .. } => "passwords that people choose can be found from their hashes",
            Self::Text { .. } | Self::Line { .. } => {
                "a line is such as: user ana on #SHA256 ~run:* +@read +@write; \
                 see docs/guide/ring-operations.md"
            }
        }
    }
}

impl AccessFile {
    /// The file at this path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`AccessError`].
    pub fn read(&self) -> Result<Users, AccessError> {
        let path = || self.path.clone();
        let failed = |source| AccessError::Read { path: path(), source };
        // Opening a pipe blocks until a writer opens it too, and would block every client of this thread.
        if !std::fs::metadata(&self.path).map_err(failed)?.is_file() {
            return Err(AccessError::Text { path: path() });
        }
        let mut file = File::open(&self.path).map_err(failed)?;
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(AccessError::Open { path: path() });
        }
        let mut bytes = Vec::new();
        (&mut file).take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= BYTES_MAX);
        let text = text.ok_or_else(|| AccessError::Text { path: path() })?;
        Users::parse(&text).map_err(|(line, what)| AccessError::Line { path: path(), line, what })
    }
}

//! Scratch files: space on disk for rows that a format needs twice, so that memory does not grow with them.
//!
//! Invariant: a scratch file has no name once it is handed out, so nothing of it stays, however the process
//! ends.

use super::write_error;
use crate::RowFileError;
use arrow_schema::ArrowError;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many names are tried before another process's files count as an error.
const NAMES_MAX: u64 = 1000;

/// Distinguishes the scratch files of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The folder of scratch files.
#[derive(Clone, Debug)]
pub(super) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// A new file for reading and writing.
    pub(super) fn file(&self) -> Result<File, RowFileError> {
        let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..NAMES_MAX {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = self.folder.join(format!(".{}-{number}.atoll.scratch", std::process::id()));
            match created(&path) {
                Ok(file) => {
                    std::fs::remove_file(&path).map_err(|source| self.failure(source))?;
                    return Ok(file);
                }
                // A process of the same number on another machine that shares the folder.
                Err(source) if source.kind() == io::ErrorKind::AlreadyExists => refused = source,
                Err(source) => return Err(self.failure(source)),
            }
        }
        Err(self.failure(refused))
    }

    /// The error for a scratch file that cannot be written or read again.
    pub(super) fn failure(&self, source: io::Error) -> RowFileError {
        write_error(&format!("a temporary file in {}", self.folder.display()), source)
    }

    /// The same for rows that cannot be converted.
    pub(super) fn arrow_failure(&self, error: ArrowError) -> RowFileError {
        super::arrow_error(&format!("a temporary file in {}", self.folder.display()), error)
    }
}

/// Creates a file that only this user can open: it has a name for a moment, in a folder that others may read.
fn created(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Reads a file from a place of its own, so that several readers of one file do not disturb each other.
pub(super) struct At {
    file: Arc<File>,
    at: u64,
}

impl At {
    pub(super) fn start(file: &Arc<File>) -> Self {
        Self { file: Arc::clone(file), at: 0 }
    }
}

impl Read for At {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(target)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nobody_else_can_open_a_scratch_file() {
        let place = tempfile::TempDir::new().unwrap();
        let file = Scratch::new(place.path().to_owned()).file().unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

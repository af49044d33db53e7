//! Why the role of this process for a folder could not be settled, and the error that users of the store see.

use atoll_store::StoreError;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why the role of this process for a folder could not be settled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// Another process owns the folder and cannot be reached.
    #[error("{} is owned by process {pid} on {host}, which cannot be reached from here", folder.display())]
    Owned {
        /// The folder.
        folder: PathBuf,
        /// Host of the owner.
        host: String,
        /// Its process id.
        pid: u32,
        /// Whether it runs here and is awake, but does not listen at its socket: it is about to end, which
        /// may take a while.
        is_ending: bool,
    },
    /// The owner has ended, but another process still holds its lock.
    #[error(
        "process {pid}, which owned {}, was killed, but a process that it had forked still holds the lock",
        folder.display()
    )]
    Inherited {
        /// The folder.
        folder: PathBuf,
        /// The process id of the owner that ended.
        pid: u32,
    },
    /// The folder is locked by a lock file that cannot be read.
    #[error("{} is locked, and its lock file cannot be read", folder.display())]
    Unreadable {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is locked, and its lock file was removed.
    #[error("{} is owned by another process, and the file `lock` in it was removed", folder.display())]
    Unnamed {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is locked, and its lock file does not name the owner any more.
    #[error("{} is owned by another process, and the file `lock` in it does not say which one", folder.display())]
    Garbled {
        /// The folder.
        folder: PathBuf,
    },
    /// The lock on the folder is taken, but not that on its lock file, which names nobody: an owner has both.
    #[error("another program, which does not own {}, holds a lock on that folder", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder is not the one that was opened.
    #[error("{} is another folder by now: the one that was opened was moved or removed", folder.display())]
    Replaced {
        /// The folder.
        folder: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The path on which it was tried.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl From<OwnerError> for StoreError {
    fn from(error: OwnerError) -> Self {
        match error {
            OwnerError::Owned { folder, host, pid, .. } => {
                Self::Owned { place: folder.display().to_string(), host, pid }
            }
            OwnerError::Unreadable { folder } => Self::Unavailable {
                place: folder.display().to_string(),
                reason: "its lock file cannot be read; remove the file `owner` if no process uses the store"
                    .into(),
                source: None,
            },
            OwnerError::Inherited { folder, pid } => Self::Unavailable {
                place: folder.display().to_string(),
                reason: format!(
                    "process {pid}, which owned it, was killed, but a process that it had forked still has the file \
                     `lock` open; end that one"
                ),
                source: None,
            },
            OwnerError::Replaced { folder } => Self::Unavailable {
                place: folder.display().to_string(),
                reason:
                    "another folder has its name by now, for the one that was opened was moved or removed; \
                         open the store again"
                        .into(),
                source: None,
            },
            OwnerError::Unnamed { folder } => Self::Unavailable {
                place: folder.display().to_string(),
                reason:
                    "another process owns it, and the file `lock` in it was removed, which said which one; \
                         end that process"
                        .into(),
                source: None,
            },
            OwnerError::Garbled { folder } => Self::Unavailable {
                place: folder.display().to_string(),
                reason: "another process owns it, and the file `lock` in it does not say which one; end that process"
                    .into(),
                source: None,
            },
            OwnerError::Foreign { folder } => Self::Unavailable {
                place: folder.display().to_string(),
                reason: "another program, which is no owner of the store, holds a lock on its folder; end that program, \
                         and keep those of other users out with `chmod 700` on the folder"
                    .into(),
                source: None,
            },
            OwnerError::Io { ref path, ref source, .. } => {
                let place = path.display().to_string();
                match source.kind() {
                    io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { place },
                    io::ErrorKind::PermissionDenied => Self::Denied { place, source: Arc::new(error) },
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        Self::OutOfSpace { place, source: Some(Arc::new(error)) }
                    }
                    _ => Self::Failed { what: "taking ownership", place, source: Arc::new(error) },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::ErrorKind;

    #[test]
    fn a_full_quota_is_no_space_as_a_full_disk_is() {
        for source in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let error = OwnerError::Io { action: "lock", path: "s".into(), source: source.into() };
            assert_eq!(StoreError::from(error).kind(), ErrorKind::OutOfSpace, "{source}");
        }
    }
}

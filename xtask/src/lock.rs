//! Locks for what only one run of this program may use at a time: a ledger, a folder that is emptied first,
//! or the machine while it is measured.
//!
//! Each is an operating system lock on a file beside what it protects, so a killed process holds nothing.

use crate::failure::{Failure, shown};
use std::fs::{File, TryLockError};
use std::path::Path;

/// Holds a lock for as long as it lives.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock on this file, for `doing`; refuses if another run has it.
    pub fn take(path: &Path, doing: &str) -> Result<Self, Failure> {
        let failed = || format!("lock {}", shown(path));
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(Failure::io(failed()))?;
        }
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(Failure::io(failed()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Failure::Refused {
                problem: format!("another run holds {}, so this one cannot {doing}", shown(path)),
                hint: "wait until it has ended, or end it".to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(Failure::io(failed())(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_is_refused_until_the_first_has_gone() {
        let path = std::env::temp_dir().join(format!("atoll-lock-{}/a.lock", std::process::id()));
        let first = Lock::take(&path, "count").unwrap();
        let refused = Lock::take(&path, "count").unwrap_err();
        assert!(matches!(refused, Failure::Refused { .. }), "{refused}");
        drop(first);
        drop(Lock::take(&path, "count").unwrap());
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}

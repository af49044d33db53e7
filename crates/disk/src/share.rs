//! A file whose blocks are those of another one, until either is written to.

use crate::{Disk, DiskError};

/// Makes `to`, which is empty, hold what `from` holds at one moment, without copying any of it: both files
/// use the same blocks. False if the file system cannot do that, or these are no two files of one; nothing
/// changed then.
///
/// # Errors
/// [`DiskError`]; `to` may hold anything then.
pub fn share_blocks(from: &dyn Disk, to: &dyn Disk) -> Result<bool, DiskError> {
    match (from.descriptor(), to.descriptor()) {
        (Some(source), Some(target)) => system::share(source, target).map_err(|source| DiskError {
            operation: crate::Operation::Write,
            name: to.name().to_owned(),
            offset: 0,
            source,
        }),
        _ => Ok(false),
    }
}

#[cfg(all(target_os = "linux", not(any(target_arch = "sparc", target_arch = "sparc64"))))]
mod system {
    use rustix::io::Errno;
    use std::io;
    use std::os::fd::BorrowedFd;

    pub(super) fn share(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<bool> {
        match rustix::fs::ioctl_ficlone(target, source) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::NOTTY) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(target_arch = "sparc", target_arch = "sparc64")))))]
mod system {
    use std::io;
    use std::os::fd::BorrowedFd;

    pub(super) fn share(_source: BorrowedFd<'_>, _target: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileDisk, MemoryDisk, Mode};

    #[test]
    fn what_is_shared_is_equal_and_changes_apart() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] =
            ["from", "to"].map(|name| FileDisk::open(&folder.path().join(name), Mode::Create).unwrap());
        from.write_at(0, &[7; 10_000]).unwrap();
        if !share_blocks(&from, &to).unwrap() {
            assert!(to.is_empty().unwrap());
            println!("SKIPPED [shared blocks] the file system of the temporary folder has none");
            return;
        }
        from.write_at(5, &[8]).unwrap();
        let mut found = [0; 10_000];
        to.read_at(0, &mut found).unwrap();
        assert!(found == [7; 10_000] && to.len().unwrap() == 10_000);
    }

    #[test]
    fn disks_that_are_no_files_share_nothing() {
        let (from, to) = (MemoryDisk::with_bytes(vec![1; 100]), MemoryDisk::new());
        assert!(!share_blocks(&from, &to).unwrap() && to.is_empty().unwrap());
    }
}

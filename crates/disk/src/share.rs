//! A file whose blocks are those of another one, until either is written to; and whether two disks are two
//! files.

use crate::{Disk, DiskError, Operation};
use std::os::fd::BorrowedFd;

/// Makes `to`, which is empty, hold what `from` holds at one moment, without copying any of it: both files
/// use the same blocks. False if the file system cannot do that, or not now, or these are no two files of
/// one; `to` may then hold a part. A file system may also end early and report success, so compare lengths.
///
/// Afterwards, overwriting a part of either file needs new space. A process with a [`Window`](crate::Window)
/// on one of them ends by a signal if there is none for the pages that the window had prepared before.
///
/// # Errors
/// [`DiskError`]; `to` may hold a part then.
pub fn share_blocks(from: &dyn Disk, to: &dyn Disk) -> Result<bool, DiskError> {
    match (from.descriptor(), to.descriptor()) {
        (Some(source), Some(target)) => system::share(source, target).map_err(|source| DiskError {
            operation: Operation::Write,
            name: to.name().to_owned(),
            offset: 0,
            source,
        }),
        _ => Ok(false),
    }
}

/// Whether these are two files, and not one, perhaps under two names. False also where nobody can tell: for
/// disks that are no files.
///
/// # Errors
/// [`DiskError`] if the system does not say which files they are.
pub fn are_two_files(one: &dyn Disk, other: &dyn Disk) -> Result<bool, DiskError> {
    let (Some(first), Some(second)) = (one.descriptor(), other.descriptor()) else { return Ok(false) };
    let status = |disk: &dyn Disk, file: BorrowedFd<'_>| {
        rustix::fs::fstat(file).map_err(|error| DiskError {
            operation: Operation::Open,
            name: disk.name().to_owned(),
            offset: 0,
            source: error.into(),
        })
    };
    let (first, second) = (status(one, first)?, status(other, second)?);
    Ok((first.st_dev, first.st_ino) != (second.st_dev, second.st_ino))
}

#[cfg(all(target_os = "linux", not(any(target_arch = "sparc", target_arch = "sparc64"))))]
mod system {
    use rustix::io::Errno;
    use std::io;
    use std::os::fd::BorrowedFd;

    pub(super) fn share(source: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<bool> {
        match rustix::fs::ioctl_ficlone(target, source) {
            Ok(()) => Ok(true),
            // Some file systems share only what they have written out, and ask to come again.
            Err(
                Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::NOTTY | Errno::AGAIN,
            ) => Ok(false),
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
            println!("SKIPPED [shared-blocks] the file system of the temporary folder has none");
            return;
        }
        from.write_at(5, &[8]).unwrap();
        let mut found = [0; 10_000];
        to.read_at(0, &mut found).unwrap();
        assert!(found == [7; 10_000] && to.len().unwrap() == 10_000);
    }

    #[test]
    fn one_file_under_two_names_is_one_and_of_other_disks_nobody_can_tell() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let open = |name| FileDisk::open(&path(name), Mode::Create).unwrap();
        let (one, other) = (open("one"), open("other"));
        std::fs::hard_link(path("one"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("one"), path("symbolic")).unwrap();
        assert!(are_two_files(&one, &other).unwrap());
        for same in [&one, &open("one"), &open("link"), &open("symbolic")] {
            assert!(!are_two_files(&one, same).unwrap() && !are_two_files(same, &one).unwrap());
        }
        let memory = MemoryDisk::new();
        assert!(!are_two_files(&memory, &MemoryDisk::new()).unwrap());
        assert!(!are_two_files(&one, &memory).unwrap() && !are_two_files(&memory, &one).unwrap());
    }

    #[test]
    fn disks_that_are_no_files_share_nothing() {
        let (from, to) = (MemoryDisk::with_bytes(vec![1; 100]), MemoryDisk::new());
        assert!(!share_blocks(&from, &to).unwrap() && to.is_empty().unwrap());
    }
}

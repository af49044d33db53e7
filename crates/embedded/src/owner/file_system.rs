//! The file system that a folder lies on, and which kind of lock can be trusted there.
//!
//! Invariant: a file system that is not known to be local is treated as shared.

use rustix::fs::statfs;
use std::path::Path;

/// How ownership of a folder is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// By the kernel's lock, which ends with its process.
    Kernel,
    /// By a lock file with a heartbeat, since other hosts may see the folder.
    File,
}

/// A kind of file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its usual name, or its magic number in hexadecimal.
    pub name: String,
    /// Whether other hosts may see it, as far as known.
    pub is_shared: bool,
    /// How ownership is recorded on it.
    pub locking: Locking,
}

/// Magic number, name, whether other hosts may see it.
const KNOWN: [(u64, &str, bool); 32] = [
    (0xEF53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683E, "btrfs", false),
    (0x0102_1994, "tmpfs", false),
    (0x8584_58F6, "ramfs", false),
    (0x794C_7630, "overlayfs", false),
    (0x2FC1_2FC1, "zfs", false),
    (0xF2F5_2010, "f2fs", false),
    (0x4D44, "vfat", false),
    (0x2011_BAB0, "exfat", false),
    (0x5346_544E, "ntfs", false),
    (0x7366_746E, "ntfs3", false),
    (0x3153_464A, "jfs", false),
    (0x5265_4973, "reiserfs", false),
    (0xCA45_1A4E, "bcachefs", false),
    (0x7371_7368, "squashfs", false),
    (0x9660, "iso9660", false),
    (0x1501_3346, "udf", false),
    (0xF15F, "ecryptfs", false),
    (0xE0F5_E1E2, "erofs", false),
    (0x6969, "nfs", true),
    (0x0BD0_0BD0, "lustre", true),
    (0x4750_4653, "gpfs", true),
    (0xFF53_4D42, "cifs", true),
    (0xFE53_4D42, "smb2", true),
    (0x517B, "smb", true),
    (0x00C3_6400, "ceph", true),
    (0x1983_0326, "beegfs", true),
    (0x0102_1997, "9p", true),
    (0x6573_5546, "fuse", true),
    (0x0116_1970, "gfs2", true),
    (0x7461_636F, "ocfs2", true),
];

impl FileSystem {
    /// The file system that `path` lies on.
    ///
    /// # Errors
    /// The operating system's, if the path cannot be examined.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        Ok(Self::from_magic(statfs(path)?.f_type as u64))
    }

    /// The file system with this magic number.
    #[must_use]
    pub fn from_magic(magic: u64) -> Self {
        // Some architectures sign-extend the number.
        let magic = magic & 0xFFFF_FFFF;
        let (name, is_shared) = KNOWN
            .iter()
            .find(|(known, ..)| *known == magic)
            .map_or_else(|| (format!("{magic:#x}"), true), |(_, name, shared)| ((*name).to_owned(), *shared));
        let locking = if is_shared { Locking::File } else { Locking::Kernel };
        Self { name, is_shared, locking }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_and_unknown_file_systems_are_never_trusted_with_the_kernels_lock() {
        for magic in [0x6969, 0x0BD0_0BD0, 0x4750_4653, 0xFF53_4D42, 0xFFFF_FFFF_FF53_4D42, 0x1234_5678] {
            assert_eq!(FileSystem::from_magic(magic).locking, Locking::File, "{magic:#x}");
        }
        assert_eq!(FileSystem::from_magic(0xEF53).locking, Locking::Kernel);
        assert_eq!(FileSystem::from_magic(0x1234_5678).name, "0x12345678");
    }
}

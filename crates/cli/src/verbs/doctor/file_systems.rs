//! File systems by their magic numbers.

/// The properties of a file system that matter to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSystem {
    pub(super) name: &'static str,
    /// Whether several machines may mount it.
    pub(super) is_shared: bool,
    /// Whether it is in memory.
    pub(super) is_volatile: bool,
}

const fn local(name: &'static str) -> FileSystem {
    FileSystem { name, is_shared: false, is_volatile: false }
}

const fn shared(name: &'static str) -> FileSystem {
    FileSystem { name, is_shared: true, is_volatile: false }
}

const fn volatile(name: &'static str) -> FileSystem {
    FileSystem { name, is_shared: false, is_volatile: true }
}

/// From linux/magic.h, and from the sources of those file systems that are not in the kernel.
const KNOWN: [(u32, FileSystem); 19] = [
    (0xEF53, local("ext2, ext3 or ext4")),
    (0x5846_5342, local("xfs")),
    (0x9123_683E, local("btrfs")),
    (0x2FC1_2FC1, local("zfs")),
    (0xF2F5_2010, local("f2fs")),
    (0xCA45_1A4E, local("bcachefs")),
    (0x794C_7630, local("overlay")),
    (0x0102_1994, volatile("tmpfs")),
    (0x8584_58F6, volatile("ramfs")),
    (0x6969, shared("nfs")),
    (0xFE53_4D42, shared("smb2")),
    (0xFF53_4D42, shared("cifs")),
    (0x0BD0_0BD0, shared("lustre")),
    (0x4750_4653, shared("gpfs")),
    (0x1983_0326, shared("beegfs")),
    (0x00C3_6400, shared("ceph")),
    (0x0102_1997, shared("9p")),
    (0x6573_5546, shared("fuse")),
    (0x5346_414F, shared("afs")),
];

/// The file system with this number; an unknown one counts as shared, which is the safe side.
pub(super) fn file_system(magic: u32) -> FileSystem {
    KNOWN
        .into_iter()
        .find(|(known, _)| *known == magic)
        .map_or(shared("not known to atoll"), |(_, found)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_not_known_counts_as_shared() {
        assert_eq!(file_system(0xEF53), local("ext2, ext3 or ext4"));
        assert!(file_system(0x6969).is_shared);
        assert!(file_system(1).is_shared);
    }
}

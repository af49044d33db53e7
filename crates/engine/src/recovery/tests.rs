//! Tests of how the superblocks are read, and of how they are written again.

use super::*;
use crate::checksum::checksum;
use atoll_disk::{DiskError, MemoryDisk, Relay};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk of this many zeros, which counts the bytes read.
struct Zeros {
    len: u64,
    read: AtomicU64,
}

impl Disk for Zeros {
    fn read_at(&self, _offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.read.fetch_add(target.len() as u64, Ordering::Relaxed);
        target.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> Result<(), DiskError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn reserve(&self, _offset: u64, _len: u64) -> Result<(), DiskError> {
        Ok(())
    }

    fn truncate(&self, _len: u64) -> Result<(), DiskError> {
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.len)
    }

    fn name(&self) -> &str {
        "zeros"
    }
}

#[test]
fn a_file_too_long_for_a_store_that_was_barely_begun_is_none_and_is_not_read() {
    let zeros = |len| Zeros { len, read: AtomicU64::new(0) };
    assert!(matches!(read_superblock(&zeros(4 << 20)), Ok(None)), "barely begun");
    let long = zeros(BEGUN_BYTES_MAX + BLOCK);
    let found = read_superblock(&long);
    assert!(matches!(found, Err(EngineError::Corrupt { problem: Damage::Superblocks, .. })), "{found:?}");
    assert_eq!(long.read.load(Ordering::Relaxed), 2 * BLOCK);
}

enum Call {
    Write(u64, Vec<u8>),
    Sync,
}

/// A disk in memory that records what changes it.
struct Recording {
    bytes: MemoryDisk,
    calls: Mutex<Vec<Call>>,
}

impl Relay for Recording {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.calls.lock().push(Call::Write(offset, bytes.to_vec()));
        self.bytes.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.calls.lock().push(Call::Sync);
        Ok(())
    }
}

/// What happened to a copy of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    /// A newer build, with an optional feature, wrote it.
    Newer,
    Damaged,
}

/// An empty store of whose superblocks this became.
fn image(fates: [Fate; 2]) -> Vec<u8> {
    let disk = Arc::new(MemoryDisk::new());
    let options = Options { log_segment_bytes: 64 << 10, store_id: Some(7), ..Options::default() };
    create(&(Arc::clone(&disk) as Arc<dyn Disk>), &options).unwrap();
    let mut image = disk.to_bytes();
    for (copy, fate) in COPIES.into_iter().zip(fates) {
        let block = &mut image[copy as usize..][..BLOCK as usize];
        match fate {
            Fate::Kept => {}
            Fate::Newer => {
                block[32] |= 1;
                let sum = checksum(u64::from_le_bytes(*b"ATOLLST1"), &block[..4088]);
                block[4088..].copy_from_slice(&sum.to_le_bytes());
            }
            Fate::Damaged => block[100] ^= 1,
        }
    }
    image
}

#[test]
fn while_superblocks_are_written_again_one_of_them_is_intact_on_the_medium() {
    use Fate::{Damaged, Kept, Newer};
    for fates in [
        [Kept, Kept],
        [Newer, Newer],
        [Kept, Newer],
        [Newer, Kept],
        [Kept, Damaged],
        [Damaged, Kept],
        [Newer, Damaged],
        [Damaged, Newer],
    ] {
        let image = image(fates);
        let block = |copy: u64| image[copy as usize..][..BLOCK as usize].to_vec();
        let disk = Recording { bytes: MemoryDisk::with_bytes(image.clone()), calls: Mutex::default() };
        let (superblock, mend) = read_superblock(&disk).unwrap().unwrap();
        renew_superblocks(&disk, &superblock, mend).unwrap();
        let is_intact = |bytes: &[u8]| Superblock::decode(bytes) == Copy::Intact(superblock);
        let mut seen = COPIES.map(block);
        // The medium certainly has two equal copies; one that is newer than the other may be only in the
        // cache.
        let mut on_medium = [0, 1].map(|at| mend.is_none().then(|| seen[at].clone()));
        for call in disk.calls.into_inner() {
            match call {
                Call::Write(offset, bytes) => {
                    let at = usize::from(offset == COPIES[1]);
                    assert_eq!((offset, bytes.len() as u64), (COPIES[at], BLOCK));
                    if bytes != seen[at] {
                        let other = on_medium[1 - at].as_deref();
                        assert!(other.is_some_and(is_intact), "{fates:?}: copy {at} changes");
                        on_medium[at] = None;
                    }
                    seen[at] = bytes;
                }
                Call::Sync => on_medium = [0, 1].map(|at| Some(seen[at].clone())),
            }
        }
        let whole = [0, 1].map(|_| superblock.encode());
        assert!(seen == whole, "{fates:?}: both are as this build writes them");
        assert!(on_medium == whole.map(Some), "{fates:?}: and synced");
    }
}

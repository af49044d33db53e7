//! Tests of how the superblocks are read.

use super::*;
use atoll_disk::DiskError;
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

//! A disk that is a block of memory: for tests and for stores that need not outlive the process.
//!
//! Invariant: bytes never written read as zero, as in a file.

use crate::fault::{check_end, past_end};
use crate::{Disk, DiskError, Operation};
use parking_lot::RwLock;

const NAME: &str = "memory";

/// Bytes in memory behind the [`Disk`] trait; `sync` has nothing to do.
#[derive(Debug, Default)]
pub struct MemoryDisk {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDisk {
    /// An empty disk.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: RwLock::new(Vec::new()) }
    }

    /// A disk with these contents.
    #[must_use]
    pub const fn with_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes) }
    }

    /// A copy of the contents of the disk.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl Disk for MemoryDisk {
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        if target.is_empty() {
            return Ok(());
        }
        let bytes = self.bytes.read();
        let source = usize::try_from(offset)
            .ok()
            .and_then(|start| bytes.get(start..start.checked_add(target.len())?))
            .ok_or_else(|| past_end(NAME, offset))?;
        target.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let end = check_end(NAME, Operation::Write, offset, bytes.len() as u64)?;
        let mut held = self.bytes.write();
        if held.len() < end {
            held.resize(end, 0);
        }
        held[end - bytes.len()..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let end = check_end(NAME, Operation::Write, offset, len)?;
        let mut held = self.bytes.write();
        if len > 0 && held.len() < end {
            held.resize(end, 0);
        }
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.bytes.write().truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(())
    }

    fn release(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let mut held = self.bytes.write();
        let bound = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(held.len());
        let (from, to) = (bound(offset), bound(offset.saturating_add(len)));
        held[from..to].fill(0);
        Ok(())
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.bytes.read().len() as u64)
    }

    fn name(&self) -> &str {
        NAME
    }
}

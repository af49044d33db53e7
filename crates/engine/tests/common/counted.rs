//! A disk in memory that counts the bytes read.

use atoll_disk::{Disk, DiskError, MemoryDisk, Relay};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct Counted {
    pub bytes: MemoryDisk,
    pub read: AtomicU64,
}

impl Relay for Counted {
    fn inner(&self) -> &dyn Disk {
        &self.bytes
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.read.fetch_add(target.len() as u64, Ordering::Relaxed);
        self.bytes.read_at(offset, target)
    }
}

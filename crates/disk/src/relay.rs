//! Disks in front of disks: a relay passes every call on to the disk behind it, but for reads, writes and
//! syncs that it takes over to count, hold or fail them.
//!
//! Invariant: what a relay does not take over reaches the disk behind it unchanged.

use crate::{Disk, DiskError, Window};

/// What stands in front of a disk, and is a [`Disk`] by that. Only [`Relay::inner`] has to be told: reads,
/// writes and syncs pass unless they are taken over, and all other calls pass always.
pub trait Relay: Send + Sync + 'static {
    /// The disk behind.
    fn inner(&self) -> &dyn Disk;

    /// See [`Disk::read_at`].
    ///
    /// # Errors
    /// As there.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.inner().read_at(offset, target)
    }

    /// See [`Disk::read_past`]; who takes over the one takes over the other.
    ///
    /// # Errors
    /// As there.
    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.read_at(offset, target)
    }

    /// See [`Disk::write_at`].
    ///
    /// # Errors
    /// As there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.inner().write_at(offset, bytes)
    }

    /// See [`Disk::sync`].
    ///
    /// # Errors
    /// As there.
    fn sync(&self) -> Result<(), DiskError> {
        self.inner().sync()
    }
}

impl<R: Relay> Disk for R {
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        Relay::read_at(self, offset, target)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        Relay::write_at(self, offset, bytes)
    }

    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        Relay::read_past(self, offset, target)
    }

    fn write_past(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.inner().write_past(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        Relay::sync(self)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.inner().reserve(offset, len)
    }

    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.inner().truncate(len)
    }

    fn release(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.inner().release(offset, len)
    }

    fn window(&self, offset: u64, len: u64) -> Option<Window> {
        self.inner().window(offset, len)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.inner().will_read(offset, len);
    }

    fn room_bytes(&self) -> Option<u64> {
        self.inner().room_bytes()
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.inner().len()
    }

    fn name(&self) -> &str {
        self.inner().name()
    }
}

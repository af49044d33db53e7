//! Disks in front of disks: a relay passes every call on to the disk behind it, except those that it takes
//! over to count, hold or fail them.
//!
//! Invariant: calls that a relay does not take over reach the disk behind it unchanged.

use crate::{Disk, DiskError, Window};

/// A disk in front of another one, which makes it a [`Disk`]. Only [`Relay::inner`] is required: everything
/// passes through unless it is overridden here, and calls that are not listed here always do, but for
/// [`Disk::descriptor`]: what shares blocks with the file behind would not come by.
pub trait Relay: Send + Sync + 'static {
    /// The disk behind.
    fn inner(&self) -> &dyn Disk;

    /// See [`Disk::read_at`].
    ///
    /// # Errors
    /// As [`Disk::read_at`].
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.inner().read_at(offset, target)
    }

    /// See [`Disk::read_past`]. By default it follows [`Relay::read_at`], so overriding that takes over both.
    ///
    /// # Errors
    /// As [`Disk::read_at`].
    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.read_at(offset, target)
    }

    /// See [`Disk::write_at`].
    ///
    /// # Errors
    /// As [`Disk::write_at`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.inner().write_at(offset, bytes)
    }

    /// See [`Disk::write_past`]. By default it follows [`Relay::write_at`], so overriding that takes over
    /// both.
    ///
    /// # Errors
    /// As [`Disk::write_at`].
    fn write_past(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(offset, bytes)
    }

    /// See [`Disk::sync`].
    ///
    /// # Errors
    /// As [`Disk::sync`].
    fn sync(&self) -> Result<(), DiskError> {
        self.inner().sync()
    }

    /// See [`Disk::reserve`].
    ///
    /// # Errors
    /// As [`Disk::reserve`].
    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.inner().reserve(offset, len)
    }

    /// See [`Disk::truncate`].
    ///
    /// # Errors
    /// As [`Disk::truncate`].
    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.inner().truncate(len)
    }

    /// See [`Disk::window`]. A relay that wants to see every write gives none, as writes through a window do
    /// not come by.
    fn window(&self, offset: u64, len: u64) -> Option<Window> {
        self.inner().window(offset, len)
    }

    /// See [`Disk::room_bytes`].
    fn room_bytes(&self) -> Option<u64> {
        self.inner().room_bytes()
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
        Relay::write_past(self, offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        Relay::sync(self)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        Relay::reserve(self, offset, len)
    }

    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        Relay::truncate(self, len)
    }

    fn release(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.inner().release(offset, len)
    }

    fn window(&self, offset: u64, len: u64) -> Option<Window> {
        Relay::window(self, offset, len)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.inner().will_read(offset, len);
    }

    fn room_bytes(&self) -> Option<u64> {
        Relay::room_bytes(self)
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.inner().len()
    }

    fn name(&self) -> &str {
        self.inner().name()
    }
}

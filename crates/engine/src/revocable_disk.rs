//! The disk of an engine, which can be revoked: once it was given up it takes no write any more, whatever
//! operation is under way.
//!
//! Invariant: a write begun after the disk was given up does not reach it; one begun before may.
//! Invariant: no sync succeeds if another owner claimed the store before the sync returned.

use crate::fence::FenceWatch;
use atoll_disk::{Disk, DiskError, Operation, Window};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the disk was given up. Setting the flag takes no lock and waits for nothing.
pub(crate) type GivenUp = Arc<AtomicBool>;

/// A disk, and whether it was given up.
pub(crate) struct RevocableDisk {
    disk: Arc<dyn Disk>,
    is_given_up: GivenUp,
    fence: Arc<FenceWatch>,
}

impl RevocableDisk {
    /// The disk, which is given up when the flag is raised, or when a look at the fence behind a sync finds
    /// that another owner claimed the store.
    pub(crate) fn until(
        is_given_up: &GivenUp,
        fence: &Arc<FenceWatch>,
        disk: Arc<dyn Disk>,
    ) -> Arc<dyn Disk> {
        Arc::new(Self { disk, is_given_up: Arc::clone(is_given_up), fence: Arc::clone(fence) })
    }

    fn check(&self, operation: Operation, offset: u64) -> Result<(), DiskError> {
        if !self.is_given_up.load(Ordering::Acquire) && !self.fence.is_lost() {
            return Ok(());
        }
        let source = io::Error::other("it belongs to another owner by now");
        Err(DiskError { operation, name: self.disk.name().to_owned(), offset, source })
    }
}

impl Disk for RevocableDisk {
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read_at(offset, target)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check(Operation::Write, offset)?;
        self.disk.write_at(offset, bytes)
    }

    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read_past(offset, target)
    }

    fn write_past(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.check(Operation::Write, offset)?;
        self.disk.write_past(offset, bytes)
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.disk.sync()?;
        // Behind the sync: an heir that claims the store later reads what was synced.
        self.fence.check(&*self.disk)
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check(Operation::Write, offset)?;
        self.disk.reserve(offset, len)
    }

    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.check(Operation::Resize, len)?;
        self.disk.truncate(len)
    }

    fn release(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check(Operation::Resize, offset)?;
        self.disk.release(offset, len)
    }

    /// Copies into a window are not checked here: the log drops its windows under the lock of its writer.
    fn window(&self, offset: u64, len: u64) -> Option<Window> {
        self.check(Operation::Write, offset).ok()?;
        self.disk.window(offset, len)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.disk.will_read(offset, len);
    }

    fn room_bytes(&self) -> Option<u64> {
        self.disk.room_bytes()
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.disk.len()
    }

    fn is_empty(&self) -> Result<bool, DiskError> {
        self.disk.is_empty()
    }

    fn name(&self) -> &str {
        self.disk.name()
    }
}

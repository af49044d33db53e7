//! Disks of the models: the simulated disk, with thread switches around its calls.

use atoll_disk::{Disk, DiskError, SimDisk, Survival};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Steps of the schedule that a read takes before it is done.
const READ_STEPS: usize = 12;

/// The simulated disk, under the scheduler.
pub struct Scheduled {
    disk: SimDisk,
    /// Writes and syncs so far; reading the number is a step of the schedule.
    changes: AtomicUsize,
}

impl Scheduled {
    pub fn new(disk: SimDisk) -> Arc<Self> {
        Arc::new(Self { disk, changes: AtomicUsize::new(0) })
    }

    pub fn empty() -> Arc<Self> {
        Self::new(SimDisk::seeded(1))
    }

    /// Writes and syncs so far.
    pub fn changes(&self) -> usize {
        self.changes.load(Ordering::SeqCst)
    }

    /// Cuts the power: only what was synced survives.
    pub fn cut(&self) -> SimDisk {
        self.disk.crash_with(Survival::Nothing)
    }

    /// Ends the process: everything written survives.
    pub fn kill(&self) -> SimDisk {
        self.disk.kill()
    }

    /// A step of the schedule before and after a call.
    fn around<R>(&self, call: impl FnOnce() -> R) -> R {
        self.changes();
        let answer = call();
        self.changes();
        answer
    }

    fn change<R>(&self, call: impl FnOnce() -> R) -> R {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.around(call)
    }
}

impl Disk for Scheduled {
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        // Long reads let other threads overtake them.
        (0..READ_STEPS).for_each(|_| _ = self.changes());
        self.around(|| self.disk.read_at(offset, target))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.change(|| self.disk.write_at(offset, bytes))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.change(|| self.disk.sync())
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.disk.reserve(offset, len)
    }

    fn truncate(&self, len: u64) -> Result<(), DiskError> {
        self.around(|| self.disk.truncate(len))
    }

    fn release(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.around(|| self.disk.release(offset, len))
    }

    fn len(&self) -> Result<u64, DiskError> {
        self.disk.len()
    }

    fn name(&self) -> &str {
        self.disk.name()
    }
}

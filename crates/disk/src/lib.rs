//! The door to a disk: real, in memory, and simulated with faults.
//!
//! A [`Disk`] is one file that the engine fills as it likes: reads and writes at offsets, a sync, a length.
//! Everything that differs by operating system, and every fault that can be planted, sits behind it.
//! [`FileDisk`] is a file, [`MemoryDisk`] a block of memory, [`SimDisk`] loses power when it is told to;
//! a [`Relay`] stands in front of any of them.
//!
//! Invariant: after `sync` returned, every write that returned before `sync` was called survives power loss.

pub use direct::BLOCK;
pub use fault::{DiskError, Operation};
pub use file::{FileDisk, Mode, sync_folder};
pub use memory::MemoryDisk;
pub use relay::Relay;
pub use sim::{Counters, FaultPlan, SimDisk, Survival};
pub use window::{Ahead, Window};

mod apart;
mod direct;
mod fault;
mod file;
mod memory;
mod relay;
mod sim;
mod window;

/// The file in its folder in which a store of one program keeps what it has: a node of a ring knows it by
/// that.
pub const STORE_FILE: &str = "store.atoll";

/// The file in its folder in which a node of a ring keeps what it has: who opens a folder as a store of one
/// program knows it by that.
pub const RING_FILE: &str = "ring.atoll";

/// One file, or what stands in for one.
pub trait Disk: Send + Sync + 'static {
    /// Fills `target` from `offset`; to read no bytes always succeeds.
    ///
    /// # Errors
    /// [`DiskError`] with the place; reading past the end is an error.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`, growing the file where needed.
    ///
    /// # Errors
    /// [`DiskError`]; the bytes in the range written are then undefined, all others as before.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// As [`Disk::read_at`], for bytes that nobody will read again soon: past the cache of the system, where
    /// that is possible.
    ///
    /// # Errors
    /// As there.
    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.read_at(offset, target)
    }

    /// As [`Disk::write_at`], for bytes that nobody will read soon: past the cache of the system, where that
    /// is possible and they are whole blocks of [`BLOCK`] bytes, both in the file and in memory.
    ///
    /// # Errors
    /// As there.
    fn write_past(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(offset, bytes)
    }

    /// Makes every finished write survive the loss of power.
    ///
    /// # Errors
    /// [`DiskError`]; what was not yet durable may be lost even if a later sync succeeds.
    fn sync(&self) -> Result<(), DiskError>;

    /// Reserves space so that writes to the range do not run out of it; the bytes there keep their values,
    /// new ones are zero. The file is at least `offset + len` bytes long afterwards; with `len` zero nothing
    /// happens.
    ///
    /// # Errors
    /// [`DiskError`] of kind out-of-space; nothing changed then.
    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError>;

    /// Cuts the file to `len` bytes; no effect when it is shorter.
    ///
    /// # Errors
    /// [`DiskError`].
    fn truncate(&self, len: u64) -> Result<(), DiskError>;

    /// Gives the space of a range back to the file system, where that is possible. The bytes there are then
    /// zeros, or what they were; the length stays.
    ///
    /// # Errors
    /// [`DiskError`].
    fn release(&self, _offset: u64, _len: u64) -> Result<(), DiskError> {
        Ok(())
    }

    /// A window on a range that was reserved, for many small writes; none where a disk has no such thing.
    /// What is written through it is written as by [`Disk::write_at`], and only the window's owner writes
    /// there meanwhile.
    fn window(&self, _offset: u64, _len: u64) -> Option<Window> {
        None
    }

    /// Says that a range will soon be read: a disk may bring it nearer, or do nothing.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// How many bytes the file may still grow by, about, where somebody knows.
    fn room_bytes(&self) -> Option<u64> {
        None
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// [`DiskError`].
    fn len(&self) -> Result<u64, DiskError>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// [`DiskError`].
    fn is_empty(&self) -> Result<bool, DiskError> {
        Ok(self.len()? == 0)
    }

    /// Name for messages: a path, or what stands in for one.
    fn name(&self) -> &str;
}

//! The door to a disk: real, in memory, and simulated with faults.
//!
//! A [`Disk`] is one file that the engine fills as it likes: reads and writes at offsets, a sync, a length.
//! Everything about the store's file that differs by operating system, and every fault that can be planted,
//! sits behind it.
//! [`FileDisk`] is a file, [`MemoryDisk`] a block of memory, [`SimDisk`] loses power on command; a [`Relay`]
//! stands in front of any of them.
//!
//! Invariant: after `sync` returned, every write that returned before `sync` was called survives power loss.

pub use direct::BLOCK;
pub use fault::{DiskError, Operation};
pub use file::{FileDisk, Mode, sync_folder};
pub use folder::make_folder;
pub use memory::MemoryDisk;
pub use relay::Relay;
pub use share::{are_two_files, share_blocks};
pub use sim::{Counters, FaultPlan, SimDisk, Survival};
pub use window::{Ahead, Window};

mod direct;
mod fault;
mod file;
mod folder;
mod memory;
mod page_exclusion;
mod relay;
mod share;
mod sim;
mod window;

use std::os::fd::BorrowedFd;

/// The file in its folder that holds the store of a single program. A node of a ring recognizes such a folder
/// by it.
pub const STORE_FILE: &str = "store.atoll";

/// The file in its folder that holds the data of a ring node. An opening of the folder as the store of a
/// single program recognizes a node's folder by it.
pub const RING_FILE: &str = "ring.atoll";

/// One file, or a stand-in for one.
pub trait Disk: Send + Sync + 'static {
    /// Fills `target` from `offset`; reading no bytes always succeeds.
    ///
    /// # Errors
    /// [`DiskError`] with the place; reading past the end is an error.
    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError>;

    /// Writes all of `bytes` at `offset`, growing the file where needed.
    ///
    /// # Errors
    /// [`DiskError`]; the bytes in the range written are then undefined, all others as before.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;

    /// As [`Disk::read_at`], for bytes that will not be read again soon: past the system's page cache, where
    /// that is possible.
    ///
    /// # Errors
    /// As [`Disk::read_at`].
    fn read_past(&self, offset: u64, target: &mut [u8]) -> Result<(), DiskError> {
        self.read_at(offset, target)
    }

    /// As [`Disk::write_at`], for bytes that will not be read soon: past the system's page cache, where that
    /// is possible and they are whole blocks of [`BLOCK`] bytes, both in the file and in memory.
    ///
    /// # Errors
    /// As [`Disk::write_at`].
    fn write_past(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.write_at(offset, bytes)
    }

    /// Makes every finished write survive a loss of power.
    ///
    /// # Errors
    /// [`DiskError`]; what was not yet durable may be lost even if a later sync succeeds.
    fn sync(&self) -> Result<(), DiskError>;

    /// Reserves space, so that writes to the range do not run out of it. Existing bytes there keep their
    /// values, new ones are zero. The file is at least `offset + len` bytes long afterwards; with `len` zero
    /// nothing happens.
    ///
    /// # Errors
    /// [`DiskError`] of kind out-of-space; nothing changed then.
    fn reserve(&self, offset: u64, len: u64) -> Result<(), DiskError>;

    /// Cuts the file to `len` bytes; no effect if it is shorter.
    ///
    /// # Errors
    /// [`DiskError`].
    fn truncate(&self, len: u64) -> Result<(), DiskError>;

    /// Gives the space of a range back to the file system, where that is possible. The bytes there are then
    /// zeros or unchanged; the length stays.
    ///
    /// # Errors
    /// [`DiskError`].
    fn release(&self, _offset: u64, _len: u64) -> Result<(), DiskError> {
        Ok(())
    }

    /// A window on a reserved range, for many small writes; none where the disk has no windows. Writing
    /// through it is like [`Disk::write_at`]. Meanwhile only the window's owner may write to the range.
    fn window(&self, _offset: u64, _len: u64) -> Option<Window> {
        None
    }

    /// Announces that a range will soon be read: the disk may read it ahead, or do nothing.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// About how many bytes the file may still grow by, where that is known.
    fn room_bytes(&self) -> Option<u64> {
        None
    }

    /// The file behind it, where it is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
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

    /// Name for messages: a path, or a stand-in for one.
    fn name(&self) -> &str;
}

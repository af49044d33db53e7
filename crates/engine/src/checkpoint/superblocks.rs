//! Writes both copies of the superblock, one after the other, each followed by a sync. This makes a commit
//! take effect.
//!
//! Invariant: one intact copy is on disk at every moment.

use crate::EngineError;
use crate::planted::{self, Bug};
use crate::shared::Shared;
use crate::superblock::{COPIES, MOVED_RANGES, Superblock};
use atoll_disk::Disk;
use std::sync::atomic::Ordering;

impl Shared {
    pub(super) fn install(
        &self,
        disk: &dyn Disk,
        superblock: &Superblock,
        position: u64,
    ) -> Result<(), EngineError> {
        if !planted::is(Bug::SuperblockBeforePages) {
            self.sync_for_commit(disk)?;
        }
        self.syncer.reached(position);
        self.write_copies(disk, superblock)
    }

    /// Writes both copies of the superblock.
    fn write_copies(&self, disk: &dyn Disk, superblock: &Superblock) -> Result<(), EngineError> {
        *self.committed.lock() = None;
        // The copy that may be damaged goes first, so that one intact copy is on disk at every moment.
        let first = self.doubtful_copy.load(Ordering::Relaxed);
        let both = [first, 1 - first];
        for &copy in if planted::is(Bug::SecondSuperblockSkipped) { &both[..1] } else { &both } {
            // If this fails, the copies on disk are of the former commit, of this one, or one of each.
            // Everything that either commit needs stays in place, because nothing is freed.
            self.doubtful_copy.store(copy, Ordering::Relaxed);
            self.check_writable()?;
            disk.write_at(COPIES[copy], &superblock.encode())?;
            self.sync_for_commit(disk)?;
        }
        *self.committed.lock() = Some(*superblock);
        self.features_noted.store(superblock.features, Ordering::Release);
        Ok(())
    }

    /// Makes sure that both copies of the superblock say that key ranges may have moved, so that a build
    /// which does not know about moves refuses the store.
    pub(crate) fn note_moved_ranges(&self) -> Result<(), EngineError> {
        let Some(disk) = self.backing.disk() else { return Ok(()) };
        let is_noted = || self.features_noted.load(Ordering::Acquire) & MOVED_RANGES != 0;
        if is_noted() {
            return Ok(());
        }
        let running = self.checkpointing.lock();
        if is_noted() {
            return Ok(());
        }
        self.check_writable()?;
        let features = self.features.fetch_or(MOVED_RANGES, Ordering::Relaxed) | MOVED_RANGES;
        let committed = *self.committed.lock();
        if let Some(committed) = committed {
            return self.write_copies(&**disk, &Superblock { features, ..committed });
        }
        // The last commit failed half-way: only the next one settles which of the two is on disk.
        drop(running);
        self.checkpoint(false).map(|_| ())
    }

    /// Syncs. After a failed sync the contents of the disk are unknown, and nothing may rely on them.
    fn sync_for_commit(&self, disk: &dyn Disk) -> Result<(), EngineError> {
        let flushed = || self.flushed.load(Ordering::Acquire);
        self.syncer.sync_now(disk, flushed).map_err(|error| self.of_sync(error))
    }
}

//! Space that a commit frees: it is used again, given back to the file system, or cut off the file.

use super::{SortedSpace, WrittenCommit};
use crate::shared::{Shared, Writer};
use crate::space::Extent;
use atoll_disk::Disk;

/// Most pieces of free space that one checkpoint gives back to the file system.
const PIECES_RELEASED: usize = 16;

/// Most log segments' worth of space that is cut off the file in one step: by default 64 MiB.
const CUT_SEGMENTS: u64 = 8;

impl Shared {
    /// Notes whether this commit, of a state that was frozen at `position`, freed nothing, and leaves nothing
    /// to the next one unless a reader ends. Where cleaning failed, stopped early or was left out, the next
    /// one may free more.
    pub(super) fn note_if_settled(
        &self,
        writer: &Writer,
        position: u64,
        sorted: &SortedSpace,
        commit: &WrittenCommit,
    ) {
        // Each commit frees the table of the one before and writes another.
        let freed_nothing =
            sorted.extents.is_empty() && sorted.in_segments.is_empty() && commit.dead.is_empty();
        let goes_on = writer.log.as_ref().is_none_or(|log| log.point().position != position);
        let saw_all = self.settled.take_saw_all();
        if freed_nothing && saw_all && !goes_on && writer.retired.added_bytes() == 0 {
            self.settled.begin(sorted.readers.clone());
        } else {
            self.settled.end();
        }
    }

    /// Frees what the commit before needed and this one does not.
    pub(super) fn release(&self, in_segments: &[(u64, u64)], commit: &WrittenCommit) {
        let mut space = self.space.lock();
        for (offset, bytes) in in_segments {
            if let Some(segment) = space.segment_of(*offset) {
                segment.live = segment.live.saturating_sub(*bytes);
            }
        }
        for segment in &commit.dead {
            space.remove_segment(segment.extent.offset);
            self.fruitless.lock().remove(&segment.extent.offset);
            self.resume_points.lock().remove(&segment.extent.offset);
        }
        let now = self.options.clock.now();
        for extent in &commit.extents {
            space.keep(*extent, now);
        }
        space.use_kept(now, self.options.keep);
        space.avoid_holes(false);
        *self.table.lock() = Some(commit.table);
    }

    /// Gives free space in the middle of the file back to the file system, except what will soon be used
    /// again: as much as the last checkpoint wrote, up to a quarter of what is in use. Giving back one piece
    /// takes a file system milliseconds, so only the last checkpoint before the store closes gives all of
    /// them back.
    pub(super) fn release_free(&self, disk: &dyn Disk, written: u64, last: bool) {
        let mut space = self.space.lock();
        let (soon, pieces) =
            if last { (0, usize::MAX) } else { (written.min(space.used_bytes() / 4), PIECES_RELEASED) };
        let extents = space.take_to_release(self.options.log_segment_bytes * 2 + soon, pieces);
        drop(space);
        let release = |extent: Extent| {
            let released = disk.release(extent.offset, extent.len);
            if let Err(error) = &released {
                tracing::warn!(store = self.backing.name(), %error, "free space could not be given back");
            }
            (extent, released.is_ok())
        };
        let released: Vec<(Extent, bool)> = extents.into_iter().map(release).collect();
        self.space.lock().released(&released);
    }

    /// Cuts off the end of the file when a good part of it is free, step by step: writers that take or count
    /// space wait for a step, and a file system takes long to cut off much.
    pub(super) fn cut_free_end(&self, disk: &dyn Disk) {
        let segment = self.options.log_segment_bytes;
        let mut left = self.space.lock().tail_bytes();
        if left < segment * 2 {
            return;
        }
        while left > 0 {
            // Held until the file is cut: what is allocated at its end would otherwise be cut off with it.
            let mut space = self.space.lock();
            let before = space.end();
            let end = space.shrink(left.min(segment.saturating_mul(CUT_SEGMENTS)));
            // A writer may have taken the rest since the last step.
            if end >= before {
                return;
            }
            left = left.saturating_sub(before - end);
            if let Err(error) = disk.truncate(end) {
                tracing::warn!(store = self.backing.name(), %error, "the file could not be cut; it stays longer");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::options::Options;
    use crate::{Durability, EngineError};
    use atoll_disk::{DiskError, MemoryDisk, Relay};
    use std::sync::{Arc, Mutex};

    const SEGMENT: u64 = 64 << 10;

    /// A disk in memory that notes by how much each cut makes it shorter, and whether space could be
    /// allocated meanwhile.
    #[derive(Default)]
    struct Cut {
        bytes: MemoryDisk,
        cuts: Mutex<Vec<(u64, bool)>>,
        engine: Mutex<Option<Engine>>,
    }

    impl Relay for Cut {
        fn inner(&self) -> &dyn Disk {
            &self.bytes
        }

        fn truncate(&self, len: u64) -> Result<(), DiskError> {
            let engine = self.engine.lock().unwrap().clone();
            let is_free = engine.is_some_and(|engine| engine.shared.space.try_lock().is_some());
            self.cuts.lock().unwrap().push((self.bytes.len()?.saturating_sub(len), is_free));
            self.bytes.truncate(len)
        }
    }

    #[test]
    fn a_long_free_end_is_cut_off_in_steps_and_no_space_is_taken_during_one() -> Result<(), EngineError> {
        let disk: Arc<Cut> = Arc::default();
        let options = Options { background: false, log_segment_bytes: SEGMENT, ..Options::default() };
        let engine = Engine::open(Arc::clone(&disk) as Arc<dyn Disk>, options)?;
        let tree = engine.tree("t")?;
        // Values with extents of their own.
        let keys = || (0..80u32).map(u32::to_be_bytes);
        for key in keys() {
            tree.put(&key, &[7; 100_000], Durability::Buffered)?;
        }
        engine.checkpoint()?;
        let long = disk.bytes.len()?;
        for key in keys() {
            tree.delete(&key, Durability::Buffered)?;
        }
        *disk.engine.lock().unwrap() = Some(engine.clone());
        // The first of them frees the values, and the second one the pages that lie behind them.
        for number in 0..4u8 {
            tree.put(b"changed", &[number], Durability::Buffered)?;
            engine.checkpoint()?;
        }
        let held = disk.engine.lock().unwrap().take();
        drop(held);
        let cuts = disk.cuts.lock().unwrap().clone();
        assert!(cuts.iter().all(|(bytes, _)| *bytes <= SEGMENT * CUT_SEGMENTS), "{cuts:?}");
        assert!(cuts.iter().all(|(_, is_free)| !is_free), "{cuts:?}");
        let cut: u64 = cuts.iter().map(|(bytes, _)| bytes).sum();
        assert!(cut > long - (1 << 20) && disk.bytes.len()? < 1 << 20, "{cut} of {long}: {cuts:?}");
        tree.put(b"k", &[8; 100_000], Durability::Buffered)?;
        assert!(engine.check()?.damage.is_empty());
        engine.close()
    }
}

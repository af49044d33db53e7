//! Space that a commit frees: it is used again, given back to the file system, or cut off the file.

use super::{SortedSpace, WrittenCommit};
use crate::shared::{Shared, Writer};
use crate::space::Extent;
use atoll_disk::Disk;

/// Most pieces of free space that one checkpoint gives back to the file system.
const PIECES_RELEASED: usize = 16;

impl Shared {
    /// Notes whether this commit, of a state that was frozen at `position`, freed nothing, and leaves nothing
    /// to the next one unless a reader ends.
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
        if freed_nothing && !goes_on && writer.retired.added_bytes() == 0 {
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

    /// Cuts off the end of the file when a good part of it is free.
    pub(super) fn cut_free_end(&self, disk: &dyn Disk) {
        let mut space = self.space.lock();
        let before = space.end();
        let mut trial = space.clone();
        let end = trial.shrink();
        if before - end >= self.options.log_segment_bytes * 2 {
            *space = trial;
            if let Err(error) = disk.truncate(end) {
                tracing::warn!(store = self.backing.name(), %error, "the file could not be cut; it stays longer");
            }
        }
    }
}

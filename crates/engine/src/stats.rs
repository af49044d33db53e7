//! Figures about a store.

use crate::engine::Engine;
use crate::hot::HotUse;
use std::sync::atomic::Ordering;

/// Figures about a store, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Each tree with its number of records, if that is known; see [`crate::Tree::len`].
    pub trees: Vec<(String, Option<u64>)>,
    /// Commits since the store was made.
    pub commits: u64,
    /// Number of the last checkpoint.
    pub checkpoint: u64,
    /// Checkpoints made since the store was opened.
    pub checkpoints_made: u64,
    /// Log segments cleaned since then: the live values in them were moved.
    pub segments_cleaned: u64,
    /// Values moved by cleaning since then.
    pub values_moved: u64,
    /// Pages of records beside leaves that checkpoints wrote since then.
    pub second_pages_written: u64,
    /// Leaves that checkpoints wrote as one page together with the records beside them since then.
    pub leaves_merged: u64,
    /// Bytes of log that recovery would replay.
    pub log_tail_bytes: u64,
    /// Log segments, those that cleaning made included.
    pub log_segments: u64,
    /// Bytes that these segments take.
    pub log_segment_bytes: u64,
    /// Bytes of values that live in the log.
    pub log_value_bytes: u64,
    /// Length of the file in use, free space inside it included.
    pub file_bytes: u64,
    /// Bytes of free space inside the file.
    pub free_bytes: u64,
    /// Bytes of free space that still take space of the file system; the rest was given back to it.
    pub spare_bytes: u64,
    /// Bytes of free space that are kept for readers in other processes.
    pub kept_bytes: u64,
    /// Bytes that are free once no reader or snapshot needs them.
    pub retired_bytes: u64,
    /// Bytes of leaves in memory, those that snapshots hold included.
    pub leaf_memory_bytes: u64,
    /// Bytes in memory that count towards the budget: nodes, values, what waits for a checkpoint, large
    /// buffers, and the gaps between values of one length, if those are large.
    pub memory_bytes: u64,
    /// Largest value of `memory_bytes` since the store was opened.
    pub memory_bytes_most: u64,
    /// The part of `memory_bytes` that only a checkpoint could release.
    pub unwritten_memory_bytes: u64,
    /// Bytes of inner nodes, which stay in memory while they take no more than half of the room.
    pub inner_memory_bytes: u64,
    /// Bytes of values in memory that could be read back.
    pub value_memory_bytes: u64,
    /// Bytes for copies of frequently read records.
    pub hot_memory_bytes: u64,
    /// Named snapshots.
    pub snapshots: u64,
    /// Readers and snapshots that keep old state in place.
    pub pins: u64,
}

/// How much room the disk of a store has, approximately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// Bytes that may still be written: what the disk can give, plus free space inside the file that takes
    /// space of the file system already.
    pub left_bytes: u64,
    /// Most bytes that the log and the next checkpoint need to go on as they are.
    pub needed_bytes: u64,
    /// Commits since the store was made.
    pub commits: u64,
}

impl Engine {
    /// How much room the disk has; none where there is no disk, or where the disk cannot tell.
    #[must_use]
    pub fn disk_room(&self) -> Option<DiskRoom> {
        let shared = &*self.shared;
        let room_bytes = shared.backing.disk()?.room_bytes()?;
        let spare_bytes = shared.space.lock().spare_bytes();
        let unwritten_bytes = shared.backing.meter().unwritten_bytes();
        Some(DiskRoom {
            left_bytes: room_bytes.saturating_add(spare_bytes),
            needed_bytes: 2 * shared.options.segment_bytes() + unwritten_bytes,
            commits: shared.forest.read().sequence.get(),
        })
    }

    /// How hot records were used since the store was opened. It looks at the whole table of them, which may
    /// be hundreds of megabytes: for tests and for a closer look, not for a figure that is read every second.
    #[must_use]
    pub fn hot_use(&self) -> HotUse {
        self.shared.hot.usage()
    }

    /// Requests a checkpoint, where a background thread makes them; it frees the space of what was deleted.
    pub fn ask_for_checkpoint(&self) {
        self.shared.ask_for_checkpoint();
    }

    /// Figures about the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &*self.shared;
        let mut stats = Stats {
            checkpoints_made: shared.checkpoints.load(Ordering::Relaxed),
            segments_cleaned: shared.segments_cleaned.load(Ordering::Relaxed),
            values_moved: shared.values_moved.load(Ordering::Relaxed),
            second_pages_written: shared.second_pages.load(Ordering::Relaxed),
            leaves_merged: shared.leaves_merged.load(Ordering::Relaxed),
            leaf_memory_bytes: shared.backing.leaf_bytes(),
            memory_bytes: shared.backing.held_bytes(),
            memory_bytes_most: shared.backing.meter().most_bytes(),
            unwritten_memory_bytes: shared.backing.meter().unwritten_bytes(),
            inner_memory_bytes: shared.backing.meter().bytes_of(crate::meter::Kind::Inner),
            value_memory_bytes: shared.backing.value_bytes(),
            hot_memory_bytes: shared.hot.bytes(),
            pins: shared.pins.count() as u64,
            ..Stats::default()
        };
        let writer = shared.writer.alone();
        stats.retired_bytes = writer.retired.iter().fold(0, |all, retired| retired.len.saturating_add(all));
        if let Some(log) = &writer.log {
            stats.log_tail_bytes = log.point().position - writer.checkpointed;
        }
        let forest = shared.forest.read();
        stats.trees = forest.trees.iter().map(|tree| (tree.name.clone(), tree.known_records())).collect();
        stats.commits = forest.sequence.get();
        stats.checkpoint = forest.epoch;
        stats.snapshots = forest.snapshots.len() as u64;
        let space = shared.space.lock();
        stats.log_segments = space.segments().count() as u64;
        stats.log_segment_bytes = space.segments().map(|segment| segment.extent.len).sum();
        stats.log_value_bytes = space.segments().fold(0, |all, segment| segment.live.saturating_add(all));
        stats.file_bytes = space.end();
        stats.free_bytes = space.free_bytes();
        stats.spare_bytes = space.spare_bytes();
        stats.kept_bytes = space.kept_bytes();
        stats
    }
}

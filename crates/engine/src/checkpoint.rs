//! Checkpoints: one atomic step from the last committed state on disk to the present one.
//!
//! Freeze (clone the roots, note the log's end), write what has no home, sync, write the table and both
//! superblocks with a sync behind each, and only then give back space (Tucana's commit, with the epoch as
//! its number). Writers go on meanwhile and copy what the checkpoint still reads.
//!
//! Invariant: nothing that the superblocks on disk refer to is overwritten before both copies refer to
//! something newer.

use crate::EngineError;
use crate::forest::{Forest, TreeState};
use crate::log::LogPoint;
use crate::node::PageRef;
use crate::page_writer::PageWriter;
use crate::planted::{self, Bug};
use crate::retired::{Retired, RetiredList};
use crate::shared::{Shared, Writer};
use crate::space::{Extent, SegmentUse, Space};
use crate::superblock::{COPIES, SnapshotEntry, Superblock, Table, TreeEntry};
use crate::sync::SyncError;
use atoll_disk::Disk;
use parking_lot::MutexGuard;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number; 0 for a store in memory.
    pub epoch: u64,
    /// Bytes of pages and tables it wrote.
    pub written_bytes: u64,
    /// Bytes of space it gave back.
    pub freed_bytes: u64,
}

/// The state that a checkpoint writes.
struct Frozen {
    forest: Forest,
    point: LogPoint,
    /// Offset of the log's signpost.
    signpost: u64,
    /// Epoch that the checkpoint commits.
    epoch: u64,
    freeing: Vec<Retired>,
    kept: Vec<Retired>,
    segments: Vec<SegmentUse>,
}

/// A commit that is on disk, and what it lets go of.
struct Written {
    written_bytes: u64,
    extents: Vec<Extent>,
    dead: Vec<SegmentUse>,
    table: Extent,
}

impl Shared {
    /// Makes a checkpoint; `clean` marks it as the last one before the store is closed.
    pub(crate) fn checkpoint(&self, clean: bool) -> Result<Checkpoint, EngineError> {
        let Some(disk) = self.backing.disk() else { return Ok(Checkpoint::default()) };
        let _running = self.checkpointing.lock();
        self.check_writable()?;
        let frozen = self.freeze(&mut self.writer.lock())?;
        frozen.map_or(Ok(Checkpoint::default()), |frozen| self.finish(&**disk, frozen, clean, None))
    }

    /// Makes a change that is not in the log and the checkpoint that has it, with no commit in between.
    pub(crate) fn checkpoint_with(
        &self,
        change: impl FnOnce(&mut Forest, &mut RetiredList) -> Result<(), EngineError>,
    ) -> Result<Checkpoint, EngineError> {
        let _running = self.checkpointing.lock();
        let mut writer = self.writer.lock();
        self.check_writable()?;
        change(&mut self.forest.write(), &mut writer.retired)?;
        let Some(disk) = self.backing.disk() else { return Ok(Checkpoint::default()) };
        match self.freeze(&mut writer)? {
            Some(frozen) => self.finish(&**disk, frozen, false, Some(writer)),
            None => Ok(Checkpoint::default()),
        }
    }

    fn finish(
        &self,
        disk: &dyn Disk,
        frozen: Frozen,
        clean: bool,
        writer: Option<MutexGuard<'_, Writer>>,
    ) -> Result<Checkpoint, EngineError> {
        let mut pages = PageWriter::new(&self.backing, &self.space);
        let written = self.write_checkpoint(&mut pages, disk, &frozen, clean);
        let mut writer = writer.unwrap_or_else(|| self.writer.lock());
        // Pages that only snapshots need are on disk whether the commit came about or not.
        pages.of_snapshots.drain(..).for_each(|retired| writer.retired.space(retired));
        match written {
            Ok(commit) => {
                self.release(&mut writer, &frozen, &commit);
                self.evict_above.store(0, Ordering::Relaxed);
                let Frozen { forest: frozen_forest, freeing, epoch, .. } = frozen;
                // What the checkpoint held can go now, and so can leaves beyond the budget.
                drop((frozen_forest, freeing));
                let mut forest = self.forest.write();
                let let_go = forest.let_go_of_snapshots();
                self.let_go_of_leaves(&mut forest.trees);
                drop(forest);
                drop(writer);
                drop(let_go);
                self.cut_free_end(disk);
                self.checkpoints.fetch_add(1, Ordering::Relaxed);
                let freed_bytes = commit.extents.iter().map(|extent| extent.len).sum();
                Ok(Checkpoint { epoch, written_bytes: commit.written_bytes, freed_bytes })
            }
            Err(error) => {
                // What was to be freed is still referred to by the last commit that succeeded.
                frozen.freeing.into_iter().for_each(|retired| writer.retired.space(retired));
                Err(error)
            }
        }
    }

    /// Takes hold of everything as it is now.
    fn freeze(&self, writer: &mut Writer) -> Result<Option<Frozen>, EngineError> {
        let Some(log) = &mut writer.log else { return Ok(None) };
        log.flush(&self.backing)?;
        // What a former life left there is about a log that this commit does not go on from.
        log.renew_signpost()?;
        self.flushed.store(log.flushed(), Ordering::Release);
        let (point, signpost) = (log.point(), log.signpost_offset());
        writer.retired.decide();
        let mut current = self.forest.write();
        let forest = current.clone();
        current.epoch += 1;
        let epoch = current.epoch;
        drop(current);
        let freeing = writer.retired.take_free(|retired| {
            let in_snapshot = |epoch: u64| (retired.birth..retired.death).contains(&epoch);
            retired.death <= epoch
                && (planted::is(Bug::ReaderNotKept) || !self.pins.holds(retired.birth, retired.death))
                && (planted::is(Bug::SnapshotNotKept)
                    || !forest.snapshots.iter().any(|snapshot| in_snapshot(snapshot.epoch)))
        });
        let kept = writer.retired.iter().filter(|retired| retired.death <= epoch).copied().collect();
        let mut space = self.space.lock();
        if planted::is(Bug::SpaceReusedEarly) {
            for retired in &freeing {
                if space.segment_of(retired.offset).is_none() {
                    space.insert_free(Extent::in_units(retired.offset, retired.len));
                }
            }
        }
        space.freeze();
        let segments = segments_after(&space, &freeing);
        Ok(Some(Frozen { forest, point, signpost, epoch, freeing, kept, segments }))
    }

    fn write_checkpoint(
        &self,
        pages: &mut PageWriter<'_>,
        disk: &dyn Disk,
        frozen: &Frozen,
        clean: bool,
    ) -> Result<Written, EngineError> {
        let mut table = Table { trees: write_trees(pages, &frozen.forest.trees)?, ..Table::default() };
        if planted::is(Bug::TreeForgotten) {
            table.trees.pop();
        }
        // Newest first: what a snapshot alone still needs leaves with the newest one that has it.
        for snapshot in frozen.forest.snapshots.iter().rev() {
            pages.for_snapshot(snapshot.epoch);
            let trees = write_trees(pages, &snapshot.trees)?;
            let (name, epoch, sequence) = (snapshot.name.clone(), snapshot.epoch, snapshot.sequence);
            table.snapshots.push(SnapshotEntry { name, epoch, sequence, trees });
        }
        table.snapshots.reverse();
        pages.flush()?;
        table.retired = frozen.kept.iter().chain(&pages.of_snapshots).copied().collect();
        let (extents, dead) = self.freed_by(frozen);
        table.segments = frozen.segments.iter().filter(|segment| !dead.contains(segment)).copied().collect();
        let home = self.write_table(pages, &mut table, &extents, frozen.epoch)?;
        let table = Extent { offset: home.offset, len: u64::from(home.len) };
        let written_bytes = pages.written;
        let superblock = Superblock {
            store_id: self.backing.store_id(),
            epoch: frozen.epoch,
            clean,
            table: home,
            log: frozen.point,
            signpost: frozen.signpost,
        };
        if let Err(error) = self.install(disk, &superblock, frozen.point.position) {
            // A copy on disk may refer to this table, so it goes only with the commit after it.
            let (birth, death) = (frozen.epoch, frozen.epoch + 1);
            pages.of_snapshots.push(Retired { offset: table.offset, len: table.len, birth, death });
            return Err(error);
        }
        Ok(Written { written_bytes, extents, dead, table })
    }

    /// What becomes free with this commit: extents, and log segments that nothing needs.
    fn freed_by(&self, frozen: &Frozen) -> (Vec<Extent>, Vec<SegmentUse>) {
        let dead: Vec<SegmentUse> = frozen
            .segments
            .iter()
            .filter(|segment| segment.number < frozen.point.number && segment.live == 0)
            .copied()
            .collect();
        let mut space = self.space.lock();
        let mut extents: Vec<Extent> = dead.iter().map(|segment| segment.extent).collect();
        for retired in &frozen.freeing {
            if space.segment_of(retired.offset).is_none() {
                extents.push(Extent::in_units(retired.offset, retired.len));
            }
        }
        extents.extend(*self.table.lock());
        (extents, dead)
    }

    /// Writes the table, which names the free space it leaves.
    fn write_table(
        &self,
        pages: &mut PageWriter<'_>,
        table: &mut Table,
        freed: &[Extent],
        epoch: u64,
    ) -> Result<PageRef, EngineError> {
        let mut guess = 4096;
        loop {
            let extent = self.space.lock().allocate(guess);
            let space = self.space.lock().free_for_commit(freed);
            table.end = space.end();
            table.free = space.free_extents().collect();
            let mut bytes = table.encode();
            if bytes.len() as u64 > extent.len {
                self.space.lock().insert_free(extent);
                guess = (bytes.len() as u64 + 1024).next_multiple_of(4096);
                continue;
            }
            bytes.resize(extent.len as usize, 0);
            if let Err(error) = pages.write_out(extent.offset, &bytes) {
                self.space.lock().insert_free(extent);
                return Err(error);
            }
            let checksum = self.backing.checksum(&bytes);
            return Ok(PageRef { offset: extent.offset, len: bytes.len() as u32, checksum, birth: epoch });
        }
    }

    fn install(&self, disk: &dyn Disk, superblock: &Superblock, position: u64) -> Result<(), EngineError> {
        if !planted::is(Bug::SuperblockBeforePages) {
            self.sync_for_commit(disk)?;
        }
        self.syncer.reached(position);
        // The copy that may be damaged goes first, so that one intact copy is there at every moment.
        let first = self.doubtful_copy.load(Ordering::Relaxed);
        let both = [first, 1 - first];
        for &copy in if planted::is(Bug::SecondSuperblockSkipped) { &both[..1] } else { &both } {
            // Should this fail, the copies on disk are the former commit, this one, or both; all that either
            // needs stays in place, for nothing is given back.
            self.doubtful_copy.store(copy, Ordering::Relaxed);
            disk.write_at(COPIES[copy], &superblock.encode())?;
            self.sync_for_commit(disk)?;
        }
        Ok(())
    }

    /// After a sync that failed nobody knows what is on disk: nothing may rely on it any more.
    fn sync_for_commit(&self, disk: &dyn Disk) -> Result<(), EngineError> {
        let flushed = || self.flushed.load(Ordering::Acquire);
        self.syncer.sync_now(disk, flushed).map_err(|error| match error {
            SyncError::Failed(error) => error.into(),
            SyncError::Poisoned => EngineError::Poisoned { store: self.backing.name() },
        })
    }

    /// Gives back what the commit before needed and this one does not.
    fn release(&self, writer: &mut Writer, frozen: &Frozen, commit: &Written) {
        writer.checkpointed = frozen.point.position;
        let mut space = self.space.lock();
        for retired in &frozen.freeing {
            if let Some(segment) = space.segment_of(retired.offset) {
                segment.live = segment.live.saturating_sub(retired.len);
            }
        }
        for segment in &commit.dead {
            space.remove_segment(segment.extent.offset);
        }
        let now = self.options.clock.now();
        for extent in &commit.extents {
            space.keep(*extent, now);
        }
        space.use_kept(now, self.options.keep);
        *self.table.lock() = Some(commit.table);
    }

    /// Cuts the file when a good part of its end is free.
    fn cut_free_end(&self, disk: &dyn Disk) {
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

/// The segments with what is about to be freed taken off.
fn segments_after(space: &Space, freeing: &[Retired]) -> Vec<SegmentUse> {
    let mut segments: Vec<SegmentUse> = space.segments().copied().collect();
    let by_offset: HashMap<u64, usize> =
        segments.iter().enumerate().map(|(index, segment)| (segment.extent.offset, index)).collect();
    let mut starts: Vec<u64> = by_offset.keys().copied().collect();
    starts.sort_unstable();
    for retired in freeing {
        let before = starts.partition_point(|&start| start <= retired.offset);
        let Some(start) = before.checked_sub(1).and_then(|index| starts.get(index)) else { continue };
        if let Some(segment) = by_offset.get(start).and_then(|&index| segments.get_mut(index))
            && retired.offset < segment.extent.end()
        {
            segment.live = segment.live.saturating_sub(retired.len);
        }
    }
    segments
}

fn write_trees(pages: &mut PageWriter<'_>, trees: &[TreeState]) -> Result<Vec<TreeEntry>, EngineError> {
    trees
        .iter()
        .map(|state| {
            let root = pages.write(&state.root)?;
            Ok(TreeEntry { id: state.id, name: state.name.clone(), root, records: state.records })
        })
        .collect()
}

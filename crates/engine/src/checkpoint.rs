//! Checkpoints: one atomic step from the last committed state on disk to the present one.
//!
//! Clean what is mostly dead, freeze (clone the roots, note the log's end), write what has no home, sync, write the table and both
//! superblocks with a sync behind each, and only then give back space (Tucana's commit, with the epoch as
//! its number). Writers go on meanwhile and copy what the checkpoint still reads.
//!
//! Invariant: nothing that the superblocks on disk refer to is overwritten before both copies refer to
//! something newer.

use crate::EngineError;
use crate::cleaning::Standing;
use crate::forest::{Forest, TreeState};
use crate::gate::Alone;
use crate::heap;
use crate::log::LogPoint;
use crate::meter::Weight;
use crate::node::PageRef;
use crate::page_writer::PageWriter;
use crate::planted::{self, Bug};
use crate::retired::{Retired, RetiredList};
use crate::room::Looks;
use crate::shared::{Shared, Writer};
use crate::space::{self, Extent, SegmentUse};
use crate::superblock::{
    COPIES, DELTAS, MOVED_RANGES, SnapshotEntry, Superblock, Table, TreeEntry, UNCOUNTED,
};
use crate::sync::SyncError;
use crate::view::View;
use atoll_disk::Disk;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// With more memory than this it would take the allocator too long to look for what it can give back: writers would wait.
const GIVEN_BACK_MOST: u64 = 1 << 30;

/// Pieces of free space that a checkpoint gives back to the file system.
const PIECES_RELEASED: usize = 16;

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
    /// What readers hold and is to be written, so that memory need not.
    views: Vec<Arc<View>>,
    point: LogPoint,
    /// Offset of the log's signpost.
    signpost: u64,
    /// Epoch that the checkpoint commits.
    epoch: u64,
    /// What left the trees since it was looked at last.
    retired: RetiredList,
    /// How often the current trees had been told what deltas replaced.
    tells: u64,
    segments: Vec<SegmentUse>,
}

/// What the commit lets go of and what it must keep, of all that left the trees before it.
struct Sorted {
    freeing: Vec<Retired>,
    kept: Vec<Retired>,
    /// Space of `freeing` outside of log segments.
    extents: Vec<Extent>,
    /// Bytes of `freeing` in log segments, by the segment's offset.
    in_segments: Vec<(u64, u64)>,
    /// The log segments with those taken off.
    segments: Vec<SegmentUse>,
    /// What left the trees since cleaning began counts for as long as this is kept.
    _weight: Weight,
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
        let (retired, _weight) = self.clean_first()?;
        self.make_headroom();
        let frozen = self.freeze(&mut self.writer.alone());
        self.finish(&**disk, frozen, retired, clean, None)
    }

    /// Makes room for what writers change while the checkpoint holds what is in memory now.
    fn make_headroom(&self) {
        // Step by step, for nobody reads or writes meanwhile.
        for part in 1..=4 {
            let need = self.backing.room() / 16 * part;
            if self.backing.excess_with(need) > 0 {
                let _writer = self.writer.alone();
                self.let_go_of_leaves(&mut self.forest.write().trees, Looks::Two, need);
            }
        }
    }

    /// Makes a change that is not in the log and the checkpoint that has it, with no commit in between.
    pub(crate) fn checkpoint_with(
        &self,
        change: impl FnOnce(&mut Forest, &mut RetiredList) -> Result<(), EngineError>,
    ) -> Result<Checkpoint, EngineError> {
        let _running = self.checkpointing.lock();
        let mut writer = self.writer.alone();
        self.check_writable()?;
        change(&mut self.forest.write(), &mut writer.retired)?;
        let Some(disk) = self.backing.disk() else { return Ok(Checkpoint::default()) };
        let frozen = self.freeze(&mut writer);
        self.finish(&**disk, frozen, Vec::new(), false, Some(writer))
    }

    /// Looks through what left the trees so far, and cleans; what left them is the caller's.
    fn clean_first(&self) -> Result<(Vec<Retired>, Weight), EngineError> {
        let mut writer = self.writer.alone();
        let Some(log) = &mut writer.log else { return Ok(Default::default()) };
        // What is in no group on disk has no home yet, and could not be told from what never gets one.
        log.flush(&self.backing)?;
        self.flushed.store(log.flushed(), Ordering::Release);
        let log_number = log.point().number;
        let retired = writer.retired.take();
        let forest = self.forest.read();
        let (epoch, snapshots) = (forest.epoch, epochs_of(&forest));
        drop(forest);
        // Readers of the present epoch are seldom there for long.
        let held = self.pins.newest_before(epoch).max(snapshots.iter().copied().max());
        let held_up_to = held.and_then(|held| writer.last_segment_of(held));
        drop(writer);
        let (retired, weight) = retired.decided_and_counted();
        let segments: Vec<SegmentUse> = self.space.lock().segments().copied().collect();
        let freeing = retired.iter().filter(|retired| self.is_free(retired, epoch + 1, &snapshots));
        let segments = space::segments_after(segments, freeing);
        let standing = Standing { segments, log_number, held, held_up_to };
        if let Err(error) = self.clean(standing) {
            tracing::warn!(store = self.backing.name(), %error, "log segments could not be cleaned; the file stays longer");
        }
        Ok((retired, weight))
    }

    /// Commits what was frozen. `retired` left the trees before `frozen.retired` did.
    fn finish(
        &self,
        disk: &dyn Disk,
        frozen: Result<Frozen, EngineError>,
        retired: Vec<Retired>,
        clean: bool,
        mut writer: Option<Alone<'_, Writer>>,
    ) -> Result<Checkpoint, EngineError> {
        let mut frozen = match frozen {
            Ok(frozen) => frozen,
            Err(error) => {
                writer.unwrap_or_else(|| self.writer.alone()).retired.put_back(retired);
                return Err(error);
            }
        };
        let sorted = self.sort_out(&mut frozen, retired);
        let mut pages = PageWriter::new(&self.backing, &self.space, frozen.tells);
        let written = self.write_checkpoint(&mut pages, disk, &frozen, &sorted, clean);
        let (epoch, position) = (frozen.epoch, frozen.point.position);
        // What it held can go now; there may be much of it, and nobody should wait for that.
        drop(frozen);
        if self.backing.excess_with(self.backing.room() / 4) > 0 {
            drop(self.let_go_of_views());
        }
        let nodes = match &mut writer {
            Some(writer) => writer.retired.take_nodes(),
            None => self.writer.alone().retired.take_nodes(),
        };
        let settled = nodes.decided();
        let mut writer = writer.unwrap_or_else(|| self.writer.alone());
        writer.retired.put_back(settled);
        // Pages that only snapshots need are on disk whether the commit came about or not.
        let left = pages.of_snapshots.drain(..).chain(pages.replaced.drain(..));
        left.for_each(|retired| writer.retired.space(retired));
        match written {
            Ok(commit) => {
                writer.retired.put_back(sorted.kept);
                writer.checkpointed = position;
                self.release(&sorted.in_segments, &commit);
                self.backing.meter().checkpoint_ended(true);
                self.evict_above.store(0, Ordering::Relaxed);
                let mut forest = self.forest.write();
                let let_go = forest.let_go_of_snapshots();
                self.let_go_of_leaves(&mut forest.trees, Looks::Two, 0);
                drop(forest);
                drop(writer);
                drop(let_go);
                self.cut_free_end(disk);
                self.release_free(disk, commit.written_bytes, clean);
                if self.backing.is_short() {
                    if self.backing.room() <= GIVEN_BACK_MOST {
                        heap::give_back();
                    }
                    self.backing.meter().gaps_close(8);
                }
                self.checkpoints.fetch_add(1, Ordering::Relaxed);
                let freed_bytes = commit.extents.iter().map(|extent| extent.len).sum();
                Ok(Checkpoint { epoch, written_bytes: commit.written_bytes, freed_bytes })
            }
            Err(error) => {
                self.backing.meter().checkpoint_ended(false);
                // What was to be freed is still referred to by the last commit that succeeded, and by deltas that were
                // not written: whoever comes to hold one of these before the next commit needs it as well.
                let all = sorted.kept.into_iter().chain(sorted.freeing);
                writer.retired.put_back(all.map(|retired| retired.outliving(epoch)));
                Err(error)
            }
        }
    }

    /// Takes hold of everything as it is now; only where there is a log.
    fn freeze(&self, writer: &mut Writer) -> Result<Frozen, EngineError> {
        let Some(log) = &mut writer.log else {
            return Err(EngineError::Closed { store: self.backing.name() });
        };
        log.flush(&self.backing)?;
        // What a former life left there is about a log that this commit does not go on from.
        log.renew_signpost()?;
        self.flushed.store(log.flushed(), Ordering::Release);
        let (point, signpost) = (log.point(), log.signpost_offset());
        let mut current = self.forest.write();
        let forest = current.clone();
        let is_short = self.backing.excess_with(self.backing.room() / 4) > 0;
        let views = if is_short { self.views.alive() } else { Vec::new() };
        current.epoch += 1;
        let epoch = current.epoch;
        drop(current);
        writer.note_epoch(epoch, point.number);
        let (retired, tells) = (writer.retired.take(), self.backing.tells());
        let mut space = self.space.lock();
        space.freeze();
        let segments = space.segments().copied().collect();
        Ok(Frozen { forest, views, point, signpost, epoch, retired, tells, segments })
    }

    /// What becomes free with the commit of `frozen`, and what stays.
    fn sort_out(&self, frozen: &mut Frozen, mut retired: Vec<Retired>) -> Sorted {
        let (since, weight) = frozen.retired.take().decided_and_counted();
        retired.extend(since);
        let snapshots = epochs_of(&frozen.forest);
        let is_needed = |retired: &mut Retired| !self.is_free(retired, frozen.epoch, &snapshots);
        let kept = space::joined_in_segments(retired.extract_if(.., is_needed).collect(), &frozen.segments);
        let freeing = retired;
        let segments = space::segments_after(frozen.segments.clone(), &freeing);
        let is_in_segment = |retired: &Retired| space::segment_at(&segments, retired.offset).is_some();
        let outside = freeing.iter().filter(|retired| !is_in_segment(retired));
        let extents: Vec<Extent> =
            outside.map(|retired| Extent::in_units(retired.offset, retired.len)).collect();
        let before = frozen.segments.iter().zip(&segments);
        let in_segments = before
            .map(|(before, after)| (before.extent.offset, before.live - after.live))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        if planted::is(Bug::SpaceReusedEarly) {
            let mut space = self.space.lock();
            extents.iter().for_each(|extent| space.insert_free(*extent));
        }
        if planted::is(Bug::ReleasedEarly)
            && let Some(disk) = self.backing.disk()
        {
            extents.iter().for_each(|extent| drop(disk.release(extent.offset, extent.len)));
        }
        Sorted { freeing, kept, extents, in_segments, segments, _weight: weight }
    }

    /// Whether nobody needs it once `epoch` is committed.
    fn is_free(&self, retired: &Retired, epoch: u64, snapshots: &[u64]) -> bool {
        let in_snapshot = |epoch: &u64| (retired.birth..retired.death).contains(epoch);
        retired.death <= epoch
            && (planted::is(Bug::ReaderNotKept) || !self.pins.holds(retired.birth, retired.death))
            && (planted::is(Bug::SnapshotNotKept) || !snapshots.iter().any(in_snapshot))
    }

    fn write_checkpoint(
        &self,
        pages: &mut PageWriter<'_>,
        disk: &dyn Disk,
        frozen: &Frozen,
        sorted: &Sorted,
        clean: bool,
    ) -> Result<Written, EngineError> {
        let mut table = Table { trees: write_trees(pages, &frozen.forest.trees)?, ..Table::default() };
        if planted::is(Bug::TreeForgotten) {
            table.trees.pop();
        }
        self.write_snapshots(pages, frozen, &mut table)?;
        pages.flush()?;
        let left = sorted.kept.iter().chain(&pages.of_snapshots).chain(&pages.replaced);
        table.retired = left.chain(&pages.told_since).copied().collect();
        if table.has_uncounted() {
            self.features.fetch_or(UNCOUNTED, Ordering::Relaxed);
        }
        if pages.has_second_pages {
            self.features.fetch_or(DELTAS, Ordering::Relaxed);
        }
        let (extents, dead) = self.freed_by(sorted, frozen.point.number);
        table.segments = sorted.segments.iter().filter(|segment| !dead.contains(segment)).copied().collect();
        let home = self.write_table(pages, &mut table, &extents, frozen.epoch)?;
        let table = Extent { offset: home.offset, len: u64::from(home.len) };
        let written_bytes = pages.written;
        let superblock = Superblock {
            store_id: self.backing.store_id(),
            epoch: frozen.epoch,
            features: self.features.load(Ordering::Relaxed),
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

    /// Writes what snapshots and views have alone.
    fn write_snapshots(
        &self,
        pages: &mut PageWriter<'_>,
        frozen: &Frozen,
        table: &mut Table,
    ) -> Result<(), EngineError> {
        let mut views = frozen.views.clone();
        views.sort_unstable_by_key(|view| view.epoch);
        // Newest first: what a snapshot alone still needs leaves with the newest one that has it.
        for snapshot in frozen.forest.snapshots.iter().rev() {
            while let Some(view) = views.pop_if(|view| view.epoch > snapshot.epoch) {
                write_view(pages, &view)?;
            }
            pages.for_snapshot(snapshot.epoch);
            let trees = write_trees(pages, &snapshot.trees)?;
            let (name, epoch, sequence) = (snapshot.name.clone(), snapshot.epoch, snapshot.sequence);
            table.snapshots.push(SnapshotEntry { name, epoch, sequence, trees });
        }
        table.snapshots.reverse();
        while let Some(view) = views.pop() {
            write_view(pages, &view)?;
        }
        Ok(())
    }

    /// What becomes free with this commit: extents, and log segments that nothing needs.
    fn freed_by(&self, sorted: &Sorted, log_number: u64) -> (Vec<Extent>, Vec<SegmentUse>) {
        let is_dead = |segment: &&SegmentUse| segment.number < log_number && segment.live == 0;
        let dead: Vec<SegmentUse> = sorted.segments.iter().filter(is_dead).copied().collect();
        let mut extents: Vec<Extent> = dead.iter().map(|segment| segment.extent).collect();
        extents.extend(&sorted.extents);
        extents.extend(*self.table.lock());
        (space::joined(extents), dead)
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
        self.write_copies(disk, superblock)
    }

    /// Writes both copies of the superblock.
    fn write_copies(&self, disk: &dyn Disk, superblock: &Superblock) -> Result<(), EngineError> {
        *self.committed.lock() = None;
        // The copy that may be damaged goes first, so that one intact copy is there at every moment.
        let first = self.doubtful_copy.load(Ordering::Relaxed);
        let both = [first, 1 - first];
        for &copy in if planted::is(Bug::SecondSuperblockSkipped) { &both[..1] } else { &both } {
            // Should this fail, the copies on disk are the former commit, this one, or both; all that either
            // needs stays in place, for nothing is given back.
            self.doubtful_copy.store(copy, Ordering::Relaxed);
            self.check_writable()?;
            disk.write_at(COPIES[copy], &superblock.encode())?;
            self.sync_for_commit(disk)?;
        }
        *self.committed.lock() = Some(*superblock);
        self.features_noted.store(superblock.features, Ordering::Release);
        Ok(())
    }

    /// Makes sure that both copies of the superblock say that key ranges may have moved, so that a build which does not
    /// know what that means leaves the store alone.
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
        // The last commit failed half-way: which one is on disk only the next one makes sure.
        drop(running);
        self.checkpoint(false).map(|_| ())
    }

    /// After a sync that failed nobody knows what is on disk: nothing may rely on it any more.
    fn sync_for_commit(&self, disk: &dyn Disk) -> Result<(), EngineError> {
        let flushed = || self.flushed.load(Ordering::Acquire);
        self.syncer.sync_now(disk, flushed).map_err(|error| match error {
            // Whatever the disk says, be it that there is no room: what was acknowledged may be gone with it.
            SyncError::Failed(source) => EngineError::NotDurable { store: self.backing.name(), source },
            SyncError::Poisoned => EngineError::Poisoned { store: self.backing.name() },
        })
    }

    /// Gives back what the commit before needed and this one does not.
    fn release(&self, in_segments: &[(u64, u64)], commit: &Written) {
        let mut space = self.space.lock();
        for (offset, bytes) in in_segments {
            if let Some(segment) = space.segment_of(*offset) {
                segment.live = segment.live.saturating_sub(*bytes);
            }
        }
        for segment in &commit.dead {
            space.remove_segment(segment.extent.offset);
            self.fruitless.lock().remove(&segment.extent.offset);
        }
        let now = self.options.clock.now();
        for extent in &commit.extents {
            space.keep(*extent, now);
        }
        space.use_kept(now, self.options.keep);
        *self.table.lock() = Some(commit.table);
    }

    /// Gives free space in the middle of the file back to the file system, but for what will soon be used again: as much as
    /// the last checkpoint wrote, up to a quarter of what is in use. To give a piece back takes a file system milliseconds, so
    /// only the last checkpoint gives all of them back.
    fn release_free(&self, disk: &dyn Disk, written: u64, last: bool) {
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

/// Epochs of the named snapshots.
fn epochs_of(forest: &Forest) -> Vec<u64> {
    forest.snapshots.iter().map(|snapshot| snapshot.epoch).collect()
}

/// Writes what a view has and no newer one: its pin keeps the pages, and nothing on disk refers to them.
fn write_view(pages: &mut PageWriter<'_>, view: &View) -> Result<(), EngineError> {
    pages.for_snapshot(view.epoch);
    write_trees(pages, &view.trees()).map(|_| ())
}

fn write_trees(pages: &mut PageWriter<'_>, trees: &[TreeState]) -> Result<Vec<TreeEntry>, EngineError> {
    trees
        .iter()
        .map(|state| {
            let root = pages.write(&state.root)?;
            let (name, records) = (state.name.clone(), state.records.get());
            Ok(TreeEntry { id: state.id, name, root, records, is_counted: state.is_counted })
        })
        .collect()
}

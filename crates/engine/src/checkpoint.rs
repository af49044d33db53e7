//! Checkpoints: one atomic step from the last committed state on disk to the present one.
//!
//! Clean the segments that are mostly dead, freeze (clone the roots, note the log's end), write every node
//! without a home, sync, write the table and both superblocks with a sync behind each, and only then free
//! space (Tucana's commit, with the epoch as its number). Writers go on meanwhile and copy what the
//! checkpoint still reads.
//!
//! Invariant: nothing that the superblocks on disk refer to is overwritten before both copies refer to
//! something newer.

mod release;
mod superblocks;
mod writing;

use crate::EngineError;
use crate::batch::Op;
use crate::cleaning::Standing;
use crate::forest::Forest;
use crate::gate::Alone;
use crate::heap;
use crate::log::LogPoint;
use crate::meter::Weight;
use crate::page_writer::PageWriter;
use crate::planted::{self, Bug};
use crate::retired::{Retired, RetiredList};
use crate::room::Looks;
use crate::shared::{Shared, Writer};
use crate::space::{self, Extent, SegmentUse};
use crate::view::View;
use atoll_disk::Disk;
use atoll_errors::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// With more memory than this the allocator would look too long for what it can give back, and writers would
/// wait for it.
const TRIM_MEMORY_BYTES_MAX: u64 = 1 << 30;

/// Result of a checkpoint.
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
    /// States that readers hold. They are written too, so that they need not stay in memory.
    views: Vec<Arc<View>>,
    point: LogPoint,
    /// Bytes of the large values that the log has named since the last checkpoint.
    placed_bytes: u64,
    /// Offset of the log's signpost.
    signpost: u64,
    /// Epoch that the checkpoint commits.
    epoch: u64,
    /// Items that left the trees since the list was last taken.
    retired: RetiredList,
    /// How often the current trees had retired what deltas replaced.
    retirements: u64,
    segments: Vec<SegmentUse>,
}

/// Everything that left the trees before the commit, divided into what the commit frees and what it must
/// keep.
struct SortedSpace {
    freeing: Vec<Retired>,
    kept: Vec<Retired>,
    /// Space of `freeing` outside of log segments.
    extents: Vec<Extent>,
    /// Bytes of `freeing` in log segments, by the segment's offset.
    in_segments: Vec<(u64, u64)>,
    /// The log segments without those bytes.
    segments: Vec<SegmentUse>,
    /// Epochs of readers that may be why something is kept.
    readers: Vec<u64>,
    /// Counts what left the trees since cleaning began, for as long as this lives.
    _weight: Weight,
}

/// A commit that is on disk, and what it frees.
struct WrittenCommit {
    written_bytes: u64,
    extents: Vec<Extent>,
    dead: Vec<SegmentUse>,
    table: Extent,
}

impl Shared {
    /// Makes a checkpoint; `clean` marks it as the last one before the store is closed. On a full disk it is
    /// tried once more with the space that the first attempt made usable.
    pub(crate) fn checkpoint(&self, clean: bool) -> Result<Checkpoint, EngineError> {
        let Some(disk) = self.backing.disk() else { return Ok(Checkpoint::default()) };
        let _running = self.checkpointing.lock();
        self.check_writable()?;
        self.use_kept(self.options.keep);
        let attempt = || {
            self.whole(|| {
                let (retired, _weight) = self.clean_first()?;
                self.make_headroom();
                let frozen = self.freeze(&mut self.writer.alone());
                self.finish(&**disk, frozen, retired, clean, &mut None)
            })
        };
        match attempt() {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                self.use_all_there_is();
                self.check_writable()?;
                attempt()
            }
            done => done,
        }
    }

    /// Makes room for the copies that writers make while the checkpoint holds what is in memory at present.
    fn make_headroom(&self) {
        let headroom = self.backing.headroom();
        // In steps, because no reader or writer proceeds during one.
        for part in 1..=4 {
            let need = headroom / 4 * part;
            if self.backing.excess_with(need) > 0 {
                let _writer = self.writer.alone();
                self.let_go_of_leaves(&mut self.forest.write().trees, Looks::Two, need);
            }
        }
    }

    /// Makes a change that is not in the log together with the checkpoint that includes it; no commit comes
    /// between. If the checkpoint fails, `undo` takes the change back before another commit can rely on it.
    pub(crate) fn checkpoint_with(
        &self,
        change: impl FnOnce(&mut Forest, &mut RetiredList) -> Result<(), EngineError>,
        undo: &[Op<'_>],
    ) -> Result<Checkpoint, EngineError> {
        let _running = self.checkpointing.lock();
        let mut writer = self.writer.alone();
        self.check_writable()?;
        self.whole(|| {
            change(&mut self.forest.write(), &mut writer.retired)?;
            let Some(disk) = self.backing.disk() else { return Ok(Checkpoint::default()) };
            let frozen = self.freeze(&mut writer);
            let mut held = Some(writer);
            let done = self.finish(&**disk, frozen, Vec::new(), false, &mut held);
            done.map_err(|error| {
                if error.kind() == ErrorKind::OutOfSpace {
                    // For the group that takes the change back, and for the next attempt.
                    self.use_all_there_is();
                }
                match held.take() {
                    Some(writer) => self.take_back(writer, undo, error),
                    None => error,
                }
            })
        })
    }

    /// Takes the list of what left the trees so far, and cleans; the caller owns that list afterwards.
    fn clean_first(&self) -> Result<(Vec<Retired>, Weight), EngineError> {
        let mut writer = self.writer.alone();
        let Some(log) = &mut writer.log else { return Ok(Default::default()) };
        // A value whose group is not on disk has no home yet, and could not be told from one that never gets
        // a home.
        log.flush(&self.backing)?;
        self.flushed.store(log.flushed(), Ordering::Release);
        let log_number = log.point().number;
        let retired = writer.retired.take();
        let forest = self.forest.read();
        let (epoch, snapshots) = (forest.epoch, epochs_of(&forest));
        drop(forest);
        // Readers of the present epoch seldom last long.
        let held = self.pins.newest_before(epoch).max(snapshots.iter().copied().max());
        let held_up_to = held.and_then(|held| writer.last_segment_of(held));
        drop(writer);
        let (retired, weight) = retired.decided_and_counted();
        let segments: Vec<SegmentUse> = self.space.lock().segments().copied().collect();
        let freeing = retired.iter().filter(|retired| self.is_free(retired, epoch + 1, &snapshots));
        let segments = space::segments_after(segments, freeing);
        let standing = Standing { segments, log_number, epoch, held, held_up_to };
        let saw_all = self.clean(standing).unwrap_or_else(|error| {
            tracing::warn!(store = self.backing.name(), %error, "log segments could not be cleaned; the file stays longer");
            false
        });
        self.settled.note_cleaning(saw_all);
        Ok((retired, weight))
    }

    /// Commits the frozen state. What is in `retired` left the trees before what is in `frozen.retired`.
    /// After an error the writer lock is in `held`, whether or not it was before.
    fn finish<'s>(
        &'s self,
        disk: &dyn Disk,
        frozen: Result<Frozen, EngineError>,
        retired: Vec<Retired>,
        clean: bool,
        held: &mut Option<Alone<'s, Writer>>,
    ) -> Result<Checkpoint, EngineError> {
        let mut frozen = match frozen {
            Ok(frozen) => frozen,
            Err(error) => {
                held.get_or_insert_with(|| self.writer.alone()).retired.put_back(retired);
                return Err(error);
            }
        };
        let sorted = self.sort_out(&mut frozen, retired);
        let mut pages = PageWriter::new(&self.backing, &self.space, frozen.retirements, &self.options.clock);
        let written = self.write_checkpoint(&mut pages, disk, &frozen, &sorted, clean);
        let (epoch, position, placed) = (frozen.epoch, frozen.point.position, frozen.placed_bytes);
        // What it held can go now. There may be much of it, so it is dropped while no lock is held.
        drop(frozen);
        if self.backing.excess_with(self.backing.room() / 4) > 0 {
            drop(self.let_go_of_views());
        }
        let nodes = match held.as_mut() {
            Some(writer) => writer.retired.take_nodes(),
            None => self.writer.alone().retired.take_nodes(),
        };
        let settled = nodes.decided();
        let writer = held.get_or_insert_with(|| self.writer.alone());
        writer.retired.put_back(settled);
        // Pages that only snapshots need are on disk, whether or not the commit succeeded.
        let left = pages.of_snapshots.drain(..).chain(pages.replaced.drain(..));
        left.for_each(|retired| writer.retired.space(retired));
        match written {
            Ok(commit) => {
                self.note_if_settled(writer, position, &sorted, &commit);
                writer.retired.put_back(sorted.kept);
                writer.retired.note_success();
                writer.checkpointed = position;
                writer.placed_bytes = writer.placed_bytes.saturating_sub(placed);
                self.release(&sorted.in_segments, &commit);
                self.backing.meter().checkpoint_ended(true);
                self.evict_above.store(0, Ordering::Relaxed);
                let mut forest = self.forest.write();
                let let_go = forest.let_go_of_snapshots();
                self.let_go_of_leaves(&mut forest.trees, Looks::Two, 0);
                drop(forest);
                *held = None;
                drop(let_go);
                self.cut_free_end(disk);
                self.release_free(disk, commit.written_bytes, clean);
                self.give_back_gaps();
                self.checkpoints.fetch_add(1, Ordering::Relaxed);
                let freed_bytes = commit.extents.iter().map(|extent| extent.len).sum();
                Ok(Checkpoint { epoch, written_bytes: commit.written_bytes, freed_bytes })
            }
            Err(error) => {
                self.backing.meter().checkpoint_ended(false);
                self.settled.end();
                self.settled.note_cleaning(false);
                // The last successful commit, and deltas that were not written, still refer to the space that
                // was to be freed. A reader that comes to hold one of these before the next commit needs it
                // as well.
                let all = sorted.kept.into_iter().chain(sorted.freeing);
                writer.retired.put_back(all.map(|retired| retired.outliving(epoch)));
                Err(error)
            }
        }
    }

    /// Where memory is short, gives the allocator's gaps back to the system.
    fn give_back_gaps(&self) {
        if self.backing.is_short() {
            if self.backing.room() <= TRIM_MEMORY_BYTES_MAX {
                heap::give_back();
            }
            self.backing.meter().gaps_close(8);
        }
    }

    /// Takes hold of the present state. Fails where there is no log.
    fn freeze(&self, writer: &mut Writer) -> Result<Frozen, EngineError> {
        let Some(log) = &mut writer.log else {
            return Err(EngineError::Closed { store: self.backing.name() });
        };
        log.flush(&self.backing)?;
        // A signpost left there by a former life describes a log from which this commit does not go on.
        log.renew_signpost()?;
        self.flushed.store(log.flushed(), Ordering::Release);
        let (point, signpost) = (log.point(), log.signpost_offset());
        let placed_bytes = writer.placed_bytes;
        let mut current = self.forest.write();
        let forest = current.clone();
        let is_short = self.backing.excess_with(self.backing.room() / 4) > 0;
        let views = if is_short { self.views.alive() } else { Vec::new() };
        current.epoch += 1;
        let epoch = current.epoch;
        drop(current);
        writer.note_epoch(epoch, point.number);
        let (retired, retirements) = (writer.retired.take(), self.backing.retirements());
        let mut space = self.space.lock();
        space.freeze();
        let segments = space.segments().copied().collect();
        Ok(Frozen { forest, views, point, placed_bytes, signpost, epoch, retired, retirements, segments })
    }

    /// Divides what left the trees into what the commit of `frozen` frees and what it keeps.
    fn sort_out(&self, frozen: &mut Frozen, mut retired: Vec<Retired>) -> SortedSpace {
        let (since, weight) = frozen.retired.take().decided_and_counted();
        retired.extend(since);
        // Before anything is found to be needed: a reader that ends meanwhile is then missed later.
        let readers = self.pins.before(frozen.epoch);
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
        SortedSpace { freeing, kept, extents, in_segments, segments, readers, _weight: weight }
    }

    /// Whether nothing needs it once `epoch` is committed.
    fn is_free(&self, retired: &Retired, epoch: u64, snapshots: &[u64]) -> bool {
        let in_snapshot = |epoch: &u64| (retired.birth..retired.death).contains(epoch);
        retired.death <= epoch
            && (planted::is(Bug::ReaderNotKept) || !self.pins.holds(retired.birth, retired.death))
            && (planted::is(Bug::SnapshotNotKept) || !snapshots.iter().any(in_snapshot))
    }
}

/// Epochs of the named snapshots.
fn epochs_of(forest: &Forest) -> Vec<u64> {
    forest.snapshots.iter().map(|snapshot| snapshot.epoch).collect()
}

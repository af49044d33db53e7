//! Space in the file: which bytes are free, and which log segments hold values that are still alive.
//!
//! Allocations start on a block of 4 KiB, so that no write touches a block that holds older data. Freed space
//! is counted in units of 64 bytes, and becomes usable when whole blocks are free.
//!
//! [`free`] keeps the free extents, [`refused`] is about a disk that is full, [`sparse`] says where most of
//! the space is free.
//!
//! Invariant: no byte is handed out twice.

mod free;
mod refused;
mod sparse;
#[cfg(test)]
mod tests;

pub(crate) use sparse::Sparse;

use crate::retired::Retired;
use crate::{Damage, EngineError};
use free::Free;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Unit of accounting, in bytes.
pub(crate) const UNIT: u64 = 64;

/// Allocations start on a multiple of this, in bytes.
pub(crate) const BLOCK: u64 = 4096;

/// Bytes `offset..offset + len` of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The extent, extended to whole units.
    pub(crate) fn in_units(offset: u64, len: u64) -> Self {
        let start = offset / UNIT * UNIT;
        Self { offset: start, len: (offset + len).next_multiple_of(UNIT) - start }
    }
}

/// A log segment, and how many bytes of values in it are alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentUse {
    pub(crate) extent: Extent,
    pub(crate) number: u64,
    pub(crate) live: u64,
}

/// Index of the segment, among those sorted by offset, that holds `offset`.
pub(crate) fn segment_at(segments: &[SegmentUse], offset: u64) -> Option<usize> {
    let index = segments.partition_point(|segment| segment.extent.offset <= offset).checked_sub(1)?;
    (offset < segments[index].extent.end()).then_some(index)
}

/// Segments, sorted by offset, without the bytes that are about to be freed.
pub(crate) fn segments_after<'r>(
    mut segments: Vec<SegmentUse>,
    freeing: impl IntoIterator<Item = &'r Retired>,
) -> Vec<SegmentUse> {
    for retired in freeing {
        if let Some(index) = segment_at(&segments, retired.offset) {
            let segment = &mut segments[index];
            segment.live = segment.live.saturating_sub(retired.len);
        }
    }
    segments
}

/// The same entries, where those in one log segment with the same life are joined into one: only their sum is
/// ever asked for. Otherwise each commit would list what a snapshot keeps, value by value, for as long as the
/// snapshot exists.
pub(crate) fn joined_in_segments(kept: Vec<Retired>, segments: &[SegmentUse]) -> Vec<Retired> {
    let place = |retired: &Retired| (segment_at(segments, retired.offset), retired.birth, retired.death);
    let (mut all, mut inside): (Vec<Retired>, Vec<Retired>) =
        kept.into_iter().partition(|retired| segment_at(segments, retired.offset).is_none());
    inside.sort_by_key(place);
    inside.dedup_by(|next, first| {
        let is_like = place(next) == place(first);
        first.len = first.len.saturating_add(if is_like { next.len } else { 0 });
        is_like
    });
    all.append(&mut inside);
    all.shrink_to_fit();
    all
}

/// The same space in as few extents as possible, by offset. The extents must be disjoint.
pub(crate) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    extents.dedup_by(|next, extent| {
        let follows = extent.end() == next.offset;
        extent.len += if follows { next.len } else { 0 };
        follows
    });
    extents
}

/// The file's space.
#[derive(Clone, Default)]
pub(crate) struct Space {
    free: Free,
    end: u64,
    /// Allocated by writers since the last freeze; on disk they count as free, because the log names them.
    since_freeze: Vec<Extent>,
    /// Written ahead of a commit that is yet to come; every earlier commit counts them as free.
    in_flight: Vec<Extent>,
    /// A log segment that was about to be entered when a write failed; in flight until it is entered.
    spare: Option<Extent>,
    /// A log segment that was prepared before the log needs it; in flight until it is entered.
    ahead: Option<Extent>,
    segments: BTreeMap<u64, SegmentUse>,
    /// Free according to every commit on disk, but kept for readers in other processes, oldest first.
    kept: VecDeque<(Duration, Extent)>,
    kept_bytes: u64,
}

/// Free space is given back to the file system in pieces of at least this many bytes.
const RELEASE_BYTES_MIN: u64 = 64 << 10;

/// Free space up to this share of what is in use stays with the file, for reuse.
const SPARE_SHARE: u64 = 8;

/// Kept space beyond this share of the file is reused early. A reader then learns that its state is gone,
/// which is better than a file that grows without bound.
const KEPT_SHARE: u64 = 4;

impl Space {
    /// Space of a file whose first `end` bytes are in use.
    pub(crate) fn new(end: u64) -> Self {
        Self { end: end.next_multiple_of(BLOCK), ..Self::default() }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.bytes()
    }

    pub(crate) fn free_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.free.extents()
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &SegmentUse> {
        self.segments.values()
    }

    /// Allocates `len` bytes that start on a block and share their last block with no other allocation: from
    /// free space where some fits well, else at the end.
    pub(crate) fn allocate(&mut self, len: u64) -> Extent {
        let len = len.next_multiple_of(UNIT);
        let whole = len.next_multiple_of(BLOCK);
        let Some(offset) = self.free.fitting(whole) else { return self.allocate_at_end(len) };
        let extent = Extent { offset, len };
        self.free.carve(extent);
        extent
    }

    /// As [`Space::allocate`], remembered until the next freeze as taken by a writer.
    pub(crate) fn allocate_for_writer(&mut self, len: u64) -> Extent {
        let extent = self.allocate(len);
        self.since_freeze.push(extent);
        extent
    }

    /// As [`Space::allocate`], for bytes that are written ahead of the commit that names them.
    pub(crate) fn allocate_in_flight(&mut self, len: u64) -> Extent {
        let extent = self.allocate(len);
        self.in_flight.push(extent);
        extent
    }

    /// Notes that the commit that names `extent` is being made.
    pub(crate) fn land(&mut self, extent: Extent) {
        self.in_flight.retain(|other| *other != extent);
        self.since_freeze.push(extent);
    }

    /// Space for a log segment: the one that could not be entered before, the one that was prepared, or fresh
    /// space.
    pub(crate) fn allocate_segment(&mut self, len: u64) -> Extent {
        let spare = self.spare.take_if(|spare| spare.len >= len);
        match spare.or_else(|| self.ahead.take_if(|ahead| ahead.len >= len)) {
            Some(there) => {
                self.land(there);
                there
            }
            None => self.allocate_for_writer(len),
        }
    }

    /// Whether a log segment is ready for when the log needs one.
    pub(crate) fn is_ahead(&self) -> bool {
        self.spare.is_some() || self.ahead.is_some()
    }

    /// Keeps a log segment, allocated in flight, until the log needs it.
    pub(crate) fn keep_ahead(&mut self, extent: Extent) {
        self.ahead = Some(extent);
    }

    /// Takes back a log segment that the log did not need.
    pub(crate) fn give_up_ahead(&mut self) {
        if let Some(extent) = self.ahead.take() {
            self.cancel(extent);
        }
    }

    /// The log segment that could not be entered before.
    pub(crate) fn spare(&self) -> Option<Extent> {
        self.spare
    }

    /// Keeps a log segment that could not be entered for the next attempt.
    pub(crate) fn spare_segment(&mut self, extent: Extent) {
        self.since_freeze.retain(|other| *other != extent);
        // A spare segment that was too short stays unused until the store is opened again.
        self.in_flight.push(extent);
        self.spare = Some(extent);
    }

    fn allocate_at_end(&mut self, len: u64) -> Extent {
        let extent = Extent { offset: self.end.next_multiple_of(BLOCK), len };
        let gap = Extent { offset: self.end, len: extent.offset - self.end };
        self.end = extent.end();
        if gap.len > 0 {
            self.insert_free(gap);
        }
        extent
    }

    /// Regions that are mostly free, where little has to be moved before all of it is.
    pub(crate) fn sparse(&self) -> Sparse {
        Sparse::of(&self.free, self.end)
    }

    /// Claims an extent that recovery found in use.
    pub(crate) fn claim(&mut self, extent: Extent) -> Result<(), Damage> {
        let extent = Extent::in_units(extent.offset, extent.len);
        if extent.offset >= self.end {
            let gap = Extent { offset: self.end, len: extent.offset - self.end };
            self.end = extent.end();
            if gap.len > 0 {
                self.insert_free(gap);
            }
            return Ok(());
        }
        if extent.end() > self.end {
            let tail = Extent { offset: self.end, len: extent.end() - self.end };
            self.end = extent.end();
            self.insert_free(tail);
        }
        if !self.free.holds(extent) {
            return Err(Damage::SpaceUsedTwice);
        }
        self.free.carve(extent);
        Ok(())
    }

    /// Length of the longest free run of whole blocks, if it has at least `least` bytes.
    pub(crate) fn longest_free(&self, least: u64) -> Option<u64> {
        self.free.longest(least)
    }

    /// Frees unused space, if it lies in the file.
    pub(crate) fn insert_free(&mut self, extent: Extent) {
        if extent.end() <= self.end {
            self.free.insert(extent);
        }
    }

    /// Frees space that readers in other processes may still look at.
    pub(crate) fn keep(&mut self, extent: Extent, now: Duration) {
        self.kept_bytes += extent.len;
        self.kept.push_back((now, extent));
    }

    /// Makes kept space usable once it was kept for `keep`, or where there is too much of it.
    pub(crate) fn use_kept(&mut self, now: Duration, keep: Duration) {
        while let Some(&(since, extent)) = self.kept.front() {
            if now.saturating_sub(since) < keep && self.kept_bytes <= self.end / KEPT_SHARE {
                break;
            }
            self.kept.pop_front();
            self.kept_bytes -= extent.len;
            self.insert_free(extent);
        }
    }

    /// Bytes of kept space.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// Takes back an allocation of a writer that failed.
    pub(crate) fn cancel(&mut self, extent: Extent) {
        self.since_freeze.retain(|other| *other != extent);
        self.in_flight.retain(|other| *other != extent);
        self.insert_free(extent);
    }

    /// Hands the allocations that writers made so far over to the commit that is about to be made.
    pub(crate) fn freeze(&mut self) {
        self.since_freeze.clear();
    }

    /// Free space as a commit must record it: including what writers took since the freeze.
    pub(crate) fn free_for_commit(&self, also: &[Extent]) -> Self {
        let mut space = Self { since_freeze: Vec::new(), ..self.clone() };
        let kept = self.kept.iter().map(|(_, extent)| extent);
        for extent in self.since_freeze.iter().chain(&self.in_flight).chain(also).chain(kept) {
            space.insert_free(*extent);
        }
        space
    }

    /// How many bytes could be cut off the end of the file.
    pub(crate) fn tail_bytes(&self) -> u64 {
        self.free.tail_bytes(self.end)
    }

    /// Cuts free space off the end of the file, `most` bytes at most, and returns the length to which the
    /// file may be cut.
    pub(crate) fn shrink(&mut self, most: u64) -> u64 {
        self.end = self.free.cut(self.end, most);
        self.end
    }

    /// Free bytes that still take space of the file system.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.free.spare_bytes()
    }

    /// Takes free space to be given back to the file system, beyond what is worth keeping and `least` bytes:
    /// the longest pieces first, and at most this many of them. It is in flight until [`Space::released`].
    pub(crate) fn take_to_release(&mut self, least: u64, pieces: usize) -> Vec<Extent> {
        let mut excess = self.spare_bytes().saturating_sub(self.used_bytes() / SPARE_SHARE + least);
        if excess < RELEASE_BYTES_MIN {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for mut extent in self.free.pieces_to_release(RELEASE_BYTES_MIN) {
            if excess < RELEASE_BYTES_MIN || taken.len() == pieces {
                break;
            }
            extent.len = extent.len.min(excess / BLOCK * BLOCK);
            excess -= extent.len;
            self.free.carve(extent);
            self.in_flight.push(extent);
            taken.push(extent);
        }
        taken
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.end.saturating_sub(self.free_bytes() + self.kept_bytes)
    }

    /// Frees what [`Space::take_to_release`] took, as a hole where it was given back. All pieces at once,
    /// because the whole list of what is in flight is searched.
    pub(crate) fn released(&mut self, extents: &[(Extent, bool)]) {
        let ended: BTreeSet<Extent> = extents.iter().map(|(extent, _)| *extent).collect();
        self.in_flight.retain(|other| !ended.contains(other));
        for &(extent, is_hole) in extents {
            self.insert_free(extent);
            if is_hole {
                self.free.add_hole(extent);
            }
        }
    }

    pub(crate) fn add_segment(&mut self, segment: SegmentUse) {
        self.segments.insert(segment.extent.offset, segment);
    }

    /// The log segment that holds `offset`.
    pub(crate) fn segment_of(&mut self, offset: u64) -> Option<&mut SegmentUse> {
        let (_, segment) = self.segments.range_mut(..=offset).next_back()?;
        (offset < segment.extent.end()).then_some(segment)
    }

    pub(crate) fn remove_segment(&mut self, offset: u64) {
        self.segments.remove(&offset);
    }

    pub(crate) fn from_parts(
        end: u64,
        free: &[Extent],
        segments: &[SegmentUse],
    ) -> Result<Self, EngineError> {
        let mut space = Self { end, ..Self::default() };
        for extent in free {
            space.insert_free(*extent);
        }
        for segment in segments {
            space.add_segment(*segment);
        }
        Ok(space)
    }
}

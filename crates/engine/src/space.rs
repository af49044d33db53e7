//! Space in the file: which bytes are free, and which log segments hold values that are still alive.
//!
//! Allocations start on a block of 4 KiB, so that no write touches a block that holds older data. What is
//! freed is counted in units of 64 bytes, and becomes usable when whole blocks are free.
//!
//! Invariant: free extents are disjoint, sorted and never adjacent.

use crate::retired::Retired;
use crate::{Damage, EngineError};
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

    /// Grown to whole units.
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

/// The segment, of those sorted by offset, that holds `offset`.
pub(crate) fn segment_at(segments: &[SegmentUse], offset: u64) -> Option<usize> {
    let index = segments.partition_point(|segment| segment.extent.offset <= offset).checked_sub(1)?;
    (offset < segments[index].extent.end()).then_some(index)
}

/// Segments, sorted by offset, with what is about to be freed taken off.
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

/// The same space in as few extents as possible, by offset; they are disjoint.
pub(crate) fn joined(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.sort_unstable();
    extents.dedup_by(|next, extent| {
        let follows = extent.end() == next.offset;
        extent.len += if follows { next.len } else { 0 };
        follows
    });
    extents
}

/// Bytes of a region; see [`Space::sparse`].
const REGION: u64 = 1 << 20;

/// A shorter file has no sparse regions.
const REGIONS_LEAST: u64 = 16;

/// So much of a sparse region is free at least: the more of the file is, the less.
const SPARSE_FREE: u64 = REGION / 4 * 3;
const SPARSE_FREE_LATER: u64 = REGION / 2;

/// Regions of the file of which most is free.
#[derive(Default)]
pub(crate) struct Sparse(Vec<bool>);

impl Sparse {
    /// Whether this place lies in one.
    pub(crate) fn holds(&self, offset: u64) -> bool {
        self.0.get((offset / REGION) as usize).is_some_and(|&is_sparse| is_sparse)
    }
}

/// The file's space.
#[derive(Clone, Default)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
    by_length: BTreeSet<(u64, u64)>,
    /// Free space that the file system has back, by offset: whoever writes there gets fresh space.
    holes: BTreeMap<u64, u64>,
    end: u64,
    /// Allocated since the last freeze by writers; on disk they count as free, for the log names them.
    since_freeze: Vec<Extent>,
    /// Written by somebody whose commit is yet to come; free by every commit before that.
    in_flight: Vec<Extent>,
    /// A log segment that was about to be entered when a write failed; in flight until then.
    spare: Option<Extent>,
    /// A log segment that was made ready before the log needs it; in flight until then.
    ahead: Option<Extent>,
    segments: BTreeMap<u64, SegmentUse>,
    /// Free by every commit on disk, but kept for readers of other processes, oldest first.
    kept: VecDeque<(Duration, Extent)>,
    kept_bytes: u64,
}

/// Free space is given back to the file system in pieces of at least this many bytes.
const RELEASE_LEAST: u64 = 64 << 10;

/// Free space up to this share of what is in use stays with the file, to be used again.
const SPARE_SHARE: u64 = 8;

/// Kept space beyond this share of the file is used again early: a reader is then told that its state is
/// gone, which is better than a file that grows without bound.
const KEPT_SHARE: u64 = 4;

impl Space {
    /// Space of a file whose first `end` bytes are taken.
    pub(crate) fn new(end: u64) -> Self {
        Self { end: end.next_multiple_of(BLOCK), ..Self::default() }
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    pub(crate) fn free_extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.free.iter().map(|(&offset, &len)| Extent { offset, len })
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = &SegmentUse> {
        self.segments.values()
    }

    /// Takes `len` bytes that start on a block and share their last one with nobody, from free space where some
    /// fits well, else at the end.
    pub(crate) fn allocate(&mut self, len: u64) -> Extent {
        let len = len.next_multiple_of(UNIT);
        let whole = len.next_multiple_of(BLOCK);
        // An aligned start may cost up to a block at the front of a free extent.
        let close = self.by_length.range((whole, 0)..(whole + BLOCK, 0)).copied().take(16);
        let wide = self.by_length.range((whole + BLOCK, 0)..).next().copied();
        let fitting = close
            .chain(wide)
            .find(|(free_len, offset)| offset.next_multiple_of(BLOCK) + whole <= offset + free_len);
        let Some((_, offset)) = fitting else { return self.allocate_at_end(len) };
        let extent = Extent { offset: offset.next_multiple_of(BLOCK), len };
        self.carve(extent);
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

    /// The commit that names `extent` is being made.
    pub(crate) fn land(&mut self, extent: Extent) {
        self.in_flight.retain(|other| *other != extent);
        self.since_freeze.push(extent);
    }

    /// Space for a log segment: the one that could not be entered before, the one that was made ready, or fresh space.
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

    /// Takes a log segment back that the log did not need.
    pub(crate) fn give_up_ahead(&mut self) {
        if let Some(extent) = self.ahead.take() {
            self.cancel(extent);
        }
    }

    /// Keeps a log segment that could not be entered for the next try.
    pub(crate) fn spare_segment(&mut self, extent: Extent) {
        self.since_freeze.retain(|other| *other != extent);
        // A spare one that was too short stays out of use until the store is opened again.
        self.in_flight.push(extent);
        self.spare = Some(extent);
    }

    fn allocate_at_end(&mut self, len: u64) -> Extent {
        let extent = Extent { offset: self.end.next_multiple_of(BLOCK), len };
        let gap = extent.offset - self.end;
        if gap > 0 {
            self.insert_free(Extent { offset: self.end, len: gap });
        }
        self.end = extent.end();
        extent
    }

    /// The longest free run of whole blocks of at most `most` bytes, if it has at least `least`.
    pub(crate) fn longest_free(&self, least: u64) -> Option<u64> {
        let (len, offset) = self.by_length.last().copied()?;
        let usable = len.saturating_sub(offset.next_multiple_of(BLOCK) - offset) / BLOCK * BLOCK;
        (usable >= least).then_some(usable)
    }

    /// Regions of which most is free, and little is left to be moved before all of it is; none in a short file, which has
    /// little to be brought together.
    pub(crate) fn sparse(&self) -> Sparse {
        if self.end / REGION < REGIONS_LEAST {
            return Sparse::default();
        }
        let mut free = vec![0; (self.end / REGION) as usize + 1];
        for (&offset, &len) in &self.free {
            let (mut at, end) = (offset, offset + len);
            while at < end {
                let until = ((at / REGION + 1) * REGION).min(end);
                free[(at / REGION) as usize] += until - at;
                at = until;
            }
        }
        let least = if self.is_mostly_free() { SPARSE_FREE_LATER } else { SPARSE_FREE };
        Sparse(free.into_iter().map(|free| free >= least).collect())
    }

    fn is_mostly_free(&self) -> bool {
        self.free_bytes > self.end / 2
    }

    /// Takes an extent that recovery found in use.
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
        let holds = self
            .free
            .range(..=extent.offset)
            .next_back()
            .is_some_and(|(&offset, &len)| offset + len >= extent.end());
        if !holds {
            return Err(Damage::SpaceUsedTwice);
        }
        self.carve(extent);
        Ok(())
    }

    /// Removes `extent` from the free extent that holds it.
    fn carve(&mut self, extent: Extent) {
        self.fill_holes(extent);
        let Some((&offset, &len)) = self.free.range(..=extent.offset).next_back() else { return };
        self.take(offset, len);
        let before = extent.offset - offset;
        let after = offset + len - extent.end();
        if before > 0 {
            self.add(offset, before);
        }
        if after > 0 {
            self.add(extent.end(), after);
        }
    }

    fn add(&mut self, offset: u64, len: u64) {
        self.free.insert(offset, len);
        self.by_length.insert((len, offset));
        self.free_bytes += len;
    }

    /// Takes a free extent out as a whole.
    fn take(&mut self, offset: u64, len: u64) {
        self.free.remove(&offset);
        self.by_length.remove(&(len, offset));
        self.free_bytes -= len;
    }

    /// Gives back space that nobody uses.
    pub(crate) fn insert_free(&mut self, extent: Extent) {
        let Extent { mut offset, mut len } = extent;
        if let Some((&before, &before_len)) = self.free.range(..offset).next_back()
            && before + before_len == offset
        {
            self.take(before, before_len);
            offset = before;
            len += before_len;
        }
        if let Some(&after_len) = self.free.get(&(offset + len)) {
            self.take(offset + len, after_len);
            len += after_len;
        }
        self.add(offset, len);
    }

    /// Gives back space that readers of other processes may still look at.
    pub(crate) fn keep(&mut self, extent: Extent, now: Duration) {
        self.kept_bytes += extent.len;
        self.kept.push_back((now, extent));
    }

    /// Makes kept space usable that was kept for `keep`, or is too much.
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

    /// Takes an allocation of a writer back that came to nothing.
    pub(crate) fn cancel(&mut self, extent: Extent) {
        self.since_freeze.retain(|other| *other != extent);
        self.in_flight.retain(|other| *other != extent);
        self.insert_free(extent);
    }

    /// Hands the allocations of writers so far over to the commit that is about to be made.
    pub(crate) fn freeze(&mut self) {
        self.since_freeze.clear();
    }

    /// Free space as a commit must record it: with what writers took since the freeze.
    pub(crate) fn free_for_commit(&self, also: &[Extent]) -> Self {
        let mut space = Self { since_freeze: Vec::new(), ..self.clone() };
        let kept = self.kept.iter().map(|(_, extent)| extent);
        for extent in self.since_freeze.iter().chain(&self.in_flight).chain(also).chain(kept) {
            space.insert_free(*extent);
        }
        space
    }

    /// Cuts free space off the end of the file; the length it may be cut to.
    pub(crate) fn shrink(&mut self) -> u64 {
        if let Some((&offset, &len)) = self.free.last_key_value()
            && offset + len == self.end
            && offset.next_multiple_of(BLOCK) < self.end
        {
            let end = offset.next_multiple_of(BLOCK);
            self.fill_holes(Extent { offset: end, len: self.end - end });
            self.take(offset, len);
            if end > offset {
                self.add(offset, end - offset);
            }
            self.end = end;
        }
        self.end
    }

    /// Free bytes that still take space of the file system.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.free_bytes() - self.holes.values().sum::<u64>()
    }

    /// Free space to be given back to the file system, beyond what is worth keeping and `least` bytes, the longest
    /// pieces first and so many of them at most. It is in flight until [`Space::released`].
    pub(crate) fn take_to_release(&mut self, least: u64, pieces: usize) -> Vec<Extent> {
        let mut excess = self.spare_bytes().saturating_sub(self.used_bytes() / SPARE_SHARE + least);
        if excess < RELEASE_LEAST {
            return Vec::new();
        }
        let long = self.by_length.iter().rev().take_while(|(len, _)| *len >= RELEASE_LEAST);
        let candidates: Vec<Extent> = long
            .flat_map(|&(len, offset)| self.without_holes(Extent { offset, len }))
            .filter(|extent| extent.len >= RELEASE_LEAST)
            .collect();
        let mut taken = Vec::new();
        for mut extent in candidates {
            if excess < RELEASE_LEAST || taken.len() == pieces {
                break;
            }
            extent.len = extent.len.min(excess / BLOCK * BLOCK);
            excess -= extent.len;
            self.carve(extent);
            self.in_flight.push(extent);
            taken.push(extent);
        }
        taken
    }

    /// Bytes that something needs.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.end - self.free_bytes() - self.kept_bytes
    }

    /// What [`Space::take_to_release`] took is free again, as a hole where it could be given back. All at once, for
    /// what is in flight is looked through.
    pub(crate) fn released(&mut self, extents: &[(Extent, bool)]) {
        let ended: BTreeSet<Extent> = extents.iter().map(|(extent, _)| *extent).collect();
        self.in_flight.retain(|other| !ended.contains(other));
        for &(extent, is_hole) in extents {
            self.insert_free(extent);
            if is_hole {
                self.holes.insert(extent.offset, extent.len);
            }
        }
    }

    /// The parts of a free extent that are no holes, in whole blocks.
    fn without_holes(&self, extent: Extent) -> Vec<Extent> {
        let mut parts = Vec::new();
        let mut at = extent.offset;
        let first = self.holes.range(..extent.offset).next_back();
        for (&hole, &len) in first.into_iter().chain(self.holes.range(extent.offset..extent.end())) {
            parts.push((at, hole.clamp(at, extent.end())));
            at = at.max(hole + len);
        }
        parts.push((at, extent.end().max(at)));
        let blocks = parts.into_iter().map(|(from, to)| (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK));
        blocks
            .filter(|(from, to)| from < to)
            .map(|(from, to)| Extent { offset: from, len: to - from })
            .collect()
    }

    /// Somebody will write there, or the file ends before it: no holes any more.
    fn fill_holes(&mut self, extent: Extent) {
        while let Some((&hole, &len)) = self.holes.range(..extent.end()).next_back()
            && hole + len > extent.offset
        {
            self.holes.remove(&hole);
            if hole + len > extent.end() {
                self.holes.insert(extent.end(), hole + len - extent.end());
            }
            if hole < extent.offset {
                self.holes.insert(hole, extent.offset - hole);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_neighbours_join_and_are_used_again() {
        let mut space = Space::new(8192);
        let a = space.allocate(5000);
        let b = space.allocate(100);
        let c = space.allocate(5000);
        assert!([a, b, c].iter().all(|extent| extent.offset % BLOCK == 0));
        space.insert_free(a);
        space.insert_free(c);
        space.insert_free(b);
        assert_eq!(space.free_extents().count(), 1);
        assert_eq!(space.allocate(8192).offset, 8192);
    }

    #[test]
    fn extents_that_follow_each_other_are_joined() {
        let extent = |offset, len| Extent { offset, len };
        let several =
            vec![extent(640, 64), extent(0, 64), extent(128, 512), extent(64, 64), extent(1024, 128)];
        assert_eq!(joined(several), [extent(0, 704), extent(1024, 128)]);
        assert_eq!(joined(Vec::new()), []);
    }

    #[test]
    fn regions_of_a_long_file_with_little_in_them_are_sparse() {
        let mut space = Space::new(0);
        let taken: Vec<Extent> = (0..20 * REGION / BLOCK).map(|_| space.allocate(BLOCK)).collect();
        let free = |space: &mut Space, region: u64, bytes: u64| {
            let of_region = taken.iter().filter(|extent| extent.offset / REGION == region);
            // Here and there, rather than all of it at once.
            of_region.rev().take((bytes / BLOCK) as usize).for_each(|extent| space.insert_free(*extent));
        };
        let sparse = |space: &Space| -> Vec<u64> {
            let sparse = space.sparse();
            (0..30).filter(|region| sparse.holds(region * REGION + 5)).collect()
        };
        free(&mut space, 3, REGION / 2);
        free(&mut space, 7, SPARSE_FREE);
        free(&mut space, 8, SPARSE_FREE - BLOCK);
        assert_eq!(sparse(&space), [7]);
        (10..20).for_each(|region| free(&mut space, region, REGION));
        assert!(space.is_mostly_free());
        assert_eq!(sparse(&space), [&[3, 7, 8], &(10..20).collect::<Vec<u64>>()[..]].concat());
        assert_eq!(sparse(&Space::new(REGION)), [0; 0]);
    }

    #[test]
    fn claimed_space_cannot_be_claimed_or_allocated_again() {
        let mut space = Space::new(4096);
        let taken = Extent { offset: 40960, len: 4096 };
        assert_eq!(space.claim(taken), Ok(()));
        assert_eq!(space.claim(taken), Err(Damage::SpaceUsedTwice));
        for _ in 0..20 {
            let extent = space.allocate(4096);
            assert!(extent.end() <= taken.offset || extent.offset >= taken.end());
        }
    }

    #[test]
    fn a_commit_counts_what_writers_took_since_the_freeze_as_free() {
        let mut space = Space::new(4096);
        space.allocate_for_writer(4096);
        space.freeze();
        let late = space.allocate_for_writer(4096);
        let recorded = space.free_for_commit(&[]);
        assert!(recorded.free_extents().any(|free| free.offset <= late.offset && late.end() <= free.end()));
        assert_eq!(space.free_bytes(), 0);
    }

    #[test]
    fn no_block_is_shared_by_an_allocation_and_what_was_there_before() {
        let mut space = Space::new(4096);
        let lives = space.allocate(4096 + 64);
        let rest = Extent { offset: lives.end(), len: space.end().next_multiple_of(BLOCK) - lives.end() };
        let mut random = 99u64;
        for _ in 0..200 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let extent = space.allocate((random >> 40) % 20_000 + 1);
            assert!(extent.offset / BLOCK > (lives.end() - 1) / BLOCK, "{extent:?} beside {rest:?}");
            space.insert_free(Extent { offset: extent.offset, len: extent.len / 2 / UNIT * UNIT });
            let kept =
                Extent { offset: extent.offset + extent.len / 2 / UNIT * UNIT, len: extent.len.div_ceil(2) };
            let other = space.allocate(64);
            let apart = other.end().div_ceil(BLOCK) <= kept.offset / BLOCK || other.offset >= kept.end();
            assert!(apart, "{other:?} {kept:?}");
        }
    }

    #[test]
    fn what_is_given_back_is_a_hole_until_somebody_writes_there() {
        let mut space = Space::new(4096);
        let extents: Vec<Extent> = (0..8).map(|_| space.allocate(1 << 20)).collect();
        extents[1..4].iter().for_each(|extent| space.insert_free(*extent));
        let taken = space.take_to_release(1 << 20, usize::MAX);
        let bytes: u64 = taken.iter().map(|extent| extent.len).sum();
        // Of three megabytes one is kept, and an eighth of the five in use.
        assert_eq!(bytes, ((2 << 20) - ((5 << 20) + 4096) / 8) / BLOCK * BLOCK, "{taken:?}");
        let meanwhile = space.allocate(64 << 10);
        assert!(
            taken.iter().all(|extent| meanwhile.end() <= extent.offset || extent.end() <= meanwhile.offset)
        );
        assert!(taken.iter().all(|extent| {
            space
                .free_for_commit(&[])
                .free_extents()
                .any(|free| free.offset <= extent.offset && extent.end() <= free.end())
        }));
        space.insert_free(meanwhile);
        space.released(&taken.iter().map(|extent| (*extent, true)).collect::<Vec<_>>());
        assert_eq!(space.spare_bytes(), (3 << 20) - bytes);
        assert!(space.take_to_release(1 << 20, usize::MAX).is_empty(), "a hole is given back once");
        let again = space.allocate(3 << 20);
        assert_eq!((again.offset, space.spare_bytes()), (extents[1].offset, 0));
        space.insert_free(again);
        assert_eq!(space.spare_bytes(), 3 << 20, "what was written takes space again");
    }

    #[test]
    fn kept_space_is_free_on_disk_and_used_only_after_its_time() {
        let mut space = Space::new(4096);
        let taken = space.allocate(1 << 20);
        let old = space.allocate(8192);
        space.keep(old, Duration::from_secs(10));
        space.use_kept(Duration::from_secs(15), Duration::from_secs(10));
        assert_ne!(space.allocate(8192), old);
        assert!(space.free_for_commit(&[]).free_extents().any(|free| free.offset == old.offset));
        space.use_kept(Duration::from_secs(20), Duration::from_secs(10));
        assert_eq!(space.allocate(8192), old);
        space.keep(taken, Duration::from_secs(20));
        space.use_kept(Duration::from_secs(20), Duration::from_secs(10));
        assert_eq!(space.kept_bytes(), 0, "too much is not kept");
    }

    #[test]
    fn random_use_never_hands_out_a_byte_twice() {
        let mut random = 88172645463325252u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut space = Space::new(4096);
        let mut taken: Vec<Extent> = Vec::new();
        for _ in 0..5000 {
            if next() % 3 > 0 || taken.is_empty() {
                let extent = space.allocate(next() % 20_000 + 1);
                assert!(
                    taken.iter().all(|other| extent.end() <= other.offset || extent.offset >= other.end())
                );
                taken.push(extent);
            } else {
                let index = next() as usize % taken.len();
                space.insert_free(taken.swap_remove(index));
            }
        }
        let used: u64 = taken.iter().map(|extent| extent.len).sum();
        assert_eq!(used + space.free_bytes(), space.end() - 4096);
    }
}

//! Free space by place and by length, and the holes in it, which the file system has back.
//!
//! Invariant: free extents are disjoint, sorted and never adjacent.

use super::{BLOCK, Extent};
use std::collections::{BTreeMap, BTreeSet};

/// Free space of the file.
#[derive(Clone, Default)]
pub(super) struct Free {
    by_offset: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    bytes: u64,
    /// Free space that the file system has back, by offset: writing there takes fresh space of it.
    holes: BTreeMap<u64, u64>,
    /// Whether free space without holes is preferred to what fits best.
    pub(super) avoids_holes: bool,
}

/// Most free extents that are looked at for one without a hole.
const LOOKED_AT_MAX: usize = 64;

impl Free {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that still take space of the file system.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.bytes - self.holes.values().sum::<u64>()
    }

    pub(super) fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        self.by_offset.iter().map(|(&offset, &len)| Extent { offset, len })
    }

    /// Whether all of an extent is free.
    pub(super) fn holds(&self, extent: Extent) -> bool {
        let before = self.by_offset.range(..=extent.offset).next_back();
        before.is_some_and(|(&offset, &len)| offset + len >= extent.end())
    }

    /// An offset at which `whole` bytes, a multiple of a block, fit well.
    pub(super) fn fitting(&self, whole: u64) -> Option<u64> {
        let solid = if self.avoids_holes { self.fitting_without_hole(whole) } else { None };
        if solid.is_some() {
            return solid;
        }
        // Aligning the start may cost up to a block at the front of a free extent.
        let close = self.by_length.range((whole, 0)..(whole + BLOCK, 0)).copied().take(16);
        let wide = self.by_length.range((whole + BLOCK, 0)..).next().copied();
        let fitting = close
            .chain(wide)
            .find(|(free_len, offset)| offset.next_multiple_of(BLOCK) + whole <= offset + free_len);
        fitting.map(|(_, offset)| offset.next_multiple_of(BLOCK))
    }

    /// As [`Free::fitting`], where no hole is known: also behind a hole at the front of a free extent, since
    /// what is given back to the file system is cut from there.
    fn fitting_without_hole(&self, whole: u64) -> Option<u64> {
        let long_enough = self.by_length.range((whole, 0)..).take(LOOKED_AT_MAX);
        let mut parts = long_enough.flat_map(|&(len, offset)| self.without_holes(Extent { offset, len }));
        parts.find(|part| part.len >= whole).map(|part| part.offset)
    }

    /// Length of the longest run of whole blocks, if it has at least `least` bytes.
    pub(super) fn longest(&self, least: u64) -> Option<u64> {
        let (len, offset) = self.by_length.last().copied()?;
        let usable = len.saturating_sub(offset.next_multiple_of(BLOCK) - offset) / BLOCK * BLOCK;
        (usable >= least).then_some(usable)
    }

    /// Removes `extent` from the free extent that holds it.
    pub(super) fn carve(&mut self, extent: Extent) {
        self.fill_holes(extent);
        let Some((&offset, &len)) = self.by_offset.range(..=extent.offset).next_back() else { return };
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
        self.by_offset.insert(offset, len);
        self.by_length.insert((len, offset));
        self.bytes += len;
    }

    /// Takes out a whole free extent.
    fn take(&mut self, offset: u64, len: u64) {
        self.by_offset.remove(&offset);
        self.by_length.remove(&(len, offset));
        self.bytes -= len;
    }

    /// Frees unused space. An extent that overlaps free space is ignored: only forged pages say that it was
    /// in use, and it would be handed out twice.
    pub(super) fn insert(&mut self, extent: Extent) {
        let Extent { mut offset, mut len } = extent;
        let last = self.by_offset.range(..extent.end()).next_back();
        if last.is_some_and(|(&free, &free_len)| free + free_len > offset) {
            return;
        }
        if let Some((&before, &before_len)) = self.by_offset.range(..offset).next_back()
            && before + before_len == offset
        {
            self.take(before, before_len);
            offset = before;
            len += before_len;
        }
        if let Some(&after_len) = self.by_offset.get(&(offset + len)) {
            self.take(offset + len, after_len);
            len += after_len;
        }
        self.add(offset, len);
    }

    /// The free extent at the end of a file of `end` bytes.
    fn tail(&self, end: u64) -> Option<Extent> {
        let last = self.by_offset.last_key_value().map(|(&offset, &len)| Extent { offset, len });
        last.filter(|last| last.end() == end)
    }

    /// How much could be cut off the end of a file of `end` bytes.
    pub(super) fn tail_bytes(&self, end: u64) -> u64 {
        self.tail(end).map_or(0, |tail| end.saturating_sub(tail.offset.next_multiple_of(BLOCK)))
    }

    /// Cuts free space off the end of a file of `end` bytes, down to a whole block and `most` bytes at most,
    /// and returns the new end of the file.
    pub(super) fn cut(&mut self, end: u64, most: u64) -> u64 {
        let Some(last) = self.tail(end) else { return end };
        let cut = last.offset.max(end.saturating_sub(most)).next_multiple_of(BLOCK);
        if cut >= end {
            return end;
        }
        self.fill_holes(Extent { offset: cut, len: end - cut });
        self.take(last.offset, last.len);
        if cut > last.offset {
            self.add(last.offset, cut - last.offset);
        }
        cut
    }

    /// Pieces of at least `least` bytes, of whole blocks without holes; those of the longest extents come
    /// first.
    pub(super) fn pieces_to_release(&self, least: u64) -> Vec<Extent> {
        let long = self.by_length.iter().rev().take_while(|(len, _)| *len >= least);
        let pieces = long.flat_map(|&(len, offset)| self.without_holes(Extent { offset, len }));
        pieces.filter(|piece| piece.len >= least).collect()
    }

    /// Notes that the file system has this free extent back.
    pub(super) fn add_hole(&mut self, extent: Extent) {
        self.holes.insert(extent.offset, extent.len);
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

    /// Removes holes from an extent that will be written to, or that the end of the file leaves out.
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
}

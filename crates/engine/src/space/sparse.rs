//! Sparse regions of the file: a checkpoint moves what little is in use there, so that long runs become free.

use super::free::Free;
use std::ops::Range;

/// Bytes of a region; see [`Sparse`].
pub(super) const REGION: u64 = 1 << 20;

/// A shorter file has no sparse regions.
const REGIONS_MIN: u64 = 16;

/// Least free bytes of a sparse region: fewer are enough once most of the file is free.
pub(super) const SPARSE_FREE: u64 = REGION / 4 * 3;
const SPARSE_FREE_LATER: u64 = REGION / 2;

/// Regions of the file that are mostly free: runs of their numbers, in order and apart. A list of all regions
/// could be longer than memory, since a forged store may say that its file has 2^60 bytes.
#[derive(Default)]
pub(crate) struct Sparse(Vec<Range<u64>>);

impl Sparse {
    /// Finds the sparse regions; none in a short file, where there is little to gain.
    pub(super) fn of(free: &Free, end: u64) -> Self {
        if end / REGION < REGIONS_MIN {
            return Self::default();
        }
        let is_mostly_free = free.bytes() > end / 2;
        let least = if is_mostly_free { SPARSE_FREE_LATER } else { SPARSE_FREE };
        let mut sparse = Self::default();
        // The last region with free space so far, and how much it has.
        let (mut region, mut bytes) = (0, 0);
        for extent in free.extents().filter(|extent| extent.len > 0) {
            let (first, last) = (extent.offset / REGION, (extent.end() - 1) / REGION);
            if first > region {
                sparse.add_if(bytes >= least, region..region + 1);
                (region, bytes) = (first, 0);
            }
            if last == first {
                bytes += extent.len;
                continue;
            }
            bytes += (first + 1) * REGION - extent.offset;
            sparse.add_if(bytes >= least, region..region + 1);
            sparse.add_if(true, first + 1..last);
            (region, bytes) = (last, extent.end() - last * REGION);
        }
        sparse.add_if(bytes >= least, region..region + 1);
        sparse
    }

    /// Adds regions behind all others, if they are sparse.
    fn add_if(&mut self, are_sparse: bool, regions: Range<u64>) {
        if !are_sparse || regions.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.end == regions.start => last.end = regions.end,
            _ => self.0.push(regions),
        }
    }

    /// Whether this offset lies in a sparse region.
    pub(crate) fn holds(&self, offset: u64) -> bool {
        let region = offset / REGION;
        let behind = self.0.partition_point(|regions| regions.start <= region);
        let last = behind.checked_sub(1).and_then(|at| self.0.get(at));
        last.is_some_and(|regions| regions.contains(&region))
    }
}

//! Sparse regions of the file: a checkpoint moves what little is in use there, so that long runs become free.

use super::free::Free;

/// Bytes of a region; see [`Sparse`].
pub(super) const REGION: u64 = 1 << 20;

/// A shorter file has no sparse regions.
const REGIONS_MIN: u64 = 16;

/// Least free bytes of a sparse region: fewer are enough once most of the file is free.
pub(super) const SPARSE_FREE: u64 = REGION / 4 * 3;
const SPARSE_FREE_LATER: u64 = REGION / 2;

/// Regions of the file that are mostly free.
#[derive(Default)]
pub(crate) struct Sparse(Vec<bool>);

impl Sparse {
    /// Finds the sparse regions; none in a short file, where there is little to gain.
    pub(super) fn of(free: &Free, end: u64) -> Self {
        if end / REGION < REGIONS_MIN {
            return Self::default();
        }
        let mut free_of_each = vec![0; (end / REGION) as usize + 1];
        for extent in free.extents() {
            let mut at = extent.offset;
            while at < extent.end() {
                let until = ((at / REGION + 1) * REGION).min(extent.end());
                free_of_each[(at / REGION) as usize] += until - at;
                at = until;
            }
        }
        let is_mostly_free = free.bytes() > end / 2;
        let least = if is_mostly_free { SPARSE_FREE_LATER } else { SPARSE_FREE };
        Self(free_of_each.into_iter().map(|free| free >= least).collect())
    }

    /// Whether this offset lies in a sparse region.
    pub(crate) fn holds(&self, offset: u64) -> bool {
        self.0.get((offset / REGION) as usize).is_some_and(|&is_sparse| is_sparse)
    }
}

//! What is pinned: memory that values of one length left free between those that stay, which no other length can have.
//!
//! It lies in slabs that all stores of the process share ([`atoll_buffer::unused_bytes`]), and nobody knows whose values keep it.
//! So stores that can let go of something share it alike: the values that keep it are the old ones most often, and go first.
//!
//! Invariant: what counts leaves each store a part of its room.

use atoll_buffer::slab::SLAB_BYTES;
use atoll_buffer::{run_bytes, unused_bytes};
use std::sync::atomic::{AtomicU64, Ordering};

/// Of all memory for values, this share may be unused and does not count: to let go of values in the same run as others frees
/// nothing, so whoever went on until the last gap is closed would be left with none. It is what the budget leaves to small things.
const UNUSED_SHARE: u64 = 8;

/// Of its room, this much is never taken from a store for what it may not have caused.
const LEFT_SHARE: u64 = 4;

static STORES: AtomicU64 = AtomicU64::new(0);

/// What one store answers for, for as long as it lives.
pub(crate) struct Pinned {
    most: u64,
}

impl Pinned {
    /// Of a store that may hold so many bytes, and can let go of some.
    pub(crate) fn within(room: u64) -> Self {
        STORES.fetch_add(1, Ordering::Relaxed);
        Self { most: room - room / LEFT_SHARE }
    }

    /// Bytes that count.
    pub(crate) fn bytes(&self) -> u64 {
        self.of(unused_bytes() as u64, run_bytes() as u64, STORES.load(Ordering::Relaxed))
    }

    #[inline]
    fn of(&self, unused: u64, all: u64, stores: u64) -> u64 {
        // As little as a slab is what any process has that uses many lengths.
        match unused.checked_sub(SLAB_BYTES as u64) {
            None => 0,
            Some(much) => (much.saturating_sub(all / UNUSED_SHARE) / stores.max(1)).min(self.most),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        STORES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_counts_for_all_stores_alike_and_leaves_each_a_part_of_its_room() {
        let (mib, pinned) = (1 << 20, Pinned::within(40 << 20));
        assert_eq!(pinned.of(2 * mib, 2 * mib, 1), 0, "a little is usual");
        assert_eq!(pinned.of(10 * mib, 80 * mib, 1), 0, "and so is a share");
        assert_eq!(pinned.of(28 * mib, 80 * mib, 1), 16 * mib);
        assert_eq!(pinned.of(28 * mib, 80 * mib, 4), 4 * mib);
        assert_eq!(pinned.of(800 * mib, 800 * mib, 1), 30 * mib);
    }
}

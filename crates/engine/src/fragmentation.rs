//! Fragmentation: memory that freed values of one length left between values that stay, which values of other
//! lengths cannot use.
//!
//! It lies in slabs that all stores of the process share ([`atoll_buffer::unused_bytes`]), and which store's
//! values keep it is unknown. So the stores that can evict something share it in proportion to their room:
//! the values that keep it are mostly old ones, and are evicted first.
//!
//! Invariant: what counts leaves each store half of its room.

use atoll_buffer::slab::SLAB_BYTES;
use atoll_buffer::{run_bytes, unused_bytes};
use std::sync::atomic::{AtomicU64, Ordering};

/// This share of all memory for values may be unused without counting. Evicting a value that shares a run
/// with others frees nothing, so a store that went on until the last gap is closed would be left without
/// values. It is as much as the budget leaves to small things.
const UNUSED_SHARE: u64 = 8;

/// This share of its room is never taken from a store for gaps that it may not have caused: inner nodes stay,
/// and something has to come and go beside them.
const LEFT_SHARE: u64 = 2;

/// Total room of all stores.
static ROOMS: AtomicU64 = AtomicU64::new(0);

/// The part that one store accounts for, for as long as it lives.
pub(crate) struct Fragmentation {
    room: u64,
}

impl Fragmentation {
    /// For a store that may hold `room` bytes, and can evict some.
    pub(crate) fn within(room: u64) -> Self {
        ROOMS.fetch_add(room, Ordering::Relaxed);
        Self { room }
    }

    /// Bytes that count for this store.
    pub(crate) fn bytes(&self) -> u64 {
        self.of(unused_bytes() as u64, run_bytes() as u64, ROOMS.load(Ordering::Relaxed))
    }

    #[inline]
    fn of(&self, unused: u64, all: u64, rooms: u64) -> u64 {
        // As little as one slab is normal in any process that uses many lengths.
        let much = unused.saturating_sub(SLAB_BYTES as u64).saturating_sub(all / UNUSED_SHARE);
        if much == 0 {
            return 0;
        }
        let share = u128::from(much) * u128::from(self.room) / u128::from(rooms.max(1));
        u64::try_from(share).unwrap_or(u64::MAX).min(self.room - self.room / LEFT_SHARE)
    }
}

impl Drop for Fragmentation {
    fn drop(&mut self) {
        ROOMS.fetch_sub(self.room, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_counts_for_stores_by_their_room_and_leaves_each_half_of_it() {
        let (mib, fragmentation) = (1 << 20, Fragmentation::within(40 << 20));
        assert_eq!(fragmentation.of(2 * mib, 2 * mib, 40 * mib), 0, "a little is usual");
        assert_eq!(fragmentation.of(10 * mib, 80 * mib, 40 * mib), 0, "and so is a share");
        assert_eq!(fragmentation.of(28 * mib, 80 * mib, 40 * mib), 16 * mib);
        assert_eq!(
            fragmentation.of(28 * mib, 80 * mib, 160 * mib),
            4 * mib,
            "one that is three times as large answers for more"
        );
        assert_eq!(fragmentation.of(800 * mib, 800 * mib, 40 * mib), 20 * mib);
    }
}

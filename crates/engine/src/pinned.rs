//! What is pinned: memory that values of one length left free between those that stay, which no other length
//! can have.
//!
//! It lies in slabs that all stores of the process share ([`atoll_buffer::unused_bytes`]), and nobody knows
//! whose values keep it. So stores that can let go of something share it by their room: the values that keep
//! it are the old ones most often, and go first.
//!
//! Invariant: what counts leaves each store half of its room.

use atoll_buffer::slab::SLAB_BYTES;
use atoll_buffer::{run_bytes, unused_bytes};
use std::sync::atomic::{AtomicU64, Ordering};

/// Of all memory for values, this share may be unused and does not count: to let go of values in the same run
/// as others frees nothing, so whoever went on until the last gap is closed would be left with none. It is
/// what the budget leaves to small things.
const UNUSED_SHARE: u64 = 8;

/// Of its room, this much is never taken from a store for what it may not have caused: inner nodes stay, and
/// something has to come and go beside them.
const LEFT_SHARE: u64 = 2;

/// The room of all stores.
static ROOMS: AtomicU64 = AtomicU64::new(0);

/// What one store answers for, for as long as it lives.
pub(crate) struct Pinned {
    room: u64,
}

impl Pinned {
    /// Of a store that may hold so many bytes, and can let go of some.
    pub(crate) fn within(room: u64) -> Self {
        ROOMS.fetch_add(room, Ordering::Relaxed);
        Self { room }
    }

    /// Bytes that count.
    pub(crate) fn bytes(&self) -> u64 {
        self.of(unused_bytes() as u64, run_bytes() as u64, ROOMS.load(Ordering::Relaxed))
    }

    #[inline]
    fn of(&self, unused: u64, all: u64, rooms: u64) -> u64 {
        // As little as a slab is what any process has that uses many lengths.
        let much = unused.saturating_sub(SLAB_BYTES as u64).saturating_sub(all / UNUSED_SHARE);
        if much == 0 {
            return 0;
        }
        let share = u128::from(much) * u128::from(self.room) / u128::from(rooms.max(1));
        u64::try_from(share).unwrap_or(u64::MAX).min(self.room - self.room / LEFT_SHARE)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        ROOMS.fetch_sub(self.room, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_counts_for_stores_by_their_room_and_leaves_each_half_of_it() {
        let (mib, pinned) = (1 << 20, Pinned::within(40 << 20));
        assert_eq!(pinned.of(2 * mib, 2 * mib, 40 * mib), 0, "a little is usual");
        assert_eq!(pinned.of(10 * mib, 80 * mib, 40 * mib), 0, "and so is a share");
        assert_eq!(pinned.of(28 * mib, 80 * mib, 40 * mib), 16 * mib);
        assert_eq!(
            pinned.of(28 * mib, 80 * mib, 160 * mib),
            4 * mib,
            "one that is three times as large answers for more"
        );
        assert_eq!(pinned.of(800 * mib, 800 * mib, 40 * mib), 20 * mib);
    }
}

//! Spare memory: long allocations that no buffer shows any more, kept for the next ones.
//!
//! The system hands out fresh memory page by page, on first touch, and that costs more than filling the page.
//! Where long buffers come and go in a stream, such as blocks that are written and objects that are read, the
//! next one reuses the memory of an earlier one.
//!
//! Invariant: no more than the limit is kept, and what is handed out has no other owner.
//! Invariant: nothing here waits for a lock: a child that was forked while another thread held it would wait
//! for ever.

use crate::ALIGNMENT;
use crate::blocks::Purpose;
use crate::shared::Shared;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shorter allocations are left to the allocator, which keeps them at hand itself.
pub(crate) const LONG_BYTES: usize = 256 << 10;

/// An allocation may be longer than needed by at most one part in this many, counted from the shortest that
/// is kept.
const PARTS: usize = 8;

/// Lengths of long allocations are rounded up to a multiple of this.
const ROUNDED_TO: usize = 32 << 10;

/// Under sanitizers nothing is kept, so that they can track every allocation.
const KEEPS: bool = cfg!(not(any(miri, atoll_plain_memory)));

static SPARE: Mutex<Spare> = Mutex::new(Spare { allocations: Vec::new(), bytes: 0 });

static BYTES_MAX: AtomicUsize = AtomicUsize::new(32 << 20);

/// Kept allocations, the latest at the end.
struct Spare {
    allocations: Vec<Shared>,
    bytes: usize,
}

/// Keeps at most this many bytes from here on, in the whole process. A user with a memory budget asks for a
/// small share of it; the smallest limit that was ever asked for holds.
pub fn keep_at_most(bytes: usize) {
    let before = BYTES_MAX.fetch_min(bytes, Ordering::Relaxed);
    if bytes < before
        && let Ok(mut spare) = SPARE.try_lock()
    {
        spare.shrink(bytes);
    }
}

/// An allocation of at least this many bytes, and whether its bytes are zeros. It is fresh, or was used
/// before and still has its old contents.
pub(crate) fn allocation(bytes: usize, purpose: Purpose) -> (Shared, bool) {
    if bytes >= LONG_BYTES {
        if let Some(used) = SPARE.try_lock().ok().and_then(|mut spare| spare.take(bytes)) {
            return (used, false);
        }
        // A little longer, so that it also fits later requests of about the same length.
        let rounded = bytes.checked_next_multiple_of(ROUNDED_TO).unwrap_or(bytes);
        return Shared::allocate(rounded, purpose);
    }
    Shared::allocate(bytes, purpose)
}

/// Bytes that an allocation for this many may have beyond them and their alignment.
pub(crate) const fn unused_max(bytes: usize) -> usize {
    if bytes + ALIGNMENT > LONG_BYTES { bytes / PARTS + ROUNDED_TO } else { 0 }
}

/// Keeps an allocation, if it is long and has no other owner.
pub(crate) fn give_back(mut allocation: Shared) {
    if KEEPS
        && allocation.len() <= BYTES_MAX.load(Ordering::Relaxed)
        && allocation.get_mut().is_some()
        && let Ok(mut spare) = SPARE.try_lock()
    {
        spare.bytes += allocation.len();
        spare.allocations.push(allocation);
        spare.shrink(BYTES_MAX.load(Ordering::Relaxed));
    }
}

impl Spare {
    fn take(&mut self, bytes: usize) -> Option<Shared> {
        let fits = bytes..=bytes.saturating_add(unused_max(bytes));
        let place = self.allocations.iter().rposition(|allocation| fits.contains(&allocation.len()))?;
        let taken = self.allocations.remove(place);
        self.bytes -= taken.len();
        Some(taken)
    }

    /// Frees the oldest allocations until no more than `bytes_max` is kept.
    fn shrink(&mut self, bytes_max: usize) {
        let mut gone = 0;
        for allocation in &self.allocations {
            if self.bytes <= bytes_max {
                break;
            }
            self.bytes -= allocation.len();
            gone += 1;
        }
        self.allocations.drain(..gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_as_long_fits_and_no_more_is_kept_than_may_be() {
        let mut spare = Spare { allocations: Vec::new(), bytes: 0 };
        for bytes in [LONG_BYTES, 3 * LONG_BYTES, 2 * LONG_BYTES] {
            spare.allocations.push(Shared::allocate(bytes, Purpose::Writing).0);
            spare.bytes += bytes;
        }
        assert!(spare.take(3 * LONG_BYTES + 1).is_none(), "too short");
        assert!(spare.take(LONG_BYTES + LONG_BYTES / 2).is_none(), "two thirds of it would be for nothing");
        assert_eq!(
            spare.take(2 * LONG_BYTES - LONG_BYTES / PARTS).map(|taken| taken.len()),
            Some(2 * LONG_BYTES)
        );
        assert_eq!((spare.bytes, spare.allocations.len()), (4 * LONG_BYTES, 2));
        spare.shrink(3 * LONG_BYTES);
        assert_eq!((spare.bytes, spare.allocations.len()), (3 * LONG_BYTES, 1));
        spare.shrink(LONG_BYTES);
        assert_eq!((spare.bytes, spare.allocations.len()), (0, 0));
    }
}

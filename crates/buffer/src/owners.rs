//! The owner count of a shared allocation: as in `Arc`, without weak references.
//!
//! Invariant: a sole owner stays the sole owner, because only an owner makes others, and it has seen all
//! writes of former owners.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// With more owners than this, references are being leaked, and the count might wrap around to zero.
const OWNERS_MAX: usize = isize::MAX as usize;

/// The number of owners of the value beside it.
#[repr(transparent)]
pub(crate) struct Owners(AtomicUsize);

impl Owners {
    /// A count of one.
    pub(crate) const fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// The number of owners.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Adds an owner; called by an owner.
    #[inline]
    pub(crate) fn add(&self) {
        // Relaxed: a new owner on another thread gets it through a channel that orders all earlier writes.
        if self.0.fetch_add(1, Ordering::Relaxed) > OWNERS_MAX {
            std::process::abort();
        }
    }

    /// Takes off the calling owner, and returns whether it was the last, which has to free the memory.
    #[inline]
    pub(crate) fn take_off(&self) -> bool {
        // A sole owner has nothing to count; an atomic update would take as long as the writes before it.
        if self.count() > 1 && self.0.fetch_sub(1, Ordering::Release) > 1 {
            return false;
        }
        // Accesses by other owners happen before the memory is reused.
        fence(Ordering::Acquire);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_that_goes_is_told_so() {
        let owners = Owners::one();
        owners.add();
        owners.add();
        assert_eq!(owners.count(), 3);
        assert!(!owners.take_off() && !owners.take_off());
        assert_eq!(owners.count(), 1);
        assert!(owners.take_off());
    }

    #[test]
    fn of_many_that_go_at_once_one_is_the_last() {
        for _ in 0..if cfg!(miri) { 5 } else { 500 } {
            let owners = Owners::one();
            (0..3).for_each(|_| owners.add());
            let last = std::thread::scope(|scope| {
                let all: Vec<_> = (0..4).map(|_| scope.spawn(|| owners.take_off())).collect();
                all.into_iter().filter_map(|one| one.join().ok()).filter(|&is_last| is_last).count()
            });
            assert_eq!(last, 1);
        }
    }
}

//! How many own an allocation that is shared by count: as in `Arc`, without weak references.
//!
//! Invariant: who sees itself as the one owner stays it, for only an owner makes others, and has seen all
//! that former ones did.

use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Owners beyond which something is forgetting them: counting on might come round to zero.
const MOST: usize = isize::MAX as usize;

/// The number of owners of what it lies beside.
#[repr(transparent)]
pub(crate) struct Owners(AtomicUsize);

impl Owners {
    /// One.
    pub(crate) const fn one() -> Self {
        Self(AtomicUsize::new(1))
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// One more, made by an owner.
    #[inline]
    pub(crate) fn add(&self) {
        // Relaxed: whoever gets the new owner gets it by a way that orders what was done before.
        if self.0.fetch_add(1, Ordering::Relaxed) > MOST {
            std::process::abort();
        }
    }

    /// One less, which is the caller; whether it was the last one, to whom the memory is left.
    #[inline]
    pub(crate) fn take_off(&self) -> bool {
        // For the one owner there is nothing to count, which would take as long as what is written meanwhile.
        if self.count() > 1 && self.0.fetch_sub(1, Ordering::Release) > 1 {
            return false;
        }
        // What other owners did happens before the memory is used again.
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

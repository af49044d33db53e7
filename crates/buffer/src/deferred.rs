//! Deferred work: what could not be done because another thread held a lock, and which thread does it later.
//!
//! Nothing here waits for a lock ([`crate::blocks`]). So empty runs may stay with their class, freed blocks
//! on a list, and free pages with the pool. The next thread that uses the same length takes care of them, but
//! there may be none. Therefore the thread that held the lock of the pool, which made others miss it, catches
//! up as well, and so does a thread that gave much memory back.
//!
//! Invariant: what was left behind has its bit here, or is about to get it from the thread that left it.

use crate::{blocks, runs};
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each class of blocks, and one for the pages of the pool.
static DEFERRED: AtomicU64 = AtomicU64::new(0);

/// The bit of the pool's pages.
pub(crate) const PAGES: usize = 63;

const _: () = assert!(blocks::CLASSES <= PAGES);

/// Notes that something was left behind.
pub(crate) fn note(what: usize) {
    // Release: the thread that takes the bit finds what was left. Even if the bit is set already, because the
    // thread that takes it now may have looked before.
    DEFERRED.fetch_or(1 << what, Ordering::Release);
}

/// Does the deferred work, except what is missed once more. No lock may be held.
pub(crate) fn catch_up() {
    if DEFERRED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut deferred = DEFERRED.swap(0, Ordering::Acquire);
    while deferred != 0 {
        match deferred.trailing_zeros() as usize {
            PAGES => runs::thin_out(),
            class => blocks::tidy(class),
        }
        deferred &= deferred - 1;
    }
}

/// Much memory is about to be given back: meanwhile only whole slabs go to the system, and no parts of slabs
/// that would soon go whole.
pub struct Ending(());

/// Begins to give much memory back, until the returned value is dropped.
#[must_use]
pub fn ending() -> Ending {
    runs::ending_begins();
    Ending(())
}

impl Drop for Ending {
    fn drop(&mut self) {
        runs::ending_ends();
        catch_up();
        runs::thin_out();
        // The last step may have taken a while.
        catch_up();
    }
}

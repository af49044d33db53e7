//! What could not be done because somebody had a lock, and who does it.
//!
//! Nothing here waits for a lock ([`crate::blocks`]), so runs in which nothing is left stay with their class,
//! blocks with nobody, and pages with the pool. Who comes next for the same length takes care of them, but
//! there may be no such one: so does who had the lock of the pool, which is why others missed it, and who
//! gave much back.
//!
//! Invariant: what was left behind has its bit here, or gets it from whoever left it.

use crate::{blocks, runs};
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each class of blocks, and one for the pages of the pool.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The bit of the pages.
pub(crate) const PAGES: usize = 63;

const _: () = assert!(blocks::CLASSES <= PAGES);

/// Notes that something was left behind.
pub(crate) fn note(what: usize) {
    // Release: whoever takes the bit finds what was left. Not only where the bit is missing: the one who
    // takes it now may have looked already.
    MISSED.fetch_or(1 << what, Ordering::Release);
}

/// Does what was missed, but for what is missed again. No lock is held.
pub(crate) fn catch_up() {
    if MISSED.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut missed = MISSED.swap(0, Ordering::Acquire);
    while missed != 0 {
        match missed.trailing_zeros() as usize {
            PAGES => runs::thin_out(),
            class => blocks::tidy(class),
        }
        missed &= missed - 1;
    }
}

/// Much will be given back: whole slabs go to the system meanwhile, and no parts of those that soon follow.
pub struct Ending(());

/// Begins to give much back, for as long as the answer is kept.
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
        // That may have taken a while.
        catch_up();
    }
}

//! Locks, atomic words and threads: what threads of the engine meet at comes from here.
//!
//! With the feature `schedules` all of it belongs to a scheduler that runs one thread at a time and decides
//! at each lock, atomic word and wait who goes on; a test then goes through thousands of such orders, and
//! repeats any of them.
//!
//! Invariant: a lock that is held while the disk is asked, or while another one is taken, comes from here.
//! Counters that nothing waits for, and the pool of frames, need not.

#[cfg(feature = "schedules")]
mod scheduled;
#[cfg(feature = "schedules")]
mod watch;

#[cfg(not(feature = "schedules"))]
mod of_the_system {
    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    use std::cell::Cell;
    use std::sync::atomic::Ordering;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::thread::{Builder, JoinHandle};

    thread_local! {
        /// The number of this thread, drawn at its first use.
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Numbers drawn so far.
    static DRAWN: AtomicUsize = AtomicUsize::new(0);

    /// The number of this thread.
    #[inline]
    pub(crate) fn own_number() -> usize {
        NUMBER.with(|number| {
            if number.get() == usize::MAX {
                number.set(DRAWN.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        })
    }
}

#[cfg(not(feature = "schedules"))]
pub(crate) use of_the_system::*;
#[cfg(feature = "schedules")]
pub(crate) use scheduled::*;
#[cfg(feature = "schedules")]
pub(crate) use watch::{Inside, Watch};

#[cfg(not(feature = "schedules"))]
use crate::planted::Bug;

/// How somebody is inside of what is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "schedules"), allow(dead_code))]
pub(crate) enum Way {
    /// Reads; others may as well.
    Reading,
    /// Changes it, with nobody else inside.
    Writing,
    /// Is in the gate as a writer of one record, beside others.
    Placing,
    /// Is in the gate and wants nobody to place.
    Still,
    /// Is in the gate and wants nobody to place, nor to be alone.
    Alone,
}

/// Knows who is inside of something, in tests of schedules, and stops the one who must not be there too;
/// nothing elsewhere.
#[cfg(not(feature = "schedules"))]
#[derive(Default)]
pub(crate) struct Watch;

/// Somebody is inside, until this goes.
#[cfg(not(feature = "schedules"))]
pub(crate) struct Inside<'w>(std::marker::PhantomData<&'w Watch>);

#[cfg(not(feature = "schedules"))]
impl Watch {
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn enter(&self, _way: Way) -> Inside<'_> {
        Inside(std::marker::PhantomData)
    }
}

/// Takes a lock, as it should be taken: with that bug planted it only seems to be.
#[cfg(not(feature = "schedules"))]
#[inline(always)]
pub(crate) fn unless<G>(_bug: Bug, take: impl FnOnce() -> G) -> G {
    take()
}

//! Locks, atomics and threads: everything through which the engine's threads interact comes from here.
//!
//! With the feature `schedules` all of it belongs to a scheduler that runs one thread at a time and decides
//! at each lock, atomic access and wait which thread goes on. A test then goes through thousands of such
//! orders, and can repeat any of them.
//!
//! Invariant: a lock that is held during disk I/O, or while another lock is taken, comes from here. Counters
//! that nothing waits for, and the pool of frames, need not.

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

    /// The number of the current thread.
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

/// How a thread is inside of something that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "schedules"), allow(dead_code))]
pub(crate) enum Way {
    /// Reads it, perhaps beside other readers.
    Reading,
    /// Changes it, and excludes everything else.
    Writing,
    /// In the gate as the writer of one record, beside others.
    Placing,
    /// In the gate, excluding placing writes.
    Still,
    /// In the gate, excluding placing writes and other *alone* holders.
    Alone,
}

/// In tests of schedules, knows which threads are inside of something, and panics when one enters that must
/// not. Nothing in an ordinary build.
#[cfg(not(feature = "schedules"))]
#[derive(Default)]
pub(crate) struct Watch;

/// A thread is inside until this is dropped.
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

/// Takes a lock properly; where `bug` is planted, only pretends to.
#[cfg(not(feature = "schedules"))]
#[inline(always)]
pub(crate) fn unless<G>(_bug: Bug, take: impl FnOnce() -> G) -> G {
    take()
}

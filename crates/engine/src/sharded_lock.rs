//! A lock that readers on different processors take without touching common memory.
//!
//! It consists of several locks, each in cache lines of its own: a reader shares the one of its thread, a
//! writer takes all of them, in order.
//!
//! Invariant: the value is referred to only while at least one place is held, and changed only while all are.
#![allow(unsafe_code)]

use crate::gate::{CachePadded, PLACES, own_place};
use crate::planted::Bug;
use crate::threads::{Inside, RwLock, RwLockReadGuard, RwLockWriteGuard, Watch, Way, unless};
use std::array;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// A value behind such a lock.
pub(crate) struct ShardedLock<T> {
    places: [CachePadded<RwLock<()>>; PLACES],
    watch: Watch,
    value: UnsafeCell<T>,
}

// SAFETY: as for `RwLock`: readers on several threads refer to the value at once, and a writer may move it
// out.
unsafe impl<T: Send + Sync> Sync for ShardedLock<T> {}

impl<T> ShardedLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            places: array::from_fn(|_| CachePadded::default()),
            watch: Watch::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for writers. A thread that holds it must not call this again.
    #[inline]
    pub(crate) fn read(&self) -> Read<'_, T> {
        let _place = unless(Bug::ForestUnlocked, || self.places[own_place()].read());
        Read { _inside: self.watch.enter(Way::Reading), value: &self.value, _place }
    }

    /// Waits for readers and writers.
    pub(crate) fn write(&self) -> Write<'_, T> {
        let _places = array::from_fn(|place| self.places[place].write());
        Write { _inside: self.watch.enter(Way::Writing), value: &self.value, _places }
    }

    /// As [`ShardedLock::write`], if the lock is free.
    pub(crate) fn try_write(&self) -> Option<Write<'_, T>> {
        let [a, b, c, d] = &self.places;
        let _places = [a.try_write()?, b.try_write()?, c.try_write()?, d.try_write()?];
        Some(Write { _inside: self.watch.enter(Way::Writing), value: &self.value, _places })
    }
}

/// The value, for reading.
pub(crate) struct Read<'s, T> {
    _inside: Inside<'s>,
    value: &'s UnsafeCell<T>,
    _place: RwLockReadGuard<'s, ()>,
}

impl<T> Deref for Read<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a writer needs this place too, which is shared until `self` is dropped, so the value does
        // not change meanwhile.
        unsafe { &*self.value.get() }
    }
}

/// The value, for writing.
pub(crate) struct Write<'s, T> {
    _inside: Inside<'s>,
    value: &'s UnsafeCell<T>,
    _places: [RwLockWriteGuard<'s, ()>; PLACES],
}

impl<T> Deref for Write<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: every reader and every writer needs a place, and this holds all of them until it is
        // dropped.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for Write<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { &mut *self.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn writers_have_it_alone_and_readers_see_whole_values() {
        let pair = ShardedLock::new((0u64, 0u64));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let mut pair = pair.write();
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let pair = pair.read();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*pair.read(), (4000, 4000));
    }

    #[test]
    fn a_writer_does_not_come_in_beside_a_reader_on_any_thread() {
        let value = ShardedLock::new(1);
        thread::scope(|scope| {
            for _ in 0..PLACES + 1 {
                scope
                    .spawn(|| {
                        let shared = value.read();
                        assert!(value.try_write().is_none());
                        drop(shared);
                        assert!(value.try_write().is_some());
                    })
                    .join()
                    .unwrap();
            }
        });
    }
}

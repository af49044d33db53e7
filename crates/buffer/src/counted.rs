//! A reference-counted value in a block of a slab: as `Arc`, without weak references, for types with millions
//! of values.
//!
//! It begins on a cache line, with its owner count: prefetching its first lines covers that too.
//!
//! Invariant: the value lives as long as `owners` is above zero, and `owners` counts its `Counted`s.
#![expect(unsafe_code, reason = "shared by count, docs/decisions/0015-unsafe.md")]

use crate::ALIGNMENT;
use crate::blocks::{self, Link, MemoryOrigin, Purpose};
use crate::owners::Owners;
use crate::shared::OWN_MEMORY;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

#[repr(C)]
struct Cell<T> {
    link: Link,
    owners: Owners,
    value: T,
}

/// A reference-counted value.
pub struct Counted<T> {
    cell: NonNull<Cell<T>>,
    owned: PhantomData<Cell<T>>,
}

// SAFETY: as for `Arc`: the value can be reached and dropped by every thread that has an owner, and the count
// is atomic.
unsafe impl<T: Send + Sync> Send for Counted<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Counted<T> {}

impl<T> Counted<T> {
    /// Cache lines that it takes.
    pub const LINES: usize = size_of::<Cell<T>>().div_ceil(ALIGNMENT);

    const IS_ALIGNED: () = assert!(align_of::<Cell<T>>() <= ALIGNMENT, "blocks begin on a line");

    /// A value with one owner.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::placed(value, Purpose::Writing)
    }

    /// As [`Counted::new`], for a value that was read from a disk and will be used for a long time.
    #[must_use]
    pub fn read(value: T) -> Self {
        Self::placed(value, Purpose::Reading)
    }

    fn placed(value: T, purpose: Purpose) -> Self {
        let () = Self::IS_ALIGNED;
        let block = if OWN_MEMORY { None } else { blocks::take(Self::LINES, purpose) };
        let (start, place) =
            block.unwrap_or_else(|| (own_memory(Layout::new::<Cell<T>>()), MemoryOrigin::own(1)));
        let cell = start.cast::<Cell<T>>();
        // SAFETY: the memory is as long as a cell and as aligned, and belongs to the caller alone.
        unsafe { cell.write(Cell { link: Link::of(place), owners: Owners::one(), value }) };
        Self { cell, owned: PhantomData }
    }

    fn inner(&self) -> &Cell<T> {
        // SAFETY: it lives as long as an owner, and is changed only through the one owner, borrowed.
        unsafe { self.cell.as_ref() }
    }

    /// Number of owners.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.inner().owners.count()
    }

    /// Its address, where [`Counted::LINES`] cache lines begin.
    #[must_use]
    pub fn start(&self) -> *const u8 {
        self.cell.as_ptr().cast_const().cast()
    }

    /// Address of other memory that dropping the value will touch; only for prefetching.
    #[must_use]
    pub fn end_touches(&self) -> *const u8 {
        blocks::kept_at(self.inner().link.place())
    }

    /// Whether both own the same value.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.cell == other.cell
    }

    /// The value, mutably, unless there are other owners.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.owners() > 1 {
            return None;
        }
        // SAFETY: this is the one owner, exclusively borrowed, so no other thread can read the value or come
        // to own it meanwhile; the load of the count saw the last writes of former owners.
        Some(unsafe { &mut (*self.cell.as_ptr()).value })
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        self.inner().owners.add();
        Self { cell: self.cell, owned: PhantomData }
    }
}

impl<T> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        if !self.inner().owners.take_off() {
            return;
        }
        let place = self.inner().link.place();
        // SAFETY: the last owner is gone, so nothing refers to the value; its memory goes where it came from.
        // The link is no part of what is dropped.
        unsafe {
            std::ptr::drop_in_place(&raw mut (*self.cell.as_ptr()).value);
            match place.own_before() {
                Some(_) => dealloc(self.cell.as_ptr().cast(), Layout::new::<Cell<T>>()),
                None => blocks::give(self.cell.cast(), place),
            }
        }
    }
}

fn own_memory(layout: Layout) -> NonNull<u8> {
    // SAFETY: a cell has a link, so the layout is not empty.
    let memory = unsafe { alloc(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Watched = (Arc<()>, [u8; 150]);

    #[test]
    fn the_last_owner_drops_it_and_only_a_sole_owner_may_change_it() {
        let witness = Arc::new(());
        for make in [Counted::new as fn(Watched) -> Counted<Watched>, Counted::read] {
            let mut first = make((Arc::clone(&witness), [7; 150]));
            first.get_mut().expect("nobody else has it").1[149] = 8;
            let second = first.clone();
            assert!(first.get_mut().is_none() && first.is_same(&second) && second.owners() == 2);
            drop(first);
            assert_eq!((second.1[0], second.1[149], Arc::strong_count(&witness)), (7, 8, 2));
            drop(second);
            assert_eq!(Arc::strong_count(&witness), 1);
        }
        // In blocks of two lines, the shortest that there are.
        assert_eq!((Counted::<Watched>::LINES, Counted::<(Arc<()>, [usize; 10])>::LINES), (3, 2));
        // In an allocation of its own, because it is shorter than any block.
        drop(Counted::new(Arc::clone(&witness)));
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn owners_on_many_threads_are_all_counted() {
        let (witness, rounds) = (Arc::new(()), if cfg!(miri) { 10 } else { 2_000 });
        std::thread::scope(|scope| {
            for mark in 0..4_usize {
                let witness = Arc::clone(&witness);
                scope.spawn(move || {
                    let kept: Vec<_> = (0..rounds)
                        .map(|round| Counted::new((Arc::clone(&witness), [mark + round; 10])))
                        .collect();
                    let theirs = kept.clone();
                    let seen = scope.spawn(move || {
                        theirs.iter().enumerate().all(|(round, one)| one.1 == [mark + round; 10])
                    });
                    drop(kept);
                    assert!(seen.join().expect("it ends"));
                });
            }
        });
        assert_eq!(Arc::strong_count(&witness), 1);
    }
}

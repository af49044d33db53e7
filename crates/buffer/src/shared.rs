//! The allocation behind buffers, reference-counted: as `Arc<[u8]>`, but a single word, with bytes that begin
//! on a cache line, and from [`crate::blocks`] for middle lengths.
//!
//! The owner count lies in the line before the bytes.
//!
//! Invariant: an allocation lives as long as `owners` is above zero, and `owners` counts its `Shared`s.
//! Invariant: all its bytes are initialised.
#![expect(unsafe_code, reason = "shared by count, docs/decisions/0015-unsafe.md")]

use crate::ALIGNMENT;
use crate::blocks::{self, Link, MemoryOrigin, Purpose};
use crate::owners::Owners;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// Under sanitizers every allocation comes from the allocator, so that they can track it.
pub(crate) const OWN_MEMORY: bool = cfg!(any(miri, atoll_plain_memory));

/// The header right before the bytes.
#[repr(C)]
struct Head {
    link: Link,
    owners: Owners,
    bytes: usize,
}

/// Shorter ones are left to the allocator, which keeps them at hand itself.
const BLOCK_BYTES_MIN: usize = 256;

/// Bytes of the header.
const HEAD_BYTES: usize = size_of::<Head>();

const _: () = assert!(HEAD_BYTES <= ALIGNMENT && HEAD_BYTES.is_multiple_of(align_of::<Head>()));

/// Reference-counted bytes.
pub(crate) struct Shared(NonNull<Head>);

// SAFETY: as for `Arc<[u8]>`: the bytes are changed only through the one owner, borrowed, and the count is
// atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// This many bytes, above zero, with one owner, and whether they are known to be zeros.
    pub(crate) fn allocate(bytes: usize, purpose: Purpose) -> (Self, bool) {
        if !OWN_MEMORY
            && bytes >= BLOCK_BYTES_MIN
            && let Some((block, place)) = blocks::take(lines_for(bytes), purpose)
        {
            // SAFETY: behind its first line the block has this many bytes, and it belongs to the caller
            // alone.
            return (unsafe { Self::at(block.add(ALIGNMENT), bytes, place) }, false);
        }
        let layout = layout(bytes);
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        let before = HEAD_BYTES + memory.as_ptr().wrapping_add(HEAD_BYTES).align_offset(ALIGNMENT);
        // SAFETY: the layout includes the head and the alignment before this many bytes.
        (unsafe { Self::at(memory.add(before), bytes, MemoryOrigin::own(before)) }, true)
    }

    /// # Safety
    /// `start` is a multiple of [`ALIGNMENT`]. `bytes` initialised bytes follow it, and room for a head lies
    /// before it, in memory that came from `place` and belongs to the caller alone.
    unsafe fn at(start: NonNull<u8>, bytes: usize, place: MemoryOrigin) -> Self {
        // SAFETY: as the caller promises; a head is aligned if `start` is, since its length is a multiple of
        // its alignment.
        unsafe {
            let head = start.sub(HEAD_BYTES).cast::<Head>();
            head.write(Head { link: Link::of(place), owners: Owners::one(), bytes });
            Self(head)
        }
    }

    fn head(&self) -> &Head {
        // SAFETY: it lives as long as an owner, and only its atomic words change.
        unsafe { self.0.as_ref() }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the bytes follow the head, in the same memory.
        unsafe { self.0.add(1).cast::<u8>().as_ptr() }
    }

    /// Whether it is a block.
    #[cfg(all(test, not(miri), not(atoll_plain_memory)))]
    pub(crate) fn is_block(&self) -> bool {
        self.head().link.place().own_before().is_none()
    }

    /// Number of its owners.
    pub(crate) fn owners(&self) -> usize {
        self.head().owners.count()
    }

    /// Bytes of memory that it takes: for a block its share of the run, otherwise its length plus about what
    /// aligns it.
    pub(crate) fn memory_bytes(&self) -> usize {
        let place = self.head().link.place();
        if place.own_before().is_some() { self.len() + ALIGNMENT - 1 } else { place.share() }
    }

    /// Address of other memory that dropping it will touch.
    pub(crate) fn end_touches(&self) -> *const u8 {
        blocks::kept_at(self.head().link.place())
    }

    /// Whether both refer to one allocation.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The bytes, mutably, unless there are other owners.
    pub(crate) fn get_mut(&mut self) -> Option<&mut [u8]> {
        if self.owners() > 1 {
            return None;
        }
        // SAFETY: this is the one owner, exclusively borrowed, so no other thread can read the bytes or come
        // to own them meanwhile; the load of the count saw the last writes of former owners.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start(), self.head().bytes) })
    }
}

impl Deref for Shared {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes live as long as an owner, and are changed only through the one owner, borrowed.
        unsafe { std::slice::from_raw_parts(self.start(), self.head().bytes) }
    }
}

impl Clone for Shared {
    #[inline]
    fn clone(&self) -> Self {
        self.head().owners.add();
        Self(self.0)
    }
}

impl Drop for Shared {
    #[inline]
    fn drop(&mut self) {
        if !self.head().owners.take_off() {
            return;
        }
        let (place, bytes) = (self.head().link.place(), self.head().bytes);
        match place.own_before() {
            // SAFETY: the last owner is gone, so nothing refers to the memory; it was allocated with this
            // layout, and begins `before` bytes before the usable part.
            Some(before) => unsafe { dealloc(self.start().sub(before), layout(bytes)) },
            // SAFETY: as above; it came from [`blocks::take`].
            None => unsafe { blocks::give(self.0.cast(), place) },
        }
    }
}

/// Lines of a block for this many bytes; the first line is what lies before them.
pub(crate) const fn lines_for(bytes: usize) -> usize {
    1 + bytes.div_ceil(ALIGNMENT)
}

/// Layout of memory for this many bytes, a head, and their alignment.
fn layout(bytes: usize) -> Layout {
    let whole = bytes.checked_add(HEAD_BYTES + ALIGNMENT - 1);
    match whole.map(|whole| Layout::from_size_align(whole, align_of::<Head>())) {
        Some(Ok(layout)) => layout,
        _ => unreachable!("nothing is that long"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 7] = [1, 255, 256, 1000, 4096, 8192, 100_000];

    #[test]
    fn the_last_owner_ends_it_and_only_a_sole_owner_may_change_it() {
        for bytes in LENGTHS {
            let (mut first, is_zero) = Shared::allocate(bytes, Purpose::Writing);
            assert_eq!((first.len(), first.as_ptr().addr() % ALIGNMENT), (bytes, 0));
            assert!(!is_zero || first.iter().all(|byte| *byte == 0));
            first.get_mut().expect("nobody else has it").fill(7);
            let second = first.clone();
            assert!(first.get_mut().is_none() && first.is_same(&second) && second.owners() == 2);
            drop(first);
            assert!(second.owners() == 1 && second.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn owners_on_many_threads_are_all_counted_and_each_sees_its_own_bytes() {
        std::thread::scope(|scope| {
            for mark in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..if cfg!(miri) { 10 } else { 2_000 } {
                        let bytes = LENGTHS[round % LENGTHS.len()];
                        let (mut mine, _) = Shared::allocate(bytes, Purpose::Reading);
                        mine.get_mut().expect("nobody else has it").fill(mark);
                        let there = mine.clone();
                        let seen = scope.spawn(move || there.iter().all(|byte| *byte == mark));
                        assert!(mine.iter().all(|byte| *byte == mark));
                        drop(mine);
                        assert!(seen.join().expect("it ends"));
                    }
                });
            }
        });
    }
}

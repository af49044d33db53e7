//! Memory for leaves: frames of one size, cut from slabs of two megabytes.
//!
//! A slab is as large and as aligned as a huge page of the processor, so that a lookup in one seldom misses
//! the table of translations. The kernel zeroes a huge page when its first byte is touched, which takes up to
//! two milliseconds where a hypervisor takes free memory back: that suits leaves that are read from disk, and
//! is no wait for a writer. What follows from it, and what goes back to the system, is decided in
//! [`atoll_buffer::parts`], for blocks as well: leaves that gave way to values would go on taking memory
//! otherwise.
//!
//! The pool is one for the process, so that small stores share slabs.
//!
//! Invariant: a frame is in use or free in its slab, never both.
//! Invariant: the bytes of a frame are initialised: zeros from the system, or what was there before.

use atoll_buffer::parts::{Elsewhere, Pool, words_for};
use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

pub(crate) use atoll_buffer::parts::Purpose;

/// Bytes of a frame: an odd number of lines, so that the beginnings of many do not meet in one set of a
/// cache.
pub(crate) const FRAME_BYTES: usize = 129 * 64;

static FRAMES: Mutex<Frames> = Mutex::new(Frames { pool: Pool::new(), endings: 0 });

struct Frames {
    pool: Pool<FRAME_BYTES, { words_for(FRAME_BYTES) }>,
    /// How many stores are giving all back; while any is, no pages go back but those of whole slabs.
    endings: usize,
}

/// Takes a frame: [`FRAME_BYTES`] initialised bytes on a boundary of 64, for the caller alone.
pub(crate) fn take(purpose: Purpose) -> NonNull<u8> {
    let frame = FRAMES.lock().pool.take(purpose);
    frame.unwrap_or_else(own_memory)
}

/// Where the system maps no more slabs, a frame is the allocator's. [`give`] finds that out by its address.
const OWN_MEMORY: Layout = match Layout::from_size_align(FRAME_BYTES, 64) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

#[allow(unsafe_code)]
fn own_memory() -> NonNull<u8> {
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc_zeroed(OWN_MEMORY) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(OWN_MEMORY))
}

/// Gives a frame back.
///
/// # Safety
/// `frame` came from [`take`], was not given back since, and nothing refers to it any more.
#[allow(unsafe_code)]
pub(crate) unsafe fn give(frame: NonNull<u8>) {
    let mut frames = FRAMES.lock();
    let may_thin_out = frames.endings == 0;
    // SAFETY: as the caller promises: it came from this pool, which is the only one, or from the allocator.
    let given = unsafe { frames.pool.give(frame, may_thin_out) };
    drop(frames);
    match given {
        Ok(emptied) => drop(emptied),
        // SAFETY: what `take` gave and is of no slab came from the allocator, with this layout; no slab goes
        // while a frame of it is in use.
        Err(Elsewhere) => unsafe { dealloc(frame.as_ptr(), OWN_MEMORY) },
    }
}

/// A store gives back all that it has: whole slabs go to the system meanwhile, and no parts of those that
/// soon follow.
pub(crate) struct Ending(());

/// Begins the end of a store, which lasts as long as the answer.
pub(crate) fn ending() -> Ending {
    FRAMES.lock().endings += 1;
    Ending(())
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut frames = FRAMES.lock();
        frames.endings -= 1;
        while frames.endings == 0 && frames.pool.thin_out() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_aligned_and_apart_and_a_store_that_ends_is_counted_once() {
        let (first, second) = (take(Purpose::Reading), take(Purpose::Writing));
        let (low, high) = (first.min(second).as_ptr().addr(), first.max(second).as_ptr().addr());
        assert!(low.is_multiple_of(64) && high.is_multiple_of(64) && high - low >= FRAME_BYTES);
        let ending = ending();
        assert!(FRAMES.lock().endings > 0);
        for frame in [first, second] {
            // SAFETY: they came from there, and nothing refers to them.
            #[allow(unsafe_code)]
            unsafe {
                give(frame);
            }
        }
        drop(ending);
    }
}

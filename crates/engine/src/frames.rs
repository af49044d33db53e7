//! Memory for leaves: frames of one size, cut from slabs of two megabytes.
//!
//! A slab is as large and as aligned as a huge page of the processor, so that a lookup in one seldom misses
//! the TLB. The kernel zeroes a huge page when its first byte is touched, which takes up to two milliseconds
//! where a hypervisor reclaims free memory. That is acceptable for leaves that are read from disk, but no
//! wait for a writer. [`atoll_buffer::parts`] decides what follows from this and what goes back to the
//! system, for blocks as well: otherwise leaves that gave way to values would go on taking memory.
//!
//! There is one pool for the process, so that small stores share slabs.
//!
//! Invariant: a frame is in use or free in its slab, never both.
//! Invariant: the bytes of a frame are initialised: zeros from the system, or what was there before.

use atoll_buffer::parts::{Elsewhere, Pool, words_for};
use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

pub(crate) use atoll_buffer::parts::Purpose;

/// Bytes of a frame: an odd number of cache lines, so that the beginnings of many frames do not fall into the
/// same cache set.
pub(crate) const FRAME_BYTES: usize = 129 * 64;

static FRAMES: Mutex<Frames> = Mutex::new(Frames { pool: Pool::new(), endings: 0 });

struct Frames {
    pool: Pool<FRAME_BYTES, { words_for(FRAME_BYTES) }>,
    /// Number of stores that are ending; while there are any, only whole slabs go back to the system.
    endings: usize,
}

/// Takes a frame: [`FRAME_BYTES`] initialised bytes on a boundary of 64, for the caller alone.
pub(crate) fn take(purpose: Purpose) -> NonNull<u8> {
    let frame = FRAMES.lock().pool.take(purpose);
    frame.unwrap_or_else(own_memory)
}

/// Where the system maps no more slabs, a frame comes from the allocator. [`give`] recognizes such a frame by
/// its address.
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

/// A store that is giving back all its frames. Meanwhile whole slabs go to the system, but no parts of slabs
/// that would soon go whole.
pub(crate) struct Ending(());

/// Begins the end of a store, which lasts until the returned value is dropped.
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

//! Slabs: two megabytes from the system, as large and as aligned as a huge page of the processor, to be
//! divided by their owner.
//!
//! Invariant: a slab is a mapping of its own, and its bytes are initialised: zeros from the system, or what
//! was there before.
#![expect(unsafe_code, reason = "memory from the system, docs/decisions/0015-unsafe.md")]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::Range;
use std::ptr::NonNull;

/// Bytes and alignment of a slab.
pub const SLAB_BYTES: usize = 2 << 20;

/// The whole pages of the system among these bytes of a slab; none where the system takes no pages back.
#[must_use]
pub fn whole_pages(bytes: Range<usize>) -> Range<usize> {
    if cfg!(not(any(target_os = "linux", target_os = "android"))) {
        return 0..0;
    }
    let page = rustix::param::page_size();
    bytes.start.next_multiple_of(page)..bytes.end / page * page
}

/// The memory of one slab. It goes back to the system when the slab is dropped, after which nothing may use
/// it.
pub struct Slab(NonNull<u8>);

// SAFETY: it is an address; the memory there is given out part by part, each to one owner.
unsafe impl Send for Slab {}

impl Slab {
    /// Maps a slab of zeros; none where the system has no more addresses or mappings, even if it has memory.
    #[must_use]
    pub fn map() -> Option<Self> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice affects no existing memory.
        let mapped = unsafe {
            let flags = MapFlags::PRIVATE;
            mmap_anonymous(std::ptr::null_mut(), 2 * SLAB_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let start = NonNull::new(mapped.ok()?.cast::<u8>())?;
        let before = start.as_ptr().align_offset(SLAB_BYTES);
        // SAFETY: the aligned part lies within the mapping, which is twice as long; what is cut off in front
        // of it and behind it was mapped above, and nothing refers to it.
        unsafe {
            let slab = start.add(before);
            cut(start, before);
            cut(slab.add(SLAB_BYTES), SLAB_BYTES - before);
            Some(Self(slab))
        }
    }

    /// The address of the byte at `offset`, which is below [`SLAB_BYTES`].
    #[must_use]
    pub fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < SLAB_BYTES, "no byte of the slab");
        // SAFETY: the mapping is this long.
        unsafe { self.0.add(offset) }
    }

    /// Allows the kernel to back it by a huge page.
    pub fn may_be_huge(&self) {
        // If the kernel refuses, small pages do the same more slowly.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: advice on a mapping of ours, which changes no content.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), SLAB_BYTES, Advice::LinuxHugepage) };
    }

    /// Asks the kernel not to back it by a huge page.
    pub fn must_be_small(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: as above.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), SLAB_BYTES, Advice::LinuxNoHugepage) };
    }

    /// Gives back the whole pages among these bytes; when they are next used, they are zero or unchanged.
    /// Returns the range that was given back.
    ///
    /// # Safety
    /// The bytes lie in the slab, and nothing refers to them.
    pub unsafe fn release(&self, bytes: Range<usize>) -> Range<usize> {
        debug_assert!(bytes.end <= SLAB_BYTES, "no bytes of the slab");
        let pages = whole_pages(bytes);
        // On other systems the advice is weaker, and the pages may stay.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if !pages.is_empty() {
            // SAFETY: as the caller promises, because the pages lie among those bytes; the mapping is
            // private, and its contents become zeros or stay, so they are initialised either way.
            let went = unsafe {
                let start = self.0.as_ptr().add(pages.start);
                madvise(start.cast(), pages.len(), Advice::LinuxDontNeed)
            };
            // Locked memory stays.
            return if went.is_ok() { pages } else { 0..0 };
        }
        0..0
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and no address in it is used any more.
        unsafe { cut(self.0, SLAB_BYTES) };
    }
}

/// # Safety
/// The range is mapped and nothing refers to it.
unsafe fn cut(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // In the middle of a mapping this fails where the process may have no further one: then the addresses
        // are lost, but not the memory behind them.
        // SAFETY: as the caller promises.
        let is_unmapped = unsafe { munmap(start.as_ptr().cast(), bytes) }.is_ok();
        if !is_unmapped {
            // SAFETY: as above: this memory will not be read again.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
        }
    }
}

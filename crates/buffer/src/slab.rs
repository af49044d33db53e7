//! Slabs: two megabytes from the system, as large and as aligned as a huge page of the processor, to be
//! divided by whoever maps them.
//!
//! Invariant: a slab is a mapping of its own, and its bytes are initialised: zeros from the system, or what
//! was there before.
#![expect(unsafe_code, reason = "memory from the system, docs/decisions/0015-unsafe.md")]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::Range;
use std::ptr::NonNull;

/// Bytes and alignment of a slab.
pub const SLAB_BYTES: usize = 2 << 20;

/// The whole pages of the system among these bytes of a slab; none where it takes no pages back.
#[must_use]
pub fn whole_pages(bytes: Range<usize>) -> Range<usize> {
    if cfg!(not(any(target_os = "linux", target_os = "android"))) {
        return 0..0;
    }
    let page = rustix::param::page_size();
    bytes.start.next_multiple_of(page)..bytes.end / page * page
}

/// The memory of one slab, which goes back to the system with it: nobody may use what lies there any more
/// then.
pub struct Slab(NonNull<u8>);

// SAFETY: it is an address; what lies there is given out part by part, each to one owner.
unsafe impl Send for Slab {}

impl Slab {
    /// Maps a slab of zeros; none where the system gives no more addresses or mappings, though there may be
    /// memory.
    #[must_use]
    pub fn map() -> Option<Self> {
        // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing that is there.
        let mapped = unsafe {
            let flags = MapFlags::PRIVATE;
            mmap_anonymous(std::ptr::null_mut(), 2 * SLAB_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags)
        };
        let start = NonNull::new(mapped.ok()?.cast::<u8>())?;
        let before = start.as_ptr().align_offset(SLAB_BYTES);
        // SAFETY: the aligned part lies within the mapping, which is twice as long; what is cut off in front
        // of it and behind it was mapped above and nothing refers to it.
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

    /// Tells the kernel that a huge page may lie behind it.
    pub fn may_be_huge(&self) {
        // Where that is refused, small pages do the same more slowly.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: advice on a mapping of ours, which changes no content.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), SLAB_BYTES, Advice::LinuxHugepage) };
    }

    /// Tells the kernel that no huge page should lie behind it.
    pub fn must_be_small(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        // SAFETY: as above.
        let _ = unsafe { madvise(self.0.as_ptr().cast(), SLAB_BYTES, Advice::LinuxNoHugepage) };
    }

    /// Gives back the whole pages among these bytes; they are zero, or what they were, when they are next
    /// used. The bytes that went.
    ///
    /// # Safety
    /// The bytes lie in the slab, and nobody refers to them.
    pub unsafe fn release(&self, bytes: Range<usize>) -> Range<usize> {
        debug_assert!(bytes.end <= SLAB_BYTES, "no bytes of the slab");
        let pages = whole_pages(bytes);
        // Elsewhere the advice is a weaker one: what is there may stay.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if !pages.is_empty() {
            // SAFETY: as the caller promises, for the pages lie among those bytes; the mapping is private,
            // and what it holds changes to zeros or stays, so it is initialised either way.
            let went = unsafe {
                let start = self.0.as_ptr().add(pages.start);
                madvise(start.cast(), pages.len(), Advice::LinuxDontNeed)
            };
            // Memory that is locked stays.
            return if went.is_ok() { pages } else { 0..0 };
        }
        0..0
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`, and whoever got an address uses it no more.
        unsafe { cut(self.0, SLAB_BYTES) };
    }
}

/// # Safety
/// The range is mapped and nothing refers to it.
unsafe fn cut(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // It fails in the middle of a mapping where a process may have no further one: then the addresses are
        // lost, and not the memory behind them.
        // SAFETY: as the caller promises.
        let is_unmapped = unsafe { munmap(start.as_ptr().cast(), bytes) }.is_ok();
        if !is_unmapped {
            // SAFETY: as above: nobody will read what is gone.
            let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
        }
    }
}

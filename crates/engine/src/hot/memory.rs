//! Memory for the places of hot records: a range of addresses, which the system backs with memory on first
//! use.
#![cfg_attr(not(any(miri, atoll_plain_memory, feature = "schedules")), allow(unsafe_code))]

use super::Place;

#[cfg(not(any(miri, atoll_plain_memory, feature = "schedules")))]
pub(super) use mapped::{PLACES_MAX, Places};
#[cfg(any(miri, atoll_plain_memory, feature = "schedules"))]
pub(super) use plain::{PLACES_MAX, Places};

/// For tools that track every allocation: a few places.
#[cfg(any(miri, atoll_plain_memory, feature = "schedules"))]
mod plain {
    use super::Place;
    use std::ops::Deref;

    pub(in crate::hot) const PLACES_MAX: usize = if cfg!(feature = "schedules") { 4 } else { 1024 };

    pub(in crate::hot) struct Places(Box<[Place]>);

    impl Places {
        pub(in crate::hot) fn new(count: usize) -> Option<Self> {
            Some(Self((0..count).map(|_| Place::default()).collect()))
        }

        pub(in crate::hot) fn may_be_huge(&self, _count: usize) {}
    }

    impl Deref for Places {
        type Target = [Place];

        fn deref(&self) -> &[Place] {
            &self.0
        }
    }
}

#[cfg(not(any(miri, atoll_plain_memory, feature = "schedules")))]
mod mapped {
    use super::Place;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ops::Deref;
    use std::ptr::NonNull;

    /// About three gigabytes of them.
    pub(in crate::hot) const PLACES_MAX: usize = 1 << 24;

    /// Bytes and alignment of a huge page.
    const HUGE: usize = 2 << 20;

    /// Places one behind the other; only those that were used are in memory.
    pub(in crate::hot) struct Places {
        /// The whole mapping; the places are its aligned part.
        mapped: NonNull<u8>,
        mapped_bytes: usize,
        first: NonNull<Place>,
        count: usize,
    }

    // SAFETY: a mapping belongs to no thread, and places are made of atomic words.
    unsafe impl Send for Places {}
    // SAFETY: as above: all access through a shared reference reads and writes atomic words.
    unsafe impl Sync for Places {}

    impl Places {
        /// `count` empty places; none where the system has no more addresses.
        pub(in crate::hot) fn new(count: usize) -> Option<Self> {
            let bytes = count.checked_mul(size_of::<Place>())?;
            // Room to begin at a huge page.
            let mapped_bytes = bytes.checked_add(if bytes >= HUGE { HUGE } else { 0 })?;
            // SAFETY: a fresh private mapping at an address of the kernel's choice touches nothing that is
            // there.
            let mapped = unsafe {
                let flags = MapFlags::PRIVATE;
                mmap_anonymous(std::ptr::null_mut(), mapped_bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
            };
            let mapped = NonNull::new(mapped.ok()?.cast::<u8>())?;
            let before = if bytes >= HUGE { mapped.as_ptr().align_offset(HUGE) } else { 0 };
            // SAFETY: the aligned part lies within the mapping, which is longer by a huge page.
            let first = unsafe { mapped.add(before) }.cast();
            // Where the system gives huge pages by default, the first lookup would take one.
            #[cfg(any(target_os = "linux", target_os = "android"))]
            // SAFETY: advice on a mapping of ours, which changes no content.
            let _ = unsafe { madvise(mapped.as_ptr().cast(), mapped_bytes, Advice::LinuxNoHugepage) };
            Some(Self { mapped, mapped_bytes, first, count })
        }

        /// Allows huge pages behind the first `count` places, except for the first huge page: a small table
        /// shall take little memory.
        pub(in crate::hot) fn may_be_huge(&self, count: usize) {
            let bytes = count.min(self.count) * size_of::<Place>();
            if bytes <= HUGE {
                return;
            }
            // If the kernel refuses, small pages do the same more slowly.
            #[cfg(any(target_os = "linux", target_os = "android"))]
            // SAFETY: advice on a mapping of ours, which changes no content; `bytes` of it lie behind the
            // first place.
            let _ = unsafe {
                madvise(
                    self.first.as_ptr().cast::<u8>().add(HUGE).cast(),
                    bytes - HUGE,
                    Advice::LinuxHugepage,
                )
            };
        }
    }

    impl Deref for Places {
        type Target = [Place];

        #[inline]
        fn deref(&self) -> &[Place] {
            // SAFETY: `count` places lie there until `self` is dropped, aligned to a page or more; the kernel
            // provides zeros, and a place of zeros is an empty one; everything written to them is atomic
            // words.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
        }
    }

    impl Drop for Places {
        fn drop(&mut self) {
            // A failure would leave unused memory mapped, which is no reason to stop.
            // SAFETY: it was mapped by `new`, and nothing refers to it any more.
            let _ = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_bytes) };
        }
    }
}

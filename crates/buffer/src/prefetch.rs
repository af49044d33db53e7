//! Asks the processor to fetch cache lines before they are needed.
//!
//! A prefetch never faults and never changes a value, so any address may be given.

/// Bytes of a cache line.
const LINE_BYTES: usize = crate::ALIGNMENT;

/// Prefetches a value that is about to be read.
pub fn bring_nearer<T>(value: &T) {
    prefetch(value, size_of::<T>().div_ceil(LINE_BYTES));
}

/// Prefetches bytes that are about to be read.
pub fn bring_bytes_nearer(bytes: &[u8]) {
    let before = bytes.as_ptr().addr() % LINE_BYTES;
    prefetch(bytes.as_ptr(), (before + bytes.len()).div_ceil(LINE_BYTES));
}

/// Prefetches the `lines` cache lines that start at `address`.
#[inline(always)]
#[allow(unsafe_code)]
pub fn prefetch<T>(address: *const T, lines: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..lines {
        // SAFETY: PREFETCHT0 is a hint; it neither faults on bad addresses nor reads as far as the
        // language is concerned, and wrapping arithmetic computes the address without provenance claims.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(address.cast::<i8>().wrapping_add(line * LINE_BYTES));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (address, lines);
}

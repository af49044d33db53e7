//! Huge pages for long buffers: advice to the system, where they will soon be filled.
//!
//! Each page of fresh memory costs a fault when it is first touched; with pages of two megabytes, one fault
//! stands for 512.

use std::mem::MaybeUninit;

/// Bytes of a huge page, on the processors that Atoll is built for.
const HUGE: usize = 2 << 20;

/// Advises the system that the whole huge pages within this room, which is about to be filled, may be huge.
/// Where there are none, or the system does not provide them, nothing changes.
pub fn may_be_huge<T>(room: &mut [MaybeUninit<T>]) {
    let (start, bytes) = (room.as_mut_ptr().cast::<u8>(), size_of_val(room));
    let before = start.align_offset(HUGE).min(bytes);
    let whole = (bytes - before) / HUGE * HUGE;
    if whole > 0 {
        advise(start.wrapping_add(before), whole);
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[expect(unsafe_code, reason = "advice on memory, docs/decisions/0015-unsafe.md")]
fn advise(start: *mut u8, bytes: usize) {
    use rustix::mm::{Advice, madvise};
    // SAFETY: the bytes lie in a room that is exclusively borrowed, and the advice changes none of them.
    let _ = unsafe { madvise(start.cast(), bytes, Advice::LinuxHugepage) };
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn advise(_start: *mut u8, _bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_of_any_length_keep_what_is_put_there() {
        for length in [0, 1, HUGE / 8, HUGE / 4 + 1, HUGE] {
            let mut room: Vec<u64> = Vec::with_capacity(length);
            may_be_huge(room.spare_capacity_mut());
            room.extend(0..length as u64);
            assert!(room.iter().copied().eq(0..length as u64), "{length}");
        }
    }
}

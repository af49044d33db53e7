//! Room for long columns, which is used again.
//!
//! An answer is tens of megabytes that its reader lets go of a moment later. The system's allocator gives such memory
//! back at once, and then every page of the next answer is a fault, which costs as much as decoding what goes there. So
//! the columns of answers come from here, and return when the last array that shows them is gone.
//!
//! Invariant: no more than [`KEPT_BYTES_MAX`] are kept that nobody uses.
//! Invariant: what was kept is empty when it is handed out.

use arrow_buffer::{ArrowNativeType, Buffer};
use bytemuck::Pod;
use std::sync::Mutex;

/// Bytes that are kept at most, of each width of numbers.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Shorter columns are left to the allocator, which keeps those itself.
const BYTES_MIN: usize = 32 << 10;

/// How many times as long as is needed a room may be.
const TIMES_MAX: usize = 2;

/// Under sanitizers nothing is kept, so that they see what happens to it.
const KEEPS: bool = cfg!(not(any(miri, atoll_plain_memory)));

/// Numbers of a width, and where room for them is kept.
pub(super) trait Kept: Pod + ArrowNativeType {
    fn kept() -> &'static Mutex<Rooms<Self>>;
}

/// What is kept, that which came last at the end.
pub(super) struct Rooms<N> {
    rooms: Vec<Vec<N>>,
    bytes: usize,
}

impl<N> Rooms<N> {
    const fn new() -> Self {
        Self { rooms: Vec::new(), bytes: 0 }
    }
}

macro_rules! kept {
    ($($number:ty),*) => {
        $(impl Kept for $number {
            fn kept() -> &'static Mutex<Rooms<Self>> {
                static KEPT: Mutex<Rooms<$number>> = Mutex::new(Rooms::new());
                &KEPT
            }
        })*
    };
}

kept!(u8, u16, u32, u64);

/// Room for so many numbers.
pub(super) fn room<N: Kept>(count: usize) -> Vec<N> {
    if count.saturating_mul(size_of::<N>()) < BYTES_MIN {
        return Vec::with_capacity(count);
    }
    // Not waited for: a child that was forked while somebody held it would wait for ever.
    let Ok(mut kept) = N::kept().try_lock() else { return fresh(count) };
    let fits = |room: &Vec<N>| (count..=count.saturating_mul(TIMES_MAX)).contains(&room.capacity());
    let Some(place) = kept.rooms.iter().rposition(fits) else { return fresh(count) };
    let room = kept.rooms.remove(place);
    kept.bytes -= room.capacity() * size_of::<N>();
    room
}

/// Room that nobody used before; none where there is not so much, as a damaged count may ask for: numbers that do not fit
/// ask again when they are there.
fn fresh<N>(count: usize) -> Vec<N> {
    let mut room = Vec::new();
    let _ = room.try_reserve_exact(count);
    room
}

/// Numbers as a buffer of a column.
pub(super) fn buffer<N: Kept>(numbers: Vec<N>) -> Buffer {
    if !KEEPS || numbers.capacity() * size_of::<N>() < BYTES_MIN {
        return Buffer::from_vec(numbers);
    }
    let lent = Lent(numbers);
    if lent.0.len() < lent.0.capacity() / (2 * TIMES_MAX) {
        // A few numbers would hold all of the room for as long as somebody shows them.
        return Buffer::from_vec(lent.0.clone());
    }
    Buffer::from(bytes::Bytes::from_owner(lent))
}

/// Numbers in a room that returns.
struct Lent<N: Kept>(Vec<N>);

impl<N: Kept> AsRef<[u8]> for Lent<N> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::must_cast_slice(&self.0)
    }
}

impl<N: Kept> Drop for Lent<N> {
    fn drop(&mut self) {
        let mut room = std::mem::take(&mut self.0);
        room.clear();
        let bytes = room.capacity() * size_of::<N>();
        if bytes > KEPT_BYTES_MAX {
            return;
        }
        let Ok(mut kept) = N::kept().try_lock() else { return };
        kept.rooms.push(room);
        kept.bytes += bytes;
        while kept.bytes > KEPT_BYTES_MAX {
            let oldest = kept.rooms.remove(0);
            kept.bytes -= oldest.capacity() * size_of::<N>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_was_let_go_of_is_used_again_and_empty() {
        // A width of its own, since the tests beside this one use the others.
        let count = BYTES_MIN * 3;
        let mut first = room::<u16>(count);
        first.resize(count, 7);
        let address = first.as_ptr();
        let shown = buffer(first);
        assert_eq!(shown.as_slice().len(), 2 * count);
        let other = shown.slice(2);
        drop(shown);
        let meanwhile = room::<u16>(count);
        assert_ne!(meanwhile.as_ptr(), address, "somebody still looks at it");
        drop(other);
        assert!(room::<u16>(count / 4).capacity() < count, "it is much too long for that");
        let again = room::<u16>(count - 1);
        assert_eq!((again.as_ptr(), again.len()), (address, 0));
    }

    #[test]
    fn a_few_numbers_hold_no_more_than_they_need() {
        let mut long = room::<u32>(BYTES_MIN * 5);
        let address = long.as_ptr();
        long.extend([1, 2, 3]);
        let shown = buffer(long);
        assert_eq!(shown.typed_data::<u32>(), [1, 2, 3]);
        assert!(shown.capacity() < 1024, "{}", shown.capacity());
        assert_ne!(shown.as_ptr(), address.cast());
    }

    #[test]
    fn room_for_more_than_there_is_is_asked_for_later() {
        assert_eq!(room::<u64>(usize::MAX / 2).capacity(), 0);
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let count = KEPT_BYTES_MAX / 3;
        let full = |_| {
            let mut room = room::<u8>(count);
            room.resize(count, 0);
            buffer(room)
        };
        let rooms: Vec<Buffer> = (0..5).map(full).collect();
        drop(rooms);
        let kept = u8::kept().lock().unwrap();
        assert!(kept.bytes <= KEPT_BYTES_MAX);
        assert_eq!(kept.bytes, kept.rooms.iter().map(Vec::capacity).sum::<usize>());
    }
}

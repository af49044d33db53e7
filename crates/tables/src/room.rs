//! Recycled memory for buffers as large as an answer or a tree of cubes.
//!
//! An answer is tens of megabytes that its reader drops a moment later, and a growing tree takes several
//! times as much. The system's allocator returns such memory at once, so every page of the next answer is a
//! fault, which costs as much as decoding its contents. Long columns are therefore allocated here and
//! returned when the last array that refers to them is dropped. The same holds for objects that were written.
//! Fresh memory uses huge pages where the system has them, because a tree that grows for the first time
//! touches all of it.
//!
//! Invariant: unused memory kept here never exceeds [`KEPT_BYTES_MAX`] plus what callers asked to [`keep`].
//! Invariant: recycled memory is empty when it is handed out.

use arrow_buffer::{ArrowNativeType, Buffer};
use atoll_store::Buffer as Object;
use bytemuck::Pod;
use std::any::{Any, TypeId};
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of bytes kept unless a caller asks for more.
const KEPT_BYTES_MAX: usize = 128 << 20;

/// Maximum number of bytes that one caller may ask to keep.
const ASKED_BYTES_MAX: usize = 4 << 30;

/// Shorter buffers are left to the allocator, which recycles them itself.
const BYTES_MIN: usize = 32 << 10;

/// A recycled buffer may have at most this many times the requested capacity.
const TIMES_MAX: usize = 2;

/// Fresh capacity is rounded up by less than one part in half of this number.
const ROUNDED_PARTS: usize = 16;

/// Nothing is kept under sanitizers, so that they see every allocation and release.
const KEEPS: bool = cfg!(not(any(miri, atoll_plain_memory)));

static KEPT: Mutex<Rooms> = Mutex::new(Rooms { rooms: Vec::new(), bytes: 0 });

/// Bytes that callers have asked to keep, on top of [`KEPT_BYTES_MAX`].
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// The kept buffers, oldest first.
struct Rooms {
    rooms: Vec<Room>,
    bytes: usize,
}

/// A kept buffer for values of one type.
struct Room {
    of: TypeId,
    capacity: usize,
    bytes: usize,
    /// An empty vector, or an object buffer without other references.
    kept: Box<dyn Any + Send>,
}

impl Rooms {
    /// Takes out a buffer with capacity for `count` values, but not for many more.
    fn take<N: Send + 'static>(&mut self, count: usize) -> Option<Vec<N>> {
        self.take_kept(count)
    }

    fn take_kept<K: 'static>(&mut self, count: usize) -> Option<K> {
        let fits = count..=count.saturating_mul(TIMES_MAX);
        let fits = |room: &Room| room.of == TypeId::of::<K>() && fits.contains(&room.capacity);
        let room = self.rooms.remove(self.rooms.iter().rposition(fits)?);
        self.bytes -= room.bytes;
        room.kept.downcast().ok().map(|kept| *kept)
    }

    fn put<N: Send + 'static>(&mut self, values: Vec<N>, bytes_max: usize) {
        let (capacity, bytes) = (values.capacity(), bytes_of(&values));
        self.put_kept(values, capacity, bytes, bytes_max);
    }

    fn put_kept<K: Send + 'static>(&mut self, kept: K, capacity: usize, bytes: usize, bytes_max: usize) {
        self.bytes += bytes;
        self.rooms.push(Room { of: TypeId::of::<K>(), capacity, bytes, kept: Box::new(kept) });
        self.shrink(bytes_max);
    }

    /// Frees the oldest buffers until at most `bytes_max` bytes are kept.
    fn shrink(&mut self, bytes_max: usize) {
        let mut gone = 0;
        for room in &self.rooms {
            if self.bytes <= bytes_max {
                break;
            }
            self.bytes -= room.bytes;
            gone += 1;
        }
        self.rooms.drain(..gone);
    }
}

/// Number of bytes that may be kept at present.
fn bytes_max() -> usize {
    KEPT_BYTES_MAX.saturating_add(ASKED.load(Ordering::Relaxed))
}

fn bytes_of<N>(values: &Vec<N>) -> usize {
    values.capacity() * size_of::<N>()
}

/// While this guard lives, more bytes are kept: for work that needs as much memory again and again.
#[derive(Debug)]
pub(crate) struct Keeping {
    bytes: usize,
}

/// Keeps up to `bytes` more bytes until the guard is dropped.
pub(crate) fn keep(bytes: usize) -> Keeping {
    // Two huge requests must not overflow to a small sum.
    let bytes = bytes.min(ASKED_BYTES_MAX);
    ASKED.fetch_add(bytes, Ordering::Relaxed);
    Keeping { bytes }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        ASKED.fetch_sub(self.bytes, Ordering::Relaxed);
        // If another thread holds the lock, that thread shrinks the buffers when it gives one back.
        if let Ok(mut kept) = KEPT.try_lock() {
            kept.shrink(bytes_max());
        }
    }
}

/// An empty vector with capacity for `count` values, recycled if possible.
pub(crate) fn room<N: Send + 'static>(count: usize) -> Vec<N> {
    if count.saturating_mul(size_of::<N>()) < BYTES_MIN {
        return Vec::with_capacity(count);
    }
    // Must not block: a child forked while another thread held the lock would wait for ever.
    let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.take(count));
    kept.unwrap_or_else(|| fresh(count))
}

/// A freshly allocated vector. It has no capacity if the system does not have that much memory, as when the
/// count comes from damaged data; values that do not fit then allocate when they are pushed.
fn fresh<N>(count: usize) -> Vec<N> {
    let mut room = Vec::new();
    let _ = room.try_reserve_exact(rounded(count));
    atoll_buffer::may_be_huge(room.spare_capacity_mut());
    room
}

/// Rounds a capacity up a little, so that a slightly longer request can reuse the buffer. Pages that are
/// never touched cost nothing.
fn rounded(count: usize) -> usize {
    count.checked_next_multiple_of((count / ROUNDED_PARTS).next_power_of_two()).unwrap_or(count)
}

/// Returns a vector's memory for reuse.
pub(crate) fn give_back<N: Copy + Send + 'static>(mut values: Vec<N>) {
    values.clear();
    let bytes = bytes_of(&values);
    if KEEPS
        && (BYTES_MIN..=bytes_max()).contains(&bytes)
        && let Ok(mut kept) = KEPT.try_lock()
    {
        kept.put(values, bytes_max());
    }
}

/// Concatenates `parts` in a recycled object buffer.
pub(crate) fn object<'p>(bytes: usize, parts: impl IntoIterator<Item = &'p [u8]>) -> Object {
    let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.take_kept(bytes));
    Object::concat_in(kept.unwrap_or_default(), bytes, parts)
}

/// Returns the memory of an object for reuse, unless other references to it exist.
pub(crate) fn give_back_object(object: Object) {
    let bytes = object.allocated_bytes();
    if KEEPS
        && object.is_alone()
        && (BYTES_MIN..=bytes_max()).contains(&bytes)
        && let Ok(mut kept) = KEPT.try_lock()
    {
        kept.put_kept(object, bytes, bytes, bytes_max());
    }
}

/// A vector whose memory is returned for reuse when it is dropped.
#[derive(Debug)]
pub(crate) struct Lent<N: Copy + Send + 'static>(Vec<N>);

impl<N: Copy + Send + 'static> Lent<N> {
    /// An empty vector with capacity for `count` values.
    pub(crate) fn new(count: usize) -> Self {
        Self(room(count))
    }

    /// `count` copies of a value.
    pub(crate) fn filled(count: usize, value: N) -> Self {
        let mut lent = Self::new(count);
        lent.resize(count, value);
        lent
    }

    /// Collects values from an iterator that yields about `count` of them.
    pub(crate) fn collect(count: usize, values: impl Iterator<Item = N>) -> Self {
        let mut lent = Self::new(count);
        lent.extend(values);
        lent
    }

    /// Hands the vector over; its memory is no longer returned automatically.
    pub(crate) fn into_vec(mut self) -> Vec<N> {
        std::mem::take(&mut self.0)
    }
}

impl<N: Copy + Send + 'static> From<Vec<N>> for Lent<N> {
    fn from(values: Vec<N>) -> Self {
        Self(values)
    }
}

impl<N: Copy + Send + 'static> Deref for Lent<N> {
    type Target = Vec<N>;

    fn deref(&self) -> &Vec<N> {
        &self.0
    }
}

impl<N: Copy + Send + 'static> DerefMut for Lent<N> {
    fn deref_mut(&mut self) -> &mut Vec<N> {
        &mut self.0
    }
}

impl<N: Copy + Send + 'static> Drop for Lent<N> {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.0));
    }
}

impl<N: Pod + Send> AsRef<[u8]> for Lent<N> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::must_cast_slice(&self.0)
    }
}

/// The numbers as an Arrow buffer, whose memory is returned when its last reference is dropped.
pub(crate) fn buffer<N: Pod + Send + ArrowNativeType>(numbers: Lent<N>) -> Buffer {
    if !KEEPS || bytes_of(&numbers.0) < BYTES_MIN {
        return Buffer::from_vec(numbers.into_vec());
    }
    if numbers.len() < numbers.capacity() / (2 * TIMES_MAX) {
        // A few numbers would hold the whole allocation for as long as any array refers to them.
        return Buffer::from_vec(numbers.0.clone());
    }
    Buffer::from(bytes::Bytes::from_owner(numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_was_let_go_of_is_used_again_and_empty() {
        // A width of its own, because concurrent tests use the others.
        let count = BYTES_MIN * 3;
        let mut first = room::<u16>(count);
        first.resize(count, 7);
        let address = first.as_ptr();
        let shown = buffer(first.into());
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
        let shown = buffer(long.into());
        assert_eq!(shown.typed_data::<u32>(), [1, 2, 3]);
        assert!(shown.capacity() < 1024, "{}", shown.capacity());
        assert_ne!(shown.as_ptr(), address.cast());
    }

    #[test]
    fn the_room_of_an_object_is_used_again_once_nobody_reads_it() {
        // A length of its own, because concurrent tests write objects too.
        let long = vec![7; BYTES_MIN * 77];
        let first = object(long.len(), [long.as_slice()]);
        let (address, reader) = (first.as_ptr(), first.clone());
        give_back_object(first);
        let kept = |count| KEPT.lock().unwrap().take_kept::<Object>(count);
        assert!(kept(long.len()).is_none(), "somebody reads it");
        give_back_object(reader);
        let again = object(long.len() - 9, [&b"front"[..], &long[..9]]);
        assert_eq!((again.as_ptr(), again.len()), (address, long.len() - 9));
        assert_eq!((&again[..5], &again[5..14], &again[14..15]), (&b"front"[..], &[7; 9][..], &[0][..]));
    }

    #[test]
    fn room_fits_what_is_a_little_longer() {
        // A value size of its own, as above.
        let count = BYTES_MIN + 1;
        let first = room::<[u8; 3]>(count);
        let address = first.as_ptr();
        give_back(first);
        let longer = room::<[u8; 3]>(count + count / 40);
        assert_eq!(longer.as_ptr(), address);
        assert!((1..10_000_usize).all(|count| (count..=count + count / 8).contains(&rounded(count))));
        assert_eq!(rounded(usize::MAX), usize::MAX);
    }

    #[test]
    fn room_for_more_than_there_is_is_asked_for_later() {
        assert_eq!(room::<u64>(usize::MAX / 2).capacity(), 0);
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_what_came_first_goes_first() {
        let mut rooms = Rooms { rooms: Vec::new(), bytes: 0 };
        for count in [10, 20, 30] {
            rooms.put(Vec::<u32>::with_capacity(count), 240);
        }
        assert_eq!((rooms.bytes, rooms.rooms.len()), (240, 3));
        rooms.put(Vec::<u8>::with_capacity(60), 240);
        assert_eq!((rooms.bytes, rooms.rooms.len()), (180, 2), "10 and 20 are gone");
        assert!(rooms.take::<u32>(10).is_none());
        assert!(rooms.take::<u8>(30).is_some_and(|room| room.capacity() == 60));
        assert!(rooms.take::<i32>(30).is_none(), "it is of another type");
        rooms.shrink(0);
        assert_eq!((rooms.bytes, rooms.rooms.len()), (0, 0));
    }

    #[test]
    fn more_is_kept_while_somebody_asks_for_it() {
        let before = bytes_max();
        let keeping = keep(1 << 20);
        assert!(bytes_max() >= KEPT_BYTES_MAX + (1 << 20), "{before} before");
        drop(keeping);
        assert!(bytes_max() >= KEPT_BYTES_MAX);
    }
}

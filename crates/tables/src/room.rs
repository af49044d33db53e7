//! Room for what is as long as an answer or a tree of cubes, which is used again.
//!
//! An answer is tens of megabytes that its reader lets go of a moment later, and a tree takes several times
//! as much while it grows. The system's allocator gives such memory back at once, and then every page of the
//! next answer is a fault, which costs as much as decoding what goes there. So long columns come from here,
//! and return when the last array that shows them is gone. The same holds for objects that were written. Room
//! that nobody used before is of huge pages where the system has them: a tree that grows for the first time
//! touches all of it.
//!
//! Invariant: no more is kept that nobody uses than [`KEPT_BYTES_MAX`], and what somebody asked to [`keep`].
//! Invariant: what was kept is empty when it is handed out.

use arrow_buffer::{ArrowNativeType, Buffer};
use atoll_store::Buffer as Object;
use bytemuck::Pod;
use std::any::{Any, TypeId};
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are kept at most, when nobody asks for more.
const KEPT_BYTES_MAX: usize = 128 << 20;

/// Bytes that one may ask to keep.
const ASKED_BYTES_MAX: usize = 4 << 30;

/// What is shorter is left to the allocator, which keeps it itself.
const BYTES_MIN: usize = 32 << 10;

/// How many times as long as is needed a room may be.
const TIMES_MAX: usize = 2;

/// Room is rounded up by less than one of half as many parts of it.
const ROUNDED_PARTS: usize = 16;

/// Under sanitizers nothing is kept, so that they see what happens to it.
const KEEPS: bool = cfg!(not(any(miri, atoll_plain_memory)));

static KEPT: Mutex<Rooms> = Mutex::new(Rooms { rooms: Vec::new(), bytes: 0 });

/// Bytes that somebody asked to keep, beyond what always is.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// What is kept, that which came last at the end.
struct Rooms {
    rooms: Vec<Room>,
    bytes: usize,
}

/// Room for values of one type.
struct Room {
    of: TypeId,
    capacity: usize,
    bytes: usize,
    /// A vector without values, or a buffer that nobody reads.
    kept: Box<dyn Any + Send>,
}

impl Rooms {
    /// Takes out one with room for so many values, but not for many more.
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

    /// Lets go of what came first, until no more is kept than may be.
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

/// Bytes that may be kept now.
fn bytes_max() -> usize {
    KEPT_BYTES_MAX.saturating_add(ASKED.load(Ordering::Relaxed))
}

fn bytes_of<N>(values: &Vec<N>) -> usize {
    values.capacity() * size_of::<N>()
}

/// While it lives, more is kept: for work that takes as much room again and again.
#[derive(Debug)]
pub(crate) struct Keeping {
    bytes: usize,
}

/// Keeps so many bytes more.
pub(crate) fn keep(bytes: usize) -> Keeping {
    // Two that ask for all there is must not become none.
    let bytes = bytes.min(ASKED_BYTES_MAX);
    ASKED.fetch_add(bytes, Ordering::Relaxed);
    Keeping { bytes }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        ASKED.fetch_sub(self.bytes, Ordering::Relaxed);
        // Whoever has it shrinks it with what is given back.
        if let Ok(mut kept) = KEPT.try_lock() {
            kept.shrink(bytes_max());
        }
    }
}

/// Room for so many values.
pub(crate) fn room<N: Send + 'static>(count: usize) -> Vec<N> {
    if count.saturating_mul(size_of::<N>()) < BYTES_MIN {
        return Vec::with_capacity(count);
    }
    // Not waited for: a child that was forked while somebody held it would wait for ever.
    let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.take(count));
    kept.unwrap_or_else(|| fresh(count))
}

/// Room that nobody used before; none where there is not so much, as a damaged count may ask for: numbers
/// that do not fit ask again when they are there.
fn fresh<N>(count: usize) -> Vec<N> {
    let mut room = Vec::new();
    let _ = room.try_reserve_exact(rounded(count));
    atoll_buffer::may_be_huge(room.spare_capacity_mut());
    room
}

/// A little more, so that what is needed next fits too when it is about as long. Pages that nobody touches
/// cost nothing.
fn rounded(count: usize) -> usize {
    count.checked_next_multiple_of((count / ROUNDED_PARTS).next_power_of_two()).unwrap_or(count)
}

/// Keeps room that is not needed any more.
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

/// Parts, one after the other, in room for an object that is used again.
pub(crate) fn object<'p>(bytes: usize, parts: impl IntoIterator<Item = &'p [u8]>) -> Object {
    let kept = KEPT.try_lock().ok().and_then(|mut kept| kept.take_kept(bytes));
    Object::concat_in(kept.unwrap_or_default(), bytes, parts)
}

/// Keeps the room of an object, if nobody reads it any more.
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

/// Values in a room that returns.
#[derive(Debug)]
pub(crate) struct Lent<N: Copy + Send + 'static>(Vec<N>);

impl<N: Copy + Send + 'static> Lent<N> {
    /// No values, and room for so many.
    pub(crate) fn new(count: usize) -> Self {
        Self(room(count))
    }

    /// So many times a value.
    pub(crate) fn filled(count: usize, value: N) -> Self {
        let mut lent = Self::new(count);
        lent.resize(count, value);
        lent
    }

    /// Values that come one after another, about so many.
    pub(crate) fn collect(count: usize, values: impl Iterator<Item = N>) -> Self {
        let mut lent = Self::new(count);
        lent.extend(values);
        lent
    }

    /// The values for whoever keeps them, or gives the room back later.
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

/// Numbers as a buffer of a column.
pub(crate) fn buffer<N: Pod + Send + ArrowNativeType>(numbers: Lent<N>) -> Buffer {
    if !KEEPS || bytes_of(&numbers.0) < BYTES_MIN {
        return Buffer::from_vec(numbers.into_vec());
    }
    if numbers.len() < numbers.capacity() / (2 * TIMES_MAX) {
        // A few numbers would hold all of the room for as long as somebody shows them.
        return Buffer::from_vec(numbers.0.clone());
    }
    Buffer::from(bytes::Bytes::from_owner(numbers))
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
        // A length of its own, since the tests beside this one write objects too.
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
        // Values of a size of their own, as above.
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

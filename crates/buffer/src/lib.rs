//! Reference-counted byte buffers aligned to a cache line.
//!
//! [`Buffer`] is what every read returns: cloning and slicing it copies no bytes, and the first byte of
//! the allocation lies on a 64-byte boundary, so that columns stored in a value can be used in place.
//!
//! Long allocations are reused once no buffer shows them, because fresh memory costs more than filling it.
//! Allocations of middle length lie together in large pages.
//!
//! Invariant: bytes of the allocation outside the buffer are never exposed.

mod blocks;
mod counted;
mod deferred;
mod huge;
mod owners;
pub mod parts;
mod prefetch;
mod runs;
mod shared;
pub mod slab;
mod spare;

pub use blocks::unused_bytes;
pub use counted::Counted;
pub use deferred::{Ending, ending};
pub use huge::may_be_huge;
pub use prefetch::{bring_bytes_nearer, bring_nearer, prefetch};
pub use runs::run_bytes;
pub use spare::keep_at_most;

use blocks::Purpose;
use shared::Shared;
use std::ops::{Bound, Deref, RangeBounds};
use std::sync::{Mutex, MutexGuard};

/// Alignment of the first byte of every allocation, in bytes.
pub const ALIGNMENT: usize = 64;

/// Immutable bytes, shared by reference counting.
#[derive(Clone)]
pub struct Buffer {
    shared: Option<Shared>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// The empty buffer; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { shared: None, start: 0, len: 0 }
    }

    /// Copies `bytes` into a fresh aligned allocation.
    #[must_use]
    pub fn copy_from(bytes: &[u8]) -> Self {
        Self::concat(bytes.len(), [bytes])
    }

    /// Copies `pieces`, one after the other, into one fresh aligned allocation of `len` bytes.
    ///
    /// Pieces beyond `len` are left out; missing bytes are zero.
    #[must_use]
    pub fn concat<'a>(len: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let built: Result<Self, std::convert::Infallible> = Self::try_overwrite(len, |target| {
            put(pieces, target);
            Ok(())
        });
        match built {
            Ok(buffer) => buffer,
            Err(never) => match never {},
        }
    }

    /// A buffer of `len` bytes, which are zero before `fill` writes to them.
    pub fn build(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let built: Result<Self, std::convert::Infallible> = Self::try_build(len, |bytes| {
            fill(bytes);
            Ok(())
        });
        match built {
            Ok(buffer) => buffer,
            Err(never) => match never {},
        }
    }

    /// Like [`Buffer::build`], for a `fill` that can fail.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn try_build<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        Self::filled(len, true, Purpose::Writing, fill)
    }

    /// Like [`Buffer::try_build`], for a `fill` that writes every byte: the bytes are arbitrary before, such
    /// as those of an earlier buffer.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn try_overwrite<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        Self::filled(len, false, Purpose::Writing, fill)
    }

    /// Like [`Buffer::try_overwrite`], for bytes that come from a disk and will be used for a long time: they
    /// may lie in memory that takes longer to obtain.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn try_read<E>(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        Self::filled(len, false, Purpose::Reading, fill)
    }

    fn filled<E>(
        len: usize,
        from_zero: bool,
        purpose: Purpose,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        if len == 0 {
            fill(&mut [])?;
            return Ok(Self::new());
        }
        let (mut shared, is_zero) = spare::allocation(len, purpose);
        let Some(bytes) = shared.get_mut() else { unreachable!("it has one owner") };
        if from_zero && !is_zero {
            bytes[..len].fill(0);
        }
        fill(&mut bytes[..len])?;
        Ok(Self { shared: Some(shared), start: 0, len })
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.shared {
            None => &[],
            Some(shared) => &shared[self.start..self.start + self.len],
        }
    }

    /// Address of other memory that dropping its bytes will touch, if it has any; only for prefetching.
    #[must_use]
    pub fn end_touches(&self) -> Option<*const u8> {
        self.shared.as_ref().map(Shared::end_touches)
    }

    /// The part in `range`, clamped to the length. It shares the allocation.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let from = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        }
        .min(self.len);
        let to = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => self.len,
        }
        .clamp(from, self.len);
        Self { shared: self.shared.clone(), start: self.start + from, len: to - from }
    }

    /// This buffer and the next one as one, without a copy, if the next one follows it in the same
    /// allocation.
    #[must_use]
    pub fn joined(&self, next: &Self) -> Option<Self> {
        let (here, there) = (self.shared.as_ref()?, next.shared.as_ref()?);
        let follows = here.is_same(there) && self.start + self.len == next.start;
        follows.then(|| Self { shared: self.shared.clone(), start: self.start, len: self.len + next.len })
    }

    /// The same bytes in an allocation that starts with them and holds nothing else: this one if it is so
    /// already, else a copy.
    #[must_use]
    pub fn to_owned_alone(&self) -> Self {
        let is_aligned = self.as_ptr().addr().is_multiple_of(ALIGNMENT);
        let there = self.shared.as_ref().map_or(0, |shared| shared.len());
        if is_aligned && there <= self.len + spare::unused_max(self.len) {
            self.clone()
        } else {
            Self::copy_from(self)
        }
    }

    /// As [`Buffer::concat`], in the allocation of a buffer that is not needed any more, if that is long
    /// enough and no other buffer shows it; in a fresh one otherwise.
    #[must_use]
    pub fn concat_in<'a>(mut spare: Self, len: usize, pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let shared = spare.shared.take().filter(|shared| shared.len() >= len);
        match shared {
            Some(mut shared) if len > 0 => {
                match shared.get_mut() {
                    Some(bytes) => put(pieces, &mut bytes[..len]),
                    None => return Self::concat(len, pieces),
                }
                Self { shared: Some(shared), start: 0, len }
            }
            _ => Self::concat(len, pieces),
        }
    }

    /// Whether no other buffer shows the allocation behind this one.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.shared.as_ref().is_none_or(|shared| shared.owners() == 1)
    }

    /// Approximate bytes of memory that the allocation behind this buffer takes, including alignment and,
    /// where values of one length lie together, the space that no other value can use because of it.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.shared.as_ref().map_or(0, Shared::memory_bytes)
    }
}

/// How often a lock that is held briefly is tried.
const LOCK_ATTEMPTS: usize = 64;

/// Takes a lock, unless another thread goes on holding it.
fn tried<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    (0..LOCK_ATTEMPTS).find_map(|_| lock.try_lock().map_err(|_| std::hint::spin_loop()).ok())
}

/// Copies pieces, one after the other; the rest of `target` is zeroed.
fn put<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, target: &mut [u8]) {
    let mut at = 0;
    for piece in pieces {
        let fits = piece.len().min(target.len() - at);
        target[at..at + fits].copy_from_slice(&piece[..fits]);
        at += fits;
    }
    target[at..].fill(0);
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take_if(|shared| shared.len() >= spare::LONG_BYTES) {
            spare::give_back(shared);
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_from(bytes)
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::copy_from(&bytes)
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Buffer {}

impl PartialEq<[u8]> for Buffer {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_slice() == other
    }
}

impl std::hash::Hash for Buffer {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = &self[..self.len.min(64)];
        write!(
            f,
            "Buffer({} B, \"{}\"{})",
            self.len,
            shown.escape_ascii(),
            if self.len > 64 { "…" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_allocation_join_and_others_do_not() {
        let whole = Buffer::copy_from(b"one allocation");
        let (front, middle, back) = (whole.slice(..3), whole.slice(3..4), whole.slice(4..));
        let joined = front.joined(&middle).unwrap().joined(&back).unwrap();
        assert_eq!((joined.as_slice(), joined.as_ptr()), (&b"one allocation"[..], whole.as_ptr()));
        assert!(front.joined(&back).is_none() && middle.joined(&front).is_none());
        assert!(front.joined(&Buffer::copy_from(b" allocation")).is_none());
    }

    #[test]
    fn every_allocation_starts_on_a_cache_line() {
        for len in [1, 63, 64, 65, 100, 4096, 1_000_003] {
            let buffer = Buffer::copy_from(&vec![7; len]);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0, "length {len}");
            assert_eq!(buffer.len(), len);
        }
    }

    #[test]
    fn slices_share_the_allocation_and_clamp() {
        let buffer = Buffer::copy_from(b"hello, atoll");
        let tail = buffer.slice(7..);
        assert_eq!(&*tail, b"atoll");
        assert_eq!(tail.as_ptr(), buffer[7..].as_ptr());
        assert_eq!(&*tail.slice(1..=2), b"to");
        assert!(buffer.slice(20..30).is_empty());
        assert_eq!(&*buffer.slice(..1000), b"hello, atoll");
    }

    #[test]
    fn a_slice_is_copied_before_it_is_kept_alone_and_a_whole_is_not() {
        let whole = Buffer::copy_from(&[1; 1000]);
        assert_eq!(whole.to_owned_alone().as_ptr(), whole.as_ptr());
        for part in [whole.slice(64..128), whole.slice(1..)] {
            let alone = part.to_owned_alone();
            assert_eq!(alone, part);
            assert_eq!(alone.as_ptr().addr() % ALIGNMENT, 0);
            assert!(alone.allocated_bytes() < part.len() + 2 * ALIGNMENT);
        }
    }

    #[test]
    fn an_allocation_is_used_again_once_nobody_shows_it() {
        let first = Buffer::copy_from(&[7; 1000]);
        let (address, shown) = (first.as_ptr(), first.slice(10..20));
        let apart = Buffer::concat_in(first.clone(), 3, [&b"abc"[..]]);
        assert_ne!(apart.as_ptr(), address, "somebody looks at it");
        assert_eq!((&*shown, &*first, first.is_alone()), (&[7; 10][..], &[7; 1000][..], false));
        drop(shown);
        assert!(first.is_alone());
        let again = Buffer::concat_in(first, 5, [&b"ab"[..], b"c"]);
        assert_eq!((&*again, again.as_ptr()), (&b"abc\0\0"[..], address));
        let longer = Buffer::concat_in(again, 1001, [&b"ab"[..]]);
        assert_eq!((longer.len(), &longer[..3]), (1001, &b"ab\0"[..]));
        assert_eq!(Buffer::concat_in(longer, 0, []), Buffer::new());
    }

    // Under sanitizers no memory is reused.
    #[cfg(not(any(miri, atoll_plain_memory)))]
    #[test]
    fn long_memory_is_used_again_once_nobody_shows_it_and_is_zero_where_it_is_said_to_be() {
        // A length that no other test uses.
        const LEN: usize = 5 << 20;
        let is_zero = |bytes: &mut [u8]| assert!(bytes.iter().all(|byte| *byte == 0));
        let first = Buffer::copy_from(&vec![7; LEN]);
        let (address, shown) = (first.as_ptr(), first.slice(10..20));
        drop(first);
        let apart = Buffer::build(LEN, is_zero);
        assert_ne!(apart.as_ptr(), address, "somebody looks at it");
        assert_eq!(&*shown, &[7; 10]);
        drop(shown);
        let again = Buffer::build(LEN, is_zero);
        assert_eq!((again.as_ptr(), again.len()), (address, LEN));
        drop(again);
        let mut was = 1;
        let overwritten: Result<_, ()> = Buffer::try_overwrite(LEN - 1, |bytes| {
            was = bytes[0];
            bytes.fill(9);
            Ok(())
        });
        assert_eq!((overwritten.map(|buffer| buffer.as_ptr()), was), (Ok(address), 0));
        assert!(Buffer::copy_from(&vec![1; LEN]).to_owned_alone().allocated_bytes() < LEN + LEN / 7);
    }

    #[test]
    fn concat_joins_pieces_and_zeroes_what_is_missing() {
        assert_eq!(&*Buffer::concat(5, [&b"ab"[..], b"cdef"]), b"abcde");
        assert_eq!(&*Buffer::concat(4, [&b"ab"[..]]), b"ab\0\0");
        assert_eq!(Buffer::concat(0, []), Buffer::new());
    }
}

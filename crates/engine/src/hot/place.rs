//! A place for one hot record: read without a lock, and written by the thread that holds it.
//!
//! Its *state* is odd while it is held, and a different even number afterwards: what was read between two
//! loads of the same even state was written together (a sequence lock). All words are atomic, so no read
//! meets bytes that are half written.
//!
//! Invariant: the words of a record change only while the state is odd.

use super::HotKey;
use crate::planted::{self, Bug};
use crate::threads::{AtomicU64, fence};
use atoll_buffer::prefetch;
use std::array;
use std::sync::atomic::Ordering;

/// Words of a key and a value; each of the two begins at a word.
const WORDS: usize = 20;

/// Bytes of a key, padded to words, and a value.
pub(super) const RECORD_BYTES_MAX: usize = WORDS * 8;

/// Bits of a length in a shape.
const LENGTH_BITS: u32 = 16;

/// Most votes that a record keeps.
const VOTES_MAX: u8 = 3;

/// A place: three cache lines.
#[repr(C, align(64))]
pub(super) struct Place {
    state: AtomicU64,
    /// The tree, the length of the key, and that of the value; 0 where there is no record, since no key is
    /// empty.
    shape: AtomicU64,
    /// The age of the tree at which the record came in.
    age: AtomicU64,
    /// An [`Election`]. Of two concurrent votes, one may be lost.
    votes: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The state of the competition for a place.
#[derive(Clone, Copy)]
struct Election {
    /// Votes for the present record.
    votes: u8,
    /// Decides whether another key becomes the candidate. Without it, keys that come in turn would displace
    /// each other for ever.
    luck: u8,
    /// Upper bits of the hash of a key that was looked up and not found.
    candidate: u64,
}

impl Election {
    #[inline]
    fn of(word: u64) -> Self {
        Self { votes: word as u8, luck: (word >> 8) as u8, candidate: word >> 16 }
    }

    #[inline]
    fn word(self) -> u64 {
        self.candidate << 16 | u64::from(self.luck) << 8 | u64::from(self.votes)
    }

    #[inline]
    fn is_won_by(self, candidate: u64) -> bool {
        self.votes == 0 && self.candidate == candidate
    }

    /// After a lookup of a key that is not here.
    #[inline]
    fn after(mut self, candidate: u64) -> Self {
        self.votes = self.votes.saturating_sub(1);
        // Runs through all 256 numbers.
        self.luck = self.luck.wrapping_mul(141).wrapping_add(3);
        if self.luck >> 7 == 0 {
            self.candidate = candidate;
        }
        self
    }
}

/// What became of a key that stood for election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Elected {
    /// It stays outside.
    No,
    /// It came in where the place was empty.
    IntoEmpty,
    /// It came in instead of a record without votes.
    Evicting,
    /// It came in instead of a record whose age was over.
    AfterOver,
}

/// Where a record is copied to before it is shown.
pub(super) struct Room([[u8; 8]; WORDS]);

impl Default for Room {
    #[inline]
    fn default() -> Self {
        Self([[0; 8]; WORDS])
    }
}

impl Default for Place {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { state: zero(), shape: zero(), age: zero(), votes: zero(), words: array::from_fn(|_| zero()) }
    }
}

/// The shape of a record.
#[inline]
fn shape_of(key: &HotKey<'_>, value: usize) -> u64 {
    u64::from(key.tree) << (2 * LENGTH_BITS) | (key.bytes.len() as u64) << LENGTH_BITS | value as u64
}

/// Words that this many bytes take.
#[inline]
fn words(bytes: usize) -> usize {
    bytes.div_ceil(8)
}

/// Whether a place has room for a record.
#[inline]
fn has_room(key: &HotKey<'_>, value: &[u8]) -> bool {
    words(key.bytes.len()) + words(value.len()) <= WORDS
}

/// These bytes as words, the last one padded with zeros.
#[inline]
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|chunk| match chunk.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }
    })
}

impl Place {
    /// The value of this key, if the place has it and it came in at this age. It is copied, so that what is
    /// shown cannot change.
    #[inline]
    pub(super) fn look_up<'r>(&self, key: &HotKey<'_>, age: u64, room: &'r mut Room) -> Option<&'r [u8]> {
        self.prefetch();
        let state = self.state.load(Ordering::Acquire);
        let shape = self.shape.load(Ordering::Relaxed);
        let value = (shape & ((1 << LENGTH_BITS) - 1)) as usize;
        if state & 1 == 1 || shape != shape_of(key, value) || self.age.load(Ordering::Relaxed) != age {
            return None;
        }
        let (keys, values) = self.words.split_at_checked(words(key.bytes.len()))?;
        if !is_key(keys, key) {
            return None;
        }
        let count = words(value).min(values.len());
        for (word, to) in values[..count].iter().zip(&mut room.0) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
        fence(Ordering::Acquire);
        if self.state.load(Ordering::Relaxed) != state && !planted::is(Bug::HotTorn) {
            return None;
        }
        let election = self.votes.load(Ordering::Relaxed);
        if (election as u8) < VOTES_MAX {
            self.votes.store(election + 1, Ordering::Relaxed);
        }
        room.0.as_flattened().get(..value)
    }

    /// Lets a key that was looked up and is not here stand for election, with its value and the present age
    /// of its tree. It comes in if the place is empty or its record's age is over, or if the key is the
    /// candidate already and the record has no votes left.
    #[inline]
    pub(super) fn stands_for_election(
        &self,
        key: &HotKey<'_>,
        value: &[u8],
        age: u64,
        is_over: impl FnOnce(u32, u64) -> bool,
    ) -> Elected {
        if !has_room(key, value) {
            return Elected::No;
        }
        let shape = self.shape.load(Ordering::Relaxed);
        let election = Election::of(self.votes.load(Ordering::Relaxed));
        let candidate = key.hash >> 16;
        let is_won = election.is_won_by(candidate);
        let is_free = shape == 0
            || is_won
            || is_over((shape >> (2 * LENGTH_BITS)) as u32, self.age.load(Ordering::Relaxed));
        if is_free {
            self.votes.store(Election { votes: 0, ..election }.word(), Ordering::Relaxed);
            return match self.hold().map(|held| held.fill(key, value, age)) {
                None => Elected::No,
                Some(true) => Elected::IntoEmpty,
                Some(false) if is_won => Elected::Evicting,
                Some(false) => Elected::AfterOver,
            };
        }
        self.votes.store(election.after(candidate).word(), Ordering::Relaxed);
        Elected::No
    }

    /// Whether its record was found since it came in, and still has votes from that.
    pub(super) fn is_wanted(&self) -> bool {
        let election = Election::of(self.votes.load(Ordering::Relaxed));
        self.shape.load(Ordering::Relaxed) != 0 && election.votes > 0
    }

    /// Prefetches it.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(std::ptr::from_ref(self), size_of::<Self>() / 64);
    }

    /// Holds the place, unless another thread holds it.
    fn hold(&self) -> Option<PlaceGuard<'_>> {
        self.hold_at(self.state.load(Ordering::Relaxed))
    }

    /// As [`Place::hold`], if the state is still this one.
    fn hold_at(&self, state: u64) -> Option<PlaceGuard<'_>> {
        if state & 1 == 1 {
            return None;
        }
        self.state.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // A reader that does not see the odd state sees none of the words written from here on.
        fence(Ordering::Release);
        Some(PlaceGuard { place: self, state })
    }

    /// Gives the record of this key another value, or drops it where there is none.
    ///
    /// A thread that holds the place meanwhile puts another record there or changes another one, so there is
    /// nothing to wait for. The caller ensures that no other thread changes this record or brings it in.
    pub(super) fn change(&self, key: &HotKey<'_>, value: Option<&[u8]>) {
        loop {
            let state = self.state.load(Ordering::Acquire);
            let shape = self.shape.load(Ordering::Relaxed);
            let is_here = state & 1 == 0
                && shape >> LENGTH_BITS == shape_of(key, 0) >> LENGTH_BITS
                && self.words.get(..words(key.bytes.len())).is_some_and(|words| is_key(words, key));
            if !is_here {
                return;
            }
            if let Some(held) = self.hold_at(state) {
                match value.filter(|value| has_room(key, value)) {
                    Some(value) => held.replace(key, value),
                    None => held.clear(),
                }
                // Of two threads that each write one key and then look up the other's, at least one sees what
                // the other wrote.
                return fence(Ordering::SeqCst);
            }
        }
    }
}

/// Whether these words, as many as the key has, are those of the key.
#[inline]
fn is_key(words: &[AtomicU64], key: &HotKey<'_>) -> bool {
    words.iter().zip(words_of(key.bytes)).all(|(word, part)| word.load(Ordering::Relaxed) == part)
}

/// Exclusive write access to a place.
struct PlaceGuard<'p> {
    place: &'p Place,
    state: u64,
}

impl PlaceGuard<'_> {
    /// Puts a record there, at this age of its tree. Returns whether there was none.
    fn fill(self, key: &HotKey<'_>, value: &[u8], age: u64) -> bool {
        let was_empty = self.place.shape.load(Ordering::Relaxed) == 0;
        self.place.age.store(age, Ordering::Relaxed);
        self.place.write(0, key.bytes);
        self.replace(key, value);
        was_empty
    }

    fn replace(self, key: &HotKey<'_>, value: &[u8]) {
        self.place.write(words(key.bytes.len()), value);
        self.place.shape.store(shape_of(key, value.len()), Ordering::Relaxed);
    }

    fn clear(self) {
        self.place.shape.store(0, Ordering::Relaxed);
    }
}

impl Place {
    fn write(&self, from: usize, bytes: &[u8]) {
        let words = self.words.iter().skip(from);
        words.zip(words_of(bytes)).for_each(|(word, part)| word.store(part, Ordering::Relaxed));
    }
}

impl Drop for PlaceGuard<'_> {
    fn drop(&mut self) {
        self.place.state.store(self.state + 2, Ordering::Release);
    }
}

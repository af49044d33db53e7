//! Hot records: copies of small records that are looked up, where one step finds them the next time.
//!
//! ```text
//! hash of tree and key -> place, 192 B: state | shape | age | votes | key | value
//! ```
//!
//! A lookup waits for memory at each step down its tree, then for the leaf, then for the record. Of what was looked up a copy lies here, where
//! a hash leads to it at once and no lock is taken: what NoVoHT, the map in memory below ZHT, is for. Each key has one place. While that is
//! empty, who comes first gets it. Then keys stand for election: a lookup that finds what is there votes for it, one that does not votes
//! against it, and a key that was looked up twice meanwhile takes the place of what has no votes left. So whoever reads
//! everything once drives nothing out that others want.
//!
//! There are few places at first, and twice as many whenever half of them are filled, up to the budget.
//!
//! Invariant: a place that is found by its key has what the current tree has, or its age is over.
//! Invariant: a record comes in only while nobody can write into its leaf, and changes only by whoever writes into its leaf; it goes
//! before a commit of several records becomes visible, so that nobody sees a part of that.

mod memory;
mod place;
#[cfg(test)]
mod tests;

use crate::checksum::wide_hash;
use crate::meter::{Kind, Meter, Weight};
use crate::planted::{self, Bug};
use crate::threads::{AtomicU64, AtomicUsize, Mutex};
use memory::Places;
use place::{Place, ROOM, Room};
use std::array;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Places that are used first.
const FIRST: usize = if cfg!(feature = "schedules") { 1 } else { 256 };

/// Of the memory, hot records take this share if nothing else is asked for, and no more than [`BYTES_MOST`].
const SHARE: u64 = 32;

/// What they take at most if nothing else is asked for, in bytes.
const BYTES_MOST: u64 = 256 << 20;

/// Trees share as many ages: what ends the age of one ends that of others with it.
const AGES: usize = 16;

/// Hot records of a store.
pub(crate) struct Hot {
    /// Made with the first lookup; none where there are no addresses for them.
    places: OnceLock<Option<Places>>,
    /// The most places there may be: a power of two, or 0.
    most: usize,
    /// Number of the last place in use; a power of two less one. It only grows: what a place has of a key that another one is
    /// for since then is never found again.
    last: AtomicUsize,
    /// Places that are not empty.
    filled: AtomicUsize,
    /// Records of a tree are true if they came in at this age.
    ages: [AtomicU64; AGES],
    weight: Mutex<Weight>,
}

/// A key of a tree.
#[derive(Clone, Copy)]
pub(crate) struct HotKey<'k> {
    tree: u32,
    bytes: &'k [u8],
    hash: u64,
}

impl<'k> HotKey<'k> {
    #[inline]
    pub(crate) fn of(tree: u32, bytes: &'k [u8]) -> Self {
        Self { tree, bytes, hash: wide_hash(tree, bytes) }
    }
}

impl Hot {
    /// None yet; they will take at most `bytes`, or what suits a store of this memory.
    pub(crate) fn new(bytes: Option<u64>, memory_bytes: u64, meter: &Arc<Meter>) -> Self {
        let bytes = bytes.unwrap_or_else(|| (memory_bytes / SHARE).min(BYTES_MOST));
        let places = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Place>();
        let most = places.checked_ilog2().map_or(0, |bits| 1 << bits).min(memory::PLACES_MOST);
        Self {
            places: OnceLock::new(),
            most,
            last: AtomicUsize::new(most.clamp(1, FIRST) - 1),
            filled: AtomicUsize::new(0),
            ages: array::from_fn(|_| AtomicU64::new(0)),
            weight: Mutex::new(Weight::of(meter, Kind::Buffer, 0)),
        }
    }

    /// Shows the value of a key, if it is here.
    #[inline]
    pub(crate) fn find<R>(&self, key: &HotKey<'_>, show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut room = Room::default();
        let value = self.place_of(key)?.look_up(key, self.age(key.tree), &mut room)?;
        Some(show(value))
    }

    /// Notes that a key was looked up that is not here, and has this value; it may come in. For whoever keeps everybody from writing
    /// into its leaf.
    #[inline]
    pub(crate) fn note_lookup(&self, key: &HotKey<'_>, value: &[u8]) {
        let Some(place) = self.place_of(key) else { return self.begin() };
        let is_over = |tree: u32, age: u64| self.age(tree) != age;
        if place.stands_for_election(key, value, self.age(key.tree), is_over) {
            self.note_filled();
        }
    }

    /// Makes the places.
    #[cold]
    fn begin(&self) {
        if self.most > 0 && self.places.get().is_none() {
            self.places.get_or_init(|| Places::new(self.most));
            self.weigh();
        }
    }

    /// One more is filled: uses twice as many when that is half of them.
    fn note_filled(&self) {
        let filled = self.filled.fetch_add(1, Ordering::Relaxed) + 1;
        let last = self.last.load(Ordering::Relaxed);
        let may_grow = filled > last / 2 && last + 1 < self.most;
        if may_grow
            && self.last.compare_exchange(last, last * 2 + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.weigh();
        }
    }

    /// Counts the places in use.
    fn weigh(&self) {
        let mut weight = self.weight.lock();
        let count = self.last.load(Ordering::Relaxed) + 1;
        weight.set((count * size_of::<Place>()) as u64);
        if let Some(Some(places)) = self.places.get() {
            places.may_be_huge(count);
        }
    }

    /// Notes that a key has another value, or none, or one too long to be here. For whoever has written it into its leaf, and lets
    /// nobody else look at that yet.
    #[inline]
    pub(crate) fn note_change(&self, key: &HotKey<'_>, value: Option<&[u8]>) {
        if self.place_of(key).is_some_and(|place| place.change(key, value)) {
            self.filled.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Lets go of the record of a key. For whoever keeps everybody from its leaf, before that changes.
    #[inline]
    pub(crate) fn forget(&self, key: &HotKey<'_>) {
        if !planted::is(Bug::HotNotForgotten) {
            self.note_change(key, None);
        }
    }

    /// Brings nearer what a lookup or a change of this key will look at.
    #[inline]
    pub(crate) fn prefetch(&self, key: &HotKey<'_>) {
        if let Some(place) = self.place_of(key) {
            place.prefetch();
        }
    }

    /// Lets go of all records of a tree. For whoever keeps everybody from its leaves, before they change.
    pub(crate) fn forget_tree(&self, tree: u32) {
        if !planted::is(Bug::HotAgeKept) {
            self.ages[tree as usize % AGES].fetch_add(1, Ordering::Release);
        }
    }

    /// Whether there are none, so that nothing need be noted of changes.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.filled.load(Ordering::Relaxed) == 0
    }

    /// Bytes that places take.
    pub(crate) fn bytes(&self) -> u64 {
        self.weight.lock().bytes()
    }

    #[inline]
    fn age(&self, tree: u32) -> u64 {
        self.ages[tree as usize % AGES].load(Ordering::Acquire)
    }

    /// The place for a key, if there are places, and it is of a length that one has room for.
    #[inline]
    fn place_of(&self, key: &HotKey<'_>) -> Option<&Place> {
        if key.bytes.is_empty() || key.bytes.len() > ROOM {
            return None;
        }
        let places = self.places.get()?.as_ref()?;
        places.get(key.hash as usize & self.last.load(Ordering::Relaxed))
    }
}

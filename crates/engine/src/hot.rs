//! Hot records: copies of small records that are looked up, where one step finds them the next time.
//!
//! ```text
//! hash of tree and key -> place, 192 B: state | shape | age | votes | key | value
//! ```
//!
//! A lookup waits for memory at each step down its tree, then for the leaf, then for the record. Of what was
//! looked up a copy lies here, where a hash leads to it at once and no lock is taken: what NoVoHT, the map in
//! memory below ZHT, is for. Each key has one place. While that is empty, who comes first gets it. Then keys
//! stand for election: a lookup that finds what is there votes for it, one that does not votes against it,
//! and a key that was looked up twice meanwhile takes the place of what has no votes left. So whoever reads
//! everything once drives nothing out that others want.
//!
//! There are few places at first, and twice as many whenever more than half of them are filled, up to the
//! budget.
//!
//! Invariant: a place that is found by its key has what the current tree has, or its age is over.
//! Invariant: a record comes in only while nobody can write into its leaf, and changes only by whoever writes
//! into its leaf; it goes before a commit of several records becomes visible, so that nobody sees a part of
//! that.

mod memory;
mod place;
#[cfg(test)]
mod tests;

use crate::checksum::wide_hash;
use crate::gate::Apart;
use crate::meter::{Kind, Meter, Weight};
use crate::planted::{self, Bug};
use crate::threads::{AtomicU64, AtomicUsize, Mutex};
use crate::value::Stored;
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
const AGES: usize = 64;

/// Hot records of a store.
pub(crate) struct Hot {
    /// Made with the first lookup; none where there are no addresses for them.
    places: OnceLock<Option<Places>>,
    /// The most places there may be: a power of two, or 0.
    most: usize,
    /// Number of the last place in use; a power of two less one. It only grows: what a place has of a key
    /// that another one is for since then is never found again.
    last: AtomicUsize,
    /// How often an empty place was filled since there are so many. When there are twice as many, half of
    /// them are where nobody looks.
    filled: Apart<AtomicUsize>,
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
        // What is too long for a place need not be read for it.
        let hash = if bytes.len() <= ROOM { wide_hash(tree, bytes) } else { 0 };
        Self { tree, bytes, hash }
    }
}

impl Hot {
    /// None yet; they will take at most `bytes`, or what suits a store of this memory.
    pub(crate) fn new(bytes: Option<u64>, memory_bytes: u64, meter: &Arc<Meter>) -> Self {
        let bytes = bytes.map_or((memory_bytes / SHARE).min(BYTES_MOST), |bytes| bytes.min(memory_bytes / 2));
        let places = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Place>();
        let most = places.checked_ilog2().map_or(0, |bits| 1 << bits).min(memory::PLACES_MOST);
        Self {
            places: OnceLock::new(),
            most,
            last: AtomicUsize::new(most.clamp(1, FIRST) - 1),
            filled: Apart(AtomicUsize::new(0)),
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

    /// As [`Hot::note_lookup`], of what a leaf has for a key, if anything.
    #[inline]
    pub(crate) fn note_found(&self, key: &HotKey<'_>, stored: Option<Stored<'_>>) {
        if let Some(Stored::Inline(value)) = stored {
            self.note_lookup(key, value);
        }
    }

    /// Notes that a key was looked up that is not here, and has this value; it may come in. For whoever keeps
    /// everybody from writing into its leaf.
    #[inline]
    fn note_lookup(&self, key: &HotKey<'_>, value: &[u8]) {
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

    /// One more is filled: uses twice as many when that is half of them, beside those from before.
    fn note_filled(&self) {
        let filled = self.filled.fetch_add(1, Ordering::Relaxed) + 1;
        let last = self.last.load(Ordering::Relaxed);
        let may_grow = filled > last / 2 && last + 1 < self.most;
        if may_grow
            && self.last.compare_exchange(last, last * 2 + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.filled.store(0, Ordering::Relaxed);
            self.weigh();
        }
    }

    /// Counts the places in use.
    fn weigh(&self) {
        let Some(Some(places)) = self.places.get() else { return };
        let mut weight = self.weight.lock();
        let count = self.last.load(Ordering::Relaxed) + 1;
        weight.set((count * size_of::<Place>()) as u64);
        places.may_be_huge(count);
    }

    /// Notes that a key has another value, or none, or one too long to be here. For whoever has written it
    /// into its leaf, and lets nobody else look at that yet.
    #[inline]
    pub(crate) fn note_change(&self, key: &HotKey<'_>, value: Option<&[u8]>) {
        if let Some(place) = self.place_of(key) {
            place.change(key, value);
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

    /// Whether there were never any, so that nothing need be noted of changes. The lookup that makes the
    /// places brings nothing in, so whoever writes into a leaf from which something came in knows of them.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.get().is_none()
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

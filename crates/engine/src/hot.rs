//! Hot records: copies of frequently read small records, found in one step.
//!
//! ```text
//! hash of tree and key -> place, 192 B: state | shape | age | votes | key | value
//! ```
//!
//! A lookup waits for memory at each step down its tree, then for the leaf, then for the record. A copy of
//! what was looked up lies here, where a hash leads to it at once and no lock is taken: the purpose of
//! NoVoHT, the map in memory below ZHT. Each key has one place. The first key that is looked up gets an empty
//! place. From then on keys stand for election: a lookup that finds the record in the place votes for it, any
//! other lookup votes against it, and a key that was looked up twice meanwhile replaces a record without
//! votes. So reading everything once displaces nothing that is wanted more often.
//!
//! There are few places at first. Their number doubles whenever more than half of them are filled, up to the
//! budget.
//!
//! Invariant: a place that is found by its key has the value of the current tree, or its age is over.
//! Invariant: a record comes in only while nothing can write into its leaf, and is changed only by a writer
//! of its leaf. It is dropped before a commit of several records becomes visible, so that no reader sees a
//! part of that commit.

mod memory;
mod place;
#[cfg(test)]
mod tests;

use crate::checksum::wide_hash;
use crate::gate::CachePadded;
use crate::meter::{Kind, Meter, Weight};
use crate::planted::{self, Bug};
use crate::threads::{AtomicU64, AtomicUsize, Mutex};
use crate::value::Stored;
use memory::Places;
use place::{Elected, Place, RECORD_BYTES_MAX, Room};
use std::array;
// Nothing waits for this counter, so its steps are none that a schedule has to order.
use std::sync::atomic::AtomicU64 as Counter;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Number of places at first.
const FIRST_PLACES: usize = if cfg!(feature = "schedules") { 1 } else { 256 };

/// Hot records take this share of the memory by default, and no more than [`DEFAULT_BYTES_MAX`].
const MEMORY_SHARE: u64 = 32;

/// Most bytes that hot records take by default.
const DEFAULT_BYTES_MAX: u64 = 256 << 20;

/// Number of ages, which the trees share: a tree that ends its age ends that of the others that share it.
const AGES: usize = 64;

/// The hot records of a store.
pub(crate) struct Hot {
    /// Made by the first lookup; none where the system has no addresses for them.
    places: OnceLock<Option<Places>>,
    /// Most places: a power of two, or 0.
    most: usize,
    /// Number of the last place in use: a power of two less one. It only grows. A record that is left in a
    /// place its key maps to no longer is never found again.
    last: AtomicUsize,
    /// How often an empty place was filled since the last doubling. After a doubling, half of these are where
    /// no lookup goes.
    filled: CachePadded<AtomicUsize>,
    /// Records of a tree are valid if they came in at this age.
    ages: [AtomicU64; AGES],
    weight: Mutex<Weight>,
    /// How often a record without votes made way for another one.
    evicted: CachePadded<Counter>,
}

/// How hot records were used since a store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotUse {
    /// Records that lookups have found since they came in, and that still have votes from that. Lookups are
    /// not counted themselves: they would all write the same word.
    pub found: u64,
    /// How often a record without votes made way for another one.
    pub evicted: u64,
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
        // A key too long for a place need not be hashed.
        let hash = if bytes.len() <= RECORD_BYTES_MAX { wide_hash(tree, bytes) } else { 0 };
        Self { tree, bytes, hash }
    }
}

impl Hot {
    /// An empty table. It will take at most `bytes`, or the default for a store with this memory.
    pub(crate) fn new(bytes: Option<u64>, memory_bytes: u64, meter: &Arc<Meter>) -> Self {
        let bytes = bytes.map_or((memory_bytes / MEMORY_SHARE).min(DEFAULT_BYTES_MAX), |bytes| {
            bytes.min(memory_bytes / 2)
        });
        let places = usize::try_from(bytes).unwrap_or(usize::MAX) / size_of::<Place>();
        let most = places.checked_ilog2().map_or(0, |bits| 1 << bits).min(memory::PLACES_MAX);
        Self {
            places: OnceLock::new(),
            most,
            last: AtomicUsize::new(most.clamp(1, FIRST_PLACES) - 1),
            filled: CachePadded(AtomicUsize::new(0)),
            ages: array::from_fn(|_| AtomicU64::new(0)),
            weight: Mutex::new(Weight::of(meter, Kind::Buffer, 0)),
            evicted: CachePadded(Counter::new(0)),
        }
    }

    /// Shows the value of a key, if it is here.
    #[inline]
    pub(crate) fn find<R>(&self, key: &HotKey<'_>, show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut room = Room::default();
        let value = self.place_of(key)?.look_up(key, self.age(key.tree), &mut room)?;
        Some(show(value))
    }

    /// As [`Hot::note_lookup`], with what a leaf has for a key, if anything.
    #[inline]
    pub(crate) fn note_found(&self, key: &HotKey<'_>, stored: Option<Stored<'_>>) {
        if let Some(Stored::Inline(value)) = stored {
            self.note_lookup(key, value);
        }
    }

    /// Notes that a key with this value was looked up and is not here; it may come in. The caller keeps every
    /// writer from its leaf.
    #[inline]
    fn note_lookup(&self, key: &HotKey<'_>, value: &[u8]) {
        let Some(place) = self.place_of(key) else { return self.begin() };
        let is_over = |tree: u32, age: u64| self.age(tree) != age;
        match place.stands_for_election(key, value, self.age(key.tree), is_over) {
            Elected::IntoEmpty => self.note_filled(),
            Elected::Evicting => _ = self.evicted.fetch_add(1, Ordering::Relaxed),
            Elected::No | Elected::AfterOver => {}
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

    /// Counts one more filled place. When half of the places are filled, their number is doubled; the present
    /// ones stay.
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

    /// Notes that a key has another value, or none, or one too long for a place. The caller has written it
    /// into the leaf, and still keeps every reader from that.
    #[inline]
    pub(crate) fn note_change(&self, key: &HotKey<'_>, value: Option<&[u8]>) {
        if let Some(place) = self.place_of(key) {
            place.change(key, value);
        }
    }

    /// Drops the record of a key. The caller keeps everything else from its leaf, which is about to change.
    #[inline]
    pub(crate) fn forget(&self, key: &HotKey<'_>) {
        if !planted::is(Bug::HotNotForgotten) {
            self.note_change(key, None);
        }
    }

    /// Prefetches what a lookup or a change of this key will read.
    #[inline]
    pub(crate) fn prefetch(&self, key: &HotKey<'_>) {
        if let Some(place) = self.place_of(key) {
            place.prefetch();
        }
    }

    /// Drops all records of a tree. The caller keeps everything else from its leaves, which are about to
    /// change.
    pub(crate) fn forget_tree(&self, tree: u32) {
        if !planted::is(Bug::HotAgeKept) {
            self.ages[tree as usize % AGES].fetch_add(1, Ordering::Release);
        }
    }

    /// Whether there was never a record, so that changes need not be noted. The lookup that makes the places
    /// brings nothing in, so a writer of any leaf from which a record came in sees the places.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.get().is_none()
    }

    /// How the records were used. This looks at all places.
    pub(crate) fn usage(&self) -> HotUse {
        let places = self.places.get().and_then(Option::as_deref).unwrap_or_default();
        let used = self.last.load(Ordering::Relaxed) + 1;
        let found = places.iter().take(used).filter(|place| place.is_wanted()).count() as u64;
        HotUse { found, evicted: self.evicted.load(Ordering::Relaxed) }
    }

    /// Bytes that places take.
    pub(crate) fn bytes(&self) -> u64 {
        self.weight.lock().bytes()
    }

    #[inline]
    fn age(&self, tree: u32) -> u64 {
        self.ages[tree as usize % AGES].load(Ordering::Acquire)
    }

    /// The place for a key, if there are places and the key fits into one.
    #[inline]
    fn place_of(&self, key: &HotKey<'_>) -> Option<&Place> {
        if key.bytes.is_empty() || key.bytes.len() > RECORD_BYTES_MAX {
            return None;
        }
        let places = self.places.get()?.as_ref()?;
        places.get(key.hash as usize & self.last.load(Ordering::Relaxed))
    }
}

//! The gate: which operations may go on at the same time.
//!
//! There are three ways through it:
//!
//! - *placing*: a write of one record into a leaf that stays where it is. At each place of the gate one write
//!   goes on at a time; two writes at different places whose leaves share a latch take turns at the latch.
//! - *alone*: the writer lock. It excludes placing writes and other holders, and only its holder may change
//!   the shape of a tree or evict nodes.
//! - *still*: readers of more than one leaf, and code that clones roots. Any number of them go on at once,
//!   and they exclude placing writes. Against *alone* they rely on the forest lock.
//!
//! A lookup of one key bypasses the gate: the forest lock keeps the shape of the trees, and the latch of the
//! leaf keeps its contents.
//!
//! A place of the gate consists of two locks in a cache line of their own, one for each of the other two
//! ways. A placing write takes the place of its thread; *alone* and *still* take their lock of every place.
//! So two placing writes on two processors touch nothing in common here.
//!
//! Invariant: the content is changed under its mutex; *alone* holds the mutex to the end, a placing write
//! only while it writes the log.
//! Invariant: locks are taken in this order: against *alone*, for *still*, the forest lock, a latch, the
//! content.
//! Invariant: who takes the forest lock to write has the gate alone. An *alone* holder may read from the disk
//! with the forest lock shared, and lookups would wait behind a writer that waits for it.

use crate::planted::Bug;
use crate::threads::{
    Inside, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Watch, Way, own_number, unless,
};
use std::array;
use std::ops::{Deref, DerefMut};

/// Number of placing writes that can go on at once. *Alone* and *still* pay for each place.
pub(crate) const PLACES: usize = 4;

/// How often a placing write tries the lock of the content before it sleeps.
const SPINS: usize = if cfg!(feature = "schedules") { 1 } else { 40 };

/// A value in cache lines of its own; processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// One place of a gate.
#[derive(Default)]
struct GatePlace {
    /// Shared by placing writes here; exclusive for *alone*.
    placing: RwLock<()>,
    /// Exclusive for a placing write here; shared by *still*.
    still: RwLock<()>,
}

/// A gate to something that is written *alone*, or briefly by a placing write.
pub(crate) struct Gate<T> {
    places: [CachePadded<GatePlace>; PLACES],
    content: CachePadded<Mutex<T>>,
    watch: Watch,
}

/// The place of the current thread.
#[inline]
pub(crate) fn own_place() -> usize {
    own_number() % PLACES
}

impl<T> Gate<T> {
    pub(crate) fn new(content: T) -> Self {
        Self {
            places: array::from_fn(|_| CachePadded::default()),
            content: CachePadded(Mutex::new(content)),
            watch: Watch::new(),
        }
    }

    /// Takes the writer lock: waits until no placing write and no other holder is inside.
    pub(crate) fn alone(&self) -> Alone<'_, T> {
        let places = array::from_fn(|place| self.places[place].placing.write());
        let content = self.content.lock();
        Alone { _inside: self.watch.enter(Way::Alone), content, _places: places }
    }

    /// As [`Gate::alone`], if that needs no waiting.
    pub(crate) fn try_alone(&self) -> Option<Alone<'_, T>> {
        let [a, b, c, d] = self.places.each_ref().map(|place| place.placing.try_write());
        let content = self.content.try_lock()?;
        let _places = [a?, b?, c?, d?];
        Some(Alone { _inside: self.watch.enter(Way::Alone), content, _places })
    }

    /// Waits until no placing write is inside, and keeps further ones out.
    pub(crate) fn still(&self) -> Still<'_> {
        let _places = array::from_fn(|place| unless(Bug::StillUnlocked, || self.places[place].still.read()));
        Still { _inside: self.watch.enter(Way::Still), _places }
    }

    /// Waits until neither *alone* nor *still* is held.
    pub(crate) fn placing(&self) -> Placing<'_, T> {
        let place = &self.places[own_place()];
        let _shared = unless(Bug::PlacingUnlocked, || place.placing.read());
        let _own = place.still.write();
        Placing { _inside: self.watch.enter(Way::Placing), gate: self, _own, _shared }
    }
}

/// Excludes placing writes and every other holder of the writer lock.
pub(crate) struct Alone<'g, T> {
    _inside: Inside<'g>,
    // Drop order: the content is released before the places let others in.
    content: MutexGuard<'g, T>,
    _places: [RwLockWriteGuard<'g, ()>; PLACES],
}

impl<T> Deref for Alone<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.content
    }
}

impl<T> DerefMut for Alone<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.content
    }
}

/// Excludes placing writes.
pub(crate) struct Still<'g> {
    _inside: Inside<'g>,
    _places: [RwLockReadGuard<'g, ()>; PLACES],
}

/// A placing write; excludes *alone* and *still*.
pub(crate) struct Placing<'g, T> {
    _inside: Inside<'g>,
    gate: &'g Gate<T>,
    _own: RwLockWriteGuard<'g, ()>,
    _shared: RwLockReadGuard<'g, ()>,
}

impl<T> Placing<'_, T> {
    /// The content, which only one thread at a time may write. It is the last lock in the order above.
    pub(crate) fn content(&self) -> MutexGuard<'_, T> {
        // It is held for a fraction of a microsecond; sleeping and waking up takes several.
        for _ in 0..SPINS {
            if let Some(content) = self.gate.content.try_lock() {
                return content;
            }
            std::hint::spin_loop();
        }
        self.gate.content.lock()
    }
}

/// Number of latches for the leaves of a store.
const LATCHES: usize = 128;

/// Latches of leaves, by address: some leaves share one.
pub(crate) struct Latches([CachePadded<Latch>; LATCHES]);

/// A latch, shared by some leaves.
#[derive(Default)]
pub(crate) struct Latch {
    lock: RwLock<()>,
    watch: Watch,
}

/// Shared access to a leaf: nothing writes into it.
pub(crate) struct Look<'l> {
    _inside: Inside<'l>,
    _lock: RwLockReadGuard<'l, ()>,
}

/// Exclusive access to a leaf: nothing reads it or writes into it.
pub(crate) struct Hold<'l> {
    _inside: Inside<'l>,
    _lock: RwLockWriteGuard<'l, ()>,
}

impl Latch {
    /// Waits for a writer of the leaf.
    #[inline]
    pub(crate) fn look(&self) -> Look<'_> {
        let _lock = unless(Bug::LookUnlatched, || self.lock.read());
        Look { _inside: self.watch.enter(Way::Reading), _lock }
    }

    /// Waits for readers and a writer of the leaf.
    #[inline]
    pub(crate) fn hold(&self) -> Hold<'_> {
        let _lock = unless(Bug::LeafUnlatched, || self.lock.write());
        Hold { _inside: self.watch.enter(Way::Writing), _lock }
    }
}

impl Default for Latches {
    fn default() -> Self {
        Self(array::from_fn(|_| CachePadded::default()))
    }
}

impl Latches {
    /// The latch of the leaf at this address. A thread that holds one latch must not wait for a second one.
    pub(crate) fn of(&self, address: usize) -> &Latch {
        // Leaves lie an odd number of cache lines apart.
        &self.0[(address / 64) % LATCHES].0
    }
}

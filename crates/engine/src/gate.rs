//! The gate: who may change what at the same time.
//!
//! Three ways lead through it:
//!
//! - *placing*: a write of one record into a leaf that stays where it is. One of them goes on at each place
//!   of the gate; two whose leaves share a latch take turns there.
//! - *alone*: the writer lock. Nobody places and nobody else is alone, and only whoever is may change the
//!   shape of a tree or let go of nodes.
//! - *still*: readers of more than one leaf, and whoever clones roots. Any number of them go on at once, and
//!   nobody places; from those who are alone the forest lock keeps them.
//!
//! A lookup of one key passes by the gate: the forest lock keeps shapes as they are, and the latch of the
//! leaf what lies in it.
//!
//! A place of the gate is two locks in a cache line of their own, one for each of the other two ways. Who
//! places takes its thread's place; who is alone or wants stillness takes its lock of all places. So two who
//! place on two processors touch nothing in common here.
//!
//! Invariant: the content is changed under its mutex; `alone` holds that to the end, and who places only
//! while it writes the log.
//! Invariant: locks are taken in order: against those who are alone, for stillness, the forest lock, a latch,
//! the content.

use crate::planted::Bug;
use crate::threads::{
    Inside, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Watch, Way, own_number, unless,
};
use std::array;
use std::ops::{Deref, DerefMut};

/// How many who place can go on at once. Whoever wants all pays for each.
pub(crate) const PLACES: usize = 4;

/// How often who places looks whether the content is free before it goes to sleep.
const SPINS: usize = if cfg!(feature = "schedules") { 1 } else { 40 };

/// A value in cache lines of its own, of which processors fetch two at a time.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

impl<T> Deref for Apart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// One place of a gate.
#[derive(Default)]
struct Place {
    /// Shared by those who place here; taken by whoever is alone.
    placing: RwLock<()>,
    /// Taken by whoever places here; shared by those who want stillness.
    still: RwLock<()>,
}

/// A gate before something that is written by whoever is alone, or for a moment by who places.
pub(crate) struct Gate<T> {
    places: [Apart<Place>; PLACES],
    content: Apart<Mutex<T>>,
    watch: Watch,
}

/// The place of this thread.
#[inline]
pub(crate) fn own_place() -> usize {
    own_number() % PLACES
}

impl<T> Gate<T> {
    pub(crate) fn new(content: T) -> Self {
        Self {
            places: array::from_fn(|_| Apart::default()),
            content: Apart(Mutex::new(content)),
            watch: Watch::new(),
        }
    }

    /// The writer lock: waits until nobody places or is alone.
    pub(crate) fn alone(&self) -> Alone<'_, T> {
        let places = array::from_fn(|place| self.places[place].placing.write());
        let content = self.content.lock();
        Alone { _inside: self.watch.enter(Way::Alone), content, _places: places }
    }

    /// The same, if nobody does or is.
    pub(crate) fn try_alone(&self) -> Option<Alone<'_, T>> {
        let [a, b, c, d] = self.places.each_ref().map(|place| place.placing.try_write());
        let content = self.content.try_lock()?;
        let _places = [a?, b?, c?, d?];
        Some(Alone { _inside: self.watch.enter(Way::Alone), content, _places })
    }

    /// Waits until nobody places, and keeps it so.
    pub(crate) fn still(&self) -> Still<'_> {
        let _places = array::from_fn(|place| unless(Bug::StillUnlocked, || self.places[place].still.read()));
        Still { _inside: self.watch.enter(Way::Still), _places }
    }

    /// Waits until nobody is alone or wants stillness.
    pub(crate) fn placing(&self) -> Placing<'_, T> {
        let place = &self.places[own_place()];
        let _shared = unless(Bug::PlacingUnlocked, || place.placing.read());
        let _own = place.still.write();
        Placing { _inside: self.watch.enter(Way::Placing), gate: self, _own, _shared }
    }
}

/// Nobody places, and nobody else is alone.
pub(crate) struct Alone<'g, T> {
    _inside: Inside<'g>,
    // In this order they end: the content is free before others come in.
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

/// Nobody places.
pub(crate) struct Still<'g> {
    _inside: Inside<'g>,
    _places: [RwLockReadGuard<'g, ()>; PLACES],
}

/// Nobody is alone or wants stillness.
pub(crate) struct Placing<'g, T> {
    _inside: Inside<'g>,
    gate: &'g Gate<T>,
    _own: RwLockWriteGuard<'g, ()>,
    _shared: RwLockReadGuard<'g, ()>,
}

impl<T> Placing<'_, T> {
    /// What only one at a time may write. Of the locks of this list it is the last.
    pub(crate) fn content(&self) -> MutexGuard<'_, T> {
        // It is held for a fraction of a microsecond; going to sleep and being woken takes several.
        for _ in 0..SPINS {
            if let Some(content) = self.gate.content.try_lock() {
                return content;
            }
            std::hint::spin_loop();
        }
        self.gate.content.lock()
    }
}

/// How many latches there are for the leaves of a store.
const LATCHES: usize = 128;

/// Latches of leaves, by address: some leaves share one.
pub(crate) struct Latches([Apart<Latch>; LATCHES]);

/// The latch of some leaves.
#[derive(Default)]
pub(crate) struct Latch {
    lock: RwLock<()>,
    watch: Watch,
}

/// Nobody writes into a leaf.
pub(crate) struct Look<'l> {
    _inside: Inside<'l>,
    _lock: RwLockReadGuard<'l, ()>,
}

/// Nobody looks at a leaf, or writes into it.
pub(crate) struct Hold<'l> {
    _inside: Inside<'l>,
    _lock: RwLockWriteGuard<'l, ()>,
}

impl Latch {
    /// Waits for whoever writes into the leaf.
    #[inline]
    pub(crate) fn look(&self) -> Look<'_> {
        let _lock = unless(Bug::LookUnlatched, || self.lock.read());
        Look { _inside: self.watch.enter(Way::Reading), _lock }
    }

    /// Waits for whoever looks at the leaf or writes into it.
    #[inline]
    pub(crate) fn hold(&self) -> Hold<'_> {
        let _lock = unless(Bug::LeafUnlatched, || self.lock.write());
        Hold { _inside: self.watch.enter(Way::Writing), _lock }
    }
}

impl Default for Latches {
    fn default() -> Self {
        Self(array::from_fn(|_| Apart::default()))
    }
}

impl Latches {
    /// The latch of the leaf at this address. Nobody waits for a second one while holding one.
    pub(crate) fn of(&self, address: usize) -> &Latch {
        // Leaves lie an odd number of lines apart.
        &self.0[(address / 64) % LATCHES].0
    }
}

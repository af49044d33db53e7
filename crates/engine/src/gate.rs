//! The gate: who may change what at the same time.
//!
//! Three ways lead through it:
//!
//! - *placing*: a write of one record into a leaf that stays where it is. Any number of them go on at once; two in the
//!   same leaf take turns at its latch.
//! - *alone*: the writer lock. Nobody places and nobody else is alone, and only whoever is may change the shape of a tree
//!   or let go of nodes.
//! - *still*: readers of more than one leaf, and whoever clones roots. Any number of them go on at once, and nobody places;
//!   from those who are alone the forest lock keeps them.
//!
//! A lookup of one key passes by the gate: the forest lock keeps shapes as they are, and the latch of the leaf what lies in it.
//!
//! A place of the gate is two locks in a cache line of their own, one for each of the other two ways. Who places takes its
//! thread's place; who is alone or wants stillness takes its lock of all places. So two who place on two
//! processors touch nothing in common here.
//!
//! Invariant: the content is changed under its mutex; `alone` holds that to the end, and who places only while it writes the log.
//! Invariant: locks are taken in order: against those who are alone, for stillness, the forest lock, a latch, the content.

use crate::threads::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::array;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many who place can go on at once. Whoever wants all pays for each.
pub(crate) const PLACES: usize = 4;

/// How often who places looks whether the content is free before it goes to sleep.
const SPINS: usize = 40;

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
}

thread_local! {
    /// Which place this thread takes; drawn at its first use.
    static PLACE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Places drawn so far.
static DRAWN: AtomicUsize = AtomicUsize::new(0);

/// The place of this thread.
#[inline]
pub(crate) fn own_place() -> usize {
    PLACE.with(|place| {
        if place.get() == usize::MAX {
            place.set(DRAWN.fetch_add(1, Ordering::Relaxed) % PLACES);
        }
        place.get()
    })
}

impl<T> Gate<T> {
    pub(crate) fn new(content: T) -> Self {
        Self { places: array::from_fn(|_| Apart::default()), content: Apart(Mutex::new(content)) }
    }

    /// The writer lock: waits until nobody places or is alone.
    pub(crate) fn alone(&self) -> Alone<'_, T> {
        let places = array::from_fn(|place| self.places[place].placing.write());
        Alone { content: self.content.lock(), _places: places }
    }

    /// The same, if nobody does or is.
    pub(crate) fn try_alone(&self) -> Option<Alone<'_, T>> {
        let [a, b, c, d] = self.places.each_ref().map(|place| place.placing.try_write());
        let content = self.content.try_lock()?;
        Some(Alone { content, _places: [a?, b?, c?, d?] })
    }

    /// Waits until nobody places, and keeps it so.
    pub(crate) fn still(&self) -> Still<'_> {
        Still { _places: array::from_fn(|place| self.places[place].still.read()) }
    }

    /// Waits until nobody is alone or wants stillness.
    pub(crate) fn placing(&self) -> Placing<'_, T> {
        let place = &self.places[own_place()];
        let (shared, own) = (place.placing.read(), place.still.write());
        Placing { gate: self, _own: own, _shared: shared }
    }
}

/// Nobody places, and nobody else is alone.
pub(crate) struct Alone<'g, T> {
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
    _places: [RwLockReadGuard<'g, ()>; PLACES],
}

/// Nobody is alone or wants stillness.
pub(crate) struct Placing<'g, T> {
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
pub(crate) struct Latches([Apart<RwLock<()>>; LATCHES]);

impl Default for Latches {
    fn default() -> Self {
        Self(array::from_fn(|_| Apart::default()))
    }
}

impl Latches {
    /// The latch of the leaf at this address. Nobody waits for a second one while holding one.
    pub(crate) fn of(&self, address: usize) -> &RwLock<()> {
        // Leaves lie an odd number of lines apart.
        &self.0[(address / 64) % LATCHES].0
    }
}

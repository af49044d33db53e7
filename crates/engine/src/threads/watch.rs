//! Watches: they detect two threads where only one may be, before anything is read or written there.
//!
//! Under the scheduler a thread runs from one lock to the next without interruption, so a missing lock
//! between two others would not show in the data. The watch detects it, and lets other threads run right
//! behind a door that should have been locked.

use super::{AtomicBool, Way};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Knows how threads are inside of something.
#[derive(Default)]
pub(crate) struct Watch {
    inside: Mutex<Vec<Way>>,
    /// Only loaded, so that the scheduler may switch threads here.
    door: AtomicBool,
}

/// A thread is inside until this is dropped.
pub(crate) struct Inside<'w> {
    watch: &'w Watch,
    way: Way,
}

impl Way {
    fn excludes(self, other: Self) -> bool {
        match self {
            Self::Reading => other == Self::Writing,
            Self::Writing => true,
            Self::Placing => matches!(other, Self::Still | Self::Alone),
            Self::Still => other == Self::Placing,
            Self::Alone => matches!(other, Self::Placing | Self::Alone),
        }
    }
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Enters.
    ///
    /// # Panics
    /// If a thread is inside that must not be: a lock is missing.
    pub(crate) fn enter(&self, way: Way) -> Inside<'_> {
        let found = {
            let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
            let found = inside.iter().copied().find(|&other| way.excludes(other));
            inside.push(way);
            found
        };
        let inside = Inside { watch: self, way };
        if let Some(other) = found {
            unreachable!("two are inside at once: {way:?} came in beside {other:?}");
        }
        self.door.load(Ordering::SeqCst);
        inside
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut inside = self.watch.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = inside.iter().position(|&way| way == self.way) {
            inside.swap_remove(at);
        }
    }
}

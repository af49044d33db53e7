//! Watches: they see two threads where only one may be, before anything is read or written there.
//!
//! Under the scheduler a thread goes on from one lock to the next by itself, so a lock that is missing
//! between them would not show in what is read. The watch shows it, and lets others in right behind a door
//! that should be locked.

use super::{AtomicBool, Way};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// Knows who is inside of something.
#[derive(Default)]
pub(crate) struct Watch {
    inside: Mutex<Vec<Way>>,
    /// Only looked at: who does may be made to wait.
    door: AtomicBool,
}

/// Somebody is inside, until this goes.
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

    /// Goes inside.
    ///
    /// # Panics
    /// If somebody is there who must not be: a lock is missing.
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

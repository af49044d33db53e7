//! What was written and is to be looked at, in this round or in the next ones.
//!
//! Invariant: whoever watches what was written is looked at after that, once each time that it comes to it, and nobody is
//! passed over.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The watches of a key: those of a field stand together, in the order in which they began.
pub(super) type OfKey = BTreeSet<(Arc<[u8]>, u64)>;

/// Watches by the place of their key.
pub(super) type ByPlace = HashMap<Arc<[u8]>, OfKey>;

/// What was written and is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Places of keys, the first one first.
    order: VecDeque<Arc<[u8]>>,
    /// Each of these, and whether it was written again after some of its watches had been looked at.
    again: HashMap<Arc<[u8]>, bool>,
    /// The last watch that was looked at, of the first place.
    last: Option<(Arc<[u8]>, u64)>,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All watches of a key are to be looked at.
    pub(super) fn add(&mut self, place: &Arc<[u8]>) {
        match self.again.get_mut(place) {
            Some(again) => *again |= self.last.is_some() && self.order.front() == Some(place),
            None => {
                self.again.insert(Arc::clone(place), false);
                self.order.push_back(Arc::clone(place));
            }
        }
    }

    /// The next watch to look at.
    pub(super) fn next(&mut self, by_place: &ByPlace) -> Option<u64> {
        loop {
            let place = self.order.front()?;
            let behind = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let next = by_place.get(place).and_then(|of_key| of_key.range((behind, Bound::Unbounded)).next());
            if let Some(next) = next {
                self.last = Some(next.clone());
                return Some(next.1);
            }
            self.last = None;
            let place = self.order.pop_front()?;
            if self.again.remove(&place) == Some(true) {
                // Others come first: whoever writes to it in each round would have all the looks.
                self.add(&place);
            }
        }
    }
}

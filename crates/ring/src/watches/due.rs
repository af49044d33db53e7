//! What was written and is to be looked at, in this round or in the next ones.
//!
//! Invariant: whoever watches what was written is looked at after that, once each time that it comes to it,
//! and nobody is passed over.

use super::touched::Fields;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The watches of a key: those of a field stand together, in the order in which they began.
pub(super) type OfKey = BTreeSet<(Arc<[u8]>, u64)>;

/// Watches by the place of their key.
pub(super) type ByPlace = HashMap<Arc<[u8]>, OfKey>;

/// A key, or a field of it.
pub(super) type Part = (Arc<[u8]>, Option<Arc<[u8]>>);

/// What was written and is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// The first one first.
    order: VecDeque<Part>,
    /// Each of these, and whether it was written again after some of its watches had been looked at.
    again: HashMap<Part, bool>,
    /// The last watch that was looked at, of the first part.
    last: Option<(Arc<[u8]>, u64)>,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All watches of a key are to be looked at, or those of some fields.
    pub(super) fn add(&mut self, place: &Arc<[u8]>, of_key: &OfKey, fields: &Fields) {
        let Fields::These(fields) = fields else {
            return self.add_part((Arc::clone(place), None));
        };
        for field in fields {
            let first = (Arc::clone(field), 0);
            if of_key.range(&first..).next().is_some_and(|(watched, _)| watched == field) {
                self.add_part((Arc::clone(place), Some(Arc::clone(field))));
            }
        }
    }

    fn add_part(&mut self, part: Part) {
        match self.again.get_mut(&part) {
            Some(again) => *again |= self.last.is_some() && self.order.front() == Some(&part),
            None => {
                self.again.insert(part.clone(), false);
                self.order.push_back(part);
            }
        }
    }

    /// The next watch to look at.
    pub(super) fn next(&mut self, by_place: &ByPlace) -> Option<u64> {
        loop {
            let (place, field) = self.order.front()?;
            let first = field.as_ref().map(|field| (Arc::clone(field), 0));
            let from = match (&self.last, &first) {
                (Some(last), _) => Bound::Excluded(last),
                (None, Some(first)) => Bound::Included(first),
                (None, None) => Bound::Unbounded,
            };
            let next = by_place.get(place).and_then(|of_key| of_key.range((from, Bound::Unbounded)).next());
            if let Some(next) =
                next.filter(|(watched, _)| field.as_ref().is_none_or(|field| field == watched))
            {
                self.last = Some(next.clone());
                return Some(next.1);
            }
            self.last = None;
            let part = self.order.pop_front()?;
            if self.again.remove(&part) == Some(true) {
                // Others come first: whoever writes to it in each round would have all the looks.
                self.add_part(part);
            }
        }
    }
}

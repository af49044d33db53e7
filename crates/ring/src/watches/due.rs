//! What was written and is to be checked, in this round or in later ones.
//!
//! Invariant: every watch on what was written is checked after the write, once each time that its turn comes,
//! and none is skipped.

use super::touched::Fields;
use super::watch::Target;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The watches of a key. Those of one target stand together, oldest first.
pub(super) type OfKey = BTreeSet<(Target, u64)>;

/// Watches by their key, prefixed with its keyspace.
pub(super) type ByPlace = HashMap<Arc<[u8]>, OfKey>;

/// A key, or one target of it.
pub(super) type Part = (Arc<[u8]>, Option<Target>);

/// What was written and is to be checked.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// In the order in which they are checked.
    order: VecDeque<Part>,
    /// Each of these, and whether it was written again after some of its watches had been checked.
    again: HashMap<Part, bool>,
    /// The last watch that was checked, of the first part.
    last: Option<(Target, u64)>,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Queues all watches of a key, or those that a write to some fields is about.
    pub(super) fn add(&mut self, place: &Arc<[u8]>, of_key: &OfKey, fields: &Fields) {
        let Fields::These(fields) = fields else {
            return self.add_part((Arc::clone(place), None));
        };
        // Whoever waits for a string learns that its key may be a hash by now.
        if of_key.first().is_some_and(|(watched, _)| *watched == Target::String) {
            self.add_part((Arc::clone(place), Some(Target::String)));
        }
        for field in fields {
            let first = (Target::Field(Arc::clone(field)), 0);
            if of_key.range(&first..).next().is_some_and(|(watched, _)| *watched == first.0) {
                self.add_part((Arc::clone(place), Some(first.0)));
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

    /// The next watch to check.
    pub(super) fn next(&mut self, by_place: &ByPlace) -> Option<u64> {
        loop {
            let (place, target) = self.order.front()?;
            let first = target.as_ref().map(|target| (target.clone(), 0));
            let from = match (&self.last, &first) {
                (Some(last), _) => Bound::Excluded(last),
                (None, Some(first)) => Bound::Included(first),
                (None, None) => Bound::Unbounded,
            };
            let next = by_place.get(place).and_then(|of_key| of_key.range((from, Bound::Unbounded)).next());
            if let Some(next) =
                next.filter(|(watched, _)| target.as_ref().is_none_or(|target| target == watched))
            {
                self.last = Some(next.clone());
                return Some(next.1);
            }
            self.last = None;
            let part = self.order.pop_front()?;
            if self.again.remove(&part) == Some(true) {
                // Back of the queue: a writer that writes to it in every round would get all the checks.
                self.add_part(part);
            }
        }
    }
}

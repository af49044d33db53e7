//! Who has which slot, for all slots: many, of which few change at a time.
//!
//! Invariant: a copy shares with its original all that neither has changed since, so that a table for each change costs little.

use crate::{Configuration, Slot};
use std::sync::Arc;

/// Slots that are kept, and copied when one of them changes, together.
const TOGETHER: usize = 128;

/// The configurations of all slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configurations {
    parts: Vec<Arc<Vec<Configuration>>>,
}

impl Configurations {
    /// So many slots that nobody has.
    #[must_use]
    pub fn nobodys(count: u32) -> Self {
        let count = count as usize;
        let part = |from: usize| Arc::new(vec![Configuration::default(); TOGETHER.min(count - from)]);
        Self { parts: (0..count).step_by(TOGETHER).map(part).collect() }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        let last = self.parts.last().map_or(0, |part| part.len());
        self.parts.len().saturating_sub(1) * TOGETHER + last
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// That of one slot.
    #[must_use]
    pub fn get(&self, slot: usize) -> Option<&Configuration> {
        self.parts.get(slot / TOGETHER)?.get(slot % TOGETHER)
    }

    /// That of one slot, to be changed.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Configuration> {
        Arc::make_mut(self.parts.get_mut(slot / TOGETHER)?).get_mut(slot % TOGETHER)
    }

    /// All of them, from slot 0 on.
    pub fn iter(&self) -> impl Iterator<Item = &Configuration> {
        self.parts.iter().flat_map(|part| part.iter())
    }

    /// All of them, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Configuration> {
        self.parts.iter_mut().flat_map(|part| Arc::make_mut(part).iter_mut())
    }

    /// The slots that are not as they are in another table, as they are here.
    pub fn changed<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (Slot, Configuration)> + 'a {
        let parts = self.parts.iter().enumerate();
        let other =
            parts.filter(|(at, part)| before.parts.get(*at).is_none_or(|before| !Arc::ptr_eq(before, part)));
        other.flat_map(move |(at, part)| {
            let slots = part.iter().enumerate().map(move |(behind, now)| (at * TOGETHER + behind, *now));
            let changed = slots.filter(|(slot, now)| before.get(*slot) != Some(now));
            changed.map(|(slot, now)| (Slot(slot as u32), now))
        })
    }
}

impl<'a> IntoIterator for &'a Configurations {
    type Item = &'a Configuration;
    type IntoIter = Box<dyn Iterator<Item = &'a Configuration> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl<'a> IntoIterator for &'a mut Configurations {
    type Item = &'a mut Configuration;
    type IntoIter = Box<dyn Iterator<Item = &'a mut Configuration> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    #[test]
    fn what_changed_is_found_and_nothing_else() {
        let before = Configurations::nobodys(300);
        let mut after = before.clone();
        for slot in [0, 127, 128, 299] {
            after.get_mut(slot).unwrap().epoch = Epoch(7);
        }
        let changed: Vec<_> = after.changed(&before).map(|(slot, _)| slot.0).collect();
        assert_eq!(changed, [0, 127, 128, 299]);
        assert_eq!((before.len(), after.len(), after.iter().count()), (300, 300, 300));
        assert!(before.iter().all(|configuration| configuration.epoch == Epoch(0)), "the original stays");
        assert_eq!(after.changed(&Configurations::default()).count(), 300);
        assert!(after.get(300).is_none() && Configurations::nobodys(0).is_empty());
    }
}

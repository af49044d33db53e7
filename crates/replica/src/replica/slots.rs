//! The copies of a node by slot, in constant time: each request looks up several.
//!
//! Invariant: nothing iterates over all of them: there are thousands, and few change at a time.

use crate::Slot;
use crate::copy::Replicated;

/// Copies by slot.
#[derive(Debug, Default)]
pub(super) struct Slots(Vec<Option<Box<Replicated>>>);

impl Slots {
    pub(super) fn get(&self, slot: Slot) -> Option<&Replicated> {
        self.0.get(slot.0 as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Replicated> {
        self.0.get_mut(slot.0 as usize)?.as_deref_mut()
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        self.get(slot).is_some()
    }

    /// Adds a copy, or replaces the one that the slot had.
    pub(super) fn insert(&mut self, copy: Replicated) {
        let place = copy.slot.0 as usize;
        if place >= self.0.len() {
            self.0.resize_with(place + 1, || None);
        }
        if let Some(there) = self.0.get_mut(place) {
            *there = Some(Box::new(copy));
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Box<Replicated>> {
        self.0.get_mut(slot.0 as usize)?.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Found;

    #[test]
    fn copies_are_found_by_their_slots() {
        let mut slots = Slots::default();
        for slot in [7, 2, 5] {
            slots.insert(Replicated::new(1, Found::nothing(Slot(slot))));
        }
        assert!(slots.has(Slot(5)) && !slots.has(Slot(6)) && !slots.has(Slot(u32::MAX)));
        assert_eq!(slots.get_mut(Slot(2)).map(|copy| copy.slot), Some(Slot(2)));
        assert_eq!(slots.remove(Slot(7)).map(|copy| copy.slot), Some(Slot(7)));
        assert!(slots.remove(Slot(7)).is_none() && slots.remove(Slot(9)).is_none());
    }
}

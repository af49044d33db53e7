//! Prefetching: the memory that commands are about to touch is requested before they are evaluated, for
//! several commands at once.

use super::Keyspace;
use crate::cell::push_head;
use crate::slot_of;
use atoll_buffer::bring_nearer;

/// Most keys that are prefetched together.
pub const NEAR_AT_ONCE: usize = 16;

impl Keyspace {
    /// Prefetches the memory that commands on these keys will touch, so that their cache misses overlap. Only
    /// the first [`NEAR_AT_ONCE`] keys are considered, and it takes at least two to gain from it.
    pub fn bring_nearer(&mut self, keys: &[&[u8]]) {
        let keys = &keys[..keys.len().min(NEAR_AT_ONCE)];
        self.prefetch_names.clear();
        let mut lengths = [0; NEAR_AT_ONCE];
        for (key, length) in keys.iter().zip(&mut lengths) {
            let (before, slot) = (self.prefetch_names.len(), slot_of(key));
            self.slots.get(usize::from(slot)).iter().for_each(|state| bring_nearer(*state));
            push_head(&mut self.prefetch_names, slot, key);
            *length = self.prefetch_names.len() - before;
        }
        let mut rest = self.prefetch_names.as_slice();
        let mut names: [&[u8]; NEAR_AT_ONCE] = [&[]; NEAR_AT_ONCE];
        for (name, length) in names.iter_mut().zip(lengths) {
            (*name, rest) = rest.split_at(length);
        }
        self.tree.bring_nearer(&names[..keys.len()]);
    }
}

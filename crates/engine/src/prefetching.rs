//! Prefetches what requests are about to touch, for many keys at once.
//!
//! On the way to a value each step finds the place of the next: the leaf, the record, the place of the chain,
//! its piece, the bytes. Each step may be a wait for memory. Taken for all keys before the next step, the
//! waits of one step overlap.
//!
//! Invariant: nothing is changed, read from disk or reported: executing the requests does all of that.

use crate::checksum::key_hash;
use crate::engine::Tree;
use crate::leaf::{HEAD_LINES, Leaf, SharedLeaf};
use crate::search::{self, LANES};
use crate::shared::Shared;
use crate::tree::HashedKey;

/// How far to go towards values that lie outside of their leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrefetchDepth {
    /// To both ends of their bytes.
    Bytes,
    /// To the piece, which knows where the bytes are.
    Piece,
}

/// The leaf of a key and, depending on the step, the key's fingerprint or slot.
type Lane<'f> = Option<(&'f SharedLeaf, usize)>;

impl Tree {
    /// Prefetches what lookups, puts and appends of these keys will touch, as far as it is in memory. Worth
    /// while for two keys or more.
    pub fn bring_nearer<K: AsRef<[u8]>>(&self, keys: &[K]) {
        self.engine.shared.bring_nearer(self.id(), keys, PrefetchDepth::Bytes);
    }
}

impl Shared {
    /// Prefetches the record that a key most likely has, once the first lines of its leaf have arrived.
    /// Returns its slot, if the value may lie outside of the leaf.
    pub(crate) fn bring_record_nearer(&self, leaf: &SharedLeaf, key: &HashedKey<'_>) -> Option<usize> {
        // A concurrent writer of the leaf holds the latch.
        let _latch = self.latches.of(leaf.address()).look();
        leaf.bring_record_nearer(key.fingerprint)
    }

    /// Prefetches the chain of that record's value, once the record has arrived.
    pub(crate) fn bring_chain_nearer(&self, leaf: &SharedLeaf, slot: Option<usize>) {
        let Some(slot) = slot else { return };
        let _latch = self.latches.of(leaf.address()).look();
        leaf.bring_nearer(slot, Leaf::prefetch_chain);
    }

    /// Prefetches what changes of these keys will touch, in the tree of this number.
    pub(crate) fn bring_nearer<K: AsRef<[u8]>>(&self, tree: u32, keys: &[K], depth: PrefetchDepth) {
        let forest = self.forest.read();
        let Some(tree) = forest.tree(tree) else { return };
        for keys in keys.chunks(LANES) {
            let mut lanes: [Lane<'_>; LANES] = [None; LANES];
            for (key, lane) in keys.iter().zip(&mut lanes) {
                let leaf = search::leaf_of(&tree.root, key.as_ref()).ok();
                leaf.iter().for_each(|leaf| leaf.prefetch(HEAD_LINES));
                *lane = leaf.map(|leaf| (leaf, key_hash(key.as_ref()).into()));
            }
            let mut step = |step: &dyn Fn(&Leaf, usize) -> Option<usize>| {
                for lane in &mut lanes {
                    *lane = lane.and_then(|(leaf, known)| {
                        // A concurrent writer of the leaf holds the latch.
                        let _latch = self.latches.of(leaf.address()).look();
                        Some((leaf, step(leaf, known)?))
                    });
                }
            };
            step(&|leaf, fingerprint| leaf.bring_record_nearer(fingerprint as u8));
            step(&|leaf, slot| leaf.bring_nearer(slot, Leaf::prefetch_chain));
            step(&|leaf, slot| leaf.bring_nearer(slot, Leaf::prefetch_piece));
            if depth == PrefetchDepth::Bytes {
                step(&|leaf, slot| leaf.bring_nearer(slot, Leaf::prefetch_ends));
            }
        }
    }
}

impl Leaf {
    /// Prefetches the record that a key with this fingerprint most likely has, or the place for a new one.
    /// Returns the slot, if the value may lie outside of the leaf.
    fn bring_record_nearer(&self, fingerprint: u8) -> Option<usize> {
        let slot = self.likely_slot(fingerprint);
        match slot {
            Some(slot) => self.prefetch_record(slot),
            None => self.prefetch_heap_end(),
        }
        slot.filter(|_| self.has_chains())
    }

    /// Takes one more step from a slot, if there is still a slot of this number whose value lies outside of
    /// the leaf.
    fn bring_nearer(&self, slot: usize, step: impl Fn(&Self, usize)) -> Option<usize> {
        let is_worth_it = slot < self.len() && self.leads_out(slot);
        is_worth_it.then(|| step(self, slot))?;
        Some(slot)
    }
}

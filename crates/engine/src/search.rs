//! Point lookups in one tree, one by one and in batches with prefetch.
//!
//! A lookup answers at once from memory, or says which node it misses. The caller decides whether to read
//! it here and now, on another thread, or not at all.

use crate::backing::Backing;
use crate::checksum::key_hash;
use crate::delta::Delta;
use crate::leaf::{HEAD_LINES, SLOT_LINES, SharedLeaf};
use crate::node::{Home, Inner, Node};
use crate::slot::Slot;
use crate::tree::HashedKey;
use crate::value::Stored;
use std::sync::Arc;

/// A node that is not in memory: a child of `parent`, or the root itself.
pub(crate) struct Missing {
    pub(crate) parent: Option<Arc<Inner>>,
    pub(crate) child: usize,
}

/// How far a lookup came that reads as little as it can.
pub(crate) enum Sought {
    /// It has to read the leaf as any other.
    Elsewhere,
    /// What it may be among is in memory now.
    Nearer,
    /// If anywhere, it is in this leaf.
    In(SharedLeaf),
}

impl Missing {
    pub(crate) const ROOT: Self = Self { parent: None, child: 0 };

    /// How many inner nodes lie above it.
    pub(crate) fn level(&self) -> u8 {
        self.parent.as_ref().map_or(0, |parent| parent.level().saturating_add(1))
    }

    /// Shows the value of a key that was put beside the missing leaf, or looked up there; none if it was not.
    pub(crate) fn find_beside<R>(&self, key: &[u8], show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.parent.as_ref()?.children[self.child].records_in_memory()?.find(key, show)
    }

    /// Reads what was put beside the missing leaf, which cannot be read, and is not in memory; whether there
    /// was any, so that it is worth to look once more.
    pub(crate) fn bring_in_beside(&self, backing: &Backing) -> bool {
        let slot = self.parent.as_ref().and_then(|parent| parent.children.get(self.child));
        // What is wrong with the leaf says more than what is wrong with what lies beside.
        slot.is_some_and(|slot| slot.bring_in_beside(backing).unwrap_or(false))
    }

    /// Puts the missing node, just read, in its place; should another reader have been faster, its copy
    /// stays.
    pub(crate) fn keep(&self, node: Node) {
        if let Some(parent) = &self.parent {
            parent.children[self.child].keep(node);
        }
    }

    /// Where records of the missing leaf are kept that are looked up, and where it lies, if all of it is on
    /// disk.
    pub(crate) fn apart(&self, needs_second: bool, backing: &Backing) -> Option<(&Delta, Home)> {
        let (delta, home) = self.parent.as_ref()?.children[self.child].apart(needs_second, backing)?;
        Some((delta, home))
    }
}

/// The leaf whose range holds `key`.
pub(crate) fn leaf_of<'a>(root: &'a Slot, key: &[u8]) -> Result<&'a SharedLeaf, Missing> {
    let mut node = root.get().ok_or(Missing::ROOT)?;
    loop {
        match node {
            Node::Leaf(leaf) => return Ok(leaf),
            Node::Inner(inner) => {
                let child = inner.child_of(key);
                node = inner.children[child]
                    .get()
                    .ok_or_else(|| Missing { parent: Some(Arc::clone(inner)), child })?;
            }
        }
    }
}

/// Whether the slot of the leaf whose range holds `key` is known to be one of a leaf, resident or not.
pub(crate) fn is_leaf_known(root: &Slot, key: &[u8]) -> bool {
    match leaf_of(root, key) {
        Ok(_) => true,
        Err(Missing { parent, .. }) => parent.is_some_and(|parent| parent.has_leaves()),
    }
}

/// The slot of the leaf whose range holds `key`, or of the first node on the way that is missing.
pub(crate) fn slot_of<'a>(root: &'a Slot, key: &[u8]) -> &'a Slot {
    let mut slot = root;
    while let Some(inner) = slot.inner() {
        slot = &inner.children[inner.child_of(key)];
    }
    slot
}

/// The value of `key`, for whoever is alone in the gate or has asked for stillness.
pub(crate) fn get<'a>(root: &'a Slot, key: &[u8]) -> Result<Option<Stored<'a>>, Missing> {
    let leaf = leaf_of(root, key)?;
    leaf.prefetch(SLOT_LINES);
    Ok(get_in(leaf, key))
}

/// The value of `key` in the leaf whose range holds it, whose first lines were asked for.
pub(crate) fn get_in<'a>(leaf: &'a SharedLeaf, key: &[u8]) -> Option<Stored<'a>> {
    leaf.counted.note_use();
    leaf.value_of(key)
}

/// Keys that are looked up together.
pub(crate) const LANES: usize = 16;

/// Looks up at most [`LANES`] keys together, so that their misses in memory overlap.
///
/// Calls `found` for each key in order, up to the first that misses a node; how many were answered.
pub(crate) fn get_lanes<K: AsRef<[u8]>>(
    root: &Slot,
    keys: &[K],
    mut found: impl FnMut(usize, Option<Stored<'_>>),
) -> (usize, Option<Missing>) {
    let mut leaves: [Option<(&SharedLeaf, u8)>; LANES] = [None; LANES];
    let mut missing = None;
    let mut ready = 0;
    for (key, lane) in keys.iter().zip(&mut leaves) {
        match leaf_of(root, key.as_ref()) {
            Ok(leaf) => {
                leaf.prefetch(SLOT_LINES);
                *lane = Some((leaf, key_hash(key.as_ref())));
                ready += 1;
            }
            Err(miss) => {
                missing = Some(miss);
                break;
            }
        }
    }
    for (leaf, fingerprint) in leaves.iter().flatten() {
        if let Some(slot) = leaf.likely_slot(*fingerprint) {
            leaf.prefetch_record(slot);
        }
    }
    for (index, (lane, key)) in leaves.iter().zip(keys).enumerate().take(ready) {
        if let Some((leaf, fingerprint)) = lane {
            leaf.counted.note_use();
            let slot = leaf.find(key.as_ref(), *fingerprint);
            found(index, slot.map(|slot| leaf.value(slot)));
        }
    }
    (ready, missing)
}

/// How many inner nodes lie on the way to the leaf of `key`, as far as they are resident.
pub(crate) fn depth_of(root: &Slot, key: &[u8]) -> usize {
    let way = std::iter::successors(root.inner(), |inner| inner.children[inner.child_of(key)].inner());
    way.count()
}

/// Levels of inner nodes that a way remembers: those of 512^4 leaves.
const WAY_LEVELS: usize = 4;

/// Which child led to a leaf, level by level from the root, and which slot of it to a record: guesses as soon
/// as the tree changed.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    children: [u16; WAY_LEVELS],
    slot: u16,
}

impl Default for Way {
    fn default() -> Self {
        Self { children: [u16::MAX; WAY_LEVELS], slot: u16::MAX }
    }
}

impl Way {
    /// The child to try first; one that no node has where nothing is known.
    #[inline]
    pub(crate) fn child_at(&self, level: usize) -> usize {
        self.children.get(level).map_or(usize::MAX, |&child| child.into())
    }

    /// One that knows a slot and nothing above it.
    #[cfg(test)]
    pub(crate) fn to_slot(slot: u16) -> Self {
        Self { slot, ..Self::default() }
    }

    /// As [`Way::child_at`], for the slot.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot.into()
    }
}

/// Brings nearer what puts of these keys (at most [`LANES`], in ascending order) will touch, step by step for
/// all of them at once: the slots that hold the ways to the leaves, the beginnings of the leaves, the
/// records. `depth` is how many inner nodes lie above the leaves. Keeps the ways, so that they need not be
/// found again.
pub(crate) fn prefetch_for_puts(root: &Slot, depth: usize, items: &mut [(HashedKey<'_>, Stored<'_>)]) {
    let mut slots: [Option<&Slot>; LANES] = [None; LANES];
    let mut before = Way::default();
    for ((key, _), lane) in items.iter_mut().zip(&mut slots) {
        *lane = slot_below(root, depth, key, &before);
        before = key.way;
    }
    let mut leaves: [Option<&SharedLeaf>; LANES] = [None; LANES];
    for (slot, lane) in slots.iter().zip(&mut leaves) {
        if let Some(Node::Leaf(leaf)) = slot.and_then(Slot::get) {
            leaf.prefetch(HEAD_LINES);
            *lane = Some(leaf);
        }
    }
    for (leaf, (key, _)) in leaves.iter().zip(items) {
        if let Some(slot) = leaf.and_then(|leaf| leaf.prefetch_for_put(key.bytes)) {
            key.way.slot = slot as u16;
        }
    }
}

/// The slot on the way to `key` below `depth` inner nodes, which is not looked at but brought nearer; `None`
/// if a node on the way is not resident. The way is tried first that led to the key before.
fn slot_below<'a>(root: &'a Slot, depth: usize, key: &mut HashedKey<'_>, before: &Way) -> Option<&'a Slot> {
    let mut slot = root;
    // Two keys share the node of a level only if they share all above it.
    let mut shares_node = true;
    for level in 0..depth {
        let inner = slot.inner()?;
        let guess = if shares_node { before.child_at(level) } else { usize::MAX };
        let child = inner.child_near(key.bytes, guess);
        shares_node &= child == guess;
        if let Some(kept) = key.way.children.get_mut(level) {
            *kept = child as u16;
        }
        slot = &inner.children[child];
    }
    Some(slot)
}

//! Point lookups in one tree, one by one and in batches with prefetch.
//!
//! A lookup is answered at once from memory, or says which node it misses. The caller decides whether to read
//! that node here and now, on another thread, or not at all.

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
pub(crate) struct MissingNode {
    pub(crate) parent: Option<Arc<Inner>>,
    pub(crate) child: usize,
}

/// Outcome of a lookup that reads as little as possible.
pub(crate) enum Sought {
    /// The leaf has to be read in the ordinary way.
    Elsewhere,
    /// The records that the key may be among are now in memory.
    Nearer,
    /// The key is in this leaf, if anywhere.
    In(SharedLeaf),
}

impl MissingNode {
    pub(crate) const ROOT: Self = Self { parent: None, child: 0 };

    /// Number of inner nodes above it.
    pub(crate) fn level(&self) -> u8 {
        self.parent.as_ref().map_or(0, |parent| parent.level().saturating_add(1))
    }

    /// Shows the value of a key that was put beside the missing leaf, or looked up there; none if it was
    /// neither.
    pub(crate) fn find_beside<R>(&self, key: &[u8], show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.parent.as_ref()?.children[self.child].records_in_memory()?.find(key, show)
    }

    /// Reads the records beside the missing leaf, which cannot be read, unless they are in memory. Returns
    /// whether there were any, so that it is worth while to look once more.
    pub(crate) fn bring_in_beside(&self, backing: &Backing) -> bool {
        let slot = self.parent.as_ref().and_then(|parent| parent.children.get(self.child));
        // An error about the leaf says more than one about what lies beside it.
        slot.is_some_and(|slot| slot.bring_in_beside(backing).unwrap_or(false))
    }

    /// Puts the missing node, just read, into its slot. If another reader was faster, that reader's copy
    /// stays.
    pub(crate) fn keep(&self, node: Node) {
        if let Some(parent) = &self.parent {
            parent.children[self.child].keep(node);
        }
    }

    /// Where records of the missing leaf are kept that are looked up, and its home, if all of it is on disk.
    pub(crate) fn apart(&self, needs_second: bool, backing: &Backing) -> Option<(&Delta, Home)> {
        let (delta, home) = self.parent.as_ref()?.children[self.child].apart(needs_second, backing)?;
        Some((delta, home))
    }
}

/// The leaf whose range holds `key`.
pub(crate) fn leaf_of<'a>(root: &'a Slot, key: &[u8]) -> Result<&'a SharedLeaf, MissingNode> {
    let mut node = root.get().ok_or(MissingNode::ROOT)?;
    loop {
        match node {
            Node::Leaf(leaf) => return Ok(leaf),
            Node::Inner(inner) => {
                let child = inner.child_of(key);
                node = inner.children[child]
                    .get()
                    .ok_or_else(|| MissingNode { parent: Some(Arc::clone(inner)), child })?;
            }
        }
    }
}

/// Whether the node whose range holds `key` is known to be a leaf, resident or not.
pub(crate) fn is_leaf_known(root: &Slot, key: &[u8]) -> bool {
    match leaf_of(root, key) {
        Ok(_) => true,
        Err(MissingNode { parent, .. }) => parent.is_some_and(|parent| parent.has_leaves()),
    }
}

/// The slot of the leaf whose range holds `key`, or of the first missing node on the path.
pub(crate) fn slot_of<'a>(root: &'a Slot, key: &[u8]) -> &'a Slot {
    let mut slot = root;
    while let Some(inner) = slot.inner() {
        slot = &inner.children[inner.child_of(key)];
    }
    slot
}

/// The value of `key`, for a caller that holds the gate's *alone* or *still*.
pub(crate) fn get<'a>(root: &'a Slot, key: &[u8]) -> Result<Option<Stored<'a>>, MissingNode> {
    let leaf = leaf_of(root, key)?;
    leaf.prefetch(SLOT_LINES);
    Ok(get_in(leaf, key))
}

/// The value of `key` in the leaf whose range holds it; the leaf's first lines have been prefetched.
pub(crate) fn get_in<'a>(leaf: &'a SharedLeaf, key: &[u8]) -> Option<Stored<'a>> {
    leaf.counted.note_use();
    leaf.value_of(key)
}

/// Keys that are looked up together.
pub(crate) const LANES: usize = 16;

/// Looks up at most [`LANES`] keys together, so that their cache misses overlap.
///
/// Calls `found` for each key in order, up to the first that misses a node, and returns the number of calls.
pub(crate) fn get_lanes<K: AsRef<[u8]>>(
    root: &Slot,
    keys: &[K],
    mut found: impl FnMut(usize, Option<Stored<'_>>),
) -> (usize, Option<MissingNode>) {
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

/// Number of inner nodes on the path to the leaf of `key`, as far as they are resident.
pub(crate) fn depth_of(root: &Slot, key: &[u8]) -> usize {
    let way = std::iter::successors(root.inner(), |inner| inner.children[inner.child_of(key)].inner());
    way.count()
}

/// Levels of inner nodes that a way remembers: enough for 512^4 leaves.
const WAY_LEVELS: usize = 4;

/// The children that led to a leaf, level by level from the root, and the slot in it that led to a record.
/// They are only guesses as soon as the tree changes.
#[derive(Clone, Copy)]
pub(crate) struct PathHint {
    children: [u16; WAY_LEVELS],
    slot: u16,
}

impl Default for PathHint {
    fn default() -> Self {
        Self { children: [u16::MAX; WAY_LEVELS], slot: u16::MAX }
    }
}

impl PathHint {
    /// The child to try first; an index that no node has where nothing is known.
    #[inline]
    pub(crate) fn child_at(&self, level: usize) -> usize {
        self.children.get(level).map_or(usize::MAX, |&child| child.into())
    }

    /// A way that knows a slot, and no child above it.
    #[cfg(test)]
    pub(crate) fn to_slot(slot: u16) -> Self {
        Self { slot, ..Self::default() }
    }

    /// The slot to try first, as [`PathHint::child_at`].
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot.into()
    }
}

/// Prefetches what puts of these keys (at most [`LANES`], in ascending order) will touch, step by step for
/// all of them at once: the slots on the paths to the leaves, the beginnings of the leaves, the records.
/// `depth` is the number of inner nodes above the leaves. The ways are kept, so that they need not be
/// searched again.
pub(crate) fn prefetch_for_puts(root: &Slot, depth: usize, items: &mut [(HashedKey<'_>, Stored<'_>)]) {
    let mut slots: [Option<&Slot>; LANES] = [None; LANES];
    let mut before = PathHint::default();
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

/// The slot on the path to `key` below `depth` inner nodes, prefetched but not read; `None` if a node on the
/// path is not resident. The way of the key before is tried first.
fn slot_below<'a>(
    root: &'a Slot,
    depth: usize,
    key: &mut HashedKey<'_>,
    before: &PathHint,
) -> Option<&'a Slot> {
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

//! Point lookups in one tree, one by one and in batches with prefetch.
//!
//! A lookup is answered at once from memory, or says which node it misses. The caller decides whether to read
//! that node here and now, on another thread, or not at all.
//!
//! Invariant: who waits for a node to be read holds none of the nodes above it. Otherwise writers would have
//! to replace these, and the node would come to a place that has left the trees.

use crate::backing::Backing;
use crate::checksum::key_hash;
use crate::leaf::{HEAD_LINES, SLOT_LINES, SharedLeaf};
use crate::node::{Inner, Node};
use crate::slot::Slot;
use crate::tree::HashedKey;
use crate::value::Stored;

/// The place of a node that is not in memory.
#[derive(Clone, Copy)]
pub(crate) struct Absent<'a> {
    pub(crate) slot: &'a Slot,
    /// The node that has the slot; none for a root.
    pub(crate) parent: Option<&'a Inner>,
}

/// A node that was found absent: how it is read, and a key by which its place is found again.
pub(crate) struct MissingNode {
    /// A copy of the slot.
    pub(crate) slot: Slot,
    /// Number of inner nodes above it.
    pub(crate) level: u8,
    pub(crate) key: Vec<u8>,
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

impl<'a> Absent<'a> {
    pub(crate) fn root(slot: &'a Slot) -> Self {
        Self { slot, parent: None }
    }

    /// Shows the value of a key that was put beside the absent leaf, or looked up there; none if it was
    /// neither.
    pub(crate) fn find_beside<R>(&self, key: &[u8], show: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.parent?;
        self.slot.records_in_memory()?.find(key, show)
    }

    /// What is needed to read the node once the trees are not held any more. `key` is one of its range.
    pub(crate) fn to_read(self, key: &[u8]) -> MissingNode {
        let level = self.parent.map_or(0, |parent| parent.level().saturating_add(1));
        MissingNode { slot: self.slot.unread(), level, key: key.to_vec() }
    }
}

impl MissingNode {
    pub(crate) fn is_root(&self) -> bool {
        self.level == 0
    }

    /// Reads the records beside the missing leaf, which cannot be read, unless they are in memory. Returns
    /// whether there were any, so that it is worth while to look once more.
    pub(crate) fn bring_in_beside(&self, backing: &Backing) -> bool {
        // An error about the leaf says more than one about what lies beside it.
        !self.is_root() && self.slot.bring_in_beside(backing).unwrap_or(false)
    }
}

/// The leaf whose range holds `key`.
pub(crate) fn leaf_of<'a>(root: &'a Slot, key: &[u8]) -> Result<&'a SharedLeaf, Absent<'a>> {
    let mut node = root.get().ok_or(Absent::root(root))?;
    loop {
        match node {
            Node::Leaf(leaf) => return Ok(leaf),
            Node::Inner(inner) => {
                let slot = &inner.children[inner.child_of(key)];
                node = slot.get().ok_or(Absent { slot, parent: Some(inner) })?;
            }
        }
    }
}

/// Whether the node whose range holds `key` is known to be a leaf, resident or not.
pub(crate) fn is_leaf_known(root: &Slot, key: &[u8]) -> bool {
    match leaf_of(root, key) {
        Ok(_) => true,
        Err(Absent { parent, .. }) => parent.is_some_and(Inner::has_leaves),
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
pub(crate) fn get<'a>(root: &'a Slot, key: &[u8]) -> Result<Option<Stored<'a>>, Absent<'a>> {
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
) -> usize {
    let mut leaves: [Option<(&SharedLeaf, u8)>; LANES] = [None; LANES];
    let mut ready = 0;
    for (key, lane) in keys.iter().zip(&mut leaves) {
        let Ok(leaf) = leaf_of(root, key.as_ref()) else { break };
        leaf.prefetch(SLOT_LINES);
        *lane = Some((leaf, key_hash(key.as_ref())));
        ready += 1;
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
    ready
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

//! Reads of one tree: point lookups, batches with prefetch, ordered visits.
//!
//! A lookup answers at once from memory, or says which node it misses. The caller decides whether to read
//! it here and now, on another thread, or not at all.

use crate::checksum::key_hash;
use crate::leaf::Leaf;
use crate::node::{Inner, Node, Slot};
use crate::value::Stored;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Bounds of a range of keys.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Order of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending.
    Forward,
    /// Descending.
    Backward,
}

/// A node that is not in memory: a child of `parent`, or the root itself.
pub(crate) struct Missing {
    pub(crate) parent: Option<Arc<Inner>>,
    pub(crate) child: usize,
}

impl Missing {
    pub(crate) const ROOT: Self = Self { parent: None, child: 0 };
}

/// The leaf whose range holds `key`.
pub(crate) fn leaf_of<'a>(root: &'a Slot, key: &[u8]) -> Result<&'a Leaf, Missing> {
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

/// The value of `key`.
pub(crate) fn get<'a>(root: &'a Slot, key: &[u8]) -> Result<Option<Stored<'a>>, Missing> {
    let leaf = leaf_of(root, key)?;
    leaf.prefetch_slots();
    Ok(leaf.find(key, key_hash(key)).map(|slot| leaf.value(slot)))
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
    let mut leaves: [Option<(&Leaf, u8)>; LANES] = [None; LANES];
    let mut missing = None;
    let mut ready = 0;
    for (key, lane) in keys.iter().zip(&mut leaves) {
        match leaf_of(root, key.as_ref()) {
            Ok(leaf) => {
                leaf.prefetch_slots();
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

/// Brings nearer what puts of these keys (at most [`LANES`]) will touch, step by step for all of them at once:
/// the slots that hold the ways to the leaves, the beginnings of the leaves, the records. `depth` is how many
/// inner nodes lie above the leaves.
pub(crate) fn prefetch_for_puts<'k>(root: &Slot, depth: usize, keys: impl Iterator<Item = &'k [u8]> + Clone) {
    let mut slots: [Option<&Slot>; LANES] = [None; LANES];
    for (key, lane) in keys.clone().zip(&mut slots) {
        *lane = slot_below(root, depth, key);
    }
    let mut leaves: [Option<&Leaf>; LANES] = [None; LANES];
    for (slot, lane) in slots.iter().zip(&mut leaves) {
        if let Some(Node::Leaf(leaf)) = slot.and_then(Slot::get) {
            leaf.prefetch_for_change();
            *lane = Some(leaf);
        }
    }
    for (leaf, key) in leaves.iter().zip(keys) {
        if let Some(leaf) = leaf {
            leaf.prefetch_for_put(key);
        }
    }
}

/// The slot on the way to `key` below `depth` inner nodes, which is not looked at but brought nearer; `None` if
/// a node on the way is not resident.
fn slot_below<'a>(root: &'a Slot, depth: usize, key: &[u8]) -> Option<&'a Slot> {
    let mut slot = root;
    for _ in 0..depth {
        let inner = slot.inner()?;
        slot = &inner.children[inner.child_of(key)];
    }
    Some(slot)
}

/// How an ordered visit ended.
pub(crate) enum Visited {
    /// All keys of the range were visited.
    All,
    /// The visitor stopped; the key it stopped at is in the key buffer.
    Stopped,
}

/// An ordered visit of a range; `key` holds the last key visited.
pub(crate) struct Visit<'v, F> {
    pub(crate) range: Range<'v>,
    pub(crate) direction: Direction,
    pub(crate) key: Vec<u8>,
    pub(crate) visited_any: bool,
    pub(crate) visitor: F,
}

impl<F> Visit<'_, F>
where
    F: FnMut(&[u8], Stored<'_>) -> ControlFlow<()>,
{
    /// Visits what lies below `root`. `load` answers the node of a slot that is not resident, or fails.
    pub(crate) fn run<E>(
        &mut self,
        root: &Slot,
        load: &mut impl FnMut(&Slot, Missing) -> Result<Node, E>,
    ) -> Result<Visited, E> {
        let loaded;
        let node = match root.get() {
            Some(node) => node,
            None => {
                loaded = load(root, Missing::ROOT)?;
                &loaded
            }
        };
        Ok(match self.visit(node, load)? {
            ControlFlow::Continue(()) => Visited::All,
            ControlFlow::Break(()) => Visited::Stopped,
        })
    }

    fn visit<E>(
        &mut self,
        node: &Node,
        load: &mut impl FnMut(&Slot, Missing) -> Result<Node, E>,
    ) -> Result<ControlFlow<()>, E> {
        let inner = match node {
            Node::Leaf(leaf) => return Ok(self.visit_leaf(leaf)),
            Node::Inner(inner) => inner,
        };
        let first = match self.range.0 {
            Bound::Included(key) | Bound::Excluded(key) => inner.child_of(key),
            Bound::Unbounded => 0,
        };
        let last = match self.range.1 {
            Bound::Included(key) | Bound::Excluded(key) => inner.child_of(key),
            Bound::Unbounded => inner.children.len() - 1,
        };
        for step in 0..=last.saturating_sub(first) {
            if first > last {
                break;
            }
            let index = match self.direction {
                Direction::Forward => first + step,
                Direction::Backward => last - step,
            };
            self.prefetch_neighbour(inner, index);
            let slot = &inner.children[index];
            let loaded;
            let child = match slot.get() {
                Some(child) => child,
                None => {
                    loaded = load(slot, Missing { parent: Some(Arc::clone(inner)), child: index })?;
                    &loaded
                }
            };
            if self.visit(child, load)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Brings this leaf's records nearer, and the beginning of the one that follows.
    fn prefetch_neighbour(&self, inner: &Inner, index: usize) {
        if let Some(Node::Leaf(leaf)) = inner.children[index].get() {
            leaf.prefetch_all();
        }
        let next = match self.direction {
            Direction::Forward => index + 1,
            Direction::Backward => index.wrapping_sub(1),
        };
        if let Some(Node::Leaf(leaf)) = inner.children.get(next).and_then(Slot::get) {
            leaf.prefetch_slots();
        }
    }

    fn visit_leaf(&mut self, leaf: &Leaf) -> ControlFlow<()> {
        let from = match self.range.0 {
            Bound::Unbounded => 0,
            Bound::Included(key) => leaf.lower_bound(key),
            Bound::Excluded(key) => {
                let slot = leaf.lower_bound(key);
                slot + usize::from(leaf.is_key(slot, key))
            }
        };
        let to = match self.range.1 {
            Bound::Unbounded => leaf.len(),
            Bound::Excluded(key) => leaf.lower_bound(key),
            Bound::Included(key) => {
                let slot = leaf.lower_bound(key);
                slot + usize::from(leaf.is_key(slot, key))
            }
        };
        if from >= to {
            // The key stays that of the last record: a scan that stalls goes on behind it.
            return ControlFlow::Continue(());
        }
        let prefix = leaf.prefix().len();
        self.key.clear();
        self.key.extend_from_slice(leaf.prefix());
        for step in 0..to - from {
            let slot = match self.direction {
                Direction::Forward => from + step,
                Direction::Backward => to - 1 - step,
            };
            self.key.truncate(prefix);
            self.key.extend_from_slice(leaf.suffix(slot));
            self.visited_any = true;
            if (self.visitor)(&self.key, leaf.value(slot)).is_break() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }
}

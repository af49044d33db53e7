//! Eviction from a tree when memory is short: leaves, records beside leaves, and bare inner nodes.
//!
//! Invariant: only what can be read back is evicted, and only under the writer lock, because a write relies
//! on the leaves that it made resident.

use crate::backing::Backing;
use crate::node::Node;
use crate::slot::Slot;
use std::sync::Arc;

/// What to evict. Leaves go first: for their bytes, records beside leaves answer more lookups.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evictable {
    Leaves,
    Records,
}

/// Evicts leaves, or records beside them, that can be read back, until `wanted` bytes of them are gone, and
/// returns the bytes evicted. Leaves that were read since the last pass are spared. Each pass begins at a
/// different node, according to `turn`, so that no leaf always goes first. Where there are too many inner
/// nodes, those without a leaf in memory are evicted too.
pub(crate) fn evict(slot: &mut Slot, wanted: u64, turn: usize, what: Evictable, backing: &Backing) -> u64 {
    let Some(Node::Inner(shared)) = slot.get_mut() else { return 0 };
    let Some(inner) = Arc::get_mut(shared) else { return 0 };
    let (mut gone, count) = (0, inner.children.len());
    for step in 0..count {
        if gone >= wanted {
            break;
        }
        let child = &mut inner.children[(turn + step) % count];
        gone += match child.get() {
            None if what == Evictable::Records => child.shed_beside(backing.meter()),
            Some(Node::Leaf(leaf))
                if what == Evictable::Leaves && !leaf.is_shared() && !leaf.counted.take_use() =>
            {
                let bytes = child.evict();
                if bytes > 0 {
                    backing.node_is_absent();
                }
                bytes
            }
            Some(Node::Inner(_)) => {
                let below = evict(child, wanted - gone, turn / count, what, backing);
                // Once per pass: the first pass spares what was just read.
                let takes_bare = what == Evictable::Leaves && gone + below < wanted;
                below + if takes_bare { evict_bare(child, backing) } else { 0 }
            }
            _ => 0,
        };
    }
    gone
}

/// Evicts the leaf of `key` in favour of small records about to be put, if it can be read back, was not read
/// lately, and takes all of them beside it; `bytes` gives their size by the address of the leaf's slot.
pub(crate) fn make_way(root: &mut Slot, key: &[u8], bytes: impl Fn(*const Slot) -> usize, backing: &Backing) {
    let mut slot = root;
    while let Some(Node::Inner(shared)) = slot.get_mut() {
        let Some(inner) = Arc::get_mut(shared) else { return };
        let (index, has_leaves) = (inner.child_of(key), inner.has_leaves());
        slot = &mut inner.children[index];
        if !has_leaves {
            continue;
        }
        let was_used = matches!(slot.get(), Some(Node::Leaf(leaf)) if leaf.counted.take_use());
        if !was_used && slot.would_take_delta(bytes(std::ptr::from_ref(slot))) && slot.evict() > 0 {
            backing.node_is_absent();
        }
        return;
    }
}

/// Evicts an inner node without a node in memory below it, if there are too many inner nodes, and returns the
/// bytes evicted.
fn evict_bare(slot: &mut Slot, backing: &Backing) -> u64 {
    let is_bare = match slot.get_mut() {
        Some(Node::Inner(shared)) => {
            Arc::get_mut(shared).is_some_and(|inner| inner.is_bare() && !inner.take_new())
        }
        _ => false,
    };
    if !is_bare || !backing.has_too_many_inner_nodes() {
        return 0;
    }
    let bytes = slot.evict();
    if bytes > 0 {
        backing.node_is_absent();
    }
    bytes
}

//! Whether a leaf that was read belongs where its parent leads to, checked before anything in it is changed.
//!
//! A page states the common prefix of its own keys, and its checksum only excludes accidental damage. Code
//! that changes a leaf relies on that prefix, so a forged page must not get that far.
//!
//! Invariant: a leaf of the current trees that was changed since it was read belongs where it is.

use super::{Edit, Fences, OwnedNode, own};
use crate::backing::{Backing, Reading};
use crate::leaf::Leaf;
use crate::node::{Inner, Node};
use crate::search::Absent;
use crate::slot::Slot;
use crate::visit::Range;
use crate::{Damage, EngineError};
use std::ops::{Bound, RangeInclusive};

/// As [`own`], for a node between these separators, provided that it belongs there.
pub(super) fn own_in<'a>(
    slot: &'a mut Slot,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<OwnedNode<'a>, EngineError> {
    if let Node::Leaf(leaf) = slot.load(Reading::One, edit.backing)? {
        refuse_stranger(slot, leaf, fences, edit.backing)?;
    }
    own(slot, edit)
}

/// Refuses a leaf that was read and does not belong between these separators.
pub(super) fn refuse_stranger(
    slot: &Slot,
    leaf: &Leaf,
    fences: Fences<'_>,
    backing: &Backing,
) -> Result<(), EngineError> {
    let delta = slot.known_delta();
    let page = match (leaf.home.get(), delta) {
        (Some(page), _) => page,
        (None, Some(delta)) => delta.page(),
        // It was changed since it was read, and checked before that.
        (None, None) => return Ok(()),
    };
    let (low, high) = (fences.low.map(|low| &**low), fences.high.map(|high| &**high));
    if leaf.suits(low, high) { Ok(()) } else { Err(backing.corrupt(page.offset, Damage::PageContent)) }
}

/// The absent node on the path to `key`; none where the leaf is in memory and belongs there. The caller is
/// alone in the gate.
pub(crate) fn missing_for<'a>(
    root: &'a Slot,
    key: &[u8],
    backing: &Backing,
) -> Result<Option<Absent<'a>>, EngineError> {
    let (mut place, mut fences) = (Absent::root(root), Fences::default());
    loop {
        match place.slot.get() {
            Some(Node::Inner(inner)) => {
                let child = inner.child_of(key);
                fences = fences.of_child(inner.pivots(), child);
                place = Absent { slot: &inner.children[child], parent: Some(inner) };
            }
            Some(Node::Leaf(leaf)) => {
                return refuse_stranger(place.slot, leaf, fences, backing).map(|()| None);
            }
            None => return Ok(Some(place)),
        }
    }
}

/// Reads every leaf of a range, by `load`, and makes sure that each belongs where it is.
pub(crate) fn load_range(
    root: &Slot,
    range: Range<'_>,
    load: &impl Fn(&Slot) -> Result<Node, EngineError>,
    backing: &Backing,
) -> Result<(), EngineError> {
    load_below(root, Fences::default(), range, load, backing)
}

fn load_below(
    slot: &Slot,
    fences: Fences<'_>,
    range: Range<'_>,
    load: &impl Fn(&Slot) -> Result<Node, EngineError>,
    backing: &Backing,
) -> Result<(), EngineError> {
    match load(slot)? {
        Node::Leaf(leaf) => refuse_stranger(slot, &leaf, fences, backing),
        Node::Inner(inner) => children_in(&inner, range).try_for_each(|index| {
            load_below(&inner.children[index], fences.of_child(inner.pivots(), index), range, load, backing)
        }),
    }
}

/// The children of a node that may have keys of a range.
pub(super) fn children_in(inner: &Inner, (from, to): Range<'_>) -> RangeInclusive<usize> {
    let child = |bound, all| match bound {
        Bound::Included(key) | Bound::Excluded(key) => inner.child_of(key),
        Bound::Unbounded => all,
    };
    child(from, 0)..=child(to, inner.children.len() - 1)
}

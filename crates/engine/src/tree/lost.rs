//! Leaves that cannot be read while the log is replayed: small puts go beside them, and whoever salvages does without them.

use super::place::{children_in, refuse_stranger};
use super::{Edit, Fences, Owned, own};
use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::node::{Inner, Node};
use crate::slot::Slot;
use crate::visit::Range;

/// Learns whether the slot of `key` is one of a leaf, though that cannot be read, so that records may go beside it: leaves
/// are all at one depth, so a neighbour tells. Whether it is.
pub(crate) fn learn_leaves(slot: &mut Slot, key: &[u8], edit: &mut Edit<'_>) -> Result<bool, EngineError> {
    let Some(inner) = slot.inner() else { return Ok(false) };
    let index = inner.child_of(key);
    if inner.children[index].inner().is_some() {
        let Owned::Inner(inner) = own(slot, edit)? else { return Ok(false) };
        return learn_leaves(&mut inner.children[index], key, edit);
    }
    if inner.has_leaves() {
        return Ok(true);
    }
    let is_leaf = has_readable_leaf(inner, index, edit.backing);
    if is_leaf && let Owned::Inner(inner) = own(slot, edit)? {
        inner.note_leaves();
    }
    Ok(is_leaf)
}

/// Whether a child is a leaf, and so all of them are. Those before it are looked at first, backwards, then it and all behind it.
fn has_readable_leaf(inner: &Inner, index: usize, backing: &Backing) -> bool {
    let (before, from) = inner.children.split_at(index);
    // A second page has only a leaf.
    inner.children[index].home().is_some_and(|home| home.delta.is_some())
        || before
            .iter()
            .rev()
            .chain(from)
            .find_map(|slot| slot.look_at(Reading::One, backing).ok())
            .is_some_and(|node| matches!(node, Node::Leaf(_)))
}

/// Does without what cannot be read of a range: it is never read from now on, nor is what was put beside it. How many
/// leaves or nodes above them.
pub(crate) fn lose(slot: &mut Slot, range: Range<'_>, edit: &mut Edit<'_>) -> Result<u64, EngineError> {
    lose_below(slot, Fences::default(), range, edit)
}

fn lose_below(
    slot: &mut Slot,
    fences: Fences<'_>,
    range: Range<'_>,
    edit: &mut Edit<'_>,
) -> Result<u64, EngineError> {
    let read = slot.read_apart(Reading::Along, edit.backing).and_then(|node| match &node {
        Node::Leaf(leaf) => refuse_stranger(slot, leaf, fences, edit.backing).map(|()| node),
        Node::Inner(_) => Ok(node),
    });
    match read {
        Err(error) if error.is_damage() => {
            *slot = slot.lost();
            return Ok(1);
        }
        Err(error) => return Err(error),
        Ok(Node::Leaf(_)) => return Ok(0),
        Ok(Node::Inner(_)) => {}
    }
    let mut lost = 0;
    if let Owned::Inner(inner) = own(slot, edit)? {
        for index in children_in(inner, range) {
            let (pivots, children) = inner.parts_mut();
            lost += lose_below(&mut children[index], fences.of_child(pivots, index), range, edit)?;
        }
    }
    Ok(lost)
}

//! Deletes: a key is removed from its leaf, and a node with little left is joined with a neighbour.
//!
//! Invariant: a neighbour that is not in memory, or does not belong where it is, stays as it is: joining it
//! can wait.

use super::place::{own_in, refuse_stranger};
use super::{Edit, Fences, HashedKey, OwnedNode, new_leaf, own};
use crate::EngineError;
use crate::backing::Reading;
use crate::leaf::{Leaf, Record};
use crate::node::{FAN_OUT_MAX, Inner, Node};
use crate::slot::Slot;
use std::sync::Arc;

/// Removes `key`, and returns whether it was present.
pub(crate) fn delete(root: &mut Slot, key: HashedKey<'_>, edit: &mut Edit<'_>) -> Result<bool, EngineError> {
    if find(root, key)?.is_none() {
        return Ok(false);
    }
    delete_in(root, Fences::default(), key, edit)?;
    shrink(root, edit)?;
    Ok(true)
}

/// Removes nodes with a single child from above the root.
pub(super) fn shrink(root: &mut Slot, edit: &mut Edit<'_>) -> Result<(), EngineError> {
    loop {
        match root.load(Reading::One, edit.backing) {
            Err(error) if edit.forgives(&error) => return Ok(()),
            loaded => match loaded? {
                Node::Inner(inner) if inner.children.len() == 1 => {}
                _ => return Ok(()),
            },
        }
        if let OwnedNode::Inner(inner) = own(root, edit)? {
            let only = std::mem::take(&mut inner.children[0]);
            *root = only;
        }
    }
}

fn find(root: &Slot, key: HashedKey<'_>) -> Result<Option<usize>, EngineError> {
    let mut slot = root;
    loop {
        match slot.get() {
            Some(Node::Inner(inner)) => slot = &inner.children[inner.child_of(key.bytes)],
            Some(Node::Leaf(leaf)) => return Ok(leaf.find(key.bytes, key.fingerprint)),
            // Not resident: the caller made resident everything that a change touches, so the key is absent.
            None => return Ok(None),
        }
    }
}

fn delete_in(
    slot: &mut Slot,
    fences: Fences<'_>,
    key: HashedKey<'_>,
    edit: &mut Edit<'_>,
) -> Result<(), EngineError> {
    match own_in(slot, fences, edit)? {
        OwnedNode::Leaf(shared) => {
            let found = shared.find(key.bytes, key.fingerprint);
            if let (Some(leaf), Some(found)) = (shared.get_mut(), found)
                && let Some(old) = leaf.remove(found)
            {
                edit.retired.chain(&old, None, edit.epoch);
            }
            Ok(())
        }
        OwnedNode::Inner(inner) => {
            let index = inner.child_of(key.bytes);
            let (pivots, children) = inner.parts_mut();
            let inside = fences.of_child(pivots, index);
            delete_in(&mut children[index], inside, key, edit)?;
            join_sparse_child(inner, index, fences, edit)
        }
    }
}

/// Joins child `index` with a neighbour if both have little left.
fn join_sparse_child(
    inner: &mut Inner,
    index: usize,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<(), EngineError> {
    let is_sparse = match inner.children[index].get() {
        Some(Node::Leaf(leaf)) => leaf.is_sparse(),
        Some(Node::Inner(child)) => child.children.len() < FAN_OUT_MAX / 8,
        None => false,
    };
    if !is_sparse || inner.children.len() < 2 {
        return Ok(());
    }
    let right = index.min(inner.children.len() - 2);
    if !join_with_next(inner, right, fences, edit)? && index > 0 && right == index {
        // Where a range is deleted, the next child may be full or not in memory yet, but not the one before.
        join_with_next(inner, index - 1, fences, edit)?;
    }
    Ok(())
}

/// Joins child `left` with the next one if both fit well into one node, and returns whether they did.
fn join_with_next(
    inner: &mut Inner,
    left: usize,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<bool, EngineError> {
    let low = fences.of_child(inner.pivots(), left).low;
    let high = fences.of_child(inner.pivots(), left + 1).high;
    let prefix_len = Fences { low, high }.prefix().len();
    // The log has the change already: a forged leaf stays as it is instead of being an error here.
    let belongs = |child: usize, leaf: &Leaf| {
        let around = fences.of_child(inner.pivots(), child);
        refuse_stranger(&inner.children[child], leaf, around, edit.backing).is_ok()
    };
    let fits = match (inner.children[left].get(), inner.children[left + 1].get()) {
        (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => {
            a.joins_well(b, prefix_len) && belongs(left, a) && belongs(left + 1, b)
        }
        (Some(Node::Inner(a)), Some(Node::Inner(b))) => {
            a.children.len() + b.children.len() <= FAN_OUT_MAX * 3 / 4
        }
        _ => false,
    };
    if !fits {
        return Ok(false);
    }
    let pivot: Box<[u8]> = inner.pivots()[left].clone();
    for child in [left, left + 1] {
        let (pivots, children) = inner.parts_mut();
        own_in(&mut children[child], fences.of_child(pivots, child), edit)?;
    }
    // `remove` takes the pivot in front of the child, which is the one between the two.
    let right = inner.remove(left + 1);
    let (pivots, children) = inner.parts_mut();
    let around = fences.of_child(pivots, left);
    match (children[left].get_mut(), right.get()) {
        (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => {
            let records: Vec<Record<'_>> = [&**a, &**b]
                .into_iter()
                .flat_map(|leaf| (0..leaf.len()).map(move |slot| leaf.record(slot)))
                .collect();
            let joined = new_leaf(around, &records, edit);
            *a = joined;
        }
        (Some(Node::Inner(a)), Some(Node::Inner(b))) => {
            if let Some(a) = Arc::get_mut(a) {
                a.absorb(pivot, b);
            }
        }
        _ => {}
    }
    Ok(true)
}

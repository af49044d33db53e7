//! Leaves that cannot be read while the log is replayed: small puts go beside them, and a salvage gives them
//! up.

use super::place::{children_in, refuse_stranger};
use super::{Edit, Fences, OwnedNode, UpperPart, grow, insert_upper, own};
use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::node::{Inner, Node};
use crate::slot::Slot;
use crate::value::{Chain, EXTENT_FROM, Stored};
use crate::visit::Range;
use atoll_buffer::Buffer;
use std::sync::Arc;

/// Finds out whether the slot of `key`, whose node cannot be read, is one of a leaf, so that records may go
/// beside it. All leaves have the same depth, so a neighbour answers that. Returns whether it is.
pub(crate) fn learn_leaves(slot: &mut Slot, key: &[u8], edit: &mut Edit<'_>) -> Result<bool, EngineError> {
    let Some(inner) = slot.inner() else { return Ok(false) };
    let index = inner.child_of(key);
    if inner.children[index].inner().is_some() {
        let OwnedNode::Inner(inner) = own(slot, edit)? else { return Ok(false) };
        return learn_leaves(&mut inner.children[index], key, edit);
    }
    if inner.has_leaves() {
        return Ok(true);
    }
    let is_leaf = has_readable_leaf(inner, index, edit.backing);
    if is_leaf && let OwnedNode::Inner(inner) = own(slot, edit)? {
        inner.note_leaves();
    }
    Ok(is_leaf)
}

/// Whether one child, and so every child, is a leaf. The children before `index` are tried first, backwards,
/// then that one and those behind it.
fn has_readable_leaf(inner: &Inner, index: usize, backing: &Backing) -> bool {
    let (before, from) = inner.children.split_at(index);
    // Only a leaf has a second page.
    inner.children[index].home().is_some_and(|home| home.delta.is_some())
        || before
            .iter()
            .rev()
            .chain(from)
            .find_map(|slot| slot.look_at(Reading::One, backing).ok())
            .is_some_and(|node| matches!(node, Node::Leaf(_)))
}

/// Gives up the unreadable nodes of a range: they are never read from here on, and records beside them within
/// the range are forgotten. Counts the leaves, or nodes above them, that were lost.
pub(crate) fn lose(slot: &mut Slot, range: Range<'_>, edit: &mut Edit<'_>) -> Result<(), EngineError> {
    lose_below(slot, Fences::default(), range, edit)
}

fn lose_below(
    slot: &mut Slot,
    fences: Fences<'_>,
    range: Range<'_>,
    edit: &mut Edit<'_>,
) -> Result<(), EngineError> {
    let read = slot.read_apart(Reading::Along, edit.backing).and_then(|node| match &node {
        Node::Leaf(leaf) => refuse_stranger(slot, leaf, fences, edit.backing).map(|()| node),
        Node::Inner(_) => Ok(node),
    });
    match read {
        Err(error) if error.is_damage() => {
            edit.lost += u64::from(!slot.is_lost());
            let records = slot.records_beside(edit.backing).without(range);
            *slot = slot.lost_with(records, edit.backing);
            return Ok(());
        }
        Err(error) => return Err(error),
        Ok(Node::Leaf(_)) => return Ok(()),
        Ok(Node::Inner(_)) => {}
    }
    if let OwnedNode::Inner(inner) = own(slot, edit)? {
        for index in children_in(inner, range) {
            let (pivots, children) = inner.parts_mut();
            lose_below(&mut children[index], fences.of_child(pivots, index), range, edit)?;
        }
    }
    Ok(())
}

/// Bytes of records beside one lost node. Beyond this it is divided into two, so that each can be searched
/// quickly.
const BESIDE_BYTES_MAX: usize = 32 << 10;

/// Puts a record beside the lost node where its key belongs, if that node is lost and the log has the value.
/// Of a longer value, or one that memory has no room for, nothing is known then.
pub(crate) fn put_beside_lost(
    root: &mut Slot,
    key: &[u8],
    value: &Stored<'_>,
    edit: &mut Edit<'_>,
) -> Result<(), EngineError> {
    let whole;
    let value = match value {
        Stored::Inline(bytes) => bytes,
        Stored::Chain(chain) => {
            whole = bytes_in_log(chain, edit.backing)?;
            match &whole {
                Some(bytes) => &**bytes,
                None => return Ok(()),
            }
        }
    };
    if root.is_lost() {
        // Lookups find records beside a node in the node's parent.
        let mut inner = Inner::new(edit.epoch, Vec::new(), vec![std::mem::take(root)]);
        inner.count_in(edit.backing.meter());
        *root = Slot::resident(Node::Inner(Arc::new(inner)));
    }
    if let Some(upper) = put_below(root, key, value, edit)? {
        grow(root, upper, edit);
    }
    Ok(())
}

/// The bytes of a value that was put, if they lie in the log and memory has room for them. Only this store's
/// own memory counts, because the outcome of a recovery must not depend on other stores.
fn bytes_in_log(chain: &Chain, backing: &Backing) -> Result<Option<Buffer>, EngineError> {
    let [piece] = chain.pieces() else { return Ok(None) };
    if piece.len() as usize >= EXTENT_FROM || !backing.has_spare_of_its_own(piece.len().into()) {
        return Ok(None);
    }
    match piece.load(backing) {
        Err(error) if error.is_damage() => Ok(None),
        loaded => loaded.map(Some),
    }
}

fn put_below(
    slot: &mut Slot,
    key: &[u8],
    value: &[u8],
    edit: &mut Edit<'_>,
) -> Result<Option<UpperPart>, EngineError> {
    if slot.inner().is_none() {
        return Ok(None);
    }
    let OwnedNode::Inner(inner) = own(slot, edit)? else { return Ok(None) };
    let index = inner.child_of(key);
    let child = &mut inner.children[index];
    if !child.is_lost() {
        let upper = put_below(child, key, value, edit)?;
        return Ok(upper.and_then(|upper| insert_upper(inner, index, upper)));
    }
    let mut records = child.records_beside(edit.backing);
    records.put(key, value);
    let (len, middle) = (records.len(), records.middle().map(<[u8]>::to_vec));
    let Some(middle) = middle.filter(|_| len > BESIDE_BYTES_MAX) else {
        *child = child.lost_with(records, edit.backing);
        return Ok(None);
    };
    let [lower, upper] = records.parted_at(&middle);
    let upper = child.lost_with(upper, edit.backing);
    *child = child.lost_with(lower, edit.backing);
    Ok(insert_upper(inner, index, UpperPart { pivot: middle.into(), slot: upper }))
}

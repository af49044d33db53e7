//! Cutting a tree in two at a key: nodes on the path to the key are new, all others go to one half or the
//! other unchanged.
//!
//! A leaf leaves out the prefix that its two separators share. A leaf that comes to lie at the end of a tree,
//! where there is only one separator, must leave out nothing: it is rebuilt, and records that it has no room
//! for then go to a leaf beside it.
//!
//! Invariant: both halves are ordinary trees: all leaves equally deep, no root with a single child, and the
//! leaves at both ends leave out nothing of their keys.
//! Invariant: nothing is read beyond what the visits from the cut to the nearest key on either side have
//! read.

use super::delete::shrink;
use super::place::refuse_stranger;
use super::{Edit, Fences, LEAF_SPLIT_BYTES, OwnedNode, UpperPart};
use super::{grow, insert_upper, leaf_of, new_leaf, own, separator};
use crate::backing::Reading;
use crate::leaf::{Leaf, Record, SharedLeaf};
use crate::node::Node;
use crate::planted::{self, Bug};
use crate::slot::Slot;
use crate::{Damage, EngineError};
use std::sync::Arc;

/// The first or the last of several children.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    First,
    Last,
}

impl Edge {
    pub(super) fn of(self, count: usize) -> usize {
        match self {
            Self::First => 0,
            Self::Last => count.saturating_sub(1),
        }
    }
}

/// Cuts off everything at or above `at`; `root` keeps what is below.
pub(crate) fn cut_off(root: &mut Slot, at: &[u8], edit: &mut Edit<'_>) -> Result<Slot, EngineError> {
    let (lower, upper) = cut(std::mem::take(root), Fences::default(), at, edit)?;
    *root = whole(lower, Edge::Last, edit)?;
    whole(upper, Edge::First, edit)
}

/// Retires a tree without records.
pub(crate) fn discard(mut slot: Slot, edit: &mut Edit<'_>) -> Result<(), EngineError> {
    let OwnedNode::Inner(inner) = own(&mut slot, edit)? else { return Ok(()) };
    std::mem::take(&mut inner.children).into_iter().try_for_each(|child| discard(child, edit))
}

/// The part below `at`, and the rest. An empty leaf on the path goes to neither.
fn cut(
    mut slot: Slot,
    fences: Fences<'_>,
    at: &[u8],
    edit: &mut Edit<'_>,
) -> Result<(Option<Slot>, Option<Slot>), EngineError> {
    let loaded = slot.load(Reading::One, edit.backing).and_then(|node| {
        if let Node::Leaf(leaf) = node {
            refuse_stranger(&slot, leaf, fences, edit.backing)?;
        }
        Ok(node)
    });
    let loaded = match loaded {
        Err(error) if edit.forgives(&error) => return Ok(cut_lost(&slot, at, edit)),
        loaded => loaded?,
    };
    if let Node::Leaf(leaf) = loaded {
        match (leaf.lower_bound(at), leaf.len()) {
            (_, 0) => {}
            (0, _) => return Ok((None, Some(slot))),
            (below, count) if below == count => return Ok((Some(slot), None)),
            _ => {}
        }
    }
    let home = slot.home().map(|home| home.page);
    match own(&mut slot, edit)? {
        OwnedNode::Leaf(leaf) => Ok(cut_leaf(leaf, at, edit)),
        OwnedNode::Inner(inner) => {
            let index = inner.child_of(at);
            let child = std::mem::take(&mut inner.children[index]);
            let (lower, upper) = cut(child, fences.of_child(inner.pivots(), index), at, edit)?;
            let rest = inner.divide(index, lower, upper);
            if let (true, Some(home)) = (planted::is(Bug::CutNodeKept), home) {
                inner.home.settle(home);
            }
            let keeps_any = !inner.children.is_empty();
            let rest = rest.map(|rest| Slot::resident(Node::Inner(Arc::new(rest))));
            Ok((keeps_any.then_some(slot), rest))
        }
    }
}

/// Both halves of an unreadable node: where its records belong is unknown, except those that were put beside
/// it.
fn cut_lost(slot: &Slot, at: &[u8], edit: &mut Edit<'_>) -> (Option<Slot>, Option<Slot>) {
    edit.lost += u64::from(!slot.is_lost());
    let [lower, upper] = slot.records_beside(edit.backing).parted_at(at);
    let half = |records| Some(slot.lost_with(records, edit.backing));
    (half(lower), half(upper))
}

/// The two halves of a leaf that has records on both sides; none for a half without records.
fn cut_leaf(leaf: &SharedLeaf, at: &[u8], edit: &Edit<'_>) -> (Option<Slot>, Option<Slot>) {
    let records = records_of(leaf);
    let (lower, upper) = records.split_at(leaf.lower_bound(at));
    let part = |records: &[Record<'_>]| {
        let leaf = || leaf_of(leaf.prefix(), records, edit);
        (!records.is_empty()).then(|| Slot::resident(Node::Leaf(leaf())))
    };
    (part(lower), part(upper))
}

fn records_of(leaf: &Leaf) -> Vec<Record<'_>> {
    (0..leaf.len()).map(|slot| leaf.record(slot)).collect()
}

/// Makes a tree of a part whose first or last leaf is where a tree was cut.
fn whole(part: Option<Slot>, edge: Edge, edit: &mut Edit<'_>) -> Result<Slot, EngineError> {
    let Some(mut root) = part else { return Ok(Slot::resident(Node::Leaf(leaf_of(&[], &[], edit)))) };
    shrink(&mut root, edit)?;
    if !is_open(&root, edge, edit)?
        && !planted::is(Bug::EdgeNotOpened)
        && let Some(upper) = open(&mut root, Fences::default(), edge, edit)?
    {
        grow(&mut root, upper, edit);
    }
    Ok(root)
}

/// Whether the leaf at this end leaves nothing out, so that it can hold any key. A lost leaf holds none.
fn is_open(root: &Slot, edge: Edge, edit: &Edit<'_>) -> Result<bool, EngineError> {
    let mut slot = root;
    loop {
        match slot.load(Reading::One, edit.backing) {
            Err(error) if edit.forgives(&error) => return Ok(true),
            loaded => match loaded? {
                Node::Inner(inner) => slot = &inner.children[edge.of(inner.children.len())],
                Node::Leaf(leaf) => return Ok(leaf.prefix().is_empty()),
            },
        }
    }
}

/// Rebuilds the leaf at this end, so that it leaves nothing out.
fn open(
    slot: &mut Slot,
    fences: Fences<'_>,
    edge: Edge,
    edit: &mut Edit<'_>,
) -> Result<Option<UpperPart>, EngineError> {
    match own(slot, edit)? {
        // It leaves out what its former separators shared.
        OwnedNode::Leaf(leaf) if !fences.hold(leaf) => Err(edit.backing.corrupt(0, Damage::PageContent)),
        OwnedNode::Leaf(leaf) => Ok(open_leaf(leaf, fences, edge, edit)),
        OwnedNode::Inner(inner) => {
            let index = edge.of(inner.children.len());
            let (pivots, children) = inner.parts_mut();
            let upper = open(&mut children[index], fences.of_child(pivots, index), edge, edit)?;
            Ok(upper.and_then(|upper| insert_upper(inner, index, upper)))
        }
    }
}

/// As [`open`], for the leaf itself. What it leaves out may be long: records that do not fit any more stay in
/// a leaf with separators on both sides, which can leave out as much as before.
fn open_leaf(shared: &mut SharedLeaf, fences: Fences<'_>, edge: Edge, edit: &Edit<'_>) -> Option<UpperPart> {
    let old = shared.clone();
    let records = records_of(&old);
    let Some(middle) = opened_part(&records, edge) else {
        *shared = new_leaf(fences, &records, edit);
        return None;
    };
    let pivot = separator(&records[middle - 1], &records[middle]);
    *shared = new_leaf(Fences { high: Some(&pivot), ..fences }, &records[..middle], edit);
    let right = new_leaf(Fences { low: Some(&pivot), ..fences }, &records[middle..], edit);
    Some(UpperPart { pivot, slot: Slot::resident(Node::Leaf(right)) })
}

/// Where to split records so that those at the edge, at least one, fill half a leaf with whole keys; none if
/// all of them fit into one leaf.
fn opened_part(records: &[Record<'_>], edge: Edge) -> Option<usize> {
    let bytes: Vec<usize> = records.iter().map(|record| record.memory(0)).collect();
    if bytes.iter().sum::<usize>() <= LEAF_SPLIT_BYTES || records.len() < 2 {
        return None;
    }
    let fitting = |sizes: &mut dyn Iterator<Item = &usize>| {
        let mut sum = 0;
        let within = sizes.take_while(|size| {
            sum += **size;
            sum <= LEAF_SPLIT_BYTES / 2
        });
        within.count().clamp(1, records.len() - 1)
    };
    Some(match edge {
        Edge::First => fitting(&mut bytes.iter()),
        Edge::Last => records.len() - fitting(&mut bytes.iter().rev()),
    })
}

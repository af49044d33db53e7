//! Joining two trees whose key ranges do not overlap: nodes along the seam are new, all others stay as they
//! are.
//!
//! The nodes at the seam are joined level by level, from the leaves up: what a cut made of one node becomes
//! one node again. Where the trees differ in height, the lower one is joined into the taller one at its own
//! level.
//!
//! Invariant: all leaves of the joined tree are equally deep, and no node has too many children.

use super::cut::Edge;
use super::place::own_in;
use super::{Edit, Fences, OwnedNode, UpperPart};
use super::{grow, insert_upper, new_leaf, own, split_if_full};
use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::leaf::Record;
use crate::node::{Node, Pivot};
use crate::slot::Slot;

/// Joins `lower`, all of whose keys are below `pivot`, and `upper`, none of whose keys is. `pivot` divides
/// their separators as well, and neither leaf at the seam leaves out anything of its keys.
pub(crate) fn join(lower: Slot, upper: Slot, pivot: Pivot, edit: &mut Edit<'_>) -> Result<Slot, EngineError> {
    let lower = JoinSide { height: height(&lower, Edge::Last, edit.backing)?, slot: lower };
    let upper = JoinSide { height: height(&upper, Edge::First, edit.backing)?, slot: upper };
    let (mut root, above) = zip(lower, upper, pivot, Fences::default(), edit)?;
    if let Some(above) = above {
        grow(&mut root, above, edit);
    }
    Ok(root)
}

/// One side of the seam, and the number of inner nodes above its leaves.
struct JoinSide {
    slot: Slot,
    height: usize,
}

fn height(root: &Slot, edge: Edge, backing: &Backing) -> Result<usize, EngineError> {
    let (mut slot, mut height) = (root, 0);
    while let Node::Inner(inner) = slot.load(Reading::One, backing)? {
        slot = &inner.children[edge.of(inner.children.len())];
        height += 1;
    }
    Ok(height)
}

/// Joins both sides into one node, or two where one cannot hold everything.
fn zip(
    lower: JoinSide,
    upper: JoinSide,
    pivot: Pivot,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<(Slot, Option<UpperPart>), EngineError> {
    match (lower.height, upper.height) {
        (0, 0) => join_leaves(lower.slot, upper.slot, pivot, fences, edit),
        (a, b) if a > b => join_below_last(lower, upper, pivot, fences, edit),
        (a, b) if a < b => join_below_first(lower, upper, pivot, fences, edit),
        _ => join_inner(lower, upper, pivot, fences, edit),
    }
}

fn join_below_last(
    mut lower: JoinSide,
    upper: JoinSide,
    pivot: Pivot,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<(Slot, Option<UpperPart>), EngineError> {
    let OwnedNode::Inner(inner) = own(&mut lower.slot, edit)? else { return Ok((lower.slot, None)) };
    let last = inner.children.len() - 1;
    let child = JoinSide { slot: std::mem::take(&mut inner.children[last]), height: lower.height - 1 };
    let inside = fences.of_child(inner.pivots(), last);
    let (child, above) = zip(child, upper, pivot, inside, edit)?;
    inner.children[last] = child;
    let above = above.and_then(|above| insert_upper(inner, last, above));
    Ok((lower.slot, above))
}

fn join_below_first(
    lower: JoinSide,
    mut upper: JoinSide,
    pivot: Pivot,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<(Slot, Option<UpperPart>), EngineError> {
    let OwnedNode::Inner(inner) = own(&mut upper.slot, edit)? else { return Ok((upper.slot, None)) };
    let child = JoinSide { slot: std::mem::take(&mut inner.children[0]), height: upper.height - 1 };
    let inside = fences.of_child(inner.pivots(), 0);
    let (child, above) = zip(lower, child, pivot, inside, edit)?;
    inner.children[0] = child;
    let above = above.and_then(|above| insert_upper(inner, 0, above));
    Ok((upper.slot, above))
}

fn join_inner(
    mut lower: JoinSide,
    mut upper: JoinSide,
    pivot: Pivot,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<(Slot, Option<UpperPart>), EngineError> {
    let height = lower.height - 1;
    let (OwnedNode::Inner(left), OwnedNode::Inner(right)) =
        (own(&mut lower.slot, edit)?, own(&mut upper.slot, edit)?)
    else {
        return Ok((lower.slot, None));
    };
    let last = left.children.len() - 1;
    let (pivots, children) = right.take_behind_first();
    let (left_pivots, left_children) = left.parts_mut();
    let low = fences.of_child(left_pivots, last).low;
    let inside = Fences { low, high: pivots.first().or(fences.high) };
    let seam = [&mut left_children[last], &mut right.children[0]];
    let [a, b] = seam.map(|slot| JoinSide { slot: std::mem::take(slot), height });
    let (joined, above) = zip(a, b, pivot, inside, edit)?;
    left.children[last] = joined;
    if let Some(above) = above {
        left.extend(vec![above.pivot], vec![above.slot]);
    }
    left.extend(pivots, children);
    let above = split_if_full(left, false);
    Ok((lower.slot, above))
}

fn join_leaves(
    mut lower: Slot,
    mut upper: Slot,
    pivot: Pivot,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<(Slot, Option<UpperPart>), EngineError> {
    let fit_well = match (lower.get(), upper.get()) {
        (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => a.joins_well(b, fences.prefix().len()),
        _ => false,
    };
    if !fit_well {
        return Ok((lower, Some(UpperPart { pivot, slot: upper })));
    }
    let (below, above) = (Fences { high: Some(&pivot), ..fences }, Fences { low: Some(&pivot), ..fences });
    if let (OwnedNode::Leaf(a), OwnedNode::Leaf(b)) =
        (own_in(&mut lower, below, edit)?, own_in(&mut upper, above, edit)?)
    {
        let both = [&**a, &**b].into_iter();
        let records: Vec<Record<'_>> =
            both.flat_map(|leaf| (0..leaf.len()).map(move |slot| leaf.record(slot))).collect();
        let joined = new_leaf(fences, &records, edit);
        *a = joined;
    }
    Ok((lower, None))
}

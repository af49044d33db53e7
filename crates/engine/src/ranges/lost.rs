//! Moves of ranges over unreadable nodes, in a salvage: everything readable goes where it belongs, and a
//! lookup of a key whose record is unknown is an error.
//!
//! Invariant: nothing of this is ever written.

use super::{EVERYTHING, empty_root};
use crate::backing::{Backing, Reading};
use crate::forest::Forest;
use crate::node::{Inner, Node, Pivot};
use crate::retired::RetiredList;
use crate::slot::Slot;
use crate::tree::{self, Edit};
use crate::value::Stored;
use crate::visit::{Direction, Visit};
use crate::{Damage, EngineError};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What is known about one end of a tree.
struct TreeEnd {
    /// The known key that is nearest to this end.
    key: Option<Vec<u8>>,
    /// Whether something unreadable lies before that key.
    is_lost: bool,
}

impl TreeEnd {
    /// Whether the tree is known to have no records.
    fn is_of_nothing(&self) -> bool {
        self.key.is_none() && !self.is_lost
    }
}

/// What is known about the first and the last records of a tree.
struct TreeEnds {
    first: TreeEnd,
    last: TreeEnd,
}

impl TreeEnds {
    fn of(root: &Slot, backing: &Backing) -> Result<Self, EngineError> {
        let end = |direction| -> Result<TreeEnd, EngineError> {
            let (mut key, mut is_lost) = (None, false);
            let visitor = |found: &[u8], _: Stored<'_>| {
                key = Some(found.to_vec());
                ControlFlow::Break(())
            };
            Visit::new(EVERYTHING, direction, visitor).run(root, &mut |slot| match slot
                .load(Reading::Along, backing)
            {
                Err(error) if error.is_damage() => {
                    is_lost = true;
                    Ok(Node::Leaf(slot.records_beside(backing).to_leaf_of_keys()))
                }
                loaded => loaded.cloned(),
            })?;
            Ok(TreeEnd { key, is_lost })
        };
        Ok(Self { first: end(Direction::Forward)?, last: end(Direction::Backward)? })
    }
}

impl Forest {
    /// Moves all keys of a tree at or above `at` to an empty tree, and returns the number of leaves lost.
    pub(crate) fn salvage_split(
        &mut self,
        tree: u32,
        at: &[u8],
        to: u32,
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<u64, EngineError> {
        let mut edit = Edit::new(self.epoch, backing, retired).salvaging();
        let Ok([lower, upper]) = self.trees.get_disjoint_mut([tree as usize, to as usize]) else {
            return Ok(0);
        };
        upper.root = tree::cut_off(&mut lower.root, at, &mut edit)?;
        lower.is_not_counted();
        upper.is_not_counted();
        Ok(edit.lost)
    }

    /// Moves all keys of `from` to `tree`, and returns the number of trees lost.
    pub(crate) fn salvage_absorb(
        &mut self,
        tree: u32,
        from: u32,
        backing: &Backing,
    ) -> Result<u64, EngineError> {
        let epoch = self.epoch;
        let Ok([tree, from]) = self.trees.get_disjoint_mut([tree as usize, from as usize]) else {
            return Ok(0);
        };
        let (ours, theirs) = (TreeEnds::of(&tree.root, backing)?, TreeEnds::of(&from.root, backing)?);
        let (a, b) = (std::mem::take(&mut tree.root), std::mem::take(&mut from.root));
        let mut lost = 0;
        tree.root = match (&ours.first.key, &theirs.first.key) {
            _ if theirs.first.is_of_nothing() => a,
            _ if ours.first.is_of_nothing() => b,
            (Some(_), Some(_)) => joined(a, &ours, b, &theirs, epoch, backing)?,
            (Some(_), None) => {
                lost = 1;
                surrounded(a, &ours, &b, epoch, backing)
            }
            (None, Some(_)) => {
                lost = 1;
                surrounded(b, &theirs, &a, epoch, backing)
            }
            (None, None) => a,
        };
        from.root = empty_root(epoch, backing);
        tree.is_not_counted();
        from.is_not_counted();
        Ok(lost)
    }
}

/// Joins two trees, of both of which records are known.
fn joined(
    a: Slot,
    ours: &TreeEnds,
    b: Slot,
    theirs: &TreeEnds,
    epoch: u64,
    backing: &Backing,
) -> Result<Slot, EngineError> {
    let (lower, below, upper, above) = match () {
        () if ours.last.key < theirs.first.key => (a, ours, b, theirs),
        () if theirs.last.key < ours.first.key => (b, theirs, a, ours),
        () => return Err(backing.corrupt(0, Damage::LogContent)),
    };
    // The gap between the known records of both belongs to the tree that is not completely known there.
    let pivot = match (&above.first, &below.last) {
        (TreeEnd { key: Some(key), is_lost: false }, _)
        | (TreeEnd { key: Some(key), .. }, TreeEnd { key: None, .. }) => key.clone(),
        (_, last) => behind(last.key.as_deref().unwrap_or_default()),
    };
    Ok(node_of(vec![pivot.into()], vec![lower, upper], epoch, backing))
}

/// A tree, with another one beside it of which nothing is known: the other lies before or behind everything
/// known.
fn surrounded(root: Slot, ends: &TreeEnds, lost: &Slot, epoch: u64, backing: &Backing) -> Slot {
    let (Some(first), Some(last)) = (&ends.first.key, &ends.last.key) else { return root };
    let lost = || lost.lost_with(crate::delta::Records::default(), backing);
    let pivots = vec![first.as_slice().into(), behind(last).into()];
    node_of(pivots, vec![lost(), root, lost()], epoch, backing)
}

/// The least key above it.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// A node above others, each below a node of its own: code that knows one of them to be a leaf must not take
/// the others for leaves.
fn node_of(pivots: Vec<Pivot>, children: Vec<Slot>, epoch: u64, backing: &Backing) -> Slot {
    let node = |pivots, children| {
        let mut inner = Inner::new(epoch, pivots, children);
        inner.count_in(backing.meter());
        Slot::resident(Node::Inner(Arc::new(inner)))
    };
    let children = children.into_iter().map(|child| node(Vec::new(), vec![child])).collect();
    node(pivots, children)
}

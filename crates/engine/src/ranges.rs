//! Key ranges that move between trees: split off into a tree of their own, or absorbed by a neighbour.
//!
//! A tree is what lies below its root, and a node does not know its tree. So a range moves with the nodes
//! that hold it: those on the path to the cut, or along the seam, are new; all others stay where they are, in
//! memory and on disk.
//!
//! Invariant: before the log has the record, the move is decided and all nodes that it changes are in memory.
//! Invariant: no record of a move is in the log before both superblocks say that there may be some.

mod lost;

use crate::backing::{Backing, Reading};
use crate::broken::UnfinishedGroup;
use crate::commit::{Visible, check_size};
use crate::engine::Tree;
use crate::fence;
use crate::forest::{Forest, TreeState};
use crate::gate::Alone;
use crate::leaf::Leaf;
use crate::node::{Node, Pivot, common_prefix};
use crate::planted::{self, Bug};
use crate::record::Record;
use crate::retired::RetiredList;
use crate::room::Need;
use crate::shared::{Shared, Writer};
use crate::slot::Slot;
use crate::tree::{self, Edit};
use crate::value::Stored;
use crate::visit::{Direction, Range, Visit};
use crate::{Commit, Durability, EngineError, KEY_MAX};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// About how many nodes a move makes or copies: two or three on each level.
const NODES_CHANGED: usize = 12;

/// Where two trees meet that are to become one.
enum Seam {
    /// There is nothing to absorb.
    FromIsEmpty,
    /// The tree takes everything that the other has.
    TreeIsEmpty,
    /// The other comes behind this tree: its keys are at or above the pivot, and this tree's keys below.
    FromAbove(Pivot),
    /// The other comes in front, with the roles exchanged.
    FromBelow(Pivot),
}

impl Tree {
    /// Splits off all keys at or above `at`, as the tree of this name, which is created if there is none and
    /// must be empty otherwise. Atomic. Only the nodes on the path to `at` are copied, however much the range
    /// holds.
    ///
    /// The number of records in each of the two trees is then unknown until it is asked for; see
    /// [`Tree::len`].
    ///
    /// # Errors
    /// [`EngineError::Occupied`]; as [`crate::Engine::write`].
    pub fn split_off(
        &self,
        at: &[u8],
        name: &str,
        durability: Durability,
    ) -> Result<(Tree, Commit), EngineError> {
        let shared = &*self.engine.shared;
        check_size("key", at.len() as u64, 1, KEY_MAX as u64)?;
        let writer = shared.begin_move()?;
        let (to, visible) = shared.split_off(writer, self.id(), at, name)?;
        let commit = shared.make_durable(&visible, durability)?;
        Ok((Tree::new(self.engine.clone(), to, name), commit))
    }

    /// Takes over all keys of `from`, which stays as an empty tree. All of them must lie above this tree's
    /// keys, or all below. Atomic, and only the nodes along the seam are copied.
    ///
    /// # Errors
    /// [`EngineError::Overlap`], [`EngineError::ForeignTree`]; as [`crate::Engine::write`].
    pub fn absorb(&self, from: &Tree, durability: Durability) -> Result<Commit, EngineError> {
        let shared = &*self.engine.shared;
        if !Arc::ptr_eq(&self.engine.shared, &from.engine.shared) {
            return Err(EngineError::ForeignTree { tree: from.name().to_owned() });
        }
        let writer = shared.begin_move()?;
        let visible = shared.absorb(writer, self.id(), from.id())?;
        shared.make_durable(&visible, durability)
    }
}

impl Shared {
    /// Takes the writer lock, once there is room and the store is marked as one whose ranges may move.
    fn begin_move(&self) -> Result<Alone<'_, Writer>, EngineError> {
        self.check_writable()?;
        self.wait_for_room(Need::of_nodes(NODES_CHANGED))?;
        self.note_moved_ranges().map_err(fence::not_kept)?;
        let writer = self.writer.alone();
        self.check_writable()?;
        Ok(writer)
    }

    fn split_off(
        &self,
        mut writer: Alone<'_, Writer>,
        tree: u32,
        at: &[u8],
        name: &str,
    ) -> Result<(u32, Visible), EngineError> {
        let (known, new) = {
            let forest = self.forest.read();
            let known = forest.id_of(name);
            if known.is_some_and(|to| to == tree) || !forest.is_empty_tree(known, &self.backing)? {
                return Err(EngineError::Occupied { tree: name.to_owned() });
            }
            if let Some(state) = forest.tree(tree) {
                load_cut(&state.root, at, &self.backing)?;
            }
            (known, forest.trees.len() as u32)
        };
        let to = known.unwrap_or(new);
        let made = Record::NewTree { tree: to, name };
        let moved = Record::SplitOff { tree, to, at };
        let records = if known.is_some() { &[moved][..] } else { &[made, moved] };
        let in_log = self.log_records(&mut writer, records)?;
        let visible = self.apply_move((writer, in_log), [tree, to], |forest, retired| {
            if known.is_none() {
                forest.add_tree(name, &self.backing);
            }
            forest.split_off(tree, at, to, &self.backing, retired)
        })?;
        Ok((to, visible))
    }

    fn absorb(&self, mut writer: Alone<'_, Writer>, tree: u32, from: u32) -> Result<Visible, EngineError> {
        let seam = self.forest.read().seam(tree, from, &self.backing)?;
        let absorbed = [Record::Absorb { tree, from }];
        let is_logged = !planted::is(Bug::RangeMoveNotLogged);
        let in_log = self.log_records(&mut writer, if is_logged { &absorbed } else { &[] })?;
        self.apply_move((writer, in_log), [tree, from], |forest, retired| {
            forest.join(tree, from, seam, &self.backing, retired)
        })
    }

    fn apply_move(
        &self,
        (mut writer, in_log): (Alone<'_, Writer>, UnfinishedGroup<'_>),
        trees: [u32; 2],
        change: impl FnOnce(&mut Forest, &mut RetiredList) -> Result<(), EngineError>,
    ) -> Result<Visible, EngineError> {
        let mut forest = self.forest.write();
        // If this fails, the store is broken before the lock of the trees is released: no reader sees half of
        // it.
        let half_done = in_log;
        trees.iter().for_each(|&tree| self.hot.forget_tree(tree));
        let changed = change(&mut forest, &mut writer.retired);
        changed.map_err(|error| self.undecided(&mut writer, error))?;
        half_done.done();
        Ok(self.end_alone(writer, forest))
    }
}

impl Forest {
    /// The id of the tree of this name.
    pub(crate) fn id_of(&self, name: &str) -> Option<u32> {
        self.trees.iter().find(|tree| tree.name == name).map(|tree| tree.id)
    }

    /// Whether a tree, if it exists, has no records. The nodes that show this are in memory afterwards.
    pub(crate) fn is_empty_tree(&self, tree: Option<u32>, backing: &Backing) -> Result<bool, EngineError> {
        let Some(state) = tree.and_then(|tree| self.tree(tree)) else { return Ok(true) };
        Ok(nearest(&state.root, EVERYTHING, Direction::Forward, backing)?.is_none())
    }

    /// Moves all keys of a tree at or above `at` to an empty tree; refuses a tree that is not empty.
    pub(crate) fn split_off(
        &mut self,
        tree: u32,
        at: &[u8],
        to: u32,
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        if let Some(state) = self.tree(to)
            && !self.is_empty_tree(Some(to), backing)?
        {
            return Err(EngineError::Occupied { tree: state.name.clone() });
        }
        let mut edit = Edit::new(self.epoch, backing, retired);
        let Ok([lower, upper]) = self.trees.get_disjoint_mut([tree as usize, to as usize]) else {
            return Ok(());
        };
        let cut = tree::cut_off(&mut lower.root, at, &mut edit)?;
        tree::discard(std::mem::replace(&mut upper.root, cut), &mut edit)?;
        if has_no_records(&lower.root) {
            lower.hand_count_to(upper);
        } else if !has_no_records(&upper.root) {
            lower.is_not_counted();
            upper.is_not_counted();
        }
        Ok(())
    }

    /// The seam of two trees.
    fn seam(&self, tree: u32, from: u32, backing: &Backing) -> Result<Seam, EngineError> {
        let (Some(state), Some(other)) = (self.tree(tree), self.tree(from)) else {
            return Ok(Seam::FromIsEmpty);
        };
        let ends = |state: &TreeState| -> Result<_, EngineError> {
            let first = nearest(&state.root, EVERYTHING, Direction::Forward, backing)?;
            let last = nearest(&state.root, EVERYTHING, Direction::Backward, backing)?;
            Ok(first.zip(last))
        };
        let Some(theirs) = ends(other)? else { return Ok(Seam::FromIsEmpty) };
        let Some(ours) = ends(state)? else { return Ok(Seam::TreeIsEmpty) };
        let pivot_at = |lower: &[u8], upper: &[u8]| -> Result<Pivot, EngineError> {
            let pivot = pivot_between(lower, upper);
            let roots = [&state.root, &other.root];
            roots.into_iter().try_for_each(|root| refuse_stranger_at(root, &pivot, backing))?;
            Ok(pivot)
        };
        if ours.1 < theirs.0 {
            return Ok(Seam::FromAbove(pivot_at(&ours.1, &theirs.0)?));
        }
        if theirs.1 < ours.0 {
            return Ok(Seam::FromBelow(pivot_at(&theirs.1, &ours.0)?));
        }
        let (first, last) = (ours.0.max(theirs.0), ours.1.min(theirs.1));
        Err(EngineError::Overlap { tree: state.name.clone(), from: other.name.clone(), first, last })
    }

    /// Moves all keys of `from` to `tree`.
    pub(crate) fn absorb(
        &mut self,
        tree: u32,
        from: u32,
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        let seam = self.seam(tree, from, backing)?;
        self.join(tree, from, seam, backing, retired)
    }

    fn join(
        &mut self,
        tree: u32,
        from: u32,
        seam: Seam,
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        let epoch = self.epoch;
        let mut edit = Edit::new(epoch, backing, retired);
        let Ok([tree, from]) = self.trees.get_disjoint_mut([tree as usize, from as usize]) else {
            return Ok(());
        };
        let joined = match seam {
            Seam::FromIsEmpty => return Ok(()),
            Seam::TreeIsEmpty => {
                tree::discard(std::mem::take(&mut tree.root), &mut edit)?;
                std::mem::take(&mut from.root)
            }
            Seam::FromAbove(pivot) => join_at(&mut tree.root, &mut from.root, pivot, &mut edit)?,
            Seam::FromBelow(pivot) => join_at(&mut from.root, &mut tree.root, pivot, &mut edit)?,
        };
        tree.root = joined;
        from.root = empty_root(epoch, backing);
        from.hand_count_to(tree);
        Ok(())
    }
}

/// The root of a tree without records.
pub(crate) fn empty_root(epoch: u64, backing: &Backing) -> Slot {
    let mut leaf = Leaf::empty(&[], epoch);
    if let Some(fresh) = leaf.get_mut() {
        fresh.count_in(backing.meter());
    }
    Slot::resident(Node::Leaf(leaf))
}

/// Joins two trees into one. Empty leaves that reach over the pivot would be in the way, so both trees are
/// cut there first.
fn join_at(
    lower: &mut Slot,
    upper: &mut Slot,
    pivot: Pivot,
    edit: &mut Edit<'_>,
) -> Result<Slot, EngineError> {
    let beyond = tree::cut_off(lower, &pivot, edit)?;
    tree::discard(beyond, edit)?;
    let upper_part = tree::cut_off(upper, &pivot, edit)?;
    tree::discard(std::mem::take(upper), edit)?;
    tree::join(std::mem::take(lower), upper_part, pivot, edit)
}

const EVERYTHING: Range<'static> = (Bound::Unbounded, Bound::Unbounded);

/// Whether a tree that was just cut or joined is empty.
fn has_no_records(root: &Slot) -> bool {
    matches!(root.get(), Some(Node::Leaf(leaf)) if leaf.len() == 0)
}

/// The shortest key above `lower` and not above `upper`.
fn pivot_between(lower: &[u8], upper: &[u8]) -> Pivot {
    let len = common_prefix(lower, upper) + 1;
    upper[..len.min(upper.len())].into()
}

/// The first key of a range in this direction. Every node up to it is in memory afterwards.
fn nearest(
    root: &Slot,
    range: Range<'_>,
    direction: Direction,
    backing: &Backing,
) -> Result<Option<Vec<u8>>, EngineError> {
    let mut found = None;
    let visitor = |key: &[u8], _: Stored<'_>| {
        found = Some(key.to_vec());
        ControlFlow::Break(())
    };
    Visit::new(range, direction, visitor)
        .run(root, &mut |slot| slot.load(Reading::Along, backing).cloned())?;
    // The leaf that a move changes and the leaf of that key are the same.
    found.iter().try_for_each(|found| refuse_stranger_at(root, found, backing))?;
    Ok(found)
}

/// Refuses a leaf that was read on the path to a key and does not belong there.
fn refuse_stranger_at(root: &Slot, key: &[u8], backing: &Backing) -> Result<(), EngineError> {
    tree::missing_for(root, key, backing).map(|_| ())
}

/// Reads every node that a cut at this key changes.
fn load_cut(root: &Slot, at: &[u8], backing: &Backing) -> Result<(), EngineError> {
    nearest(root, (Bound::Unbounded, Bound::Excluded(at)), Direction::Backward, backing)?;
    nearest(root, (Bound::Included(at), Bound::Unbounded), Direction::Forward, backing)?;
    refuse_stranger_at(root, at, backing)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::node::FAN_OUT_MAX;
    use crate::options::Options;

    /// Asserts that the tree has a shape that changes of single keys would leave.
    fn assert_shape(tree: &Tree) {
        let forest = tree.engine.shared.forest.read();
        let root = &forest.tree(tree.id()).unwrap().root;
        assert!(root.inner().is_none_or(|inner| inner.children.len() > 1), "a root with one child");
        let mut level = vec![root];
        while let Some(slot) = level.pop() {
            match slot.get().unwrap() {
                Node::Inner(inner) => {
                    assert!(inner.children.len() <= FAN_OUT_MAX, "{} children", inner.children.len());
                    level.extend(&inner.children);
                }
                Node::Leaf(leaf) => assert!(leaf.live_bytes() < 16 << 10, "{} bytes", leaf.live_bytes()),
            }
        }
    }

    #[test]
    fn what_was_cut_or_joined_has_the_shape_of_any_other_tree() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let [a, b] = ["a", "b"].map(|name| engine.tree(name).unwrap());
        let key = |number: u32| format!("atom/{number:08}").into_bytes();
        // Ascending puts fill nodes completely.
        for number in 0..100_000 {
            let tree = if number < 70_000 { &a } else { &b };
            tree.put(&key(number), &[7; 100], Durability::Buffered).unwrap();
        }
        a.absorb(&b, Durability::Buffered).unwrap();
        assert_shape(&a);
        for at in [1, 40, 3000, 50_000, 99_990] {
            a.split_off(&key(at), "b", Durability::Buffered).unwrap();
            [&a, &b].into_iter().for_each(assert_shape);
            a.absorb(&b, Durability::Buffered).unwrap();
            assert_shape(&a);
        }
    }

    #[test]
    fn what_a_leaf_at_the_end_has_no_room_for_goes_to_the_leaf_beside_it() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let tree = engine.tree("a").unwrap();
        let key = |number: u32| [vec![b'x'; 2000], format!("{number:06}").into_bytes()].concat();
        // In random order, so that most leaves come to lie between two separators and leave out the long
        // common part.
        (0..2000).for_each(|number| {
            tree.put(&key(number * 1237 % 2000), b"v", Durability::Buffered).unwrap();
        });
        let (upper, _) = tree.split_off(&key(1000), "b", Durability::Buffered).unwrap();
        [&tree, &upper].into_iter().for_each(assert_shape);
    }
}

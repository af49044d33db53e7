//! All trees of a store at one moment, and the changes that a commit makes to them.
//!
//! Invariant: a change is applied only after its group is part of the log.

use crate::EngineError;
use crate::backing::Backing;
use crate::node::{Node, Slot};
use crate::retired::RetiredList;
use crate::search::{self, Direction, Visit};
use crate::tree::{self, Edit, HashedKey};
use crate::value::{Chain, INLINE_BELOW, Piece, Stored};
use atoll_buffer::Buffer;
use std::convert::Infallible;
use std::ops::{Bound, ControlFlow};

/// One tree: its root, and how many records it holds.
#[derive(Clone)]
pub(crate) struct TreeState {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) root: Slot,
    pub(crate) records: u64,
}

/// A named snapshot: all trees as they were.
#[derive(Clone)]
pub(crate) struct NamedSnapshot {
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) trees: Vec<TreeState>,
}

/// All trees, at one moment.
#[derive(Clone, Default)]
pub(crate) struct Forest {
    pub(crate) epoch: u64,
    /// Sequence of the last commit applied.
    pub(crate) sequence: u64,
    pub(crate) trees: Vec<TreeState>,
    pub(crate) snapshots: Vec<NamedSnapshot>,
}

/// A value to be stored: small bytes, or a piece that knows or will know its home.
pub(crate) enum NewValue<'a> {
    Inline(&'a [u8]),
    Piece(Piece),
}

/// A change that is ready to be applied.
pub(crate) enum Change<'a> {
    Put(&'a [u8], NewValue<'a>),
    Append(&'a [u8], NewValue<'a>),
    Delete(&'a [u8]),
    DeleteRange(Bound<&'a [u8]>, Bound<&'a [u8]>),
}

impl Change<'_> {
    /// The one key that it touches.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put(key, _) | Self::Append(key, _) | Self::Delete(key) => Some(key),
            Self::DeleteRange(..) => None,
        }
    }
}

/// Keys that a range delete removes between two looks at the tree.
const RANGE_STEP: usize = 1024;

impl Forest {
    pub(crate) fn tree(&self, id: u32) -> Option<&TreeState> {
        self.trees.get(id as usize)
    }

    /// Adds an empty tree; trees are numbered in the order of their making.
    pub(crate) fn add_tree(&mut self, name: &str) -> u32 {
        let id = self.trees.len() as u32;
        let root = Slot::resident(Node::Leaf(crate::leaf::Leaf::empty(&[], self.epoch)));
        self.trees.push(TreeState { id, name: name.to_owned(), root, records: 0 });
        id
    }

    pub(crate) fn add_snapshot(&mut self, name: &str) {
        let (epoch, sequence, trees) = (self.epoch, self.sequence, self.trees.clone());
        self.snapshots.push(NamedSnapshot { name: name.to_owned(), epoch, sequence, trees });
    }

    pub(crate) fn remove_snapshot(&mut self, name: &str) {
        self.snapshots.retain(|snapshot| snapshot.name != name);
    }

    /// Reads what a change needs to see before it is applied.
    pub(crate) fn load_for(
        &self,
        tree: u32,
        change: &Change<'_>,
        backing: &Backing,
    ) -> Result<(), EngineError> {
        let Some(state) = self.tree(tree) else { return Ok(()) };
        match change {
            Change::Put(..) => Ok(()),
            Change::Append(key, _) | Change::Delete(key) => load_leaf(&state.root, key, backing),
            Change::DeleteRange(from, to) => load_range(&state.root, (*from, *to), backing),
        }
    }

    /// Applies changes in order, bringing the leaves of those ahead nearer.
    pub(crate) fn apply(
        &mut self,
        changes: &[(u32, Change<'_>)],
        backing: &Backing,
        retired: &mut RetiredList,
    ) -> Result<(), EngineError> {
        for window in changes.chunks(search::LANES) {
            if window.len() > 1 {
                let touched = window.iter().filter_map(|(tree, change)| {
                    Some((&self.trees.get(*tree as usize)?.root, change.key()?))
                });
                search::prefetch_for_change(touched);
            }
            for (tree, change) in window {
                let mut edit = Edit { epoch: self.epoch, backing, retired };
                if let Some(state) = self.trees.get_mut(*tree as usize) {
                    state.apply(change, &mut edit)?;
                }
            }
        }
        Ok(())
    }
}

impl TreeState {
    fn apply(&mut self, change: &Change<'_>, edit: &mut Edit<'_>) -> Result<(), EngineError> {
        match change {
            Change::Put(key, value) => self.put(HashedKey::new(key), value, edit),
            Change::Append(key, value) => self.append(HashedKey::new(key), value, edit),
            Change::Delete(key) => {
                self.records -= u64::from(tree::delete(&mut self.root, HashedKey::new(key), edit)?);
                Ok(())
            }
            Change::DeleteRange(from, to) => self.delete_range(*from, *to, edit),
        }
    }

    fn put(
        &mut self,
        key: HashedKey<'_>,
        value: &NewValue<'_>,
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        let is_new = match value {
            NewValue::Inline(bytes) => tree::put(&mut self.root, key, &Stored::Inline(bytes), edit)?,
            NewValue::Piece(piece) => {
                let chain = Chain::One(piece.clone());
                tree::put(&mut self.root, key, &Stored::Chain(&chain), edit)?
            }
        };
        self.records += u64::from(is_new);
        Ok(())
    }

    fn append(
        &mut self,
        key: HashedKey<'_>,
        added: &NewValue<'_>,
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        let current = search::get(&self.root, key.bytes).unwrap_or_default();
        let front = match (current, added) {
            (None, _) => return self.put(key, added, edit),
            (Some(Stored::Inline(old)), NewValue::Inline(new)) if old.len() + new.len() < INLINE_BELOW => {
                let joined = [old, *new].concat();
                return self.put(key, &NewValue::Inline(&joined), edit);
            }
            (Some(Stored::Inline(&[])), _) => return self.put(key, added, edit),
            (Some(Stored::Inline(old)), _) => Chain::One(piece_of(old, edit)),
            (Some(Stored::Chain(chain)), _) => chain.clone(),
        };
        let added = match added {
            NewValue::Inline([]) => return Ok(()),
            NewValue::Inline(bytes) => piece_of(bytes, edit),
            NewValue::Piece(piece) => piece.clone(),
        };
        let (chain, left) = front.appended(added.clone(), edit.backing, edit.epoch);
        if left.iter().any(|piece| piece.same(&added)) {
            // It was joined at once; pieces of the old value are retired when they are replaced.
            edit.retired.piece(&added, edit.epoch);
        }
        tree::put(&mut self.root, key, &Stored::Chain(&chain), edit)?;
        Ok(())
    }

    fn delete_range(
        &mut self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        edit: &mut Edit<'_>,
    ) -> Result<(), EngineError> {
        loop {
            let keys = self.keys_in((from, to), RANGE_STEP);
            for key in &keys {
                self.records -= u64::from(tree::delete(&mut self.root, HashedKey::new(key), edit)?);
            }
            if keys.len() < RANGE_STEP {
                return Ok(());
            }
        }
    }

    /// The first keys of a range, all resident.
    fn keys_in(&self, range: search::Range<'_>, most: usize) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let visitor = |key: &[u8], _: Stored<'_>| {
            keys.push(key.to_vec());
            if keys.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut visit =
            Visit { range, direction: Direction::Forward, key: Vec::new(), visited_any: false, visitor };
        // Nodes that are not resident hold no key of the range: the caller made those that do resident.
        let skipped = Node::Leaf(crate::leaf::Leaf::empty(&[], 0));
        let ended: Result<_, Infallible> = visit.run(&self.root, &mut |_, _| Ok(skipped.clone()));
        match ended {
            Ok(_) => keys,
            Err(never) => match never {},
        }
    }
}

/// Reads the leaf whose range holds `key`.
pub(crate) fn load_leaf(root: &Slot, key: &[u8], backing: &Backing) -> Result<(), EngineError> {
    let mut slot = root;
    while let Node::Inner(inner) = slot.load(backing)? {
        slot = &inner.children[inner.child_of(key)];
    }
    Ok(())
}

/// Reads every leaf of a range.
pub(crate) fn load_range(
    root: &Slot,
    range: search::Range<'_>,
    backing: &Backing,
) -> Result<(), EngineError> {
    let visitor = |_: &[u8], _: Stored<'_>| ControlFlow::Continue(());
    let mut visit =
        Visit { range, direction: Direction::Forward, key: Vec::new(), visited_any: false, visitor };
    visit.run(root, &mut |slot, _| slot.load(backing).cloned()).map(|_| ())
}

fn piece_of(bytes: &[u8], edit: &Edit<'_>) -> Piece {
    Piece::resident(Buffer::copy_from(bytes), edit.backing.checksum(bytes), edit.epoch)
}

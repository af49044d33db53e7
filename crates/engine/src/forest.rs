//! All trees of a store at one moment, and the changes that a commit makes to them.
//!
//! Invariant: a change is applied only after its group is part of the log.

mod appended;
mod change;
mod replayed;

pub(crate) use appended::{Appended, appended};
pub(crate) use change::{Change, NewValue};

use crate::backing::Backing;
use crate::frames;
use crate::ranges::empty_root;
use crate::slot::Slot;
use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that may change while others read it.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn of(count: u64) -> Self {
        Self(AtomicU64::new(count))
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds to it, and returns the new value.
    #[inline]
    pub(crate) fn add(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed).wrapping_add(more)
    }

    #[inline]
    pub(crate) fn take_off(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }
}

impl Clone for Count {
    fn clone(&self) -> Self {
        Self::of(self.get())
    }
}

/// One tree: its root, and how many records it holds, if that is known; see [`crate::count`].
#[derive(Clone)]
pub(crate) struct TreeState {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) root: Slot,
    pub(crate) records: Count,
    pub(crate) is_counted: bool,
    /// Grows with every event that invalidates a count begun before.
    pub(crate) count_round: u64,
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
    pub(crate) sequence: Count,
    pub(crate) trees: Vec<TreeState>,
    pub(crate) snapshots: Vec<NamedSnapshot>,
}

impl Drop for Forest {
    fn drop(&mut self) {
        let _ending = (frames::ending(), atoll_buffer::ending());
        self.trees.clear();
        self.snapshots.clear();
    }
}

impl Forest {
    pub(crate) fn tree(&self, id: u32) -> Option<&TreeState> {
        self.trees.get(id as usize)
    }

    /// Adds an empty tree; trees are numbered in the order of their creation.
    pub(crate) fn add_tree(&mut self, name: &str, backing: &Backing) -> u32 {
        let id = self.trees.len() as u32;
        let (name, root) = (name.to_owned(), empty_root(self.epoch, backing));
        let (records, is_counted, count_round) = (Count::default(), true, 0);
        self.trees.push(TreeState { id, name, root, records, is_counted, count_round });
        id
    }

    pub(crate) fn add_snapshot(&mut self, name: &str) {
        let (epoch, sequence, trees) = (self.epoch, self.sequence.get(), self.trees.clone());
        self.snapshots.push(NamedSnapshot { name: name.to_owned(), epoch, sequence, trees });
    }

    /// Takes the nodes of named snapshots that can be read back, for the caller to drop outside of the lock.
    pub(crate) fn let_go_of_snapshots(&mut self) -> Vec<Slot> {
        let trees = self.snapshots.iter_mut().flat_map(|snapshot| &mut snapshot.trees);
        trees.filter_map(|tree| tree.root.replaced_by_home()).collect()
    }

    pub(crate) fn remove_snapshot(&mut self, name: &str) {
        self.snapshots.retain(|snapshot| snapshot.name != name);
    }
}

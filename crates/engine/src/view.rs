//! Views: the trees as they were at one moment, for readers that outlive it, in memory that can be released.
//!
//! A view begins as clones of the roots, and so keeps every node that was in memory then. When memory is
//! short, a checkpoint writes what only views still have, as it does for named snapshots; their nodes are
//! then read back from the disk like any others.
//!
//! Invariant: the pin of a view keeps its pages in place for as long as the view lives, whether or not they
//! were written for it.
//! Invariant: no lock of a view is held while a visitor runs.

use crate::forest::TreeState;
use crate::node::Node;
use crate::pins::Pin;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::threads::{Mutex, RwLock};
use crate::value::{Stored, Value};
use crate::visit::{Direction, Range, Visit, Visited};
use crate::{Damage, EngineError};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Weak};

/// Records that a scan visits before it starts anew from the root, releasing everything it held until then.
///
/// That is a few leaves: a checkpoint cannot release what a running scan holds, and a visitor that writes
/// between two records may wait for exactly that.
const RECORDS_AT_ONCE: usize = 512;

/// Trees at one moment.
pub(crate) struct View {
    trees: RwLock<Vec<TreeState>>,
    pub(crate) epoch: u64,
    _pin: Pin,
}

/// The views that are alive.
#[derive(Default)]
pub(crate) struct Views(Mutex<Vec<Weak<View>>>);

impl Views {
    /// Adds a view of `trees`, whose epoch is already pinned.
    pub(crate) fn add(&self, trees: Vec<TreeState>, epoch: u64, pin: Pin) -> Arc<View> {
        let view = Arc::new(View { trees: RwLock::new(trees), epoch, _pin: pin });
        let mut views = self.0.lock();
        views.retain(|view| view.strong_count() > 0);
        views.push(Arc::downgrade(&view));
        view
    }

    pub(crate) fn alive(&self) -> Vec<Arc<View>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl View {
    pub(crate) fn trees(&self) -> Vec<TreeState> {
        self.trees.read().clone()
    }

    pub(crate) fn tree_names(&self) -> Vec<String> {
        self.trees.read().iter().map(|tree| tree.name.clone()).collect()
    }

    /// Number of records that a tree had, if that is known; 0 if there was no such tree.
    pub(crate) fn records(&self, tree: u32) -> Option<u64> {
        self.trees.read().get(tree as usize).map_or(Some(0), TreeState::known_records)
    }

    /// The root of a tree; none if there was no such tree.
    pub(crate) fn root(&self, tree: u32, shared: &Shared) -> Result<Option<Node>, EngineError> {
        let trees = self.trees.read();
        trees.get(tree as usize).map(|tree| shared.load_slot(&tree.root)).transpose()
    }

    /// The value that `key` had in a tree.
    pub(crate) fn get(&self, tree: u32, key: &[u8], shared: &Shared) -> Result<Option<Value>, EngineError> {
        let Some(mut node) = self.root(tree, shared)? else { return Ok(None) };
        while let Node::Inner(inner) = &node {
            let slot = &inner.children[inner.child_of(key)];
            node = match shared.load_slot(slot) {
                Err(error) if error.is_damage() => {
                    return self.value_beside(slot, key, shared).map(Some).ok_or(error);
                }
                loaded => loaded?,
            };
        }
        let Node::Leaf(leaf) = node else { return Ok(None) };
        Ok(leaf.value_of(key).map(|stored| shared.value_ref(stored, self.epoch).to_value()))
    }

    /// A value that was put beside a leaf that cannot be read.
    fn value_beside(&self, slot: &Slot, key: &[u8], shared: &Shared) -> Option<Value> {
        // Whether or not there was more to read: records in memory count as well.
        slot.bring_in_beside(&shared.backing).ok()?;
        let show = |value: &[u8]| shared.value_ref(Stored::Inline(value), self.epoch).to_value();
        slot.known_delta()?.find(key, show)
    }

    /// Takes the roots that can be read back, with everything below them, for the caller to drop outside of
    /// locks.
    pub(crate) fn let_go(&self) -> Vec<Slot> {
        // A thread that holds it is about to load a node: the next call will do.
        let Some(mut trees) = self.trees.try_write() else { return Vec::new() };
        trees.iter_mut().filter_map(|tree| tree.root.replaced_by_home()).collect()
    }

    /// Visits the records of a range in order until the visitor stops, and returns the key at which it
    /// stopped.
    pub(crate) fn scan(
        &self,
        tree: u32,
        shared: &Shared,
        range: Range<'_>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Stored<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let (mut last, mut stopped) = (Vec::new(), false);
        loop {
            let Some(root) = self.root(tree, shared)? else { return Ok(None) };
            let mut visited = 0;
            let visitor = |key: &[u8], stored: Stored<'_>| {
                visited += 1;
                stopped = visit(key, stored).is_break();
                if stopped || visited == RECORDS_AT_ONCE {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            let mut scan = Visit::new(rest_of(range, direction, &last), direction, visitor);
            let ended = scan.run(&Slot::resident(root), &mut |slot| shared.load_slot(slot))?;
            let key = scan.last_key().unwrap_or_default();
            match ended {
                Visited::All => return Ok(None),
                Visited::Stopped if stopped => return Ok(Some(key)),
                // The keys of a page that does not belong there could lead back for ever.
                Visited::Stopped if !goes_on(direction, &last, &key) => {
                    return Err(shared.backing.corrupt(0, Damage::PageContent));
                }
                Visited::Stopped => last = key,
            }
        }
    }
}

/// Whether `key` comes after the last key visited, if there is one.
fn goes_on(direction: Direction, last: &[u8], key: &[u8]) -> bool {
    match direction {
        _ if last.is_empty() => true,
        Direction::Forward => last < key,
        Direction::Backward => key < last,
    }
}

/// The rest of a range after the last key visited, if there is one; an empty `last` stands for none.
pub(crate) fn rest_of<'r>(range: Range<'r>, direction: Direction, last: &'r [u8]) -> Range<'r> {
    match (last, direction) {
        ([], _) => range,
        (last, Direction::Forward) => (Bound::Excluded(last), range.1),
        (last, Direction::Backward) => (range.0, Bound::Excluded(last)),
    }
}

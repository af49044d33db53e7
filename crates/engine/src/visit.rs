//! Ordered visits of a range of one tree.
//!
//! The path to a record is slot, leaf, offset, record, each of which may have to come from memory. So the
//! beginning of the next leaf is prefetched while this one is visited, and each record a few records ahead.
//! What the visitor will not reach is not prefetched, because fetching costs more than visiting.

use crate::leaf::{HEAD_LINES, KeyBuffer, Leaf, SLOT_LINES, SharedLeaf};
use crate::node::{Inner, Node};
use crate::slot::Slot;
use crate::value::Stored;
use std::ops::{Bound, ControlFlow};

/// Records that are prefetched ahead of the visit.
const RECORDS_AHEAD: usize = 8;

/// The path to a value outside of the leaf has three more steps. For each step, in their order, how many
/// records ahead it is prefetched.
const VALUE_STEPS_AHEAD: [usize; 4] = [14, 10, 6, 3];

/// Bounds of a range of keys.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Order of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending.
    Forward,
    /// Descending.
    Backward,
}

impl Direction {
    /// What is visited at `step` of `from..to`; none beyond the end.
    #[inline]
    fn at(self, step: usize, (from, to): (usize, usize)) -> Option<usize> {
        if step >= to - from {
            return None;
        }
        Some(match self {
            Self::Forward => from + step,
            Self::Backward => to - 1 - step,
        })
    }
}

/// How an ordered visit ended.
pub(crate) enum Visited {
    /// All keys of the range were visited.
    All,
    /// The visitor stopped, at the last key.
    Stopped,
}

/// An ordered visit of a range.
pub(crate) struct Visit<'v, F> {
    /// The rest of the range; a bound that was passed is dropped.
    range: Range<'v>,
    direction: Direction,
    /// In a leaf without records it stays that of the record before: a scan that stalls resumes behind it.
    last: KeyBuffer,
    visited_any: bool,
    visitor: F,
}

impl<'v, F> Visit<'v, F>
where
    F: FnMut(&[u8], Stored<'_>) -> ControlFlow<()>,
{
    pub(crate) fn new(range: Range<'v>, direction: Direction, visitor: F) -> Self {
        Self { range, direction, last: KeyBuffer::default(), visited_any: false, visitor }
    }

    /// The last key that was visited, if any was.
    pub(crate) fn last_key(&self) -> Option<Vec<u8>> {
        self.visited_any.then(|| self.last.key().to_vec())
    }

    /// Visits what lies below `root`. `load` returns the node of a slot that is not resident, or fails.
    pub(crate) fn run<E>(
        &mut self,
        root: &Slot,
        load: &mut impl FnMut(&Slot) -> Result<Node, E>,
    ) -> Result<Visited, E> {
        let loaded;
        let node = match root.get() {
            Some(node) => node,
            None => {
                loaded = load(root)?;
                &loaded
            }
        };
        let ended = match node {
            Node::Inner(inner) => self.visit_inner(inner, load)?,
            Node::Leaf(leaf) => self.visit_leaf(leaf, None),
        };
        Ok(if ended.is_break() { Visited::Stopped } else { Visited::All })
    }

    fn visit_inner<E>(
        &mut self,
        inner: &Inner,
        load: &mut impl FnMut(&Slot) -> Result<Node, E>,
    ) -> Result<ControlFlow<()>, E> {
        let first = match self.range.0 {
            Bound::Included(key) | Bound::Excluded(key) => inner.child_of(key),
            Bound::Unbounded => 0,
        };
        let end = match self.range.1 {
            Bound::Included(key) | Bound::Excluded(key) => inner.child_of(key) + 1,
            Bound::Unbounded => inner.children.len(),
        };
        let children = (first, end.max(first));
        let mut step = 0;
        while let Some(index) = self.direction.at(step, children) {
            let slot = &inner.children[index];
            let next = self.direction.at(step + 1, children).and_then(|next| inner.children[next].get());
            let loaded;
            let child = match slot.get() {
                Some(child) => child,
                None => {
                    loaded = load(slot)?;
                    &loaded
                }
            };
            let ended = match (child, next) {
                (Node::Inner(child), _) => self.visit_inner(child, load)?,
                (Node::Leaf(leaf), Some(Node::Leaf(next))) => {
                    leaf.prefetch(HEAD_LINES);
                    next.prefetch(SLOT_LINES);
                    self.visit_leaf(leaf, Some(next))
                }
                (Node::Leaf(leaf), _) => self.visit_leaf(leaf, None),
            };
            if ended.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            step += 1;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_leaf(&mut self, leaf: &Leaf, next: Option<&SharedLeaf>) -> ControlFlow<()> {
        self.ask_for_begin(leaf);
        let slots = self.slots_in(leaf);
        // From here on nothing lies before the beginning of the range.
        match self.direction {
            Direction::Forward => self.range.0 = Bound::Unbounded,
            Direction::Backward => self.range.1 = Bound::Unbounded,
        }
        self.last.begin(leaf);
        let is_far = leaf.has_chains();
        if is_far {
            self.begin_far(slots, leaf);
        } else {
            (0..RECORDS_AHEAD).for_each(|step| self.prefetch(step, slots, leaf, next));
        }
        let mut step = 0;
        while let Some(slot) = self.direction.at(step, slots) {
            if is_far {
                self.prefetch_far(step, slots, leaf);
            } else {
                self.prefetch(step + RECORDS_AHEAD, slots, leaf, next);
            }
            self.last.take(leaf, slot);
            let value = leaf.value(slot);
            self.visited_any = true;
            if (self.visitor)(self.last.key(), value).is_break() {
                return ControlFlow::Break(());
            }
            step += 1;
        }
        ControlFlow::Continue(())
    }

    /// Prefetches for the first steps of a leaf, whose turn would have come before it.
    fn begin_far(&self, slots: (usize, usize), leaf: &Leaf) {
        for ahead in 0..VALUE_STEPS_AHEAD[0] {
            self.far(ahead, slots, |slot| leaf.prefetch_record(slot));
        }
        for ahead in 0..VALUE_STEPS_AHEAD[1] {
            self.far(ahead, slots, |slot| leaf.prefetch_chain(slot));
        }
        for ahead in 0..VALUE_STEPS_AHEAD[2] {
            self.far(ahead, slots, |slot| leaf.prefetch_piece(slot));
        }
        for ahead in 0..VALUE_STEPS_AHEAD[3] {
            self.far(ahead, slots, |slot| leaf.prefetch_bytes(slot));
        }
    }

    /// Prefetches values outside of the leaf: the later a step on the path, the nearer the record it is
    /// prefetched for.
    #[inline]
    fn prefetch_far(&self, step: usize, slots: (usize, usize), leaf: &Leaf) {
        self.far(step + VALUE_STEPS_AHEAD[0], slots, |slot| leaf.prefetch_record(slot));
        self.far(step + VALUE_STEPS_AHEAD[1], slots, |slot| leaf.prefetch_chain(slot));
        self.far(step + VALUE_STEPS_AHEAD[2], slots, |slot| leaf.prefetch_piece(slot));
        self.far(step + VALUE_STEPS_AHEAD[3], slots, |slot| leaf.prefetch_bytes(slot));
    }

    #[inline(always)]
    fn far(&self, step: usize, slots: (usize, usize), ask: impl FnOnce(usize)) {
        if let Some(slot) = self.direction.at(step, slots) {
            ask(slot);
        }
    }

    /// Prefetches the records that are visited first, before waiting for one of them to find where the range
    /// begins.
    #[inline]
    fn ask_for_begin(&self, leaf: &Leaf) {
        if let (Direction::Forward, Bound::Included(key) | Bound::Excluded(key)) =
            (self.direction, self.range.0)
        {
            let begin = leaf.guess(key);
            (begin..(begin + RECORDS_AHEAD).min(leaf.len())).for_each(|slot| leaf.prefetch_record(slot));
        }
    }

    /// The slots of a leaf that lie in the range, from the first to behind the last.
    fn slots_in(&self, leaf: &Leaf) -> (usize, usize) {
        let bound = |key: &[u8], behind: bool| {
            let slot = leaf.lower_bound(key);
            slot + usize::from(behind && leaf.is_key(slot, key))
        };
        let from = match self.range.0 {
            Bound::Unbounded => 0,
            Bound::Included(key) => bound(key, false),
            Bound::Excluded(key) => bound(key, true),
        };
        let to = match self.range.1 {
            Bound::Unbounded => leaf.len(),
            Bound::Excluded(key) => bound(key, false),
            Bound::Included(key) => bound(key, true),
        };
        (from, to.max(from))
    }

    /// Prefetches the record of a step, which may be one of the next leaf.
    #[inline(always)]
    fn prefetch(&self, step: usize, slots: (usize, usize), leaf: &Leaf, next: Option<&SharedLeaf>) {
        if let Some(slot) = self.direction.at(step, slots) {
            leaf.prefetch_record(slot);
        } else if let Some(next) = next
            && let Some(slot) = self.direction.at(step - (slots.1 - slots.0), (0, next.len()))
        {
            next.prefetch_record(slot);
        }
    }
}

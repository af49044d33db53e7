//! Compares two states of one store, at the cost of what changed between them.
//!
//! Both trees are walked side by side in key order. Where both walks come to the same node, its subtree is
//! skipped unread: nodes are shared, and a node on disk is identified by its home, so a subtree that was not
//! written to costs one comparison, however large it is. Where the trees are divided differently, the walk
//! whose subtree begins first or reaches further descends, until both begin at the same key again.
//!
//! Invariant: a walk that stands at a node has passed all keys of its tree that lie before that node.
//! Invariant: pages and pieces of both states stay in place during the walk, so equal homes mean equal bytes.

use crate::EngineError;
use crate::engine::Engine;
use crate::leaf::SharedLeaf;
use crate::node::{Inner, Node};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::snapshot::Snapshot;
use crate::value::{Piece, Stored, ValueRef};
use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// A change of one record.
pub enum Change<'a> {
    /// The record is new or has another value: this one.
    Put(ValueRef<'a>),
    /// The record was deleted.
    Deleted,
}

/// Names of trees that only one of two states has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeChanges {
    /// Trees that only the newer state has.
    pub created: Vec<String>,
    /// Trees that only the older state has.
    pub dropped: Vec<String>,
}

/// Leaves that a walk enters before it starts anew from the roots. That releases everything it held until
/// then, so that memory it has passed can be given back.
const LEAVES_AT_ONCE: usize = 32;

impl Engine {
    /// The identity of the store: random, drawn when the store was made, and not shared by a copy.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.shared.backing.store_id()
    }
}

impl Snapshot {
    /// Visits, in key order and from a key on, the changes to the records of `tree` since `older`, until the
    /// visitor stops; returns the key at which it stopped. A tree that one of the states does not have counts
    /// as empty there.
    ///
    /// A record whose bytes are the same is not visited, except a value of 256 bytes or more that was
    /// rewritten with the bytes it had: values are not read to find that out.
    ///
    /// # Errors
    /// [`EngineError::OtherStore`] if the states are not of one open store; as [`Snapshot::get`].
    pub fn changes_since(
        &self,
        older: &Self,
        tree: &str,
        from: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], Change<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        let shared = self.shared_with(older)?;
        let mut from = match from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            // The least key above it.
            Bound::Excluded(key) => [key, &[0]].concat(),
        };
        loop {
            let old = Walk::of(older.root_of(tree)?, &from, shared);
            let new = Walk::of(self.root_of(tree)?, &from, shared);
            let mut both = TwoWalks { old, new };
            let ended = both.run(|key, value| {
                visit(
                    key,
                    match value {
                        Some(stored) => Change::Put(shared.value_ref(stored, self.epoch())),
                        None => Change::Deleted,
                    },
                )
            })?;
            match ended {
                WalkEnd::All => return Ok(None),
                WalkEnd::Stopped(key) => return Ok(Some(key)),
                WalkEnd::Paused(key) => from = key,
            }
        }
    }

    /// Trees that were created or dropped since `older`.
    ///
    /// # Errors
    /// [`EngineError::OtherStore`] if the states are not of one open store.
    pub fn trees_since(&self, older: &Self) -> Result<TreeChanges, EngineError> {
        self.shared_with(older)?;
        let without = |all: &Self, others: &Self| {
            let is_there = |name: &&str| others.tree_names().any(|other| other == *name);
            all.tree_names().filter(|name| !is_there(name)).map(str::to_owned).collect()
        };
        Ok(TreeChanges { created: without(self, older), dropped: without(older, self) })
    }

    /// The store of both states.
    fn shared_with(&self, older: &Self) -> Result<&Shared, EngineError> {
        let (ours, theirs) = (self.engine(), older.engine());
        ours.shared.check_open()?;
        if !Arc::ptr_eq(&ours.shared, &theirs.shared) {
            let (store, other) = (ours.shared.backing.name(), theirs.shared.backing.name());
            return Err(EngineError::OtherStore { store, other });
        }
        Ok(&ours.shared)
    }
}

/// How a walk ended.
enum WalkEnd {
    All,
    /// The visitor stopped at this key.
    Stopped(Vec<u8>),
    /// The rest begins at this key.
    Paused(Vec<u8>),
}

/// A walk through the records of one tree, from a key on.
struct Walk<'w> {
    shared: &'w Shared,
    from: &'w [u8],
    root: Slot,
    /// Inner nodes above the position, each with the child on the path.
    above: Vec<(Arc<Inner>, usize)>,
    at: WalkPosition,
    /// The node at the position, once it was needed.
    loaded: Option<Node>,
    leaves: usize,
}

/// Where a walk stands.
enum WalkPosition {
    /// Before a node that was not entered.
    Node,
    /// At a record of a leaf.
    Record(SharedLeaf, usize),
    End,
}

impl<'w> Walk<'w> {
    fn of(root: Option<Node>, from: &'w [u8], shared: &'w Shared) -> Self {
        let at = if root.is_some() { WalkPosition::Node } else { WalkPosition::End };
        let root = root.map(Slot::resident).unwrap_or_default();
        Self { shared, from, root, above: Vec::new(), at, loaded: None, leaves: 0 }
    }

    /// The slot of the node that the walk stands before.
    fn slot(&self) -> &Slot {
        match self.above.last() {
            Some((inner, child)) => &inner.children[*child],
            None => &self.root,
        }
    }

    /// The rest of the node begins at this key or later; the empty key is before all others.
    fn low(&self) -> &[u8] {
        let pivot =
            self.above.iter().rev().find_map(|(inner, child)| inner.pivots().get(child.checked_sub(1)?));
        pivot.map_or(self.from, |pivot| self.from.max(pivot))
    }

    /// The node ends before this key; none if nothing comes after it.
    fn high(&self) -> Option<&[u8]> {
        self.above.iter().rev().find_map(|(inner, child)| inner.pivots().get(*child)).map(|pivot| &**pivot)
    }

    fn is_inner(&mut self) -> Result<bool, EngineError> {
        let node = match self.loaded.take() {
            Some(node) => node,
            None => self.shared.load_slot(self.slot())?,
        };
        let is_inner = matches!(node, Node::Inner(_));
        self.loaded = Some(node);
        Ok(is_inner)
    }

    /// Enters the node that the walk stands before, at its first child or record that is not before `from`.
    fn go_in(&mut self) -> Result<(), EngineError> {
        let node = match self.loaded.take() {
            Some(node) => node,
            None => self.shared.load_slot(self.slot())?,
        };
        match node {
            Node::Inner(inner) => {
                let child = inner.child_of(self.from);
                self.above.push((inner, child));
            }
            Node::Leaf(leaf) => {
                self.leaves += 1;
                let slot = leaf.lower_bound(self.from);
                if slot < leaf.len() {
                    self.at = WalkPosition::Record(leaf, slot);
                } else {
                    self.pass();
                }
            }
        }
        Ok(())
    }

    /// Passes the node that the walk stands before, or the leaf that it is in.
    fn pass(&mut self) {
        (self.loaded, self.at) = (None, WalkPosition::End);
        while let Some((inner, child)) = self.above.last_mut() {
            *child += 1;
            if *child < inner.children.len() {
                self.at = WalkPosition::Node;
                return;
            }
            self.above.pop();
        }
    }

    fn next_record(&mut self) {
        let WalkPosition::Record(leaf, slot) = &mut self.at else { return };
        *slot += 1;
        if *slot == leaf.len() {
            self.pass();
        }
    }

    /// The key of the record that the walk stands at.
    fn key(&self) -> Vec<u8> {
        match &self.at {
            WalkPosition::Record(leaf, slot) => [leaf.prefix(), leaf.suffix(*slot)].concat(),
            _ => Vec::new(),
        }
    }

    fn value(&self) -> Option<Stored<'_>> {
        match &self.at {
            WalkPosition::Record(leaf, slot) => Some(leaf.value(*slot)),
            _ => None,
        }
    }

    /// A lower bound of all records that are left; none if no record is left.
    fn position(&self) -> Option<Vec<u8>> {
        match self.at {
            WalkPosition::Node => Some(self.low().to_vec()),
            WalkPosition::Record(..) => Some(self.key()),
            WalkPosition::End => None,
        }
    }
}

/// The walks through both states.
struct TwoWalks<'w> {
    old: Walk<'w>,
    new: Walk<'w>,
}

/// What comes next.
enum Step {
    Pass,
    GoInto { old: bool, new: bool },
    Tell { old: bool, new: bool },
    End,
}

impl TwoWalks<'_> {
    /// Reports each change to `tell`, with the present value of the record, until `tell` stops.
    fn run(
        &mut self,
        mut tell: impl FnMut(&[u8], Option<Stored<'_>>) -> ControlFlow<()>,
    ) -> Result<WalkEnd, EngineError> {
        loop {
            match self.next_step()? {
                Step::End => return Ok(WalkEnd::All),
                Step::Pass => {
                    self.old.pass();
                    self.new.pass();
                }
                Step::GoInto { old, new } => {
                    if let Some(position) = self.pause() {
                        return Ok(WalkEnd::Paused(position));
                    }
                    if old {
                        self.old.go_in()?;
                    }
                    if new {
                        self.new.go_in()?;
                    }
                }
                Step::Tell { old, new } => {
                    if let Some(key) = self.tell(old, new, &mut tell) {
                        return Ok(WalkEnd::Stopped(key));
                    }
                }
            }
        }
    }

    fn next_step(&mut self) -> Result<Step, EngineError> {
        let (old, new) = (&self.old, &self.new);
        Ok(match (&old.at, &new.at) {
            (WalkPosition::End, WalkPosition::End) => Step::End,
            (WalkPosition::Node, WalkPosition::Node) if old.slot().is_same(new.slot()) => Step::Pass,
            (WalkPosition::Node, WalkPosition::Node) => return self.next_of_nodes(),
            (WalkPosition::Node, WalkPosition::Record(..)) if new.key().as_slice() < old.low() => {
                Step::Tell { old: false, new: true }
            }
            (WalkPosition::Record(..), WalkPosition::Node) if old.key().as_slice() < new.low() => {
                Step::Tell { old: true, new: false }
            }
            (WalkPosition::Node, WalkPosition::Record(..) | WalkPosition::End) => {
                Step::GoInto { old: true, new: false }
            }
            (WalkPosition::Record(..) | WalkPosition::End, WalkPosition::Node) => {
                Step::GoInto { old: false, new: true }
            }
            (WalkPosition::Record(..), WalkPosition::End) => Step::Tell { old: true, new: false },
            (WalkPosition::End, WalkPosition::Record(..)) => Step::Tell { old: false, new: true },
            (WalkPosition::Record(..), WalkPosition::Record(..)) => match old.key().cmp(&new.key()) {
                Ordering::Less => Step::Tell { old: true, new: false },
                Ordering::Equal => Step::Tell { old: true, new: true },
                Ordering::Greater => Step::Tell { old: false, new: true },
            },
        })
    }

    /// Which of two different nodes to enter: the one that begins first, else the one that reaches further,
    /// else both. A leaf beside an inner node is the exception: that very leaf may lie below the inner node,
    /// so only the inner node is entered.
    fn next_of_nodes(&mut self) -> Result<Step, EngineError> {
        let reach = |high: Option<&[u8]>, other: Option<&[u8]>| match (high, other) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(high), Some(other)) => high.cmp(other),
        };
        let begins = self.new.low().cmp(self.old.low());
        let (old, new) = match begins.then(reach(self.old.high(), self.new.high())) {
            Ordering::Greater => (true, false),
            Ordering::Less => (false, true),
            Ordering::Equal => match (self.old.is_inner()?, self.new.is_inner()?) {
                (true, false) => (true, false),
                (false, true) => (false, true),
                _ => (true, true),
            },
        };
        Ok(Step::GoInto { old, new })
    }

    /// Reports the record that the named walks stand at, if it changed, and moves on to the next record.
    /// Returns the key if the visitor stopped.
    fn tell(
        &mut self,
        old: bool,
        new: bool,
        tell: &mut impl FnMut(&[u8], Option<Stored<'_>>) -> ControlFlow<()>,
    ) -> Option<Vec<u8>> {
        let is_same = match (self.old.value(), self.new.value()) {
            (Some(before), Some(now)) => old && new && is_same_value(before, now),
            _ => false,
        };
        let mut stopped = None;
        if !is_same {
            let (key, value) = match new {
                true => (self.new.key(), self.new.value()),
                false => (self.old.key(), None),
            };
            stopped = tell(&key, value).is_break().then_some(key);
        }
        if old {
            self.old.next_record();
        }
        if new {
            self.new.next_record();
        }
        stopped
    }

    /// The key from which to start anew, once the walks have entered many leaves.
    fn pause(&self) -> Option<Vec<u8>> {
        if self.old.leaves + self.new.leaves < LEAVES_AT_ONCE {
            return None;
        }
        let positions = self.old.position().into_iter().chain(self.new.position());
        positions.min().filter(|position| position.as_slice() > self.old.from)
    }
}

/// Whether both are known to have the same bytes; long values are not read to find out.
fn is_same_value(a: Stored<'_>, b: Stored<'_>) -> bool {
    let is_same_piece = |(a, b): (&Piece, &Piece)| {
        let is_same_home = || a.home().is_some_and(|home| b.home() == Some(home));
        a.same(b) || (is_same_home() && a.len() == b.len() && a.checksum() == b.checksum())
    };
    match (a, b) {
        (Stored::Inline(a), Stored::Inline(b)) => a == b,
        (Stored::Chain(a), Stored::Chain(b)) => {
            let (a, b) = (a.pieces(), b.pieces());
            a.len() == b.len() && a.iter().zip(b).all(is_same_piece)
        }
        _ => false,
    }
}

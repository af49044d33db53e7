//! Changes to one tree: put, delete, split, join, all copy-on-write. This module has what they share.
//!
//! The caller holds the writer lock and has made resident whatever the change will touch.
//!
//! Invariant: a change leaves shared nodes as they were.
//! Invariant: whatever leaves the current tree is retired exactly once.

mod cut;
mod delete;
mod eviction;
mod join;
mod lost;
mod place;
mod put;

pub(crate) use cut::{cut_off, discard};
pub(crate) use delete::delete;
pub(crate) use eviction::{Evictable, evict, make_way};
pub(crate) use join::join;
pub(crate) use lost::{learn_leaves, lose, put_beside_lost};
pub(crate) use place::{load_range, missing_for};
pub(crate) use put::{Run, put};

use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::delta::{Delta, Retirement};
use crate::frames::Purpose;
use crate::leaf::{Leaf, Record, SharedLeaf};
use crate::node::{FAN_OUT_MAX, Inner, Node, Pivot, common_prefix};
use crate::planted::{self, Bug};
use crate::retired::RetiredList;
use crate::search::PathHint;
use crate::slot::Slot;
use std::sync::Arc;

/// Bytes of records beyond which a leaf is split instead of rebuilt.
const LEAF_SPLIT_BYTES: usize = 7560;

/// What a change needs besides the tree.
pub(crate) struct Edit<'a> {
    pub(crate) epoch: u64,
    pub(crate) backing: &'a Backing,
    pub(crate) retired: &'a mut RetiredList,
    /// Whether the log is being replayed: its records were acknowledged, and are not refused because a leaf
    /// cannot be read.
    pub(crate) replays: bool,
    /// Whether unreadable nodes are given up, and how many leaves or nodes above them were.
    pub(crate) salvages: bool,
    pub(crate) lost: u64,
}

impl<'a> Edit<'a> {
    pub(crate) fn new(epoch: u64, backing: &'a Backing, retired: &'a mut RetiredList) -> Self {
        Self { epoch, backing, retired, replays: false, salvages: false, lost: 0 }
    }

    pub(crate) fn replaying(self) -> Self {
        Self { replays: true, ..self }
    }

    pub(crate) fn salvaging(self) -> Self {
        Self { replays: true, salvages: true, ..self }
    }

    /// Whether an error is damage that is given up.
    pub(crate) fn forgives(&self, error: &EngineError) -> bool {
        self.salvages && error.is_damage()
    }
}

/// A key during a change.
#[derive(Clone, Copy, Default)]
pub(crate) struct HashedKey<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) fingerprint: u8,
    pub(crate) way: PathHint,
}

impl<'a> HashedKey<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, fingerprint: crate::checksum::key_hash(bytes), way: PathHint::default() }
    }
}

/// The separators around a node: its keys are at or above `low` and below `high`.
///
/// They are held by reference, because most changes need not read them, and reading them waits for memory.
#[derive(Clone, Copy, Default)]
struct Fences<'a> {
    low: Option<&'a Pivot>,
    high: Option<&'a Pivot>,
}

impl<'a> Fences<'a> {
    #[inline]
    fn of_child(self, pivots: &'a [Pivot], index: usize) -> Self {
        let below = index.checked_sub(1).and_then(|before| pivots.get(before));
        Self { low: below.or(self.low), high: pivots.get(index).or(self.high) }
    }

    /// Whether all keys of a leaf lie between them.
    fn hold(self, leaf: &Leaf) -> bool {
        let Some(last) = leaf.len().checked_sub(1) else { return true };
        self.low.is_none_or(|low| leaf.record(0).key_to_vec().as_slice() >= &**low)
            && self.high.is_none_or(|high| leaf.record(last).key_to_vec().as_slice() < &**high)
    }

    /// The common prefix of all keys between the fences.
    fn prefix(self) -> &'a [u8] {
        match (self.low, self.high) {
            (Some(low), Some(high)) => &low[..common_prefix(low, high)],
            _ => &[],
        }
    }
}

/// The upper part of a node that was split, and the first key that belongs to it.
struct UpperPart {
    pivot: Pivot,
    slot: Slot,
}

/// Puts a new root above the two nodes that the root was split into.
fn grow(root: &mut Slot, upper: UpperPart, edit: &Edit<'_>) {
    let lower = std::mem::take(root);
    let mut inner = Inner::new(edit.epoch, vec![upper.pivot], vec![lower, upper.slot]);
    inner.count_in(edit.backing.meter());
    *root = Slot::resident(Node::Inner(Arc::new(inner)));
}

/// Inserts the upper part of a split child behind the child, and splits the node if it then has too many
/// children.
fn insert_upper(inner: &mut Inner, index: usize, upper: UpperPart) -> Option<UpperPart> {
    let at_end = index + 1 == inner.children.len();
    inner.insert_after(index, upper.pivot, upper.slot);
    split_if_full(inner, at_end)
}

/// Splits a node that has too many children.
fn split_if_full(inner: &mut Inner, at_end: bool) -> Option<UpperPart> {
    if inner.children.len() <= FAN_OUT_MAX {
        return None;
    }
    let (pivot, right) = inner.split(at_end);
    Some(UpperPart { pivot, slot: Slot::resident(Node::Inner(Arc::new(right))) })
}

/// The shortest key above `left` and not above `right`.
fn separator(left: &Record<'_>, right: &Record<'_>) -> Box<[u8]> {
    let (left, right) = (left.key_to_vec(), right.key_to_vec());
    let len = common_prefix(&left, &right) + 1;
    right[..len.min(right.len())].into()
}

fn new_leaf(fences: Fences<'_>, records: &[Record<'_>], edit: &Edit<'_>) -> SharedLeaf {
    leaf_of(fences.prefix(), records, edit)
}

/// A leaf of these records, which lie in a key range with the common prefix `prefix`.
fn leaf_of(prefix: &[u8], records: &[Record<'_>], edit: &Edit<'_>) -> SharedLeaf {
    let spare = records.iter().map(|record| record.memory(prefix.len())).max().unwrap_or(64);
    let mut leaf = Leaf::build(prefix, edit.epoch, records, spare.min(1024), Purpose::Writing);
    if let Some(fresh) = leaf.get_mut() {
        fresh.count_in(edit.backing.meter());
    }
    leaf
}

enum OwnedNode<'a> {
    Leaf(&'a mut SharedLeaf),
    Inner(&'a mut Inner),
}

/// Makes the node of `slot` changeable: unshared, and without a home on disk.
fn own<'a>(slot: &'a mut Slot, edit: &mut Edit<'_>) -> Result<OwnedNode<'a>, EngineError> {
    slot.load(Reading::One, edit.backing)?;
    let delta = slot.take_delta(edit.backing);
    match slot.get_mut() {
        Some(Node::Leaf(shared)) => {
            if let Some(delta) = delta {
                own_merged(shared, &delta, edit);
            } else if shared.is_shared() {
                edit.retired.shared_node(Node::Leaf(shared.clone()), edit.epoch);
                *shared = shared.fork(edit.epoch);
            } else {
                let leaf = sole_leaf(shared);
                if !planted::is(Bug::HomeKept)
                    && let Some(home) = leaf.take_home()
                {
                    edit.retired.page(home, edit.epoch + 1);
                }
                if leaf.birth != edit.epoch {
                    leaf.birth = edit.epoch;
                }
            }
            Ok(OwnedNode::Leaf(shared))
        }
        Some(Node::Inner(shared)) => {
            if Arc::strong_count(shared) > 1 {
                edit.retired.shared_node(Node::Inner(Arc::clone(shared)), edit.epoch);
                *shared = Arc::new(shared.fork(edit.epoch));
            }
            let inner = sole_inner(shared);
            if let Some(home) = inner.home.take() {
                edit.retired.page(home, edit.epoch + 1);
            }
            // Written only if it changes: readers share the cache line.
            if inner.birth != edit.epoch {
                inner.birth = edit.epoch;
            }
            Ok(OwnedNode::Inner(inner))
        }
        None => unreachable!("a slot that was loaded holds a node"),
    }
}

/// Makes a leaf changeable that a page and a delta added up to: it replaces the delta.
fn own_merged(shared: &mut SharedLeaf, delta: &Arc<Delta>, edit: &mut Edit<'_>) {
    edit.retired.delta(delta, edit.epoch);
    delta.retire_replaced(edit.backing.next_retirement(), &mut |retirement, chain, epoch| {
        if let Retirement::Now = retirement {
            edit.retired.chain(chain, None, epoch);
        }
    });
    if shared.is_shared() {
        *shared = shared.fork(edit.epoch);
    }
    let leaf = sole_leaf(shared);
    // A home that it has is the home of the delta.
    leaf.take_home();
    leaf.birth = edit.epoch;
}

/// The leaf, which is unshared: former owners have released it, and no new one appears while it is being
/// changed.
#[inline]
fn sole_leaf(shared: &mut SharedLeaf) -> &mut Leaf {
    match shared.get_mut() {
        Some(leaf) => leaf,
        None => unreachable!("a leaf that is being changed has one owner"),
    }
}

/// As [`sole_leaf`].
#[inline]
fn sole_inner(shared: &mut Arc<Inner>) -> &mut Inner {
    match Arc::get_mut(shared) {
        Some(inner) => inner,
        None => unreachable!("a node that is being changed has one owner"),
    }
}

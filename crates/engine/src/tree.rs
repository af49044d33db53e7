//! Changes to one tree: put, delete, split, join, all copy-on-write.
//!
//! The caller holds the writer lock and has made resident whatever the change will touch.
//!
//! Invariant: a change leaves nodes that anybody shares as they were.
//! Invariant: whatever leaves the current tree is retired exactly once.

mod cut;
mod going;
mod join;
mod lost;
mod place;

pub(crate) use cut::{cut_off, discard};
pub(crate) use going::{Going, evict, let_go};
pub(crate) use join::join;
pub(crate) use lost::{learn_leaves, lose, put_beside_lost};
pub(crate) use place::{load_range, missing_for};

use crate::EngineError;
use crate::backing::{Backing, Reading};
use crate::delta::{Delta, Told, record_bytes};
use crate::frames::Purpose;
use crate::leaf::{Full, Leaf, Record, SharedLeaf};
use crate::node::{FAN_OUT_MAX, Inner, Node, Pivot, common_prefix};
use crate::planted::{self, Bug};
use crate::retired::RetiredList;
use crate::search::Way;
use crate::slot::Slot;
use crate::value::{Chain, Stored};
use place::{own_in, refuse_stranger};
use std::sync::Arc;

/// Bytes of records beyond which a leaf is split rather than rebuilt.
const LEAF_SPLIT_BYTES: usize = 7560;

/// What a change needs beside the tree.
pub(crate) struct Edit<'a> {
    pub(crate) epoch: u64,
    pub(crate) backing: &'a Backing,
    pub(crate) retired: &'a mut RetiredList,
    /// Whether the log is replayed: what it has was acknowledged, and is not refused for a leaf that cannot be read.
    pub(crate) replays: bool,
    /// Whether what cannot be read is done without, and how many leaves or nodes above them that were.
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

    /// Whether an error is damage that is done without.
    pub(crate) fn forgives(&self, error: &EngineError) -> bool {
        self.salvages && error.is_damage()
    }
}

/// A key during a change.
#[derive(Clone, Copy, Default)]
pub(crate) struct HashedKey<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) fingerprint: u8,
    pub(crate) way: Way,
}

impl<'a> HashedKey<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, fingerprint: crate::checksum::key_hash(bytes), way: Way::default() }
    }
}

/// The separators around a node: keys from `low` on and below `high`.
///
/// They are named by where they lie: most changes need not look at them, and they would come from far.
#[derive(Clone, Copy, Default)]
struct Fences<'a> {
    low: Option<&'a Pivot>,
    high: Option<&'a Pivot>,
}

impl<'a> Fences<'a> {
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

    /// What every key between the fences starts with.
    fn prefix(self) -> &'a [u8] {
        match (self.low, self.high) {
            (Some(low), Some(high)) => &low[..common_prefix(low, high)],
            _ => &[],
        }
    }
}

/// The upper part of a node that was split, and the first key that belongs to it.
struct Upper {
    pivot: Pivot,
    slot: Slot,
}

/// Keys in ascending order, and the values to be set; those that share a leaf share the way to it.
pub(crate) struct Run<'r> {
    items: &'r [(HashedKey<'r>, Stored<'r>)],
    at: usize,
    /// How many keys were new, of those of which that is known.
    pub(crate) added: u64,
    /// Whether of some it is not.
    pub(crate) is_unsure: bool,
}

impl<'r> Run<'r> {
    pub(crate) fn of(items: &'r [(HashedKey<'r>, Stored<'r>)]) -> Self {
        debug_assert!(items.is_sorted_by_key(|(key, _)| key.bytes));
        Self { items, at: 0, added: 0, is_unsure: false }
    }

    /// End of the items that belong into child `index` of `inner`, of which the next does.
    fn end_in(&self, inner: &Inner, index: usize, end: usize) -> usize {
        let following = &self.items[self.at + 1..end];
        self.at + 1 + following.iter().take_while(|(key, _)| inner.is_left_of_pivot(key.bytes, index)).count()
    }
}

/// Sets all keys of a run.
pub(crate) fn put(root: &mut Slot, run: &mut Run<'_>, edit: &mut Edit<'_>) -> Result<(), EngineError> {
    while run.at < run.items.len() {
        if let Some(upper) = put_in(root, Fences::default(), 0, run, run.items.len(), edit)? {
            grow(root, upper, edit);
        }
    }
    Ok(())
}

/// Puts a node above the two that the root was split into.
fn grow(root: &mut Slot, upper: Upper, edit: &Edit<'_>) {
    let lower = std::mem::take(root);
    let mut inner = Inner::new(edit.epoch, vec![upper.pivot], vec![lower, upper.slot]);
    inner.count_in(edit.backing.meter());
    *root = Slot::resident(Node::Inner(Arc::new(inner)));
}

/// Puts what a child was split into behind it, and splits the node where it has too many children then.
fn insert_upper(inner: &mut Inner, index: usize, upper: Upper) -> Option<Upper> {
    let at_end = index + 1 == inner.children.len();
    inner.insert_after(index, upper.pivot, upper.slot);
    split_if_full(inner, at_end)
}

/// Splits a node that has too many children.
fn split_if_full(inner: &mut Inner, at_end: bool) -> Option<Upper> {
    if inner.children.len() <= FAN_OUT_MAX {
        return None;
    }
    let (pivot, right) = inner.split(at_end);
    Some(Upper { pivot, slot: Slot::resident(Node::Inner(Arc::new(right))) })
}

/// Sets keys of the run up to `end`, which all belong below this node, until it is split. `level` is how many
/// inner nodes lie above it.
fn put_in(
    slot: &mut Slot,
    fences: Fences<'_>,
    level: usize,
    run: &mut Run<'_>,
    end: usize,
    edit: &mut Edit<'_>,
) -> Result<Option<Upper>, EngineError> {
    match own_in(slot, fences, edit)? {
        Owned::Leaf(leaf) => {
            while run.at < end {
                if let Some(upper) = put_in_leaf(leaf, fences, run, end, edit) {
                    return Ok(Some(upper));
                }
            }
            Ok(None)
        }
        Owned::Inner(inner) => {
            while run.at < end {
                let upper = put_in_child(inner, fences, level, run, end, edit)?;
                if upper.is_some() {
                    return Ok(upper);
                }
            }
            Ok(None)
        }
    }
}

fn put_in_child(
    inner: &mut Inner,
    fences: Fences<'_>,
    level: usize,
    run: &mut Run<'_>,
    end: usize,
    edit: &mut Edit<'_>,
) -> Result<Option<Upper>, EngineError> {
    let key = &run.items[run.at].0;
    let index = inner.child_near(key.bytes, key.way.child_at(level));
    let end = run.end_in(inner, index, end);
    let has_leaves = inner.has_leaves();
    let (pivots, children) = inner.parts_mut();
    if has_leaves && children[index].get().is_none() {
        put_beside(&mut children[index], Slot::takes_delta, run, end, edit);
        if edit.replays
            && run.at < end
            && children[index].load(Reading::One, edit.backing).is_err_and(|error| error.is_damage())
        {
            put_beside(&mut children[index], Slot::takes_delta_unread, run, end, edit);
        }
        if run.at == end {
            return Ok(None);
        }
    }
    let inside = fences.of_child(pivots, index);
    let upper = put_in(&mut children[index], inside, level + 1, run, end, edit)?;
    if matches!(children[index].get(), Some(Node::Leaf(_))) {
        inner.note_leaves();
    }
    Ok(upper.and_then(|upper| insert_upper(inner, index, upper)))
}

/// Puts records of the run up to `end` beside a leaf that is not resident, as long as it takes so many bytes more.
fn put_beside(
    slot: &mut Slot,
    takes: impl Fn(&Slot, usize) -> bool,
    run: &mut Run<'_>,
    end: usize,
    edit: &mut Edit<'_>,
) {
    while run.at < end
        && let (key, Stored::Inline(value)) = run.items[run.at]
        && takes(slot, record_bytes(key.bytes, value))
    {
        slot.put_delta((key.bytes, value), edit.epoch, edit.backing, edit.retired);
        run.at += 1;
        run.is_unsure = true;
    }
}

/// Sets keys of the run up to `end`, until the leaf had to be built anew.
fn put_in_leaf(
    shared: &mut SharedLeaf,
    fences: Fences<'_>,
    run: &mut Run<'_>,
    end: usize,
    edit: &mut Edit<'_>,
) -> Option<Upper> {
    let leaf = sole_leaf(shared);
    while run.at < end {
        let (key, value) = &run.items[run.at];
        let place = leaf.locate(key);
        let done = match place {
            // Merged from page and delta: it was not split then, and is read for every few puts until it is.
            _ if leaf.is_overgrown(0) && leaf.live_bytes() > LEAF_SPLIT_BYTES + leaf.prefix().len() => {
                Err(Full)
            }
            Ok(slot) => leaf.replace(slot, value),
            Err(slot) => leaf.insert_at(slot, key.bytes, key.fingerprint, value).map(|()| None),
        };
        run.at += 1;
        run.added += u64::from(place.is_err());
        match done {
            Ok(old) => {
                retire_chain(old.as_ref(), value, edit);
                old.iter().for_each(|old| edit.backing.has_left(old));
            }
            Err(Full) => {
                if let Ok(Stored::Chain(old)) = place.map(|slot| leaf.value(slot)) {
                    retire_chain(Some(old), value, edit);
                }
                return rebuild(shared, fences, *key, place, value, edit);
            }
        }
    }
    None
}

fn retire_chain(old: Option<&Chain>, new: &Stored<'_>, edit: &mut Edit<'_>) {
    if let Some(old) = old {
        let new = match new {
            Stored::Chain(new) => Some(*new),
            Stored::Inline(_) => None,
        };
        edit.retired.chain(old, new, edit.epoch);
    }
}

/// Builds the leaf anew with one record put in; splits it where it would be too full.
fn rebuild(
    shared: &mut SharedLeaf,
    fences: Fences<'_>,
    key: HashedKey<'_>,
    place: Result<usize, usize>,
    value: &Stored<'_>,
    edit: &mut Edit<'_>,
) -> Option<Upper> {
    let old = shared.clone();
    let changed = Record { key: [key.bytes, &[]], fingerprint: key.fingerprint, value: *value };
    let mut records: Vec<Record<'_>> = (0..old.len()).map(|slot| old.record(slot)).collect();
    match place {
        Ok(slot) => records[slot] = changed,
        Err(slot) => records.insert(slot, changed),
    }
    let bytes = |records: &[Record<'_>]| -> usize {
        records.iter().map(|record| record.memory(fences.prefix().len())).sum()
    };
    let total = bytes(&records);
    // What the records share takes room as well, and is no reason for a larger leaf as long as some fit beside it.
    let most = LEAF_SPLIT_BYTES.saturating_sub(fences.prefix().len()).max(LEAF_SPLIT_BYTES / 2);
    if total <= most || records.len() < 2 {
        *shared = new_leaf(fences, &records, edit);
        return None;
    }
    let middle = match place {
        // Ascending inserts fill leaves rather than leave them half empty.
        Err(slot) if slot + 1 == records.len() && !old.is_overgrown(0) => slot,
        _ => split_point(&records, fences.prefix().len(), total),
    };
    let pivot = separator(&records[middle - 1], &records[middle]);
    *shared = new_leaf(Fences { high: Some(&pivot), ..fences }, &records[..middle], edit);
    let right = new_leaf(Fences { low: Some(&pivot), ..fences }, &records[middle..], edit);
    Some(Upper { pivot, slot: Slot::resident(Node::Leaf(right)) })
}

/// The record that starts the upper half, by bytes.
fn split_point(records: &[Record<'_>], prefix_len: usize, total: usize) -> usize {
    let mut below = 0;
    for (index, record) in records.iter().enumerate() {
        below += record.memory(prefix_len);
        if below * 2 >= total {
            return (index + 1).min(records.len() - 1);
        }
    }
    records.len() - 1
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

/// A leaf of these records, which are in a range of keys that all start with `prefix`.
fn leaf_of(prefix: &[u8], records: &[Record<'_>], edit: &Edit<'_>) -> SharedLeaf {
    let spare = records.iter().map(|record| record.memory(prefix.len())).max().unwrap_or(64);
    let mut leaf = Leaf::build(prefix, edit.epoch, records, spare.min(1024), Purpose::Writing);
    if let Some(fresh) = leaf.get_mut() {
        fresh.count_in(edit.backing.meter());
    }
    leaf
}

/// Removes `key`; whether it was there.
pub(crate) fn delete(root: &mut Slot, key: HashedKey<'_>, edit: &mut Edit<'_>) -> Result<bool, EngineError> {
    if find(root, key)?.is_none() {
        return Ok(false);
    }
    delete_in(root, Fences::default(), key, edit)?;
    shrink(root, edit)?;
    Ok(true)
}

/// Takes nodes away from above the root that have only one child left.
fn shrink(root: &mut Slot, edit: &mut Edit<'_>) -> Result<(), EngineError> {
    loop {
        match root.load(Reading::One, edit.backing) {
            Err(error) if edit.forgives(&error) => return Ok(()),
            loaded => match loaded? {
                Node::Inner(inner) if inner.children.len() == 1 => {}
                _ => return Ok(()),
            },
        }
        if let Owned::Inner(inner) = own(root, edit)? {
            let only = std::mem::take(&mut inner.children[0]);
            *root = only;
        }
    }
}

fn find(root: &Slot, key: HashedKey<'_>) -> Result<Option<usize>, EngineError> {
    let mut slot = root;
    loop {
        match slot.get() {
            Some(Node::Inner(inner)) => slot = &inner.children[inner.child_of(key.bytes)],
            Some(Node::Leaf(leaf)) => return Ok(leaf.find(key.bytes, key.fingerprint)),
            // Not resident: the caller made resident all that a change touches, so the key is not there.
            None => return Ok(None),
        }
    }
}

fn delete_in(
    slot: &mut Slot,
    fences: Fences<'_>,
    key: HashedKey<'_>,
    edit: &mut Edit<'_>,
) -> Result<(), EngineError> {
    match own_in(slot, fences, edit)? {
        Owned::Leaf(shared) => {
            let found = shared.find(key.bytes, key.fingerprint);
            if let (Some(leaf), Some(found)) = (shared.get_mut(), found)
                && let Some(old) = leaf.remove(found)
            {
                edit.retired.chain(&old, None, edit.epoch);
            }
            Ok(())
        }
        Owned::Inner(inner) => {
            let index = inner.child_of(key.bytes);
            let (pivots, children) = inner.parts_mut();
            let inside = fences.of_child(pivots, index);
            delete_in(&mut children[index], inside, key, edit)?;
            join_sparse_child(inner, index, fences, edit)
        }
    }
}

/// Joins child `index` with a neighbour when both have little left.
fn join_sparse_child(
    inner: &mut Inner,
    index: usize,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<(), EngineError> {
    let is_sparse = match inner.children[index].get() {
        Some(Node::Leaf(leaf)) => leaf.is_sparse(),
        Some(Node::Inner(child)) => child.children.len() < FAN_OUT_MAX / 8,
        None => false,
    };
    if !is_sparse || inner.children.len() < 2 {
        return Ok(());
    }
    let right = index.min(inner.children.len() - 2);
    if !join_with_next(inner, right, fences, edit)? && index > 0 && right == index {
        // Where a range is deleted, what comes next may be full, or not in memory yet, but not what came before.
        join_with_next(inner, index - 1, fences, edit)?;
    }
    Ok(())
}

/// Joins child `left` with the one behind it if both fit well into one node; whether they did.
fn join_with_next(
    inner: &mut Inner,
    left: usize,
    fences: Fences<'_>,
    edit: &mut Edit<'_>,
) -> Result<bool, EngineError> {
    let low = fences.of_child(inner.pivots(), left).low;
    let high = fences.of_child(inner.pivots(), left + 1).high;
    let prefix_len = Fences { low, high }.prefix().len();
    // The log has the change already: a leaf that was made up stays as it is, rather than be an error here.
    let belongs = |child: usize, leaf: &Leaf| {
        let around = fences.of_child(inner.pivots(), child);
        refuse_stranger(&inner.children[child], leaf, around, edit.backing).is_ok()
    };
    let fits = match (inner.children[left].get(), inner.children[left + 1].get()) {
        (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => {
            a.joins_well(b, prefix_len) && belongs(left, a) && belongs(left + 1, b)
        }
        (Some(Node::Inner(a)), Some(Node::Inner(b))) => {
            a.children.len() + b.children.len() <= FAN_OUT_MAX * 3 / 4
        }
        _ => false,
    };
    if !fits {
        return Ok(false);
    }
    let pivot: Box<[u8]> = inner.pivots()[left].clone();
    for child in [left, left + 1] {
        let (pivots, children) = inner.parts_mut();
        own_in(&mut children[child], fences.of_child(pivots, child), edit)?;
    }
    // `remove` takes the pivot in front of the child, which is the one between the two.
    let right = inner.remove(left + 1);
    let (pivots, children) = inner.parts_mut();
    let around = fences.of_child(pivots, left);
    match (children[left].get_mut(), right.get()) {
        (Some(Node::Leaf(a)), Some(Node::Leaf(b))) => {
            let records: Vec<Record<'_>> = [&**a, &**b]
                .into_iter()
                .flat_map(|leaf| (0..leaf.len()).map(move |slot| leaf.record(slot)))
                .collect();
            let joined = new_leaf(around, &records, edit);
            *a = joined;
        }
        (Some(Node::Inner(a)), Some(Node::Inner(b))) => {
            if let Some(a) = Arc::get_mut(a) {
                a.absorb(pivot, b);
            }
        }
        _ => {}
    }
    Ok(true)
}

enum Owned<'a> {
    Leaf(&'a mut SharedLeaf),
    Inner(&'a mut Inner),
}

/// Makes the node of `slot` ours to change: nobody shares it, and it has no home on disk any more.
fn own<'a>(slot: &'a mut Slot, edit: &mut Edit<'_>) -> Result<Owned<'a>, EngineError> {
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
            Ok(Owned::Leaf(shared))
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
            // Readers share the line.
            if inner.birth != edit.epoch {
                inner.birth = edit.epoch;
            }
            Ok(Owned::Inner(inner))
        }
        None => unreachable!("a slot that was loaded holds a node"),
    }
}

/// Makes a leaf ours that a page and a delta added up to: it takes the delta's place.
fn own_merged(shared: &mut SharedLeaf, delta: &Arc<Delta>, edit: &mut Edit<'_>) {
    edit.retired.delta(delta, edit.epoch);
    delta.tell_replaced(edit.backing.next_tell(), &mut |told, chain, epoch| {
        if let Told::Now = told {
            edit.retired.chain(chain, None, epoch);
        }
    });
    if shared.is_shared() {
        *shared = shared.fork(edit.epoch);
    }
    let leaf = sole_leaf(shared);
    // If it has one, it is that of the delta.
    leaf.take_home();
    leaf.birth = edit.epoch;
}

/// The leaf, which nobody shares: whoever shared it let go, and nobody can begin to while it is being changed.
fn sole_leaf(shared: &mut SharedLeaf) -> &mut Leaf {
    match shared.get_mut() {
        Some(leaf) => leaf,
        None => unreachable!("a leaf that is being changed has one owner"),
    }
}

/// As [`sole_leaf`].
fn sole_inner(shared: &mut Arc<Inner>) -> &mut Inner {
    match Arc::get_mut(shared) {
        Some(inner) => inner,
        None => unreachable!("a node that is being changed has one owner"),
    }
}

//! Puts: a run of keys descends the tree together, and nodes that become too full are split.
//!
//! Small records go beside a leaf that is not in memory, as long as it takes them ([`crate::delta`]).

use super::place::own_in;
use super::{
    Edit, Fences, HashedKey, LEAF_SPLIT_BYTES, OwnedNode, UpperPart, grow, insert_upper, new_leaf, separator,
    sole_leaf,
};
use crate::EngineError;
use crate::backing::Reading;
use crate::delta::record_bytes;
use crate::leaf::{Full, Record, SharedLeaf};
use crate::node::{Inner, Node};
use crate::slot::Slot;
use crate::value::{Chain, Stored};

/// Keys in ascending order, with the values to be set; keys of one leaf share the path to it.
pub(crate) struct Run<'r> {
    items: &'r [(HashedKey<'r>, Stored<'r>)],
    at: usize,
    /// Number of new keys, among those for which that is known.
    pub(crate) added: u64,
    /// Whether it is unknown for some keys.
    pub(crate) is_unsure: bool,
}

impl<'r> Run<'r> {
    pub(crate) fn of(items: &'r [(HashedKey<'r>, Stored<'r>)]) -> Self {
        debug_assert!(items.is_sorted_by_key(|(key, _)| key.bytes));
        Self { items, at: 0, added: 0, is_unsure: false }
    }

    /// End of the items that belong to child `index` of `inner`; the next item does.
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

/// Sets keys of the run up to `end`, all of which belong below this node, until the node is split. `level` is
/// the number of inner nodes above it.
fn put_in(
    slot: &mut Slot,
    fences: Fences<'_>,
    level: usize,
    run: &mut Run<'_>,
    end: usize,
    edit: &mut Edit<'_>,
) -> Result<Option<UpperPart>, EngineError> {
    match own_in(slot, fences, edit)? {
        OwnedNode::Leaf(leaf) => {
            while run.at < end {
                if let Some(upper) = put_in_leaf(leaf, fences, run, end, edit) {
                    return Ok(Some(upper));
                }
            }
            Ok(None)
        }
        OwnedNode::Inner(inner) => {
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
) -> Result<Option<UpperPart>, EngineError> {
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

/// Puts records of the run up to `end` beside a leaf that is not resident, for as long as `takes` allows that
/// many more bytes.
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

/// Sets keys of the run up to `end`, or until the leaf had to be rebuilt.
fn put_in_leaf(
    shared: &mut SharedLeaf,
    fences: Fences<'_>,
    run: &mut Run<'_>,
    end: usize,
    edit: &mut Edit<'_>,
) -> Option<UpperPart> {
    let leaf = sole_leaf(shared);
    while run.at < end {
        let (key, value) = &run.items[run.at];
        let place = leaf.locate(key);
        let done = match place {
            // It was merged from page and delta, and not split then; until it is, it is read for every few
            // puts.
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

/// Rebuilds the leaf with one record put in, and splits it if it would be too full.
fn rebuild(
    shared: &mut SharedLeaf,
    fences: Fences<'_>,
    key: HashedKey<'_>,
    place: Result<usize, usize>,
    value: &Stored<'_>,
    edit: &mut Edit<'_>,
) -> Option<UpperPart> {
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
    // The common prefix takes room as well, but is no reason for a larger leaf as long as some records fit
    // beside it.
    let most = LEAF_SPLIT_BYTES.saturating_sub(fences.prefix().len()).max(LEAF_SPLIT_BYTES / 2);
    if total <= most || records.len() < 2 {
        *shared = new_leaf(fences, &records, edit);
        return None;
    }
    let middle = match place {
        // Ascending inserts fill leaves instead of leaving them half empty.
        Err(slot) if slot + 1 == records.len() && !old.is_overgrown(0) => slot,
        _ => split_point(&records, fences.prefix().len(), total),
    };
    let pivot = separator(&records[middle - 1], &records[middle]);
    *shared = new_leaf(Fences { high: Some(&pivot), ..fences }, &records[..middle], edit);
    let right = new_leaf(Fences { low: Some(&pivot), ..fences }, &records[middle..], edit);
    Some(UpperPart { pivot, slot: Slot::resident(Node::Leaf(right)) })
}

/// Index of the first record of the upper half, by bytes.
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

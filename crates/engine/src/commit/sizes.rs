//! Length limits, checked before the log has anything.
//!
//! Invariant: checking a batch takes time in proportion to its length, whatever it deletes and appends.

use crate::batch::{Action, Op};
use crate::shared::Shared;
use crate::value::VALUE_MAX;
use crate::{EngineError, KEY_MAX, search};
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

/// A key of a tree.
type OfTree<'a> = (u32, &'a [u8]);

impl Shared {
    /// Refuses appends that would make a value too long.
    pub(super) fn check_appends(&self, ops: &[Op<'_>]) -> Result<(), EngineError> {
        if !ops.iter().any(|op| matches!(op.action, Action::Append(..))) {
            return Ok(());
        }
        let forest = self.forest.read();
        check_grown(ops, VALUE_MAX, |(tree, key)| {
            let stored = || search::get(&forest.tree(tree)?.root, key).ok().flatten();
            stored().map_or(0, |stored| stored.len())
        })
    }
}

/// Refuses appends that would make a value longer than `max`; `stored` is the length that it has before the
/// batch.
fn check_grown(ops: &[Op<'_>], max: u64, stored: impl Fn(OfTree<'_>) -> u64) -> Result<(), EngineError> {
    let appended = ops.iter().filter_map(|op| match op.action {
        Action::Append(key, _) => Some((op.tree, key)),
        _ => None,
    });
    let appended: HashSet<OfTree<'_>> = appended.collect();
    // The lengths of the values that appends are made to: none where the batch has not touched the value yet,
    // and no entry where the batch has deleted it. So a deleted range visits what it deletes, and nothing
    // twice.
    let mut lengths: BTreeMap<OfTree<'_>, Option<u64>> = appended.iter().map(|of| (*of, None)).collect();
    for op in ops {
        match op.action {
            Action::Put(key, given) if appended.contains(&(op.tree, key)) => {
                lengths.insert((op.tree, key), Some(given.bytes().len() as u64));
            }
            // No append is made to it.
            Action::Put(..) => {}
            Action::Delete(key) => {
                lengths.remove(&(op.tree, key));
            }
            Action::Append(key, given) => {
                let of = (op.tree, key);
                let before = lengths.get(&of).map_or(0, |length| length.unwrap_or_else(|| stored(of)));
                let total = before + given.bytes().len() as u64;
                check_size("value", total, 0, max)?;
                lengths.insert(of, Some(total));
            }
            Action::DeleteRange(from, to) => {
                let gone: Vec<OfTree<'_>> = keys_in(&lengths, op.tree, from, to).collect();
                for of in gone {
                    lengths.remove(&of);
                }
            }
        }
    }
    Ok(())
}

/// The keys of a tree in a range, which may be empty or end before it begins.
fn keys_in<'a>(
    lengths: &BTreeMap<OfTree<'a>, Option<u64>>,
    tree: u32,
    from: Bound<&'a [u8]>,
    to: Bound<&'a [u8]>,
) -> impl Iterator<Item = OfTree<'a>> {
    let first: &[u8] = match from {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    };
    let is_before_end = move |key: &[u8]| match to {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    };
    let behind = lengths.range((tree, first)..).map(|(of, _)| *of);
    let inside = behind.take_while(move |(of, key)| *of == tree && is_before_end(key));
    inside.filter(move |(_, key)| from != Bound::Excluded(*key))
}

pub(crate) fn check_sizes(ops: &[Op<'_>]) -> Result<(), EngineError> {
    for op in ops {
        match op.action {
            Action::Put(key, given) | Action::Append(key, given) => {
                check_size("key", key.len() as u64, 1, KEY_MAX as u64)?;
                check_size("value", given.bytes().len() as u64, 0, VALUE_MAX)?;
            }
            Action::Delete(key) => check_size("key", key.len() as u64, 1, KEY_MAX as u64)?,
            Action::DeleteRange(from, to) => {
                check_size("key", bound_len(from).max(bound_len(to)) as u64, 0, KEY_MAX as u64)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn check_size(what: &'static str, actual: u64, min: u64, max: u64) -> Result<(), EngineError> {
    if (min..=max).contains(&actual) { Ok(()) } else { Err(EngineError::Size { what, actual, min, max }) }
}

pub(super) fn bound_len(bound: Bound<&[u8]>) -> usize {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.len(),
        Bound::Unbounded => 0,
    }
}

#[cfg(test)]
// Measures how long a check takes.
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::batch::Given;
    use std::collections::HashMap;
    use std::ops::RangeBounds;
    use std::time::{Duration, Instant};

    const MAX: u64 = 10;
    const BYTES: &[u8] = &[0; 12];
    const KEYS: [&[u8]; 4] = [b"a", b"b", b"bb", b"c"];

    /// Whether a batch is refused, by carrying it out on the lengths of all values.
    fn is_refused(ops: &[Op<'_>]) -> bool {
        let mut lengths: HashMap<OfTree<'_>, u64> = HashMap::new();
        lengths.extend(KEYS.iter().flat_map(|key| [((0, *key), 6), ((1, *key), 6)]));
        for op in ops {
            match op.action {
                Action::Put(key, given) => {
                    lengths.insert((op.tree, key), given.bytes().len() as u64);
                }
                Action::Delete(key) => {
                    lengths.remove(&(op.tree, key));
                }
                Action::Append(key, given) => {
                    let total = lengths.entry((op.tree, key)).or_default();
                    *total += given.bytes().len() as u64;
                    if *total > MAX {
                        return true;
                    }
                }
                Action::DeleteRange(from, to) => {
                    let range: (Bound<&[u8]>, Bound<&[u8]>) = (from, to);
                    lengths.retain(|(tree, key), _| *tree != op.tree || !range.contains(*key));
                }
            }
        }
        false
    }

    #[test]
    fn a_batch_is_refused_where_carrying_it_out_makes_a_value_too_long() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut below = move |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % most
        };
        let mut refused = 0;
        for _ in 0..20_000 {
            let ops: Vec<Op<'_>> = (0..1 + below(12))
                .map(|_| {
                    let (key, other) = (KEYS[below(4)], KEYS[below(4)]);
                    let mut bound =
                        |key| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded][below(3)];
                    let range = (bound(key), bound(other));
                    let given = Given::Bytes(&BYTES[..below(6)]);
                    let action = match below(6) {
                        0 => Action::Put(key, given),
                        1 => Action::Delete(key),
                        2 => Action::DeleteRange(range.0, range.1),
                        _ => Action::Append(key, given),
                    };
                    Op { tree: below(2) as u32, action }
                })
                .collect();
            let is_checked = check_grown(&ops, MAX, |_| 6).is_err();
            assert_eq!(is_checked, is_refused(&ops), "{ops:?}");
            refused += u32::from(is_checked);
        }
        assert!((2_000..18_000).contains(&refused), "{refused}");
    }

    /// As of one command that sets many keys, each an expired hash, and one of them to a long value.
    #[test]
    fn a_batch_of_many_deleted_ranges_and_an_append_is_checked_in_time_in_proportion() {
        let names: Vec<[u8; 5]> = (0..200_000_u32)
            .map(|number| {
                let [a, b, c, d] = number.to_be_bytes();
                [a, b, c, d, 0]
            })
            .collect();
        let mut ops = Vec::new();
        for name in &names {
            let (from, to) = (Bound::Included(&name[..]), Bound::Included(&name[..]));
            for action in [
                Action::Delete(&name[..4]),
                Action::DeleteRange(from, to),
                Action::Put(&name[..4], Given::Bytes(&BYTES[..1])),
                // A few appends, as of a value that is written in parts.
                Action::Append(&name[..4], Given::Bytes(&BYTES[..1])),
            ] {
                ops.push(Op { tree: 0, action });
            }
        }
        let began = Instant::now();
        check_grown(&ops, MAX, |_| 6).unwrap();
        // It takes seconds at most. One look at each earlier key for each range takes many minutes.
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}

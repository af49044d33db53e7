//! Length limits, checked before the log has anything.

use crate::batch::{Action, Op};
use crate::shared::Shared;
use crate::value::VALUE_MAX;
use crate::{EngineError, KEY_MAX, search};
use std::collections::HashMap;
use std::ops::{Bound, RangeBounds};

/// A range of keys of a tree.
type OfTree<'a> = (u32, (Bound<&'a [u8]>, Bound<&'a [u8]>));

fn is_in((of, range): &OfTree<'_>, tree: u32, key: &[u8]) -> bool {
    *of == tree && range.contains(key)
}

impl Shared {
    /// Refuses appends that would make a value too long.
    pub(super) fn check_appends(&self, ops: &[Op<'_>]) -> Result<(), EngineError> {
        if !ops.iter().any(|op| matches!(op.action, Action::Append(..))) {
            return Ok(());
        }
        let mut grown: HashMap<(u32, &[u8]), u64> = HashMap::new();
        let mut deleted = Vec::new();
        let forest = self.forest.read();
        for op in ops {
            let (key, total) = match op.action {
                Action::Put(key, given) => (key, given.bytes().len() as u64),
                Action::Delete(key) => (key, 0),
                Action::Append(key, given) => {
                    let stored = || search::get(&forest.tree(op.tree)?.root, key).ok().flatten();
                    let is_deleted = || deleted.iter().any(|range| is_in(range, op.tree, key));
                    let before = match grown.get(&(op.tree, key)) {
                        Some(before) => *before,
                        None if is_deleted() => 0,
                        None => stored().map_or(0, |stored| stored.len()),
                    };
                    (key, before + given.bytes().len() as u64)
                }
                Action::DeleteRange(from, to) => {
                    let range = (op.tree, (from, to));
                    grown.retain(|&(tree, key), _| !is_in(&range, tree, key));
                    deleted.push(range);
                    continue;
                }
            };
            check_size("value", total, 0, VALUE_MAX)?;
            grown.insert((op.tree, key), total);
        }
        Ok(())
    }
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

//! Reads whole stores, and compares partial reads with the model.

use crate::oracle::show;
use crate::state::{Content, Key, Range, State, TREES, Value};
use crate::subject::{Direction, Outcome, Subject};
use std::ops::Bound;

/// The range of all keys.
pub(crate) const EVERYTHING: Range = (Bound::Unbounded, Bound::Unbounded);

/// Reads everything that a store holds: its trees, and each named snapshot.
///
/// # Errors
/// The first failed read.
pub(crate) fn read_state<S: Subject>(store: &S) -> Outcome<State> {
    let scan = |tree| store.scan(tree, &EVERYTHING, Direction::Forward, usize::MAX);
    let mut state = State { content: read_content(scan)?, ..State::default() };
    for name in store.snapshot_names() {
        let snapshot = store.open_snapshot(&name)?;
        let content = read_content(|tree| {
            store.snapshot_scan(&snapshot, tree, &EVERYTHING, Direction::Forward, usize::MAX)
        })?;
        state.snapshots.insert(name, content);
    }
    Ok(state)
}

fn read_content(scan: impl Fn(usize) -> Outcome<Vec<(Key, Value)>>) -> Outcome<Content> {
    let mut content = Content::default();
    for tree in 0..TREES {
        for (key, value) in scan(tree)? {
            content.put(tree, &key, value);
        }
    }
    Ok(content)
}

/// What is wrong with the result of a get.
pub(crate) fn wrong_value(
    tree: usize,
    key: &[u8],
    expected: Option<&Value>,
    found: Option<&Value>,
) -> Option<String> {
    (expected != found).then(|| {
        let size = |value: Option<&Value>| value.map_or_else(|| "absent".to_owned(), |value| show(value));
        format!("wrong read of tree {tree} key {}: {} for {}", show(key), size(found), size(expected))
    })
}

/// What is wrong with the result of a scan.
pub(crate) fn wrong_scan(
    content: &Content,
    tree: usize,
    range: &Range,
    direction: Direction,
    limit: usize,
    found: &[(Key, Value)],
) -> Option<String> {
    let all = content.scan(tree, range);
    let expected: Vec<(&Key, &Value)> = match direction {
        Direction::Forward => all.take(limit).collect(),
        Direction::Backward => all.rev().take(limit).collect(),
    };
    let is_equal = expected.len() == found.len()
        && expected.iter().zip(found).all(|(left, right)| *left.0 == right.0 && *left.1 == right.1);
    (!is_equal).then(|| {
        let at = expected.iter().zip(found).take_while(|(l, r)| *l.0 == r.0 && *l.1 == r.1).count();
        format!(
            "wrong {direction:?} scan of tree {tree} ({} entries for {}, the same up to entry {at}): {} for {}",
            found.len(),
            expected.len(),
            found.get(at).map_or_else(|| "end".to_owned(), |(key, _)| show(key)),
            expected.get(at).map_or_else(|| "end".to_owned(), |(key, _)| show(key)),
        )
    })
}

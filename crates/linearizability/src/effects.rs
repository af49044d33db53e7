//! What an operation does to cells, and what it must have found in them.

use super::{Action, Answer, Operation};
use std::collections::BTreeSet;

/// The value of a cell.
pub(crate) type Value<'a> = Option<&'a [u8]>;

/// What a write does to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect<'a> {
    /// From then on the cell holds this, whatever it held.
    Reset(Value<'a>),
    /// These bytes are added.
    Append(&'a [u8]),
}

/// A cell as a value that can be compared.
pub(crate) fn value(cell: Option<&String>) -> Value<'_> {
    cell.map(String::as_bytes)
}

/// Every cell that a history names.
pub(crate) fn cells_of(history: &[Operation]) -> BTreeSet<u8> {
    let named = |one: &Operation| -> Vec<u8> {
        let seen = match &one.answer {
            Answer::Cells(cells) => cells.keys().copied().collect(),
            _ => Vec::new(),
        };
        let asked = match &one.action {
            Action::Scan => Vec::new(),
            Action::Put(cells, _) => cells.clone(),
            Action::Get(cell) | Action::Append(cell, _) | Action::Swap(cell, _, _) | Action::Delete(cell) => {
                vec![*cell]
            }
        };
        [seen, asked].concat()
    };
    history.iter().flat_map(named).collect()
}

/// What the operation does, if it is done and not refused. A swap of unknown outcome may also do nothing.
pub(crate) fn effects(operation: &Operation) -> Vec<(u8, Effect<'_>)> {
    if !matches!(operation.answer, Answer::Done | Answer::Unknown) {
        return Vec::new();
    }
    match &operation.action {
        Action::Get(_) | Action::Scan => Vec::new(),
        // A cell that is named twice is set once.
        Action::Put(cells, put) => {
            let cells: BTreeSet<u8> = cells.iter().copied().collect();
            cells.into_iter().map(|cell| (cell, Effect::Reset(Some(put.as_bytes())))).collect()
        }
        Action::Append(cell, more) => vec![(*cell, Effect::Append(more.as_bytes()))],
        Action::Swap(cell, _, new) => vec![(*cell, Effect::Reset(Some(new.as_bytes())))],
        Action::Delete(cell) => vec![(*cell, Effect::Reset(None))],
    }
}

/// What the operation has found in which of `cells`. A swap of unknown outcome found that if it did anything.
pub(crate) fn found<'a>(operation: &'a Operation, cells: &BTreeSet<u8>) -> Vec<(u8, Value<'a>)> {
    match (&operation.action, &operation.answer) {
        (Action::Get(cell), Answer::Value(told)) => vec![(*cell, value(told.as_ref()))],
        (Action::Scan, Answer::Cells(told)) => {
            cells.iter().map(|cell| (*cell, value(told.get(cell)))).collect()
        }
        (Action::Swap(cell, expected, _), Answer::Done | Answer::Unknown) => {
            vec![(*cell, value(expected.as_ref()))]
        }
        (Action::Swap(cell, _, _), Answer::Conflict(told)) => vec![(*cell, value(told.as_ref()))],
        _ => Vec::new(),
    }
}

//! Decides whether a concurrent history of one partition can be explained by some order of its operations.
//!
//! The search of Wing and Gong with the memoization of Lowe: try each operation that could come next, undo
//! when stuck, and never examine the same set of finished operations with the same cells twice. It looks
//! ahead: a beginning of an order after which some read can no longer find what it found is given up at once.
//!
//! Invariant: an operation whose outcome is unknown may take effect at any moment after its call, or never;
//! one that was refused is not part of a history.

mod chain;
mod effects;
mod needs;
#[cfg(test)]
mod reference;
mod search;
mod settled;

pub use settled::settled;

use needs::Sight;
use search::Search;
use std::collections::BTreeMap;

/// The cells of a partition: few, with short values.
pub type Cells = BTreeMap<u8, String>;

/// An operation that a client requested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads a cell.
    Get(u8),
    /// Reads all cells at once.
    Scan,
    /// Sets some cells at once.
    Put(Vec<u8>, String),
    /// Appends to a cell.
    Append(u8, String),
    /// Sets a cell if it holds the expected value (none: if it is absent).
    Swap(u8, Option<String>, String),
    /// Removes a cell.
    Delete(u8),
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The value read.
    Value(Option<String>),
    /// All cells.
    Cells(Cells),
    /// The write was done.
    Done,
    /// The swap was refused, because the cell holds this.
    Conflict(Option<String>),
    /// The outcome is unknown.
    Unknown,
}

/// One operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What was requested.
    pub action: Action,
    /// What was answered.
    pub answer: Answer,
    /// When it was called, by a counter that all clients share; no two moments of a history are equal.
    pub called: u64,
    /// When it returned.
    pub returned: u64,
}

/// The verdict on a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explained {
    /// This order of its operations explains it.
    By(Vec<usize>),
    /// No order explains it.
    Never {
        /// The longest order of some of its operations that was found.
        longest: Vec<usize>,
    },
}

/// The answer of a correct store with these cells: for programs that make histories.
#[must_use]
pub fn honest_answer(cells: &Cells, action: &Action) -> Answer {
    match action {
        Action::Get(cell) => Answer::Value(cells.get(cell).cloned()),
        Action::Scan => Answer::Cells(cells.clone()),
        Action::Swap(cell, expected, _) if cells.get(cell) != expected.as_ref() => {
            Answer::Conflict(cells.get(cell).cloned())
        }
        _ => Answer::Done,
    }
}

/// The cells after the operation, if it can have given this answer on `cells`.
#[must_use]
pub fn step(cells: &Cells, action: &Action, answer: &Answer) -> Option<Cells> {
    if *answer == Answer::Unknown {
        return Some(write(cells, action).unwrap_or_else(|_| cells.clone()));
    }
    match (action, answer) {
        (Action::Get(cell), Answer::Value(value)) => {
            (cells.get(cell) == value.as_ref()).then(|| cells.clone())
        }
        (Action::Scan, Answer::Cells(told)) => (cells == told).then(|| cells.clone()),
        (_, Answer::Done) => write(cells, action).ok(),
        (_, Answer::Conflict(told)) => (write(cells, action) == Err(told.clone())).then(|| cells.clone()),
        _ => None,
    }
}

/// The cells after a write, or the value that prevents it.
fn write(cells: &Cells, action: &Action) -> Result<Cells, Option<String>> {
    let mut after = cells.clone();
    match action {
        Action::Get(_) | Action::Scan => {}
        Action::Put(keys, value) => after.extend(keys.iter().map(|&key| (key, value.clone()))),
        Action::Append(key, bytes) => after.entry(*key).or_default().push_str(bytes),
        Action::Delete(key) => drop(after.remove(key)),
        Action::Swap(key, expected, value) => {
            if cells.get(key) != expected.as_ref() {
                return Err(cells.get(key).cloned());
            }
            after.insert(*key, value.clone());
        }
    }
    Ok(after)
}

/// Looks for an order of the operations that explains all their answers.
#[must_use]
pub fn explain(history: &[Operation]) -> Explained {
    // In practice, this many tries are never reached.
    explain_within(history, u64::MAX).unwrap_or(Explained::Never { longest: Vec::new() })
}

/// How many more tries are spent on the longest order of a history without an explanation.
const LONGEST_TRIES: u64 = 100_000;

/// The same with a bound: none if it is undecided after this many tries, each of which may be remembered, in
/// a hundred bytes or two.
#[must_use]
pub fn explain_within(history: &[Operation], tries_max: u64) -> Option<Explained> {
    let mut search = Search::new(history, Sight::USUAL, true);
    if !search.run(tries_max)? {
        // What looks ahead stops before the operation that shows what is wrong.
        search = Search::new(history, Sight::USUAL, false);
        // If this found an order, the former search would be wrong, and the order right.
        if search.run(LONGEST_TRIES) != Some(true) {
            return Some(Explained::Never { longest: search.into_longest() });
        }
    }
    let order = search.order();
    debug_assert!(explains(history, &order), "{order:?} is no order of {history:?}");
    Some(Explained::By(order))
}

/// Whether this order of its operations explains the history: without any search.
#[must_use]
pub fn explains(history: &[Operation], order: &[usize]) -> bool {
    let mut cells = Cells::new();
    let mut is_left = vec![true; history.len()];
    for &at in order {
        let Some(Operation { action, answer, .. }) = history.get(at).filter(|_| is_left[at]) else {
            return false;
        };
        let Some(after) = step(&cells, action, answer) else { return false };
        (cells, is_left[at]) = (after, false);
    }
    // No operation comes before one that returned before it was called.
    let mut first_return = u64::MAX;
    let in_time = order.iter().rev().map(|&at| &history[at]).all(|operation| {
        if operation.answer != Answer::Unknown {
            first_return = first_return.min(operation.returned);
        }
        operation.called < first_return
    });
    let is_unknown =
        |(operation, is_left): (&Operation, bool)| !is_left || operation.answer == Answer::Unknown;
    in_time && history.iter().zip(is_left).all(is_unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(called: u64, returned: u64, action: Action, answer: Answer) -> Operation {
        Operation { action, answer, called, returned }
    }

    fn put(called: u64, returned: u64, value: &str) -> Operation {
        operation(called, returned, Action::Put(vec![0], value.into()), Answer::Done)
    }

    fn get(called: u64, returned: u64, value: &str) -> Operation {
        operation(called, returned, Action::Get(0), Answer::Value(Some(value.into())))
    }

    fn is_explained(history: &[Operation]) -> bool {
        matches!(explain(history), Explained::By(_))
    }

    #[test]
    fn a_history_one_by_one_is_explained_by_itself() {
        assert_eq!(explain(&[put(0, 1, "a"), get(2, 3, "a"), put(4, 5, "b")]), Explained::By(vec![0, 1, 2]));
        assert_eq!(explain(&[]), Explained::By(vec![]));
    }

    #[test]
    fn a_stale_read_is_never_explained() {
        let history = [put(0, 1, "a"), put(2, 3, "b"), get(4, 5, "a")];
        assert_eq!(explain(&history), Explained::Never { longest: vec![0, 1] });
    }

    #[test]
    fn reads_beside_a_write_may_see_either_side_but_never_go_back() {
        let around = |first: &str, second: &str| {
            is_explained(&[put(0, 1, "a"), put(2, 9, "b"), get(3, 4, first), get(5, 6, second)])
        };
        assert!(around("a", "a") && around("a", "b") && around("b", "b"));
        assert!(!around("b", "a"));
    }

    #[test]
    fn an_unknown_write_may_happen_late_or_never_but_only_once() {
        let unknown = operation(2, 3, Action::Append(0, "b".into()), Answer::Unknown);
        let seen = |values: &[&str]| {
            let reads =
                values.iter().enumerate().map(|(at, value)| get(4 + 2 * at as u64, 5 + 2 * at as u64, value));
            is_explained(&[put(0, 1, "a"), unknown.clone()].into_iter().chain(reads).collect::<Vec<_>>())
        };
        assert!(seen(&["a"]) && seen(&["a", "ab"]) && seen(&["ab"]) && seen(&[]));
        assert!(!seen(&["ab", "a"]) && !seen(&["abb"]));
    }

    #[test]
    fn a_conflict_tells_what_the_cell_holds() {
        let swap = |answer| operation(2, 3, Action::Swap(0, None, "b".into()), answer);
        assert!(is_explained(&[put(0, 1, "a"), swap(Answer::Conflict(Some("a".into()))), get(4, 5, "a")]));
        assert!(!is_explained(&[put(0, 1, "a"), swap(Answer::Conflict(Some("x".into())))]));
        assert!(!is_explained(&[put(0, 1, "a"), swap(Answer::Conflict(None))]));
        assert!(!is_explained(&[put(0, 1, "a"), swap(Answer::Done)]));
    }

    #[test]
    fn what_takes_too_many_tries_is_not_decided() {
        let history = [put(0, 1, "a"), put(2, 3, "b"), get(4, 5, "b")];
        assert_eq!(explain_within(&history, 2), None);
        assert_eq!(explain_within(&history, 3), Some(Explained::By(vec![0, 1, 2])));
    }

    #[test]
    fn an_order_explains_if_it_is_complete_in_time_and_fits() {
        let unknown = operation(6, 7, Action::Append(0, "c".into()), Answer::Unknown);
        let history = [put(0, 3, "a"), put(1, 4, "b"), get(2, 5, "a"), unknown];
        assert!(explains(&history, &[1, 0, 2]) && explains(&history, &[0, 2, 1]));
        assert!(explains(&history, &[1, 0, 2, 3]), "it may have been done");
        assert!(!explains(&history, &[0, 1, 2]), "another value is read");
        assert!(!explains(&history, &[1, 0]) && !explains(&history, &[0, 2]), "one was done and is missing");
        assert!(!explains(&history, &[1, 1, 0, 2]) && !explains(&history, &[1, 0, 2, 4]));
        assert!(!explains(&history, &[3, 1, 0, 2]), "it was called when the others had returned");
        assert!(!explains(&[put(0, 1, "a"), put(2, 3, "b")], &[1, 0]), "one returned before the other");
    }

    #[test]
    fn a_scan_sees_all_cells_at_one_moment() {
        let both = operation(0, 9, Action::Put(vec![0, 1], "x".into()), Answer::Done);
        let scan = |cells: &[u8]| {
            let cells = cells.iter().map(|&cell| (cell, "x".to_owned())).collect();
            operation(1, 2, Action::Scan, Answer::Cells(cells))
        };
        assert!(is_explained(&[both.clone(), scan(&[])]) && is_explained(&[both.clone(), scan(&[0, 1])]));
        assert!(!is_explained(&[both, scan(&[0])]));
    }
}

//! Decides whether a concurrent history of one partition can be explained by some order of its operations.
//!
//! The search of Wing and Gong with the memoization of Lowe: try each operation that could come next, undo
//! when stuck, and never examine the same set of finished operations with the same cells twice.
//!
//! Invariant: an operation whose outcome is unknown may take effect at any moment after its call, or never;
//! one that was refused is not part of a history.

mod settled;

pub use settled::settled;

use std::collections::{BTreeMap, HashSet};

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
    /// No order explains it; at most this many operations can be put in order.
    Never {
        /// The longest order that was found.
        longest: Vec<usize>,
    },
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

/// The same with a bound: none if it is undecided after this many tries, each of which may be remembered.
#[must_use]
pub fn explain_within(history: &[Operation], tries_max: u64) -> Option<Explained> {
    Search::new(history).run(tries_max)
}

/// Calls and returns in the order of time, as a linked list from which operations are lifted.
struct Search<'a> {
    history: &'a [Operation],
    /// The operation and whether this is its return, for each moment.
    moments: Vec<(usize, bool)>,
    next: Vec<usize>,
    former: Vec<usize>,
    /// The indices in `moments` of the call and the return of each operation.
    places: Vec<(usize, Option<usize>)>,
    done: Vec<u64>,
    cells: Cells,
    /// The operations put in order so far, each with the cells before it.
    order: Vec<(usize, Cells)>,
    longest: Vec<usize>,
    seen: HashSet<(Vec<u64>, Cells)>,
}

/// The index of the list's head.
const HEAD: usize = 0;

impl<'a> Search<'a> {
    fn new(history: &'a [Operation]) -> Self {
        let mut timed: Vec<(u64, usize, bool)> = Vec::new();
        for (at, operation) in history.iter().enumerate() {
            timed.push((operation.called, at, false));
            // An operation that is not known to have returned may still be under way at the end.
            if operation.answer != Answer::Unknown {
                timed.push((operation.returned, at, true));
            }
        }
        timed.sort_unstable();
        let mut places = vec![(HEAD, None); history.len()];
        // The head belongs to no operation and is never visited as a moment.
        let mut moments = vec![(usize::MAX, false)];
        for (_, operation, is_return) in timed {
            match is_return {
                false => places[operation].0 = moments.len(),
                true => places[operation].1 = Some(moments.len()),
            }
            moments.push((operation, is_return));
        }
        let count = moments.len();
        Self {
            history,
            moments,
            next: (1..=count).collect(),
            former: (0..=count).map(|at| at.saturating_sub(1)).collect(),
            places,
            done: vec![0; history.len().div_ceil(64)],
            cells: Cells::new(),
            order: Vec::new(),
            longest: Vec::new(),
            seen: HashSet::new(),
        }
    }

    fn run(mut self, tries_max: u64) -> Option<Explained> {
        let mut tries = 0;
        let mut at = self.next[HEAD];
        loop {
            // If no returns are left, all remaining operations have unknown outcomes.
            match self.moments.get(at) {
                None => {
                    let order = self.order.into_iter().map(|(operation, _)| operation);
                    return Some(Explained::By(order.collect()));
                }
                Some(&(operation, false)) => {
                    if tries >= tries_max {
                        return None;
                    }
                    tries += 1;
                    at = if self.try_next(operation) { self.next[HEAD] } else { self.next[at] };
                }
                // This one returned before any later one was called, and could not be put in order.
                Some(&(_, true)) => match self.undo() {
                    Some(place) => at = self.next[place],
                    None => return Some(Explained::Never { longest: self.longest }),
                },
            }
        }
    }

    /// Puts an operation next in the order, if its answer fits and this state has not been examined before.
    fn try_next(&mut self, operation: usize) -> bool {
        let Operation { action, answer, .. } = &self.history[operation];
        let Some(after) = step(&self.cells, action, answer) else { return false };
        let mut done = self.done.clone();
        done[operation / 64] |= 1 << (operation % 64);
        if !self.seen.insert((done.clone(), after.clone())) {
            return false;
        }
        self.done = done;
        self.order.push((operation, std::mem::replace(&mut self.cells, after)));
        if self.order.len() > self.longest.len() {
            self.longest = self.order.iter().map(|(operation, _)| *operation).collect();
        }
        let (call, back) = self.places[operation];
        self.lift(call);
        back.into_iter().for_each(|place| self.lift(place));
        true
    }

    /// Takes the last operation out of the order; returns the index of its call.
    fn undo(&mut self) -> Option<usize> {
        let (operation, before) = self.order.pop()?;
        self.cells = before;
        self.done[operation / 64] &= !(1 << (operation % 64));
        let (call, back) = self.places[operation];
        back.into_iter().for_each(|place| self.unlift(place));
        self.unlift(call);
        Some(call)
    }

    fn lift(&mut self, place: usize) {
        let (former, next) = (self.former[place], self.next[place]);
        self.next[former] = next;
        self.former[next] = former;
    }

    /// Undoes the latest `lift` that is not undone yet.
    fn unlift(&mut self, place: usize) {
        let (former, next) = (self.former[place], self.next[place]);
        self.next[former] = place;
        self.former[next] = place;
    }
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

//! Decides writes of unknown outcome before the search, from what other operations saw: each of them doubles
//! the search.
//!
//! If every write adds bytes that no other write adds, a write that another operation saw was done, and no
//! later than the answer of that operation. A write that no operation saw might as well never have been done:
//! its cell was not read before it was overwritten.
//!
//! Invariant: if each write's bytes are its own, a history has an explanation if and only if the settled one
//! has.

use super::{Action, Answer, Operation};

/// The history with its writes of unknown outcome marked as done by some moment, or left out. Deletes stay,
/// since they leave no trace.
///
/// Each write's bytes must not be part of another write's.
#[must_use]
pub fn settled(history: &[Operation]) -> Vec<Operation> {
    let deadlines = deadlines(history);
    let settle = |(operation, deadline): (&Operation, Option<u64>)| {
        let mut operation = operation.clone();
        if operation.answer != Answer::Unknown {
            return Some(operation);
        }
        match (&operation.action, deadline) {
            (Action::Get(_) | Action::Scan, _) => None,
            (Action::Delete(_), _) => Some(operation),
            (_, None) => None,
            // Seen before it was called: nothing explains that, and the search will find out.
            (_, Some(deadline)) if deadline < operation.called => Some(operation),
            (_, Some(deadline)) => {
                operation.answer = Answer::Done;
                operation.returned = deadline;
                Some(operation)
            }
        }
    };
    history.iter().zip(deadlines).filter_map(settle).collect()
}

/// The moment by which each operation was done; none if that was not observed.
fn deadlines(history: &[Operation]) -> Vec<Option<u64>> {
    let known = |one: &Operation| (one.answer != Answer::Unknown).then_some(one.returned);
    let mut deadlines: Vec<Option<u64>> = history.iter().map(known).collect();
    // An operation that was seen has seen something itself, if it is a swap: repeat until nothing changes.
    loop {
        let mut is_new = false;
        for (at, operation) in history.iter().enumerate() {
            let (Answer::Unknown, Some(bytes)) = (&operation.answer, written(&operation.action)) else {
                continue;
            };
            let others = history.iter().zip(&deadlines).enumerate().filter(|(other, _)| *other != at);
            let seen = others.filter_map(|(_, (other, by))| by.filter(|_| saw(other, bytes)));
            let earliest = seen.chain(deadlines[at]).min();
            if earliest != deadlines[at] {
                (deadlines[at], is_new) = (earliest, true);
            }
        }
        if !is_new {
            return deadlines;
        }
    }
}

/// The bytes that a write adds.
fn written(action: &Action) -> Option<&str> {
    match action {
        Action::Put(_, bytes) | Action::Append(_, bytes) | Action::Swap(_, _, bytes) => Some(bytes),
        Action::Get(_) | Action::Scan | Action::Delete(_) => None,
    }
}

/// Whether an operation that was done saw these bytes.
fn saw(operation: &Operation, bytes: &str) -> bool {
    let found = match (&operation.answer, &operation.action) {
        (Answer::Value(found) | Answer::Conflict(found), _) => found.as_ref(),
        (Answer::Cells(cells), _) => return cells.values().any(|value| value.contains(bytes)),
        (Answer::Done | Answer::Unknown, Action::Swap(_, expected, _)) => expected.as_ref(),
        _ => None,
    };
    found.is_some_and(|found| found.contains(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::{Cells, Explained, explain, honest_answer, step};
    use super::*;
    use fastrand::Rng;

    const CELLS: u8 = 2;

    fn action(random: &mut Rng, number: usize, known: &[String]) -> Action {
        let (cell, bytes) = (random.u8(..CELLS), format!("<{number}>"));
        match random.u8(..12) {
            0..=2 => Action::Get(cell),
            3 => Action::Scan,
            4 => Action::Put(vec![cell], bytes),
            5 => Action::Put((0..CELLS).collect(), bytes),
            6..=7 => Action::Append(cell, bytes),
            8..=10 => Action::Swap(cell, random.choice(known).cloned(), bytes),
            _ => Action::Delete(cell),
        }
    }

    /// A history of a store that is honest, except that in two of three histories some answers are those of
    /// other moments.
    fn history(seed: u64) -> Vec<Operation> {
        let mut random = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let reach = random.u64(1..60);
        let (mut cells, mut known, mut history) = (Cells::new(), Vec::new(), Vec::new());
        let mut before = vec![Cells::new()];
        for number in 0..random.usize(2..14) {
            let action = action(&mut random, number, &known);
            let is_wrong = !seed.is_multiple_of(3) && random.u8(..2) == 0;
            let shown = if is_wrong { random.choice(&before).unwrap_or(&cells) } else { &cells };
            let is_unknown = random.u8(..3) == 0;
            let answer = if is_unknown { Answer::Unknown } else { honest_answer(shown, &action) };
            if !is_unknown || random.bool() {
                cells = step(&cells, &action, &answer).unwrap_or(cells);
            }
            known.extend(cells.values().cloned());
            before.push(cells.clone());
            // Calls at even moments and returns at odd ones, all distinct.
            let (at, own) = (1_000 + 10 * number as u64, 2 * number as u64);
            let called = (at - random.u64(..reach)) * 100 + own;
            let returned = (at + 1 + random.u64(..reach)) * 100 + own + 1;
            history.push(Operation { action, answer, called, returned });
        }
        history
    }

    #[test]
    fn a_settled_history_has_an_explanation_exactly_if_it_had_one() {
        let (mut explained, mut fewer) = (0, 0);
        const HISTORIES: u64 = 6_000;
        for seed in 0..HISTORIES {
            let history = history(seed);
            let settled = settled(&history);
            let [was, is] = [&history, &settled].map(|one| matches!(explain(one), Explained::By(_)));
            assert_eq!(was, is, "seed {seed}: {history:#?} settled: {settled:#?}");
            explained += u64::from(was);
            fewer += u64::from(settled != history);
            assert!(was || seed % 3 != 0, "seed {seed} is of an honest store: {history:#?}");
        }
        // Without histories of both kinds, agreement would prove nothing.
        assert!((HISTORIES / 3..HISTORIES * 9 / 10).contains(&explained), "{explained}");
        assert!(fewer > HISTORIES / 2, "{fewer}");
    }

    #[test]
    fn what_was_seen_is_done_by_then_and_what_nobody_saw_is_left_out() {
        let unknown =
            |called, action| Operation { action, answer: Answer::Unknown, called, returned: called + 1 };
        let append = |bytes: &str| Action::Append(0, bytes.to_owned());
        let read = Operation {
            action: Action::Get(0),
            answer: Answer::Value(Some("<1><3>".to_owned())),
            called: 10,
            returned: 11,
        };
        let swap = Action::Swap(0, Some("<1>".to_owned()), "<4>".to_owned());
        let history = [
            unknown(0, append("<1>")),
            unknown(2, append("<2>")),
            unknown(4, append("<3>")),
            unknown(6, swap),
            unknown(8, Action::Delete(0)),
            read.clone(),
        ];
        let done = |called, action| Operation { action, answer: Answer::Done, called, returned: 11 };
        let delete = unknown(8, Action::Delete(0));
        assert_eq!(settled(&history), [done(0, append("<1>")), done(4, append("<3>")), delete, read]);
    }
}

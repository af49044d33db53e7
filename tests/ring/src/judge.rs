//! Judges the replies to clients: some order of each slot's operations must explain them, and the order in
//! which writes were committed must do so too.
//!
//! The outcome of writes that is unknown to their client is looked up in the book: either they took effect
//! by the moment of their first application, or never.

use crate::losses::KeptState;
use crate::operation::{Operation, OperationEnd, Work};
use atoll_linearizability::{self as linearizability, Action, Answer, Explained};
use atoll_replica::{Sequence, Slot};

/// Judges the operations of a slot.
pub(crate) fn judge(operations: &[Operation], slot: Slot) -> Result<(), String> {
    let of_slot = || (0..).zip(operations).filter(|(_, operation)| operation.slot == slot);
    for (number, operation) in of_slot() {
        check_answer(number, operation)?;
    }
    check_places(of_slot())?;
    let (numbers, history): (Vec<Option<usize>>, Vec<_>) = of_slot()
        .filter_map(|(number, operation)| Some((Some(number), seen_from_outside(operation)?)))
        .unzip();
    explained(slot, &numbers, &history)?;
    explained_by_places(slot, operations, &numbers, &history)
}

/// Judges the operations of a slot that began after an accepted loss, from the moment at which a node led
/// the kept state.
///
/// Earlier writes may reappear: entries that were only in a log are committed then, and are visible from
/// there on, whatever their clients were told.
pub(crate) fn judge_behind(operations: &[Operation], slot: Slot, kept: &KeptState) -> Result<(), String> {
    let is_behind = |operation: &Operation| operation.called > kept.moment;
    let of_slot = || (0..).zip(operations).filter(|(_, operation)| operation.slot == slot);
    for (number, operation) in of_slot().filter(|(_, operation)| is_behind(operation)) {
        check_answer(number, operation)?;
    }
    check_places(of_slot().filter(|(_, operation)| is_behind(operation)))?;
    // A kept cell is treated as one that was put before everything else.
    let cells = (0..).zip(&kept.state.cells).map(|(at, (&cell, value))| {
        let action = Action::Put(vec![cell], value.clone());
        (
            None,
            linearizability::Operation { action, answer: Answer::Done, called: 2 * at, returned: 2 * at + 1 },
        )
    });
    let room = 2 * kept.state.cells.len() as u64;
    let later = of_slot().filter_map(|(number, operation)| {
        let seen = match is_behind(operation) {
            true => seen_from_outside(operation)?,
            false if operation.place.is_some_and(|place| place > kept.place) => {
                seen_from_outside(&Operation { ended: None, ..operation.clone() })?
            }
            false => return None,
        };
        let (called, returned) = (seen.called + room, seen.returned + room);
        Some((Some(number), linearizability::Operation { called, returned, ..seen }))
    });
    let (numbers, history): (Vec<Option<usize>>, Vec<_>) = cells.chain(later).unzip();
    explained(slot, &numbers, &history)?;
    explained_by_places(slot, operations, &numbers, &history)
}

/// The most tries of finding an order. Sound histories need hardly more tries than they have operations, and
/// broken ones thousands; one that needs more than this is reported, since it may have no order, and each try
/// may be remembered.
const TRIES_MAX: u64 = 2_000_000;

/// Whether some order explains a history. Its operations are numbered, apart from cells that were there
/// before.
fn explained(
    slot: Slot,
    numbers: &[Option<usize>],
    history: &[linearizability::Operation],
) -> Result<(), String> {
    match linearizability::explain_within(history, TRIES_MAX) {
        Some(Explained::By(_)) => Ok(()),
        Some(Explained::Never { longest }) => Err(unexplained(slot, numbers, history, &longest)),
        None => Err(format!(
            "slot {}: whether {} operations have an order is undecided after {TRIES_MAX} tries",
            slot.0,
            history.len()
        )),
    }
}

/// Whether the order in which writes were committed explains a history, with each read behind the last write
/// that it saw. No search can find that out: it may prefer another order.
fn explained_by_places(
    slot: Slot,
    operations: &[Operation],
    numbers: &[Option<usize>],
    history: &[linearizability::Operation],
) -> Result<(), String> {
    let key = |at: &usize| match numbers[*at] {
        // A cell that was kept.
        None => Some((Sequence(0), false, 0)),
        Some(number) => {
            let Operation { place, work, called, .. } = &operations[number];
            place.map(|place| (place, !work.is_write(), *called))
        }
    };
    let mut order: Vec<usize> = (0..history.len()).collect();
    if !order.iter().all(|at| key(at).is_some()) {
        return Err(format!("slot {}: an operation that has an answer has no place", slot.0));
    }
    order.sort_by_key(key);
    match linearizability::explains(history, &order) {
        true => Ok(()),
        false => {
            Err(format!("slot {}: the order of commits does not explain what clients were told", slot.0))
        }
    }
}

/// A write that was answered was applied, and answers the same everywhere; one that was refused was not
/// applied.
fn check_answer(number: usize, operation: &Operation) -> Result<(), String> {
    let told = operation.ended.as_ref().map(|(_, ended)| ended);
    if !operation.work.is_write() {
        return Ok(());
    }
    match (told, &operation.applied) {
        (Some(OperationEnd::Told(answer)), None) => {
            Err(format!("operation {number} was told {answer:?}, and is not there"))
        }
        (Some(OperationEnd::Told(answer)), Some((_, applied))) if answer != applied => {
            Err(format!("operation {number} was told {answer:?}, and is {applied:?}"))
        }
        (Some(OperationEnd::Refused), Some(_)) => {
            Err(format!("operation {number} was refused, and is there"))
        }
        _ => Ok(()),
    }
}

/// If an operation ended before another one began, the second must not be at an earlier place: a write must
/// come after everything that was seen, a read at least there.
fn check_places<'a>(operations: impl Iterator<Item = (usize, &'a Operation)>) -> Result<(), String> {
    // Moments, each with its meaning: a place was reached, or an operation must not be before a place.
    let mut moments: Vec<(u64, bool, Sequence, bool, usize)> = Vec::new();
    for (number, operation) in operations {
        let (Some(place), Some((ended, OperationEnd::Told(_)))) = (operation.place, &operation.ended) else {
            continue;
        };
        let is_write = operation.work.is_write();
        moments.push((*ended, true, place, is_write, number));
        moments.push((operation.called, false, place, is_write, number));
    }
    moments.sort_unstable();
    let mut reached = (Sequence(0), 0);
    for (_, is_end, place, is_write, number) in moments {
        if is_end {
            reached = reached.max((place, number));
        } else if place < reached.0 || (is_write && place == reached.0) {
            return Err(format!(
                "operation {number} is at {}, but operation {} had seen {} before it was asked for",
                place.0, reached.1, reached.0.0
            ));
        }
    }
    Ok(())
}

/// The operation as the search for an order sees it, if it matters there.
fn seen_from_outside(operation: &Operation) -> Option<linearizability::Operation> {
    let told = match &operation.ended {
        Some((returned, OperationEnd::Told(answer))) => Some((*returned, answer.clone())),
        _ => None,
    };
    let (action, (returned, answer)) = match &operation.work {
        Work::Read(action) => (action.clone(), told?),
        Work::Wait { cell, .. } => (Action::Get(*cell), told?),
        Work::Write { action, .. } => (action.clone(), told.or_else(|| operation.applied.clone())?),
        // A cell that was no longer the one to expire stays.
        Work::Expire { cell, .. } => {
            let applied = operation.applied.clone().filter(|(_, answer)| *answer == Answer::Done)?;
            (Action::Delete(*cell), applied)
        }
    };
    Some(linearizability::Operation { action, answer, called: operation.called, returned })
}

fn unexplained(
    slot: Slot,
    numbers: &[Option<usize>],
    history: &[linearizability::Operation],
    longest: &[usize],
) -> String {
    let left = (0..history.len()).filter(|at| !longest.contains(at));
    let first = left.min_by_key(|&at| history[at].returned);
    let what = first.map(|at| match numbers[at] {
        Some(number) => format!("operation {number}: {:?}", history[at]),
        None => format!("a cell that was kept: {:?}", history[at]),
    });
    format!(
        "slot {}: no order explains what clients were told; {} of {} operations at most, then {}",
        slot.0,
        longest.len(),
        history.len(),
        what.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::State;

    fn operation(called: u64, returned: u64, work: Work, answer: Answer, place: u64) -> Operation {
        let applied = work.is_write().then(|| (returned, answer.clone()));
        Operation {
            slot: Slot(0),
            work,
            called,
            took: (0, None),
            ended: Some((returned, OperationEnd::Told(answer))),
            place: Some(Sequence(place)),
            applied,
        }
    }

    fn put(called: u64, returned: u64, value: &str, place: u64) -> Operation {
        let action = Action::Put(vec![0], value.to_owned());
        operation(called, returned, Work::Write { action, lifetime_us: None }, Answer::Done, place)
    }

    fn get(called: u64, returned: u64, value: Option<&str>, place: u64) -> Operation {
        let answer = Answer::Value(value.map(str::to_owned));
        operation(called, returned, Work::Read(Action::Get(0)), answer, place)
    }

    #[test]
    fn what_is_read_must_be_what_was_written_before() {
        assert_eq!(judge(&[put(1, 2, "a", 1), get(3, 4, Some("a"), 1)], Slot(0)), Ok(()));
        assert!(judge(&[put(1, 2, "a", 1), get(3, 4, None, 1)], Slot(0)).is_err());
        assert!(judge(&[put(1, 2, "a", 1), get(3, 4, Some("a"), 0)], Slot(0)).is_err(), "an old place");
    }

    #[test]
    fn a_write_stands_behind_all_that_was_seen_before_it_was_asked_for() {
        let around = |place| {
            judge(&[put(1, 2, "a", 1), get(3, 4, Some("a"), 2), put(5, 6, "b", place)], Slot(0)).is_ok()
        };
        assert!(around(3) && !around(2));
    }

    #[test]
    fn the_order_of_commits_must_explain_it_as_well() {
        // Both were under way at once, and whoever reads sees the one that was committed last.
        let read =
            |value| judge(&[put(1, 9, "a", 1), put(2, 8, "b", 2), get(10, 11, Some(value), 2)], Slot(0));
        assert_eq!(read("b"), Ok(()));
        assert!(read("a").unwrap_err().contains("the order of commits"));
    }

    #[test]
    fn writes_nobody_knows_of_took_effect_by_the_moment_they_were_applied() {
        let unknown = |applied: Option<u64>| {
            let mut unknown = put(1, 9, "a", 1);
            unknown.ended = Some((9, OperationEnd::Unknown));
            unknown.applied = applied.map(|at| (at, Answer::Done));
            unknown
        };
        let late = get(5, 6, None, 0);
        assert!(judge(&[unknown(None), late.clone()], Slot(0)).is_ok());
        assert!(judge(&[unknown(Some(7)), late.clone()], Slot(0)).is_ok());
        assert!(judge(&[unknown(Some(4)), late], Slot(0)).is_err());
    }

    #[test]
    fn refused_writes_are_not_there() {
        let mut refused = put(1, 2, "a", 1);
        refused.ended = Some((2, OperationEnd::Refused));
        assert!(judge(&[refused.clone()], Slot(0)).is_err());
        refused.applied = None;
        assert!(judge(&[refused], Slot(0)).is_ok());
    }
    /// "old" was kept at place 3, and nothing was answered since moment 20.
    fn behind(operations: &[Operation]) -> Result<(), String> {
        let state = State { cells: [(0, "old".to_owned())].into(), ..State::default() };
        judge_behind(operations, Slot(0), &KeptState { place: Sequence(3), state, moment: 20 })
    }

    #[test]
    fn behind_a_loss_is_read_what_was_kept() {
        let lost = put(1, 2, "lost", 4);
        let lost = Operation { place: None, ..lost };
        assert_eq!(behind(&[lost.clone(), get(21, 22, Some("old"), 3)]), Ok(()));
        assert!(behind(&[lost.clone(), get(21, 22, Some("lost"), 3)]).is_err());
        assert!(behind(&[lost, get(21, 22, None, 3)]).is_err());
        assert_eq!(behind(&[get(1, 22, None, 3), get(2, 19, None, 3)]), Ok(()), "asked for before");
    }

    #[test]
    fn behind_a_loss_the_last_write_is_seen() {
        let new = || put(21, 22, "new", 4);
        assert_eq!(behind(&[new(), get(23, 24, Some("new"), 4)]), Ok(()));
        assert!(behind(&[new(), get(23, 24, Some("old"), 4)]).is_err());
        assert!(behind(&[new(), get(23, 24, Some("new"), 3)]).is_err(), "an old place");
        assert!(behind(&[Operation { applied: None, ..new() }]).is_err(), "it is not there");
    }

    #[test]
    fn writes_of_before_a_loss_may_come_again_behind_it() {
        let mut again = put(1, 2, "again", 4);
        again.applied = Some((25, Answer::Done));
        let old = get(21, 22, Some("old"), 3);
        assert_eq!(behind(&[again.clone(), old.clone(), get(26, 27, Some("again"), 4)]), Ok(()));
        assert_eq!(
            behind(&[again.clone(), get(21, 22, Some("again"), 4)]),
            Ok(()),
            "applied elsewhere before"
        );
        assert!(behind(&[again, old, get(26, 27, Some("old"), 4)]).is_err(), "it is there by then");
    }

    /// A node kept nothing but a log of many entries, which came again in the order of their places, at about
    /// the same time. What was read tells that order from all the others.
    #[test]
    fn many_writes_that_come_again_behind_a_loss_are_decided() {
        let kept = KeptState { place: Sequence(0), state: State::default(), moment: 1_000 };
        let came_again = |at: u64, action: Action| {
            let work = Work::Write { action, lifetime_us: None };
            // The log was written in another order than the one in which the writes were requested.
            let called = 1 + at * 7 % 40;
            let one = operation(called, 900 + at, work, Answer::Done, at);
            Operation { applied: Some((2_000 - at, Answer::Done)), ..one }
        };
        let put = |at: u64| came_again(at, Action::Put(vec![(at % 3) as u8], format!("{at}")));
        let append = |at: u64| came_again(at, Action::Append((at % 3) as u8, format!("+{at}")));
        let mut operations: Vec<Operation> = (1..=30).map(put).chain((31..=39).map(append)).collect();
        let read = |at: u64, cell: u8, value: &str| {
            let work = Work::Read(Action::Get(cell));
            operation(3_000 + 2 * at, 3_001 + 2 * at, work, Answer::Value(Some(value.to_owned())), 39)
        };
        operations.extend([read(0, 0, "30+33+36+39"), read(1, 1, "28+31+34+37"), read(2, 2, "29+32+35+38")]);
        assert_eq!(judge_behind(&operations, Slot(0), &kept), Ok(()));
        operations.push(read(3, 0, "27+33+36+39"));
        let what = judge_behind(&operations, Slot(0), &kept).unwrap_err();
        assert!(what.contains("no order explains"), "{what}");
    }
}

//! Running a command from beginning to end, including commands that are refused, fail, or meet expired keys.

use super::{Done, Reading, Stop, Writing};
use crate::answer::Answer;
use crate::cells::{Cells, Changes};
use crate::state::SlotState;
use crate::{Applied, KeyspaceError, ReadOutcome};

/// What a command starts from.
pub(crate) struct Scene<'a, C> {
    pub(crate) cells: &'a C,
    pub(crate) slot: u16,
    pub(crate) state: SlotState,
    /// The time of the command.
    pub(crate) time_ms: u64,
}

impl<'a, C: Cells> Scene<'a, C> {
    fn reading(&self, answer: Answer<'a>) -> Reading<'a, C> {
        Reading {
            cells: self.cells,
            slot: self.slot,
            // What an earlier write counted as expired is not found again by an earlier clock.
            now_ms: self.state.time_ms.max(self.time_ms),
            soonest_ms: self.state.soonest_ms,
            answer,
            overdue: Vec::new(),
        }
    }
}

/// Evaluates a log entry; returns the slot's state after it. If it returns a state, the changes are still to
/// be committed.
pub(crate) fn write<'a, C: Cells, W: Changes>(
    scene: Scene<'a, C>,
    changes: &mut W,
    applied: Applied,
    answer: &'a mut Answer<'_>,
    evaluate: impl FnOnce(&mut Writing<'_, '_, C, W>) -> Done,
) -> Result<SlotState, KeyspaceError> {
    let reading = scene.reading(answer.again());
    let before = SlotState { applied, time_ms: reading.now_ms, ..scene.state };
    let mut writing = Writing { reading, changes, state: before };
    match evaluate(&mut writing) {
        Ok(()) => Ok(writing.state),
        Err(Stop::Refused(refusal)) => {
            writing.changes.clear();
            writing.reading.answer.refuse(&refusal);
            Ok(before)
        }
        Err(Stop::Failed(error)) => {
            writing.reading.answer.take_back();
            Err(error)
        }
    }
}

/// Evaluates a command that only reads.
pub(crate) fn read<'a, C: Cells>(
    scene: Scene<'a, C>,
    answer: &'a mut Answer<'_>,
    evaluate: impl FnOnce(&mut Reading<'_, C>) -> Done,
) -> Result<ReadOutcome, KeyspaceError> {
    let mut reading = scene.reading(answer.again());
    match evaluate(&mut reading) {
        Err(Stop::Failed(error)) => {
            reading.answer.take_back();
            return Err(error);
        }
        _ if !reading.overdue.is_empty() => {
            reading.answer.take_back();
            return Ok(ReadOutcome::Expired(reading.overdue));
        }
        Err(Stop::Refused(refusal)) => reading.answer.refuse(&refusal),
        Ok(()) => {}
    }
    Ok(ReadOutcome::Answered)
}

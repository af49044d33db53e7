//! Writes that read and change a single cell: it is looked up once, and the command is evaluated in place.
//!
//! Only for keyspaces in memory, where no state of the slot is written along with the cell.
//!
//! Invariant: a command evaluated in place answers and changes the same as with all cells at hand. If it
//! reads more than the one cell the attempt fails, and the command is evaluated again.

use super::Keyspace;
use crate::answer::Answer;
use crate::cell::CellName;
use crate::cells::{CellFront, CellRef, CellValue, Cells, Changes};
use crate::evaluate;
use crate::evaluate::run::{self, Scene};
use crate::state::SlotState;
use crate::{Applied, KEY_BYTES_MAX, KeyspaceError};
use atoll_engine::{Amended, Direction, Durability, EngineError};
use atoll_resp::{Command, SetAnswer, SetCondition};
use std::ops::{Bound, ControlFlow};

/// The key of a command that most likely reads only the head of that key.
pub(super) fn only_key<'a>(command: &Command<'a>) -> Option<&'a [u8]> {
    let key = match command {
        Command::Set(request)
            if request.answer != SetAnswer::Former
                && !matches!(request.condition, SetCondition::Equals(_)) =>
        {
            request.key
        }
        Command::Append { key, .. } => key,
        _ => return None,
    };
    (key.len() <= KEY_BYTES_MAX).then_some(key)
}

/// A command and its position in the log.
pub(super) struct LoggedCommand<'a, 'c> {
    pub(super) slot: u16,
    pub(super) applied: Applied,
    pub(super) time_ms: u64,
    pub(super) command: &'a Command<'c>,
}

impl Keyspace {
    /// Evaluates a command on this key in place. Returns whether that was possible; if not, nothing was
    /// changed or answered.
    pub(super) fn apply_in_place(
        &mut self,
        entry: &LoggedCommand<'_, '_>,
        key: &[u8],
        mut answer: Answer<'_>,
    ) -> Result<bool, KeyspaceError> {
        let &LoggedCommand { slot, applied, time_ms, command } = entry;
        let state = *self.whole(slot)?;
        let name = CellName::head(slot, key);
        let mut evaluated: Option<SlotState> = None;
        self.pending.clear();
        let (pending, evaluated_to, answer_to) = (&mut self.pending, &mut evaluated, &mut answer);
        let amended = self.tree.amend(&name, Durability::Buffered, |front| {
            let cells = OneCell { name: &name, front };
            let scene = Scene { cells: &cells, slot, state, time_ms };
            let state =
                run::write(scene, pending, applied, answer_to, |writing| evaluate::write(writing, command));
            *evaluated_to = state.ok();
            evaluated_to.and(pending.only_change())
        });
        let done = match (amended, evaluated) {
            (Ok(Amended::Unseen), _) | (Ok(Amended::Seen), None) => return Ok(false),
            (Ok(Amended::Seen), Some(_)) => self.pending.commit(&self.engine),
            (Ok(Amended::Committed(_)), _) => Ok(()),
            (Err(error), _) => Err(error.into()),
        };
        if let Err(error) = done {
            answer.take_back();
            return match error {
                // It is refused where all cells are at hand.
                KeyspaceError::Engine(EngineError::Size { .. }) => Ok(false),
                error => Err(error),
            };
        }
        evaluated.into_iter().for_each(|state| self.set_state(slot, state));
        Ok(true)
    }
}

/// The one cell that is accessible while the engine holds it.
struct OneCell<'a> {
    name: &'a [u8],
    front: Option<CellFront>,
}

/// Never reported: the command is evaluated again instead.
const ELSEWHERE: KeyspaceError = KeyspaceError::Corrupt { what: "a cell that others have" };

impl Cells for OneCell<'_> {
    fn show<R>(&self, _: &[u8], _: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KeyspaceError> {
        Err(ELSEWHERE)
    }

    fn value(&self, _: &[u8]) -> Result<Option<CellValue>, KeyspaceError> {
        Err(ELSEWHERE)
    }

    fn front(&self, name: &[u8]) -> Result<Option<CellFront>, KeyspaceError> {
        if name == self.name { Ok(self.front) } else { Err(ELSEWHERE) }
    }

    fn visit(
        &self,
        _: (Bound<&[u8]>, Bound<&[u8]>),
        _: Direction,
        _: impl FnMut(&[u8], CellRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), KeyspaceError> {
        Err(ELSEWHERE)
    }
}

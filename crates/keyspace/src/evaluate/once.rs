//! Writes that are done once: a repeated write gets the answer of the first time.
//!
//! Invariant: the changes of a write and the record that it was done are in the same commit; a write that is
//! refused leaves no trace.

use super::writing::Writing;
use super::{Done, write};
use crate::cell::{self, CellName, SESSION, SESSION_USE};
use crate::cells::{Cells, Changes};
use crate::session::{Known, Session};
use crate::{
    DATES_APART_MS_MAX, FRESH_MS_MAX, KeyspaceError, REMEMBERED_BYTES_MAX, Refusal, SESSION_MS_MIN,
    SESSIONS_MAX,
};
use atoll_engine::Direction;
use atoll_resp::{Command, Once, OwnCommand};
use std::ops::{Bound, ControlFlow};

/// The precision of the time of use, so that it does not change with each write.
const USE_MS: u64 = 60_000;

/// Most sessions that one write forgets.
const FORGOTTEN_TOGETHER: usize = 4;

/// Most sessions that a flush forgets if others are still in use: a flush is asked of all slots at once.
const FORGOTTEN_WITH_KEYS: usize = 64;

impl<C: Cells, W: Changes> Writing<'_, '_, C, W> {
    pub(super) fn once(&mut self, once: &Once<'_>) -> Done {
        let name = CellName::session(self.reading.slot, once.client);
        let kept = self.reading.cells.value(&name)?;
        let kept = kept.map(|cell| Session::decode(&cell.read(0, cell.len())?)).transpose()?;
        // The retry may use another version of the protocol.
        self.reading.answer.speak_oldest();
        match kept.as_ref().map_or(Known::Fresh, |session| session.known(once.sequence)) {
            Known::Forgotten => return Err(Refusal::Forgotten { sequence: once.sequence }.into()),
            Known::Done(answer) => {
                self.reading.answer.writer().array(2);
                self.reading.answer.writer().integer(1);
                self.reading.answer.raw(answer);
                return Ok(());
            }
            Known::Fresh => {}
        }
        if kept.is_none() {
            fresh(once, self.reading.now_ms)?;
        }
        self.reading.answer.writer().array(2);
        self.reading.answer.writer().integer(0);
        let begins = self.reading.answer.len();
        write(self, &once.command)?;
        let answer = self.reading.answer.behind(begins);
        // A condition did not hold: the write may be tried again.
        if matches!(&*once.command, Command::Own(OwnCommand::Batch(_))) && answer.first() == Some(&b'*') {
            return Ok(());
        }
        if answer.len() > REMEMBERED_BYTES_MAX {
            let (actual, most) = (answer.len() as u64, REMEMBERED_BYTES_MAX as u64);
            return Err(Refusal::Limit { what: "an answer that is remembered", actual, most }.into());
        }
        let mut session = kept.clone().unwrap_or_default();
        session.remember(once.sequence, once.floor, answer);
        self.keep(once.client, &name, kept.is_some(), session)
    }

    /// Stores a session, and when it was in use.
    fn keep(&mut self, client: u128, name: &[u8], is_kept: bool, mut session: Session) -> Done {
        let (slot, now_ms, former) = (self.reading.slot, self.reading.now_ms, session.used_ms);
        let is_dated = !is_kept || former.saturating_add(USE_MS) <= now_ms;
        if is_dated {
            // Often enough: there are never more times of use to look at than were recorded here.
            self.forget(FORGOTTEN_TOGETHER, Some(client))?;
        }
        if !is_kept {
            if self.state.sessions >= SESSIONS_MAX {
                return Err(Refusal::Sessions.into());
            }
            self.state.sessions += 1;
        }
        if is_dated {
            session.used_ms = now_ms;
            if is_kept {
                self.changes.delete(&CellName::session_use(slot, former, client));
            }
            self.changes.put(&CellName::session_use(slot, now_ms, client), [&[], &[]]);
            self.state.oldest_use_ms = self.state.oldest_use_ms.min(now_ms);
        }
        self.changes.put(name, [&session.encode(), &[]]);
        Ok(())
    }

    /// Forgets sessions that have not been in use for long: all of them if none is in use, and otherwise
    /// some.
    pub(super) fn forget_with_keys(&mut self) -> Done {
        let (slot, now_ms, mut is_recent) = (self.reading.slot, self.reading.now_ms, false);
        self.visit_uses(Direction::Backward, |used_ms, _| {
            is_recent = !is_old(used_ms, now_ms);
            ControlFlow::Break(())
        })?;
        if is_recent {
            return self.forget(FORGOTTEN_WITH_KEYS, None).map(|_| ());
        }
        for kind in [SESSION, SESSION_USE] {
            self.changes.delete_range(&CellName::kind(slot, kind), &CellName::kind(slot, kind + 1));
        }
        (self.state.sessions, self.state.oldest_use_ms) = (0, u64::MAX);
        Ok(())
    }

    /// Forgets at most `most` sessions that have not been in use for long, and answers how many: the entry
    /// for slots that no client writes to.
    pub(crate) fn forget_silent(&mut self, most: u64) -> Done {
        let forgotten = self.forget(usize::try_from(most).unwrap_or(usize::MAX), None)?;
        self.reading.count(forgotten)
    }

    /// Forgets some sessions that have not been in use for long, other than this client's; returns how many.
    fn forget(&mut self, most: usize, client: Option<u128>) -> Done<u64> {
        let (slot, now_ms, mut old) = (self.reading.slot, self.reading.now_ms, Vec::new());
        self.visit_uses(Direction::Forward, |used_ms, other| {
            if !is_old(used_ms, now_ms) || old.len() >= most {
                return ControlFlow::Break(());
            }
            if Some(other) != client {
                old.push((used_ms, other));
            }
            ControlFlow::Continue(())
        })?;
        let forgotten = old.len() as u64;
        self.state.sessions = self.state.sessions.saturating_sub(forgotten);
        for (used_ms, other) in old {
            self.changes.delete(&CellName::session(slot, other));
            self.changes.delete(&CellName::session_use(slot, used_ms, other));
        }
        Ok(forgotten)
    }

    /// Visits when sessions were last in use, and their clients, in the order of these times.
    fn visit_uses(&self, direction: Direction, mut visit: impl FnMut(u64, u128) -> ControlFlow<()>) -> Done {
        let (slot, mut is_wrong) = (self.reading.slot, false);
        let (from, to) = (CellName::kind(slot, SESSION_USE), CellName::kind(slot, SESSION_USE + 1));
        let range = (Bound::Included(&*from), Bound::Excluded(&*to));
        self.reading.cells.visit(range, direction, |name, _| {
            let parts = cell::parts_of_session_use(name);
            is_wrong = parts.is_none();
            parts.map_or(ControlFlow::Break(()), |(used_ms, client)| visit(used_ms, client))
        })?;
        match is_wrong {
            true => Err(KeyspaceError::Corrupt { what: "when a session was in use" }.into()),
            false => Ok(()),
        }
    }
}

/// Refuses a client that the slot does not know and that began so long ago that it may have been forgotten.
/// One that does not say when it began is believed to be new.
fn fresh(once: &Once<'_>, now_ms: u64) -> Result<(), Refusal> {
    let Some(began_ms) = once.began_ms else { return Ok(()) };
    let ahead_ms = began_ms.saturating_sub(now_ms);
    if ahead_ms > FRESH_MS_MAX {
        return Err(Refusal::Early { ahead_ms });
    }
    let age_ms = now_ms.saturating_sub(began_ms);
    if age_ms > FRESH_MS_MAX {
        return Err(Refusal::Expired { sequence: once.sequence, age_ms });
    }
    Ok(())
}

/// Whether a session that was last in use then may be forgotten.
pub(crate) fn is_old(used_ms: u64, now_ms: u64) -> bool {
    used_ms.saturating_add(SESSION_MS_MIN + USE_MS + DATES_APART_MS_MAX) < now_ms
}

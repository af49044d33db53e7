//! Finding clients that have been silent for long, so that a node forgets them even if no client writes.

use super::{Keyspace, Looked};
use crate::cell::{self, CellName, SESSION_USE};
use crate::evaluate::is_old;
use crate::{KeyspaceError, SLOTS};
use atoll_engine::Direction;
use std::ops::{Bound, ControlFlow};

/// How much later than a write would do it a node forgets clients by itself: so one log entry forgets
/// several, and busy slots need none.
const LATE_MS: u64 = 60_000;

impl Keyspace {
    /// The slots, among those for which `held` is true, that remember clients silent for long. Looks at no
    /// more than `most` slots; the next call continues after them.
    pub fn remembering(&mut self, now_ms: u64, most: usize, held: impl Fn(u16) -> bool) -> Looked<u16> {
        self.skipped.let_go(now_ms);
        let (mut found, mut failed, mut looks, first) = (Vec::new(), None, 0, self.forgets_next);
        let is_due = |used_ms: u64| is_old(used_ms.saturating_add(LATE_MS), now_ms);
        for slot in (first..SLOTS).chain(0..first) {
            if looks >= most {
                break;
            }
            let Ok(state) = self.state(slot) else { continue };
            let may_be_due = state.sessions > 0 && is_due(state.oldest_use_ms) && !state.is_arriving();
            if !may_be_due || !held(slot) || self.skipped.has(slot) {
                continue;
            }
            match self.oldest_use(slot) {
                Ok(oldest_use_ms) => {
                    if let Some(state) = self.slots.get_mut(usize::from(slot)) {
                        state.oldest_use_ms = oldest_use_ms;
                    }
                    if is_due(oldest_use_ms) {
                        found.push(slot);
                    }
                }
                Err(error) => failed = self.skipped.put(slot, now_ms).then_some((slot, error)).or(failed),
            }
            (looks, self.forgets_next) = (looks + 1, (slot + 1) % SLOTS);
        }
        Looked { found, failed }
    }

    /// When the longest silent client of a slot was last in use.
    fn oldest_use(&self, slot: u16) -> Result<u64, KeyspaceError> {
        let mut oldest = Ok(u64::MAX);
        let (from, to) = (CellName::kind(slot, SESSION_USE), CellName::kind(slot, SESSION_USE + 1));
        let range = (Bound::Included(&*from), Bound::Excluded(&*to));
        self.tree.scan(range, Direction::Forward, |name, _| {
            let parts = cell::parts_of_session_use(name);
            let corrupt = KeyspaceError::Corrupt { what: "when a session was in use" };
            oldest = parts.map(|(used_ms, _)| used_ms).ok_or(corrupt);
            ControlFlow::Break(())
        })?;
        oldest
    }
}

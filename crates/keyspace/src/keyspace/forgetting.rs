//! Clients that were silent for long, so that a node forgets them also where nobody writes.

use super::Keyspace;
use crate::cell::{self, CellName, SESSION_USE};
use crate::evaluate::is_old;
use crate::{KeyspaceError, SLOTS};
use atoll_engine::Direction;
use std::ops::{Bound, ControlFlow};

/// So much later than a write would forget a client: one entry of the log is for several then, and busy slots need none.
const LATE_MS: u64 = 60_000;

impl Keyspace {
    /// Slots among those that are `held` which remember clients that were silent for long. At most so many slots are looked at, and
    /// the next call goes on behind them.
    ///
    /// # Errors
    /// [`KeyspaceError`] when the tree cannot be read.
    pub fn remembering(
        &mut self,
        now_ms: u64,
        most: usize,
        held: impl Fn(u16) -> bool,
    ) -> Result<Vec<u16>, KeyspaceError> {
        let (mut found, mut looks, first) = (Vec::new(), 0, self.forgets_next);
        let is_due = |used_ms: u64| is_old(used_ms.saturating_add(LATE_MS), now_ms);
        for slot in (first..SLOTS).chain(0..first) {
            if looks >= most {
                break;
            }
            let state = self.state(slot)?;
            if state.sessions == 0 || !is_due(state.oldest_use_ms) || state.is_arriving() || !held(slot) {
                continue;
            }
            let oldest_use_ms = self.oldest_use(slot)?;
            if let Some(state) = self.slots.get_mut(usize::from(slot)) {
                state.oldest_use_ms = oldest_use_ms;
            }
            if is_due(oldest_use_ms) {
                found.push(slot);
            }
            (looks, self.forgets_next) = (looks + 1, (slot + 1) % SLOTS);
        }
        Ok(found)
    }

    /// When that client of a slot was in use last who is silent for longest.
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

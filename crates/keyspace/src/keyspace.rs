//! The slots of one event loop of a node, in a tree of the engine.
//!
//! Invariant: the changes of a write and the position of its log entry are in one batch.

mod cells;
mod expiry;
mod forgetting;
mod import;
mod in_place;
mod lengths;
mod listing;
mod moving;
mod pending;
mod prefetch;
mod skipped_slots;

use crate::answer::Answer;
use crate::cell::{self, CellName};
use crate::cells::{Cells, Changes};
use crate::evaluate::run::{self, Scene};
use crate::evaluate::{self, Done, Reading, Writing};
use crate::state::SlotState;
use crate::verify::{self, Digest};
use crate::{Applied, KeyspaceError, OwnCommand, Part, ReadOutcome, Refusal, SLOTS};
use atoll_engine::{Direction, Engine, EngineError, Tree};
use atoll_resp::{Command, Protocol};
use cells::TreeCells;
use in_place::LoggedCommand;
use pending::Pending;
use skipped_slots::SkippedSlots;
use std::ops::{Bound, ControlFlow};

pub use listing::ScanPage;
pub use moving::{Exporter, MovedCells};
pub use prefetch::NEAR_AT_ONCE;
pub use skipped_slots::Looked;

/// The slots of one event loop of a node, in a tree of the engine that has no other writer.
pub struct Keyspace {
    engine: Engine,
    tree: Tree,
    slots: Vec<SlotState>,
    /// Whether the states of slots are stored as cells, and not only in memory.
    keeps_states: bool,
    pending: Pending,
    /// A buffer for the names of cells to prefetch.
    prefetch_names: Vec<u8>,
    /// The slot where the search for expired keys continues.
    expires_next: u16,
    /// The slot where the search for silent clients continues.
    forgets_next: u16,
    /// Slots that both searches skip for a while.
    skipped: SkippedSlots,
}

impl Keyspace {
    /// Opens the keyspace in the tree of this name, which is created if it does not exist.
    ///
    /// # Errors
    /// [`KeyspaceError`] if the tree cannot be read, or holds something else.
    pub fn open(engine: &Engine, name: &str) -> Result<Self, KeyspaceError> {
        let tree = engine.tree(name)?;
        let mut slots = vec![SlotState::default(); usize::from(SLOTS)];
        let mut wrong = None;
        tree.scan((Bound::Included(cell::states()), Bound::Unbounded), Direction::Forward, |name, value| {
            let state =
                value.bytes().map_err(KeyspaceError::from).and_then(|bytes| SlotState::decode(&bytes));
            let room = cell::slot_of_state(name).and_then(|slot| slots.get_mut(usize::from(slot)));
            match (room, state) {
                (Some(room), Ok(state)) => *room = state,
                (None, Ok(_)) => wrong = Some(KeyspaceError::Corrupt { what: "the number of a slot" }),
                (_, Err(error)) => wrong = Some(error),
            }
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        match wrong {
            Some(error) => Err(error),
            None => {
                let (engine, pending) = (engine.clone(), Pending::new(&tree));
                let mut keyspace = Self {
                    engine,
                    tree,
                    slots,
                    keeps_states: true,
                    pending,
                    prefetch_names: Vec::new(),
                    expires_next: 0,
                    forgets_next: 0,
                    skipped: SkippedSlots::default(),
                };
                keyspace.remove_unfinished()?;
                Ok(keyspace)
            }
        }
    }

    /// A keyspace in an engine in memory. The states of slots are not stored as cells there: they would be
    /// lost together with what they describe, and writing them takes longer than everything else.
    ///
    /// # Errors
    /// [`KeyspaceError::NotEmpty`] if the tree of this name holds anything.
    pub fn open_in_memory(engine: &Engine, name: &str) -> Result<Self, KeyspaceError> {
        let keyspace = Self::open(engine, name)?;
        match keyspace.tree.is_empty()? {
            true => Ok(Self { keeps_states: false, ..keyspace }),
            false => Err(KeyspaceError::NotEmpty),
        }
    }

    /// Evaluates a command at the time of its log entry, commits its changes together with the position of
    /// the entry, and appends the answer to `reply`. A command that only reads, or is refused, also commits
    /// its position; so does one whose changes are too large for the engine, which is refused like any other.
    ///
    /// # Errors
    /// [`KeyspaceError`]; nothing was changed unless [`KeyspaceError::is_unknown`], and nothing was answered.
    pub fn apply(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        command: &Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        if !self.keeps_states
            && let Some(key) = in_place::only_key(command)
        {
            let entry = LoggedCommand { slot, applied, time_ms, command };
            if self.apply_in_place(&entry, key, Answer::new(reply, protocol))? {
                return Ok(());
            }
        }
        let answer = Answer::new(reply, protocol);
        self.write(slot, applied, time_ms, answer, |writing| evaluate::write(writing, command))
    }

    /// Deletes keys that still have exactly the deadlines that a read or [`Keyspace::expired`] found; answers
    /// how many there were.
    ///
    /// # Errors
    /// As [`Keyspace::apply`].
    pub fn apply_expiry(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        keys: &[(&[u8], u64)],
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        let answer = Answer::new(reply, protocol);
        self.write(slot, applied, time_ms, answer, |writing| writing.expire_exactly(keys))
    }

    /// Forgets at most `most` clients that, at the time of the entry, have been silent for
    /// [`SESSION_MS_MIN`](crate::SESSION_MS_MIN) or longer; answers how many there were.
    ///
    /// # Errors
    /// As [`Keyspace::apply`].
    pub fn apply_forgetting(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        most: u64,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        let answer = Answer::new(reply, protocol);
        self.write(slot, applied, time_ms, answer, |writing| writing.forget_silent(most))
    }

    /// Like [`Keyspace::apply`], for a command that Redis does not have.
    ///
    /// # Errors
    /// As [`Keyspace::apply`].
    pub fn apply_own(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        command: &OwnCommand<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        let answer = Answer::new(reply, protocol);
        self.write(slot, applied, time_ms, answer, |writing| evaluate::write_own(writing, command))
    }

    fn write(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        mut answer: Answer<'_>,
        evaluate: impl FnOnce(&mut Writing<'_, '_, TreeCells<'_>, Pending>) -> Done,
    ) -> Result<(), KeyspaceError> {
        let before = *self.whole(slot)?;
        let cells = TreeCells { tree: &self.tree };
        self.pending.clear();
        let scene = Scene { cells: &cells, slot, state: before, time_ms };
        let state = run::write(scene, &mut self.pending, applied, &mut answer, evaluate)?;
        let mut done = self.commit(slot, state);
        if let Err(KeyspaceError::Engine(EngineError::Size { what, actual, max, .. })) = done {
            // This follows from the cells and the command, so every copy of the slot refuses the entry alike.
            answer.refuse(&Refusal::Limit { what, actual, most: max });
            self.pending.clear();
            done = self.commit(slot, SlotState { applied, time_ms: state.time_ms, ..before });
        }
        if done.is_err() {
            answer.take_back();
        }
        done
    }

    /// Commits the pending changes together with the state of the slot after them.
    fn commit(&mut self, slot: u16, state: SlotState) -> Result<(), KeyspaceError> {
        if self.keeps_states {
            self.pending.put(&CellName::state(slot), [&state.encode(), &[]]);
        }
        self.pending.commit(&self.engine)?;
        self.set_state(slot, state);
        Ok(())
    }

    /// Evaluates a command that only reads, and appends the answer to `reply`.
    ///
    /// # Errors
    /// [`KeyspaceError`]; nothing was answered.
    pub fn read(
        &self,
        slot: u16,
        now_ms: u64,
        command: &Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<ReadOutcome, KeyspaceError> {
        let answer = Answer::new(reply, protocol);
        self.look(slot, now_ms, answer, |reading| evaluate::read(reading, command))
    }

    /// Like [`Keyspace::read`], for a command that Redis does not have.
    ///
    /// # Errors
    /// As [`Keyspace::read`].
    pub fn read_own(
        &self,
        slot: u16,
        now_ms: u64,
        command: &OwnCommand<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<ReadOutcome, KeyspaceError> {
        let answer = Answer::new(reply, protocol);
        self.look(slot, now_ms, answer, |reading| evaluate::read_own(reading, command))
    }

    /// Like [`Keyspace::read`], for some bytes of the string at a key; appends null if the key is absent.
    /// `GETRANGE` does not tell that from an empty string.
    ///
    /// # Errors
    /// As [`Keyspace::read`].
    pub fn read_string(
        &self,
        slot: u16,
        now_ms: u64,
        (key, part): (&[u8], Part),
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<ReadOutcome, KeyspaceError> {
        let answer = Answer::new(reply, protocol);
        self.look(slot, now_ms, answer, |reading| reading.string_part(key, part))
    }

    fn look(
        &self,
        slot: u16,
        now_ms: u64,
        mut answer: Answer<'_>,
        evaluate: impl FnOnce(&mut Reading<'_, TreeCells<'_>>) -> Done,
    ) -> Result<ReadOutcome, KeyspaceError> {
        let state = *self.whole(slot)?;
        let cells = TreeCells { tree: &self.tree };
        run::read(Scene { cells: &cells, slot, state, time_ms: now_ms }, &mut answer, evaluate)
    }

    /// The last entry of the slot's log that was applied.
    #[must_use]
    pub fn applied(&self, slot: u16) -> Applied {
        self.state(slot).map(|state| state.applied).unwrap_or_default()
    }

    /// The time of that entry.
    #[must_use]
    pub fn time_ms(&self, slot: u16) -> u64 {
        self.state(slot).map_or(0, |state| state.time_ms)
    }

    /// Whether a slot may hold an expired key, or held one when a write of that time looked; a write to it
    /// deletes such a key first.
    #[must_use]
    pub fn may_be_overdue(&self, slot: u16, now_ms: u64) -> bool {
        self.state(slot).map_or(true, |state| state.soonest_ms <= now_ms.max(state.time_ms))
    }

    /// How many keys a slot holds, including expired ones that are not deleted yet.
    #[must_use]
    pub fn keys_in(&self, slot: u16) -> u64 {
        self.state(slot).map_or(0, |state| if state.is_arriving() { 0 } else { state.keys })
    }

    /// How many clients a slot remembers.
    #[must_use]
    pub fn sessions_in(&self, slot: u16) -> u64 {
        self.state(slot).map_or(0, |state| if state.is_arriving() { 0 } else { state.sessions })
    }

    /// Whether a slot remembers writes of this client; false if that cannot be read.
    #[must_use]
    pub fn remembers(&self, slot: u16, client: u128) -> bool {
        let cells = TreeCells { tree: &self.tree };
        cells.show(&CellName::session(slot, client), |session| session.is_some()).unwrap_or(false)
    }

    /// A digest that is equal on copies of a slot which applied the same entries, and hardly ever on others.
    ///
    /// # Errors
    /// [`KeyspaceError`] if a cell cannot be read.
    pub fn digest(&self, slot: u16) -> Result<u64, KeyspaceError> {
        Digest::of(&TreeCells { tree: &self.tree }, slot, self.state(slot)?)
    }

    /// Checks that the cells of a slot agree with each other and with the slot's counters.
    ///
    /// # Errors
    /// [`KeyspaceError::Corrupt`], naming what does not agree.
    pub fn verify(&self, slot: u16) -> Result<(), KeyspaceError> {
        verify::verify(&TreeCells { tree: &self.tree }, slot, self.state(slot)?)
    }

    /// The state of a slot, which must not be arriving in pieces.
    fn whole(&self, slot: u16) -> Result<&SlotState, KeyspaceError> {
        let state = self.state(slot)?;
        if state.is_arriving() { Err(KeyspaceError::Arriving { slot }) } else { Ok(state) }
    }

    fn set_state(&mut self, slot: u16, state: SlotState) {
        if let Some(room) = self.slots.get_mut(usize::from(slot)) {
            *room = state;
        }
    }

    fn state(&self, slot: u16) -> Result<&SlotState, KeyspaceError> {
        self.slots.get(usize::from(slot)).ok_or(KeyspaceError::NoSlot { slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_engine::Options;

    #[test]
    fn what_is_too_large_for_the_engine_is_refused_and_the_log_goes_on_behind_it() {
        let engine = Engine::in_memory(Options::default()).unwrap();
        let at = |sequence| Applied { epoch: 1, sequence };
        let opened =
            [Keyspace::open(&engine, "kept").unwrap(), Keyspace::open_in_memory(&engine, "lost").unwrap()];
        for mut keyspace in opened {
            let mut reply = b"before".to_vec();
            let answer = Answer::new(&mut reply, Protocol::Resp2);
            let put_beside = keyspace.write(3, at(1), 5, answer, |writing| {
                writing.changes.put(b"a name", [b"a value", &[]]);
                writing.changes.put(&vec![7; atoll_engine::KEY_MAX + 1], [b"a value", &[]]);
                writing.state.keys += 2;
                writing.ok()
            });
            assert!(put_beside.is_ok(), "{put_beside:?}");
            assert_eq!(reply, b"before-LIMIT key: 65537; allowed are 65536\r\n");
            assert!(keyspace.tree.get(b"a name").unwrap().is_none());
            assert_eq!((keyspace.applied(3), keyspace.time_ms(3), keyspace.keys_in(3)), (at(1), 5, 0));
        }
        assert_eq!(Keyspace::open(&engine, "kept").unwrap().applied(3), at(1), "that is kept as well");
    }
}

//! Slots in plain maps: a model to compare with, cheap enough for a simulation to copy.

use crate::answer::Answer;
use crate::cells::{CellFront, CellRef, CellValue, Cells, Changes};
use crate::evaluate::run::{self, Scene};
use crate::evaluate::{self, Done, Reading, Writing};
use crate::state::SlotState;
use crate::verify::{self, Digest};
use crate::{Applied, KeyspaceError, OwnCommand, ReadOutcome, SLOTS};
use atoll_buffer::Buffer;
use atoll_engine::Direction;
use atoll_resp::{Command, Protocol};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

/// Slots in plain maps. A clone shares them with its original until one of the two changes them.
#[derive(Clone, Debug, Default)]
pub struct ModelKeyspace {
    slots: BTreeMap<u16, Arc<ModelSlot>>,
}

#[derive(Clone, Debug, Default)]
struct ModelSlot {
    cells: ModelCells,
    state: SlotState,
}

#[derive(Clone, Debug, Default)]
struct ModelCells(BTreeMap<Vec<u8>, Buffer>);

impl Cells for ModelCells {
    fn show<R>(&self, name: &[u8], show: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, KeyspaceError> {
        Ok(show(self.0.get(name).map(Buffer::as_slice)))
    }

    fn value(&self, name: &[u8]) -> Result<Option<CellValue>, KeyspaceError> {
        Ok(self.0.get(name).cloned().map(CellValue::from))
    }

    fn front(&self, name: &[u8]) -> Result<Option<CellFront>, KeyspaceError> {
        Ok(self.0.get(name).map(|value| CellFront::of(value, value.len() as u64)))
    }

    fn visit(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        mut visit: impl FnMut(&[u8], CellRef<'_>) -> ControlFlow<()>,
    ) -> Result<(), KeyspaceError> {
        if is_inverted(range) {
            return Ok(());
        }
        let mut records = self.0.range::<[u8], _>(range);
        let mut next = || match direction {
            Direction::Forward => records.next(),
            Direction::Backward => records.next_back(),
        };
        while let Some((name, value)) = next() {
            if visit(name, CellRef::from(value)).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Whether an ordered map would panic on a range.
fn is_inverted(range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    match range {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from > to
        }
        _ => false,
    }
}

#[derive(Debug)]
enum Change {
    Put(Vec<u8>, Buffer),
    Append(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

#[derive(Debug, Default)]
struct ModelChanges(Vec<Change>);

impl Changes for ModelChanges {
    fn put(&mut self, name: &[u8], parts: [&[u8]; 2]) {
        let len = parts[0].len() + parts[1].len();
        self.0.push(Change::Put(name.to_vec(), Buffer::concat(len, parts)));
    }

    fn append(&mut self, name: &[u8], bytes: &[u8]) {
        self.0.push(Change::Append(name.to_vec(), bytes.to_vec()));
    }

    fn delete(&mut self, name: &[u8]) {
        self.0.push(Change::Delete(name.to_vec()));
    }

    fn delete_range(&mut self, from: &[u8], to: &[u8]) {
        self.0.push(Change::DeleteRange(from.to_vec(), to.to_vec()));
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

impl ModelCells {
    fn make(&mut self, changes: ModelChanges) {
        for change in changes.0 {
            match change {
                Change::Put(name, value) => drop(self.0.insert(name, value)),
                Change::Append(name, bytes) => {
                    let value = self.0.entry(name).or_default();
                    *value = Buffer::concat(value.len() + bytes.len(), [value.as_slice(), &bytes]);
                }
                Change::Delete(name) => drop(self.0.remove(&name)),
                Change::DeleteRange(from, to) => self.0.retain(|name, _| *name < from || *name >= to),
            }
        }
    }
}

impl ModelKeyspace {
    /// An empty keyspace.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`Keyspace::apply`](crate::Keyspace::apply).
    ///
    /// # Errors
    /// [`KeyspaceError`] for a slot that does not exist, or a command that is not about keys.
    pub fn apply(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        command: &Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        self.write(slot, applied, time_ms, Answer::new(reply, protocol), |writing| {
            evaluate::write(writing, command)
        })
    }

    /// As [`Keyspace::apply_expiry`](crate::Keyspace::apply_expiry).
    ///
    /// # Errors
    /// [`KeyspaceError`] for a slot that does not exist.
    pub fn apply_expiry(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        keys: &[(&[u8], u64)],
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        self.write(slot, applied, time_ms, Answer::new(reply, protocol), |writing| {
            writing.expire_exactly(keys)
        })
    }

    /// As [`Keyspace::apply_forgetting`](crate::Keyspace::apply_forgetting).
    ///
    /// # Errors
    /// [`KeyspaceError`] for a slot that does not exist.
    pub fn apply_forgetting(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        most: u64,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        self.write(slot, applied, time_ms, Answer::new(reply, protocol), |writing| {
            writing.forget_silent(most)
        })
    }

    /// As [`Keyspace::apply_own`](crate::Keyspace::apply_own).
    ///
    /// # Errors
    /// [`KeyspaceError`] for a slot that does not exist.
    pub fn apply_own(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        command: &OwnCommand<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), KeyspaceError> {
        self.write(slot, applied, time_ms, Answer::new(reply, protocol), |writing| {
            evaluate::write_own(writing, command)
        })
    }

    fn write(
        &mut self,
        slot: u16,
        applied: Applied,
        time_ms: u64,
        mut answer: Answer<'_>,
        evaluate: impl FnOnce(&mut Writing<'_, '_, ModelCells, ModelChanges>) -> Done,
    ) -> Result<(), KeyspaceError> {
        check_slot(slot)?;
        let room = Arc::make_mut(self.slots.entry(slot).or_default());
        let scene = Scene { cells: &room.cells, slot, state: room.state, time_ms };
        let mut changes = ModelChanges::default();
        room.state = run::write(scene, &mut changes, applied, &mut answer, evaluate)?;
        room.cells.make(changes);
        Ok(())
    }

    /// As [`Keyspace::read`](crate::Keyspace::read).
    ///
    /// # Errors
    /// [`KeyspaceError`] for a slot that does not exist, or a command that is not a read of keys.
    pub fn read(
        &self,
        slot: u16,
        now_ms: u64,
        command: &Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<ReadOutcome, KeyspaceError> {
        self.look(slot, now_ms, Answer::new(reply, protocol), |reading| evaluate::read(reading, command))
    }

    /// As [`Keyspace::read_own`](crate::Keyspace::read_own).
    ///
    /// # Errors
    /// [`KeyspaceError`] for a slot that does not exist, or a command that is a write.
    pub fn read_own(
        &self,
        slot: u16,
        now_ms: u64,
        command: &OwnCommand<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<ReadOutcome, KeyspaceError> {
        self.look(slot, now_ms, Answer::new(reply, protocol), |reading| evaluate::read_own(reading, command))
    }

    fn look(
        &self,
        slot: u16,
        now_ms: u64,
        mut answer: Answer<'_>,
        evaluate: impl FnOnce(&mut Reading<'_, ModelCells>) -> Done,
    ) -> Result<ReadOutcome, KeyspaceError> {
        check_slot(slot)?;
        let empty = ModelSlot::default();
        let room = self.slots.get(&slot).map_or(&empty, |room| room);
        let scene = Scene { cells: &room.cells, slot, state: room.state, time_ms: now_ms };
        run::read(scene, &mut answer, evaluate)
    }

    /// The last entry of the slot's log that was applied.
    #[must_use]
    pub fn applied(&self, slot: u16) -> Applied {
        self.slots.get(&slot).map(|room| room.state.applied).unwrap_or_default()
    }

    /// How many keys a slot holds.
    #[must_use]
    pub fn keys_in(&self, slot: u16) -> u64 {
        self.slots.get(&slot).map_or(0, |room| room.state.keys)
    }

    /// Replaces the contents of a slot by those that another keyspace has in it.
    pub fn take_over(&mut self, slot: u16, from: &Self) {
        match from.slots.get(&slot) {
            Some(room) => drop(self.slots.insert(slot, Arc::clone(room))),
            None => drop(self.slots.remove(&slot)),
        }
    }

    /// A digest that is equal on copies of a slot which applied the same entries, and hardly ever on others.
    ///
    /// # Errors
    /// [`KeyspaceError::NoSlot`].
    pub fn digest(&self, slot: u16) -> Result<u64, KeyspaceError> {
        check_slot(slot)?;
        let empty = ModelSlot::default();
        let room = self.slots.get(&slot).map_or(&empty, |room| room);
        Digest::of(&room.cells, slot, &room.state)
    }

    /// Checks that the cells of a slot agree with each other and with the slot's counters.
    ///
    /// # Errors
    /// [`KeyspaceError::Corrupt`], naming what does not agree.
    pub fn verify(&self, slot: u16) -> Result<(), KeyspaceError> {
        match self.slots.get(&slot) {
            Some(room) => verify::verify(&room.cells, slot, &room.state),
            None => Ok(()),
        }
    }
}

fn check_slot(slot: u16) -> Result<(), KeyspaceError> {
    if slot < SLOTS { Ok(()) } else { Err(KeyspaceError::NoSlot { slot }) }
}

//! Importing a slot in pieces, each of which is dropped once it is written: the slot need not fit into
//! memory.
//!
//! Invariant: a partly imported slot counts as empty, even after the keyspace is reopened.

use super::Keyspace;
use crate::cell::{self, CellName};
use crate::state::{ARRIVING, SlotState};
use crate::{Applied, KeyspaceError, SLOTS};
use atoll_engine::{Durability, WriteBatch};
use std::ops::Bound;

impl Keyspace {
    /// Removes all contents of a slot, including the position in its log.
    ///
    /// # Errors
    /// [`KeyspaceError`]; nothing was changed unless [`KeyspaceError::is_unknown`].
    pub fn clear_slot(&mut self, slot: u16) -> Result<(), KeyspaceError> {
        self.empty(slot, SlotState::default())
    }

    /// Removes all contents of a slot and begins an import: until it ends, the slot must not be read or
    /// written.
    ///
    /// # Errors
    /// As [`Keyspace::clear_slot`].
    pub fn begin_import(&mut self, slot: u16) -> Result<(), KeyspaceError> {
        self.empty(slot, SlotState { keys: ARRIVING, ..SlotState::default() })
    }

    fn empty(&mut self, slot: u16, state: SlotState) -> Result<(), KeyspaceError> {
        self.state(slot)?;
        let (from, to) = cell::all_of(slot);
        let mut batch = WriteBatch::new();
        batch.delete_range(&self.tree, (Bound::Included(&*from), Bound::Excluded(&*to)));
        match (self.keeps_states, state == SlotState::default()) {
            (true, false) => batch.put(&self.tree, &CellName::state(slot), &state.encode()),
            (true, true) => batch.delete(&self.tree, &CellName::state(slot)),
            (false, _) => {}
        }
        self.engine.write(&batch, Durability::Buffered)?;
        self.set_state(slot, state);
        Ok(())
    }

    /// Adds cells from an [`Exporter`](crate::Exporter).
    ///
    /// # Errors
    /// [`KeyspaceError::NotArriving`]; [`KeyspaceError::Corrupt`] for a name that is not one of a slot's
    /// cells; otherwise as [`Keyspace::clear_slot`].
    pub fn import<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        slot: u16,
        cells: &[(N, V)],
    ) -> Result<(), KeyspaceError> {
        let state = *self.arriving(slot)?;
        let mut batch = WriteBatch::new();
        for (name, value) in cells {
            if !cell::is_moved(name.as_ref()) {
                return Err(KeyspaceError::Corrupt { what: "the kind" });
            }
            let mut whole = slot.to_be_bytes().to_vec();
            whole.extend_from_slice(name.as_ref());
            batch.put(&self.tree, &whole, value.as_ref());
        }
        self.engine.write(&batch, Durability::Buffered)?;
        self.set_state(slot, cells.iter().fold(state, |state, (name, _)| state.with_moved(name.as_ref())));
        Ok(())
    }

    /// Ends an import: the slot is complete, and its contents are those after this entry, at this time. From
    /// then on all of it survives the end of the process, if the engine is not in memory.
    ///
    /// # Errors
    /// As [`Keyspace::import`].
    pub fn end_import(&mut self, slot: u16, applied: Applied, time_ms: u64) -> Result<(), KeyspaceError> {
        let arrived = *self.arriving(slot)?;
        let keys = arrived.keys - ARRIVING;
        let state = SlotState { applied, time_ms, keys, soonest_ms: 0, oldest_use_ms: 0, ..arrived };
        if self.keeps_states {
            self.tree.put(&CellName::state(slot), &state.encode(), Durability::Flushed)?;
        }
        self.set_state(slot, state);
        Ok(())
    }

    fn arriving(&self, slot: u16) -> Result<&SlotState, KeyspaceError> {
        let state = self.state(slot)?;
        if state.is_arriving() { Ok(state) } else { Err(KeyspaceError::NotArriving { slot }) }
    }

    /// Removes partial imports from before the keyspace was opened.
    pub(super) fn remove_unfinished(&mut self) -> Result<(), KeyspaceError> {
        for slot in 0..SLOTS {
            if self.arriving(slot).is_ok() {
                self.clear_slot(slot)?;
            }
        }
        Ok(())
    }
}

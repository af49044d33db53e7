//! A command that may change cells.

use super::Done;
use super::reading::{FoundKey, Reading};
use crate::cell::CellName;
use crate::cells::{Cells, Changes};
use crate::head::{Head, Kind};
use crate::state::SlotState;
use crate::{Refusal, STRING_BYTES_MAX};

/// A command that may change cells.
pub(crate) struct Writing<'a, 'w, C, W> {
    pub(crate) reading: Reading<'a, C>,
    pub(crate) changes: &'w mut W,
    /// The state of the slot including the changes.
    pub(crate) state: SlotState,
}

impl<'a, C: Cells, W: Changes> Writing<'a, '_, C, W> {
    /// What is stored at a key. An expired key is removed.
    ///
    /// Where this finds no key there are no fields either, whatever the cells still say.
    pub(crate) fn find(&mut self, key: &[u8]) -> Done<Option<FoundKey<'a, C>>> {
        let found = self.reading.look(key)?;
        match found {
            Some(found) if found.head.is_overdue(self.reading.now_ms) => {
                self.remove(key, found.head);
                Ok(None)
            }
            found => Ok(found),
        }
    }

    /// The number of fields of a hash and its deadline; none if there is no hash.
    pub(crate) fn find_hash(&mut self, key: &[u8]) -> Done<Option<(u64, Option<u64>)>> {
        let Some(found) = self.find(key)? else { return Ok(None) };
        Ok(Some((found.fields()?, found.head.deadline_ms)))
    }

    /// Sets a key to a string; `old` is what was stored there.
    pub(crate) fn put_string(
        &mut self,
        key: &[u8],
        old: Option<Head>,
        value: &[u8],
        deadline_ms: Option<u64>,
    ) -> Done {
        check_string(value.len() as u64)?;
        let head = Head { kind: Kind::String, deadline_ms };
        self.put_head(key, old, head, value);
        Ok(())
    }

    /// Sets the head of a key; `old` is what was stored there.
    pub(crate) fn put_head(&mut self, key: &[u8], old: Option<Head>, head: Head, value: &[u8]) {
        let slot = self.reading.slot;
        self.changes.put(&CellName::head(slot, key), [&head.encode(), value]);
        self.state.keys += u64::from(old.is_none());
        let former = old.and_then(|old| old.deadline_ms);
        if former == head.deadline_ms {
            return;
        }
        if let Some(former) = former {
            self.changes.delete(&CellName::deadline(slot, former, key));
        }
        if let Some(deadline) = head.deadline_ms {
            self.changes.put(&CellName::deadline(slot, deadline, key), [&[], &[]]);
            self.state.soonest_ms = self.state.soonest_ms.min(deadline);
        }
    }

    /// Removes a key; `old` is what was stored there.
    pub(crate) fn remove(&mut self, key: &[u8], old: Head) {
        let slot = self.reading.slot;
        self.changes.delete(&CellName::head(slot, key));
        if let Some(deadline) = old.deadline_ms {
            self.changes.delete(&CellName::deadline(slot, deadline, key));
        }
        if let Kind::Hash { .. } = old.kind {
            self.changes.delete_range(&CellName::fields(slot, key), &CellName::fields_end(slot, key));
        }
        self.state.keys = self.state.keys.saturating_sub(1);
    }

    pub(crate) fn ok(&mut self) -> Done {
        self.reading.answer.writer().ok();
        Ok(())
    }
}

/// Checks the length of a string.
pub(crate) fn check_string(len: u64) -> Result<(), Refusal> {
    if len <= STRING_BYTES_MAX as u64 { Ok(()) } else { Err(Refusal::TooLong) }
}

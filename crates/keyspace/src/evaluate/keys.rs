//! Commands on keys of any type.

use super::reading::Reading;
use super::writing::Writing;
use super::{Done, distinct};
use crate::cell::{CellName, DEADLINE, FIELD, HEAD};
use crate::cells::{Cells, Changes};
use crate::head::Kind;

impl<C: Cells> Reading<'_, C> {
    /// A key that is named twice counts twice.
    pub(super) fn exists(&mut self, keys: &[&[u8]]) -> Done {
        let mut count = 0;
        for key in keys {
            count += u64::from(self.find(key)?.is_some());
        }
        self.count(count)
    }

    pub(super) fn kind(&mut self, key: &[u8]) -> Done {
        let name = self.find(key)?.map_or("none", |found| kind_name(found.head.kind));
        self.answer.writer().simple(name);
        Ok(())
    }
}

/// The name of a type, as clients know it.
pub(crate) fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::String => "string",
        Kind::Hash { .. } => "hash",
    }
}

impl<C: Cells, W: Changes> Writing<'_, '_, C, W> {
    pub(super) fn delete(&mut self, keys: &[&[u8]]) -> Done {
        let mut count = 0;
        for key in distinct(keys) {
            if let Some(found) = self.find(key)? {
                self.remove(key, found.head);
                count += 1;
            }
        }
        self.reading.count(count)
    }

    pub(super) fn delete_if_equal(&mut self, key: &[u8], value: &[u8]) -> Done {
        let found = self.find(key)?;
        let equal = match found {
            Some(found) if found.length()? == value.len() as u64 && found.string()?.as_slice() == value => {
                self.remove(key, found.head);
                true
            }
            _ => false,
        };
        self.reading.integer(i64::from(equal))
    }

    /// Removes all keys of the slot, and forgets clients that have been silent for long: without other writes
    /// nothing else would.
    pub(super) fn flush(&mut self) -> Done {
        let slot = self.reading.slot;
        for kind in [HEAD, FIELD, DEADLINE] {
            self.changes.delete_range(&CellName::kind(slot, kind), &CellName::kind(slot, kind + 1));
        }
        (self.state.keys, self.state.soonest_ms) = (0, u64::MAX);
        self.forget_with_keys()?;
        self.ok()
    }
}

//! The fields of a key during a batch: the stored cells combined with what the batch has done so far.
//!
//! Invariant: however many ranges a batch removes, each cell is looked at once for all of them.

use super::Done;
use crate::Refusal;
use crate::cell::CellName;
use crate::cells::Cells;
use atoll_engine::Direction;
use atoll_resp::FieldRange;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

/// A range of names, the end exclusive.
type Span = (Vec<u8>, Vec<u8>);

/// The fields of a key during a batch.
pub(crate) struct Overlay<'c, C> {
    cells: &'c C,
    /// The names of all fields.
    all: Span,
    /// Whether the cells count at all.
    is_hash: bool,
    /// The lengths of the values that the batch has set, by the names of their cells; none for those it
    /// removed.
    touched: BTreeMap<Vec<u8>, Option<u64>>,
    /// Ranges that it removed, in the order of their beginnings.
    removed: Vec<Span>,
    /// The number of fields.
    pub(crate) fields: u64,
}

impl<'c, C: Cells> Overlay<'c, C> {
    /// The fields of a key; `fields` is their number, none if there is no hash.
    pub(crate) fn new(cells: &'c C, slot: u16, key: &[u8], fields: Option<u64>) -> Self {
        let all = (CellName::fields(slot, key).to_vec(), CellName::fields_end(slot, key).to_vec());
        let (touched, removed, is_hash) = (BTreeMap::new(), Vec::new(), fields.is_some());
        Self { cells, all, is_hash, touched, removed, fields: fields.unwrap_or(0) }
    }

    /// The names of a range of fields.
    pub(crate) fn span(&self, range: &FieldRange<'_>) -> Span {
        let name = |field: &[u8], behind: bool| {
            let zero: &[u8] = if behind { &[0] } else { &[] };
            [&self.all.0, field, zero].concat()
        };
        let from = match range.from {
            Bound::Unbounded => self.all.0.clone(),
            Bound::Included(field) => name(field, false),
            Bound::Excluded(field) => name(field, true),
        };
        let to = match range.to {
            Bound::Unbounded => self.all.1.clone(),
            Bound::Included(field) => name(field, true),
            Bound::Excluded(field) => name(field, false),
        };
        (from, to)
    }

    /// The length of a field's value.
    pub(crate) fn length(&self, name: &[u8]) -> Done<Option<u64>> {
        if let Some(length) = self.touched.get(name) {
            return Ok(*length);
        }
        let is_removed = self.removed.iter().any(|(from, to)| (&from[..]..&to[..]).contains(&name));
        if !self.is_hash || is_removed {
            return Ok(None);
        }
        Ok(self.cells.value(name)?.map(|value| value.len()))
    }

    /// Records that a field has a value of this length, or none.
    pub(crate) fn set(&mut self, name: &[u8], length: Option<u64>) -> Done {
        match (self.length(name)?, length) {
            (None, Some(_)) => self.fields += 1,
            (Some(_), None) => self.fields = self.fields.saturating_sub(1),
            _ => {}
        }
        self.touched.insert(name.to_vec(), length);
        Ok(())
    }

    /// Records that all fields of a range were removed.
    pub(crate) fn remove(&mut self, (from, to): Span) -> Done {
        if from >= to {
            return Ok(());
        }
        let count = match (&from, &to) == (&self.all.0, &self.all.1) {
            // All fields: their number is known.
            true => self.fields,
            false => self.count(&from, &to)?,
        };
        self.fields = self.fields.saturating_sub(count);
        self.touched.retain(|name, _| *name < from || *name >= to);
        let at = self.removed.partition_point(|(other, _)| *other < from);
        self.removed.insert(at, (from, to));
        Ok(())
    }

    /// The number of fields in a range of names.
    fn count(&self, from: &[u8], to: &[u8]) -> Done<u64> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let set = self.touched.range::<[u8], _>(range).filter(|(_, length)| length.is_some());
        let mut count = set.count() as u64;
        if !self.is_hash {
            return Ok(count);
        }
        let mut at = from;
        for (removed_from, removed_to) in &self.removed {
            if at < removed_from.as_slice() {
                count += self.count_cells(at, to.min(removed_from))?;
            }
            at = at.max(removed_to);
        }
        Ok(count + self.count_cells(at, to)?)
    }

    /// The number of cells in a range of names that the batch has not touched.
    fn count_cells(&self, from: &[u8], to: &[u8]) -> Result<u64, crate::KeyspaceError> {
        let mut count = 0;
        if from < to {
            let range = (Bound::Included(from), Bound::Excluded(to));
            self.cells.visit(range, Direction::Forward, |name, _| {
                count += u64::from(!self.touched.contains_key(name));
                ControlFlow::Continue(())
            })?;
        }
        Ok(count)
    }
}

/// The length of a value after appending bytes, if that is allowed.
pub(crate) fn appended(length: Option<u64>, bytes: &[u8]) -> Result<u64, Refusal> {
    let actual = length.unwrap_or(0) + bytes.len() as u64;
    let most = crate::VALUE_BYTES_MAX as u64;
    if actual <= most { Ok(actual) } else { Err(Refusal::Limit { what: "a value", actual, most }) }
}

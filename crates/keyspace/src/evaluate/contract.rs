//! Commands of the store contract: batches and pages of the fields of a hash.

use super::Done;
use super::overlay::{Overlay, appended};
use super::reading::{Reading, check_field, check_key, check_length};
use super::writing::Writing;
use crate::cell::CellName;
use crate::cells::{CellValue, Cells, Changes};
use crate::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, CONDITION_BYTES_MAX, KeyspaceError, PAGE_BYTES_MAX, Refusal,
    VALUE_BYTES_MAX,
};
use atoll_engine::Direction;
use atoll_resp::{FieldBatch, FieldCondition, FieldMutation, FieldRange, OwnCommand, Part, RangeRequest};
use std::ops::{Bound, ControlFlow};

/// Evaluates an Atoll command that only reads.
pub(crate) fn read_own<C: Cells>(reading: &mut Reading<'_, C>, command: &OwnCommand<'_>) -> Done {
    match command {
        OwnCommand::Range(request) => reading.range(request),
        OwnCommand::Get { key, field, part } => reading.part(key, field, *part),
        OwnCommand::Batch(_) | OwnCommand::Expire(_) => Err(KeyspaceError::Write.into()),
    }
}

/// Evaluates an Atoll command.
pub(crate) fn write_own<C: Cells, W: Changes>(
    writing: &mut Writing<'_, '_, C, W>,
    command: &OwnCommand<'_>,
) -> Done {
    match command {
        OwnCommand::Expire(keys) => writing.expire_exactly(keys),
        OwnCommand::Batch(batch) => writing.batch(batch),
        command => read_own(&mut writing.reading, command),
    }
}

/// An entry of a page; its value may still be on a disk.
struct Entry {
    field: Vec<u8>,
    value: Option<CellValue>,
    length: u64,
}

impl<C: Cells> Reading<'_, C> {
    fn part(&mut self, key: &[u8], field: &[u8], part: Part) -> Done {
        check_partition(key)?;
        check_field(field)?;
        let value = if self.find_hash(key)?.is_some() { self.field(key, field)? } else { None };
        match value {
            None => self.answer.writer().null(),
            Some(value) => self.answer.string(&value.read(part.offset, part.within(value.len()))?)?,
        }
        Ok(())
    }

    fn range(&mut self, request: &RangeRequest<'_>) -> Done {
        check_partition(request.key)?;
        check_range(&request.range)?;
        let fields = self.find_hash(request.key)?;
        let overlay = Overlay::new(self.cells, self.slot, request.key, fields);
        let (from, to) = overlay.span(&request.range);
        let (mut entries, mut has_more) = (Vec::new(), false);
        if fields.is_some() && from < to {
            let begins_at = CellName::fields(self.slot, request.key).len();
            has_more = self.collect(request, (&from, &to), begins_at, &mut entries)?;
        }
        self.answer.writer().array(2);
        self.answer.writer().integer(i64::from(has_more));
        self.answer.writer().array(entries.len() * 3);
        for entry in entries {
            self.answer.string(&entry.field)?;
            match (&entry.value, request.part) {
                (Some(value), Some(part)) => {
                    self.answer.string(&value.read(part.offset, part.within(entry.length))?)?;
                }
                _ => self.answer.writer().null(),
            }
            self.count(entry.length)?;
        }
        Ok(())
    }

    /// Collects the entries of a page; returns whether there are more.
    fn collect(
        &self,
        request: &RangeRequest<'_>,
        (from, to): (&[u8], &[u8]),
        begins_at: usize,
        entries: &mut Vec<Entry>,
    ) -> Done<bool> {
        let direction = if request.is_reverse { Direction::Backward } else { Direction::Forward };
        let (mut bytes, mut has_more) = (0, false);
        self.cells.visit((Bound::Included(from), Bound::Excluded(to)), direction, |name, value| {
            let (field, length) = (name.get(begins_at..).unwrap_or_default(), value.len());
            bytes += field.len() as u64 + request.part.map_or(0, |part| part.within(length));
            // The first entry is included whatever its size.
            let is_full = entries.len() as u64 >= request.limit || bytes > PAGE_BYTES_MAX as u64;
            if is_full && !entries.is_empty() {
                has_more = true;
                return ControlFlow::Break(());
            }
            let value = request.part.map(|_| value.to_value());
            entries.push(Entry { field: field.to_vec(), value, length });
            ControlFlow::Continue(())
        })?;
        Ok(has_more)
    }
}

impl<C: Cells, W: Changes> Writing<'_, '_, C, W> {
    fn batch(&mut self, batch: &FieldBatch<'_>) -> Done {
        check_batch(batch)?;
        let key = batch.key;
        let old = self.find_hash(key)?;
        for (place, condition) in batch.conditions.iter().enumerate() {
            if !self.holds(key, condition, place, old.is_some())? {
                return Ok(());
            }
        }
        let cells = self.reading.cells;
        let mut overlay = Overlay::new(cells, self.reading.slot, key, old.map(|(fields, _)| fields));
        for mutation in &batch.mutations {
            self.mutate(key, mutation, &mut overlay)?;
        }
        self.set_fields(key, old, overlay.fields);
        self.ok()
    }

    /// Whether a condition holds; answers the outcome if it does not.
    fn holds(
        &mut self,
        key: &[u8],
        condition: &FieldCondition<'_>,
        place: usize,
        is_hash: bool,
    ) -> Done<bool> {
        let (FieldCondition::Absent(field) | FieldCondition::Equals(field, _)) = *condition;
        let value = if is_hash { self.reading.field(key, field)? } else { None };
        let holds = match (condition, &value) {
            (FieldCondition::Absent(_), value) => value.is_none(),
            (FieldCondition::Equals(..), None) => false,
            // Values of different lengths need not be compared.
            (FieldCondition::Equals(_, expected), Some(value)) => {
                value.len() == expected.len() as u64 && *value.read(0, value.len())? == **expected
            }
        };
        if !holds {
            let answer = &mut self.reading.answer;
            answer.writer().array(3);
            answer.writer().integer(i64::try_from(place).unwrap_or(i64::MAX));
            match &value {
                None => answer.writer().null(),
                Some(value) => answer.string(&value.read(0, CONDITION_BYTES_MAX as u64)?)?,
            }
            self.reading.count(value.map_or(0, |value| value.len()))?;
        }
        Ok(holds)
    }

    fn mutate(&mut self, key: &[u8], mutation: &FieldMutation<'_>, overlay: &mut Overlay<'_, C>) -> Done {
        let slot = self.reading.slot;
        match *mutation {
            FieldMutation::Put(field, value) => {
                overlay.set(&CellName::field(slot, key, field), Some(value.len() as u64))?;
                self.put_field(key, field, value)?;
            }
            FieldMutation::Append(field, bytes) => {
                let name = CellName::field(slot, key, field);
                let before = overlay.length(&name)?;
                overlay.set(&name, Some(appended(before, bytes)?))?;
                match before {
                    Some(_) => self.changes.append(&name, bytes),
                    // The engine would append to the value that the removed range had there.
                    None => self.changes.put(&name, [bytes, &[]]),
                }
            }
            FieldMutation::Delete(field) => {
                let name = CellName::field(slot, key, field);
                overlay.set(&name, None)?;
                self.changes.delete(&name);
            }
            FieldMutation::DeleteRange(range) => {
                let (from, to) = overlay.span(&range);
                if from < to {
                    self.changes.delete_range(&from, &to);
                }
                overlay.remove((from, to))?;
            }
        }
        Ok(())
    }
}

fn check_partition(key: &[u8]) -> Result<(), Refusal> {
    if key.is_empty() { Err(Refusal::EmptyKey) } else { check_key(key) }
}

fn check_range(range: &FieldRange<'_>) -> Result<(), Refusal> {
    ends(range).try_for_each(check_field)
}

fn ends<'a>(range: &FieldRange<'a>) -> impl Iterator<Item = &'a [u8]> {
    [range.from, range.to].into_iter().filter_map(|end| match end {
        Bound::Included(field) | Bound::Excluded(field) => Some(field),
        Bound::Unbounded => None,
    })
}

/// Checks the limits of the contract, as all stores do.
fn check_batch(batch: &FieldBatch<'_>) -> Result<(), Refusal> {
    check_partition(batch.key)?;
    let operations = batch.conditions.len() + batch.mutations.len();
    check_length("batch operations", operations, BATCH_OPERATIONS_MAX)?;
    let mut total = 0;
    for condition in &batch.conditions {
        let (field, value) = match *condition {
            FieldCondition::Absent(field) => (field, &[][..]),
            FieldCondition::Equals(field, value) => (field, value),
        };
        check_field(field)?;
        check_length("a value inside a condition", value.len(), CONDITION_BYTES_MAX)?;
        total += field.len() + value.len();
    }
    // A single larger value travels alone.
    let is_alone = batch.mutations.len() == 1;
    for mutation in &batch.mutations {
        let (fields, value) = match *mutation {
            FieldMutation::Put(field, value) | FieldMutation::Append(field, value) => {
                check_field(field)?;
                check_length("a value", value.len(), VALUE_BYTES_MAX)?;
                (field.len(), value.len())
            }
            FieldMutation::Delete(field) => check_field(field).map(|()| (field.len(), 0))?,
            FieldMutation::DeleteRange(range) => {
                check_range(&range)?;
                (ends(&range).map(<[u8]>::len).sum(), 0)
            }
        };
        total += fields + if is_alone { 0 } else { value };
    }
    check_length("batch bytes", total, BATCH_BYTES_MAX)
}

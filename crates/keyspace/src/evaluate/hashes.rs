//! Commands on the fields of a key and their values.

use super::reading::{Reading, check_field, check_key, check_length};
use super::strings::DIGITS_MAX;
use super::writing::Writing;
use super::{Done, Stop, distinct, last_of_each};
use crate::cell::CellName;
use crate::cells::{CellRef, CellValue, Cells, Changes};
use crate::head::{Head, Kind};
use crate::{KeyspaceError, Refusal, VALUE_BYTES_MAX};
use atoll_engine::Direction;
use atoll_resp::parse_integer;
use std::ops::{Bound, ControlFlow};

impl<C: Cells> Reading<'_, C> {
    pub(super) fn hash_get(&mut self, key: &[u8], field: &[u8]) -> Done {
        check_key(key)?;
        // A field that exists proves that there is a hash, unless the hash has expired.
        if self.may_be_overdue() && self.find_hash(key)?.is_none() {
            self.answer.writer().null();
            return Ok(());
        }
        if !self.answer_field(key, field)? {
            self.find_hash(key)?;
            self.answer.writer().null();
        }
        Ok(())
    }

    /// Answers the value of a field, for a key that is a hash; returns whether the field exists.
    fn answer_field(&mut self, key: &[u8], field: &[u8]) -> Done<bool> {
        check_field(field)?;
        let (name, answer) = (CellName::field(self.slot, key, field), &mut self.answer);
        let answered = self.cells.show(&name, |value| value.map(|value| answer.string(value)))?;
        Ok(answered.transpose()?.is_some())
    }

    pub(super) fn hash_get_many(&mut self, key: &[u8], fields: &[&[u8]]) -> Done {
        let is_there = self.find_hash(key)?.is_some();
        self.answer.writer().array(fields.len());
        for field in fields {
            if !is_there || !self.answer_field(key, field)? {
                self.answer.writer().null();
            }
        }
        Ok(())
    }

    /// The value of a field, for a key that may not be a hash.
    fn find_field(&mut self, key: &[u8], field: &[u8]) -> Done<Option<CellValue>> {
        if self.find_hash(key)?.is_none() {
            return Ok(None);
        }
        self.field(key, field)
    }

    pub(super) fn hash_exists(&mut self, key: &[u8], field: &[u8]) -> Done {
        let is_there = self.find_field(key, field)?.is_some();
        self.integer(i64::from(is_there))
    }

    pub(super) fn hash_count(&mut self, key: &[u8]) -> Done {
        let fields = self.find_hash(key)?;
        self.count(fields.unwrap_or(0))
    }

    pub(super) fn hash_length(&mut self, key: &[u8], field: &[u8]) -> Done {
        let length = self.find_field(key, field)?.map_or(0, |value| value.len());
        self.count(length)
    }

    /// Lists fields in byte order.
    pub(super) fn hash_all(&mut self, key: &[u8], fields: bool, values: bool) -> Done {
        let expected = self.find_hash(key)?.unwrap_or(0);
        let count = usize::try_from(expected).unwrap_or(usize::MAX);
        match fields && values {
            true => self.answer.writer().map(count),
            false => self.answer.writer().array(count),
        }
        if expected == 0 {
            return Ok(());
        }
        let mut listing =
            Listing { fields, values, seen: 0, begins_at: CellName::fields(self.slot, key).len() };
        let to = CellName::fields_end(self.slot, key);
        let mut from = Bound::Included(CellName::fields(self.slot, key).to_vec());
        while let Some((name, value)) = self.list(&mut listing, (from, &to))? {
            self.answer.string(&value.read(0, value.len())?)?;
            from = Bound::Excluded(name);
        }
        // Otherwise a client would take the next answer for the missing part of this one.
        if listing.seen != expected {
            return Err(KeyspaceError::Corrupt { what: "the number of fields" }.into());
        }
        Ok(())
    }

    /// Answers fields up to the first one whose value has to be read from a disk.
    fn list(
        &mut self,
        listing: &mut Listing,
        (from, to): (Bound<Vec<u8>>, &[u8]),
    ) -> Done<Option<(Vec<u8>, CellValue)>> {
        let range = (from.as_ref().map(Vec::as_slice), Bound::Excluded(to));
        let (answer, mut ended) = (&mut self.answer, Ok(None));
        self.cells.visit(range, Direction::Forward, |name, value| {
            match listing.answer(answer, name, &value) {
                Ok(true) => return ControlFlow::Continue(()),
                Ok(false) => ended = Ok(Some((name.to_vec(), value.to_value()))),
                Err(stop) => ended = Err(stop),
            }
            ControlFlow::Break(())
        })?;
        ended
    }
}

/// What to answer of each field, and how many were answered.
struct Listing {
    fields: bool,
    values: bool,
    seen: u64,
    /// Where the field begins in the names of cells.
    begins_at: usize,
}

impl Listing {
    /// Answers a field; returns false if its value is wanted but was not answered.
    fn answer(
        &mut self,
        answer: &mut crate::answer::Answer<'_>,
        name: &[u8],
        value: &CellRef<'_>,
    ) -> Done<bool> {
        self.seen += 1;
        if self.fields {
            answer.string(name.get(self.begins_at..).unwrap_or_default())?;
        }
        if !self.values {
            return Ok(true);
        }
        answer.check_room(value.len())?;
        Ok(value.show(|bytes| answer.string(bytes))?.transpose()?.is_some())
    }
}

impl<C: Cells, W: Changes> Writing<'_, '_, C, W> {
    pub(super) fn hash_set(&mut self, key: &[u8], pairs: &[(&[u8], &[u8])], says_ok: bool) -> Done {
        let old = self.find_hash(key)?;
        let mut added = 0;
        for (field, value) in last_of_each(pairs) {
            added += u64::from(!self.has_field(key, field, old.is_some())?);
            self.put_field(key, field, value)?;
        }
        self.count_fields(key, old, added, 0);
        if says_ok { self.ok() } else { self.reading.count(added) }
    }

    pub(super) fn hash_set_absent(&mut self, key: &[u8], field: &[u8], value: &[u8]) -> Done {
        let old = self.find_hash(key)?;
        let is_new = !self.has_field(key, field, old.is_some())?;
        if is_new {
            self.put_field(key, field, value)?;
            self.count_fields(key, old, 1, 0);
        }
        self.reading.integer(i64::from(is_new))
    }

    pub(super) fn hash_delete(&mut self, key: &[u8], fields: &[&[u8]]) -> Done {
        let old = self.find_hash(key)?;
        let mut removed = 0;
        for field in distinct(fields) {
            if self.has_field(key, field, old.is_some())? {
                self.changes.delete(&CellName::field(self.reading.slot, key, field));
                removed += 1;
            }
        }
        self.count_fields(key, old, 0, removed);
        self.reading.count(removed)
    }

    pub(super) fn hash_increment(&mut self, key: &[u8], field: &[u8], by: i64) -> Done {
        let old = self.find_hash(key)?;
        check_field(field)?;
        let value = if old.is_some() { self.reading.field(key, field)? } else { None };
        let number = match &value {
            None => 0,
            Some(value) if value.len() > DIGITS_MAX => return Err(Refusal::FieldNotInteger.into()),
            Some(value) => parse_integer(&value.read(0, value.len())?).ok_or(Refusal::FieldNotInteger)?,
        };
        let number = number.checked_add(by).ok_or(Refusal::Overflow)?;
        self.put_field(key, field, itoa::Buffer::new().format(number).as_bytes())?;
        self.count_fields(key, old, u64::from(value.is_none()), 0);
        self.reading.integer(number)
    }

    /// Whether a field exists, for a key that is a hash or absent.
    fn has_field(&self, key: &[u8], field: &[u8], is_hash: bool) -> Result<bool, Stop> {
        check_field(field)?;
        Ok(is_hash && self.reading.field(key, field)?.is_some())
    }

    pub(super) fn put_field(&mut self, key: &[u8], field: &[u8], value: &[u8]) -> Done {
        check_length("a value", value.len(), VALUE_BYTES_MAX)?;
        self.changes.put(&CellName::field(self.reading.slot, key, field), [value, &[]]);
        Ok(())
    }

    /// Records that fields were added to a hash and others removed.
    fn count_fields(&mut self, key: &[u8], old: Option<(u64, Option<u64>)>, added: u64, removed: u64) {
        let before = old.map_or(0, |(fields, _)| fields);
        self.set_fields(key, old, (before + added).saturating_sub(removed));
    }

    /// Records the number of fields of a hash; `old` is what there was before. A hash without fields is
    /// removed.
    pub(super) fn set_fields(&mut self, key: &[u8], old: Option<(u64, Option<u64>)>, fields: u64) {
        let (before, deadline_ms) = old.unwrap_or((0, None));
        let head = |fields| Head { kind: Kind::Hash { fields }, deadline_ms };
        let old = old.map(|_| head(before));
        match old {
            Some(old) if fields == 0 => self.remove(key, old),
            old if fields != before => self.put_head(key, old, head(fields), &[]),
            _ => {}
        }
    }
}

//! Commands on the string at a key.

use super::reading::{FoundKey, Reading};
use super::writing::{Writing, check_string};
use super::{Done, last_of_each};
use crate::Refusal;
use crate::cell::CellName;
use crate::cells::{Cells, Changes};
use atoll_resp::{Part, SetAnswer, SetCondition, SetLifetime, SetRequest, parse_integer};

impl<C: Cells> Reading<'_, C> {
    pub(super) fn get(&mut self, key: &[u8]) -> Done {
        self.answer_string(key, true)
    }

    /// A hash is answered as null, as in Redis.
    pub(super) fn get_many(&mut self, keys: &[&[u8]]) -> Done {
        self.answer.writer().array(keys.len());
        keys.iter().try_for_each(|key| self.answer_string(key, false))
    }

    pub(super) fn length(&mut self, key: &[u8]) -> Done {
        let length = self.find(key)?.map(|found| found.length()).transpose()?;
        self.count(length.unwrap_or(0))
    }

    pub(super) fn get_range(&mut self, key: &[u8], start: i64, end: i64) -> Done {
        let Some(found) = self.find(key)? else { return Ok(self.answer.string(b"")?) };
        let (offset, len) = range_within(start, end, found.length()?);
        Ok(self.answer.string(&found.part(offset, len)?)?)
    }

    /// Answers some bytes of a string, or null if the key is absent.
    pub(crate) fn string_part(&mut self, key: &[u8], part: Part) -> Done {
        match self.find(key)? {
            None => self.answer.writer().null(),
            Some(found) => {
                let len = part.within(found.length()?);
                self.answer.string(&found.part(part.offset, len)?)?;
            }
        }
        Ok(())
    }
}

/// The offset and the length of a range in a value of this length; negative ends count from the end of the
/// value.
fn range_within(start: i64, end: i64, length: u64) -> (u64, u64) {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return (0, 0);
    }
    let from_front = |at: i64| if at < 0 { at.saturating_add(length).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(length - 1));
    if start > end {
        return (0, 0);
    }
    (start.unsigned_abs(), (end - start).unsigned_abs() + 1)
}

/// Whether a string equals this value; a hash is refused.
fn is_equal<C: Cells>(found: &FoundKey<'_, C>, value: &[u8]) -> Done<bool> {
    Ok(found.length()? == value.len() as u64 && found.string()?.as_slice() == value)
}

impl<C: Cells, W: Changes> Writing<'_, '_, C, W> {
    pub(super) fn set(&mut self, request: &SetRequest<'_>) -> Done {
        let old = self.find(request.key)?;
        if request.answer == SetAnswer::Former {
            self.answer_found(old.as_ref())?;
        }
        let holds = match (&request.condition, &old) {
            (SetCondition::Always, _) => true,
            (SetCondition::Absent, old) => old.is_none(),
            (SetCondition::Present, old) => old.is_some(),
            (SetCondition::Equals(_), None) => false,
            (SetCondition::Equals(value), Some(old)) => is_equal(old, value)?,
        };
        if holds {
            if let Some(old) = &old {
                // Unlike Redis: a hash may be large, and is not to be lost to a slip in a key.
                old.length()?;
            }
            self.put_for(request.key, old.as_ref(), request.value, request.lifetime)?;
        }
        match (request.answer, holds) {
            (SetAnswer::Ok, true) => self.ok(),
            (SetAnswer::Ok, false) => {
                self.reading.answer.writer().null();
                Ok(())
            }
            (SetAnswer::Whether, _) => self.reading.integer(i64::from(holds)),
            (SetAnswer::Former, _) => Ok(()),
        }
    }

    /// Sets a string with a lifetime, which may be over already.
    fn put_for(
        &mut self,
        key: &[u8],
        old: Option<&FoundKey<'_, C>>,
        value: &[u8],
        lifetime: SetLifetime,
    ) -> Done {
        check_string(value.len() as u64)?;
        let old = old.map(|found| found.head);
        let deadline_ms = match lifetime {
            SetLifetime::Forever => None,
            SetLifetime::Kept => old.and_then(|old| old.deadline_ms),
            SetLifetime::Until(deadline) => Some(self.date_of(deadline)),
        };
        match (deadline_ms, old) {
            (Some(deadline), old) if deadline <= self.reading.now_ms => {
                old.into_iter().for_each(|old| self.remove(key, old));
                Ok(())
            }
            (deadline_ms, old) => self.put_string(key, old, value, deadline_ms),
        }
    }

    fn answer_found(&mut self, found: Option<&FoundKey<'_, C>>) -> Done {
        match found {
            None => self.reading.answer.writer().null(),
            Some(found) => self.reading.answer.string(&found.string()?)?,
        }
        Ok(())
    }

    pub(super) fn set_many(&mut self, pairs: &[(&[u8], &[u8])]) -> Done {
        for (key, value) in last_of_each(pairs) {
            let old = self.find(key)?;
            old.as_ref().map(FoundKey::length).transpose()?;
            self.put_string(key, old.map(|found| found.head), value, None)?;
        }
        self.ok()
    }

    pub(super) fn get_delete(&mut self, key: &[u8]) -> Done {
        let old = self.find(key)?;
        self.answer_found(old.as_ref())?;
        old.into_iter().for_each(|old| self.remove(key, old.head));
        Ok(())
    }

    pub(super) fn get_expire(&mut self, key: &[u8], lifetime: SetLifetime) -> Done {
        let old = self.find(key)?;
        self.answer_found(old.as_ref())?;
        let Some(old) = old else { return Ok(()) };
        match lifetime {
            SetLifetime::Kept => Ok(()),
            SetLifetime::Forever => self.set_deadline(key, &old, None),
            SetLifetime::Until(deadline) => {
                let deadline_ms = self.date_of(deadline);
                self.set_deadline(key, &old, Some(deadline_ms))
            }
        }
    }

    pub(super) fn append(&mut self, key: &[u8], value: &[u8]) -> Done {
        let Some(old) = self.find(key)? else {
            self.put_string(key, None, value, None)?;
            return self.reading.count(value.len() as u64);
        };
        let length = old.length()? + value.len() as u64;
        check_string(length)?;
        if !value.is_empty() {
            self.changes.append(&CellName::head(self.reading.slot, key), value);
        }
        self.reading.count(length)
    }

    pub(super) fn increment(&mut self, key: &[u8], by: i64) -> Done {
        let old = self.find(key)?;
        let number = match &old {
            None => 0,
            Some(old) => number_of(old)?,
        };
        let number = number.checked_add(by).ok_or(Refusal::Overflow)?;
        let old = old.map(|found| found.head);
        let deadline_ms = old.and_then(|old| old.deadline_ms);
        self.put_string(key, old, itoa::Buffer::new().format(number).as_bytes(), deadline_ms)?;
        self.reading.integer(number)
    }
}

/// No integer has more digits.
pub(super) const DIGITS_MAX: u64 = 20;

fn number_of<C: Cells>(found: &FoundKey<'_, C>) -> Done<i64> {
    if found.length()? > DIGITS_MAX {
        return Err(Refusal::NotInteger.into());
    }
    Ok(parse_integer(&found.string()?).ok_or(Refusal::NotInteger)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_redis() {
        let cases = [
            ((0, 3), (0, 4)),
            ((-3, -1), (8, 3)),
            ((0, -1), (0, 11)),
            ((10, 100), (10, 1)),
            ((11, 100), (0, 0)),
            ((5, 2), (0, 0)),
            ((-100, 2), (0, 3)),
            ((-100, -50), (0, 1)),
            ((-1, -2), (0, 0)),
            ((i64::MIN, i64::MAX), (0, 11)),
        ];
        for ((start, end), expected) in cases {
            assert_eq!(range_within(start, end, 11), expected, "{start} {end}");
        }
        assert_eq!(range_within(0, -1, 0), (0, 0));
    }
}

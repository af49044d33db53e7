//! A command that looks at the cells of a slot at some time.

use super::Done;
use crate::answer::Answer;
use crate::cell::CellName;
use crate::cells::{CellValue, Cells};
use crate::head::{Head, Kind};
use crate::{FIELD_BYTES_MAX, KEY_BYTES_MAX, KeyspaceError, Overdue, Refusal};
use atoll_buffer::Buffer;

/// A command that looks at the cells of a slot at some time.
pub(crate) struct Reading<'a, C> {
    pub(crate) cells: &'a C,
    pub(crate) slot: u16,
    pub(crate) now_ms: u64,
    /// No key of the slot expires before this time.
    pub(crate) soonest_ms: u64,
    pub(crate) answer: Answer<'a>,
    /// Expired keys that were met, which count as absent.
    pub(crate) overdue: Vec<Overdue>,
}

/// What is stored at a key. The value of a string is read only when it is asked for.
pub(crate) struct FoundKey<'a, C> {
    pub(crate) head: Head,
    /// Length of the cell, including the head.
    len: u64,
    name: CellName,
    cells: &'a C,
}

impl<C: Cells> FoundKey<'_, C> {
    /// The number of fields of a hash.
    pub(crate) fn fields(&self) -> Result<u64, Refusal> {
        match self.head.kind {
            Kind::Hash { fields } => Ok(fields),
            Kind::String => Err(Refusal::WrongType),
        }
    }

    /// The length of a string.
    pub(crate) fn length(&self) -> Result<u64, Refusal> {
        match self.head.kind {
            Kind::String => Ok(self.len - self.head.value_at() as u64),
            Kind::Hash { .. } => Err(Refusal::WrongType),
        }
    }

    /// Bytes of a string.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Done<Buffer> {
        self.length()?;
        // The changes of a command are committed when it ends, so the cell is still there.
        let cell = self.cells.value(&self.name)?.ok_or(KeyspaceError::Corrupt { what: "a key" })?;
        Ok(cell.read(self.head.value_at() as u64 + offset, len)?)
    }

    /// All bytes of a string.
    pub(crate) fn string(&self) -> Done<Buffer> {
        self.part(0, u64::MAX)
    }
}

/// What the head of a key shows.
enum Shown<R> {
    Absent,
    Overdue(u64),
    Hash,
    String(R),
}

fn shown<R>(
    bytes: Option<&[u8]>,
    now_ms: u64,
    show: impl FnOnce(&[u8]) -> R,
) -> Result<Shown<R>, KeyspaceError> {
    let Some(bytes) = bytes else { return Ok(Shown::Absent) };
    let head = Head::decode(bytes)?;
    Ok(match (head.deadline_ms, head.kind) {
        (Some(deadline), _) if head.is_overdue(now_ms) => Shown::Overdue(deadline),
        (_, Kind::Hash { .. }) => Shown::Hash,
        (_, Kind::String) => Shown::String(show(&bytes[head.value_at()..])),
    })
}

impl<'a, C: Cells> Reading<'a, C> {
    /// Answers the string at a key, or null. A hash is refused, or answered as null.
    pub(crate) fn answer_string(&mut self, key: &[u8], refuses_hash: bool) -> Done {
        check_key(key)?;
        let name = CellName::head(self.slot, key);
        let (now_ms, answer) = (self.now_ms, &mut self.answer);
        let shown = self.cells.show(&name, |bytes| shown(bytes, now_ms, |value| answer.string(value)))??;
        match shown {
            Shown::String(answered) => return Ok(answered?),
            Shown::Hash if refuses_hash => return Err(Refusal::WrongType.into()),
            Shown::Overdue(deadline) => self.note_overdue(key, deadline),
            Shown::Hash | Shown::Absent => {}
        }
        self.answer.writer().null();
        Ok(())
    }

    /// What is stored at a key, expired or not.
    pub(crate) fn look(&self, key: &[u8]) -> Done<Option<FoundKey<'a, C>>> {
        check_key(key)?;
        let name = CellName::head(self.slot, key);
        let Some(front) = self.cells.front(&name)? else { return Ok(None) };
        let (head, len) = (Head::decode(front.bytes())?, front.len());
        Ok(Some(FoundKey { head, len, name, cells: self.cells }))
    }

    /// What is stored at a key that is not expired.
    pub(crate) fn find(&mut self, key: &[u8]) -> Done<Option<FoundKey<'a, C>>> {
        let found = self.look(key)?;
        match found {
            Some(FoundKey { head: Head { deadline_ms: Some(deadline), .. }, .. })
                if deadline <= self.now_ms =>
            {
                self.note_overdue(key, deadline);
                Ok(None)
            }
            found => Ok(found),
        }
    }

    /// The number of fields of a hash; none if there is no hash.
    pub(crate) fn find_hash(&mut self, key: &[u8]) -> Done<Option<u64>> {
        Ok(self.find(key)?.map(|found| found.fields()).transpose()?)
    }

    /// The value of a field, for a key that is a hash.
    pub(crate) fn field(&self, key: &[u8], field: &[u8]) -> Done<Option<CellValue>> {
        check_field(field)?;
        Ok(self.cells.value(&CellName::field(self.slot, key, field))?)
    }

    /// Whether there may be an expired key.
    pub(crate) fn may_be_overdue(&self) -> bool {
        self.soonest_ms <= self.now_ms
    }

    fn note_overdue(&mut self, key: &[u8], deadline_ms: u64) {
        self.overdue.push(Overdue { slot: self.slot, key: key.to_vec(), deadline_ms });
    }

    pub(crate) fn integer(&mut self, number: i64) -> Done {
        self.answer.writer().integer(number);
        Ok(())
    }

    /// Answers a count.
    pub(crate) fn count(&mut self, number: u64) -> Done {
        self.integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Refusal> {
    check_length("a key", key.len(), KEY_BYTES_MAX)
}

pub(crate) fn check_field(field: &[u8]) -> Result<(), Refusal> {
    check_length("a field", field.len(), FIELD_BYTES_MAX)
}

pub(crate) fn check_length(what: &'static str, actual: usize, most: usize) -> Result<(), Refusal> {
    let (actual, most) = (actual as u64, most as u64);
    if actual <= most { Ok(()) } else { Err(Refusal::Limit { what, actual, most }) }
}

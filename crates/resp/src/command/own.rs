//! Commands that Redis does not have: the store contract on the fields of a hash, and the expiry of keys.
//!
//! ```text
//! AT.EXPIRE key deadline-ms [key deadline-ms ...]           how many were deleted; nodes write it into their logs
//! AT.BATCH  key [IFABSENT field | IFEQ field value ...]
//!               [PUT field value | APPEND field bytes | DEL field | DELRANGE from to ...]
//!                                                           OK, or [condition, value or nil, its length] of the first
//!                                                           condition that does not hold
//! AT.RANGE  key from to [REV] [LIMIT count] [KEYS | BYTES offset length]
//!                                                           [whether there is more, [field, value, its length, ...]]
//! AT.GET    key field [offset length]                       the value, or these bytes of it, or nil
//! ```
//! Range ends are written as in Redis: `[field` inclusive, `(field` exclusive, `-` and `+` for no limit.

use super::arguments::Arguments;
use super::{Command, CommandError};
use crate::{Request, parse_integer};
use std::ops::Bound;

/// A command that Redis does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnCommand<'a> {
    /// `AT.EXPIRE`: deletes keys that still have exactly these deadlines, in milliseconds since 1970.
    Expire(Vec<(&'a [u8], u64)>),
    /// `AT.BATCH`.
    Batch(FieldBatch<'a>),
    /// `AT.RANGE`.
    Range(RangeRequest<'a>),
    /// `AT.GET`.
    Get {
        /// The key.
        key: &'a [u8],
        /// The field.
        field: &'a [u8],
        /// Which bytes of its value.
        part: Part,
    },
}

/// Conditions on and mutations of the fields of a key: if all conditions hold all mutations are made, and
/// otherwise none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldBatch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The conditions, on the fields as they were before.
    pub conditions: Vec<FieldCondition<'a>>,
    /// The mutations, in this order.
    pub mutations: Vec<FieldMutation<'a>>,
}

impl FieldBatch<'_> {
    /// Whether it may set anything, and does not only delete.
    #[must_use]
    pub fn adds(&self) -> bool {
        self.mutations
            .iter()
            .any(|mutation| matches!(mutation, FieldMutation::Put(..) | FieldMutation::Append(..)))
    }
}

/// A condition of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldCondition<'a> {
    /// The field does not exist.
    Absent(&'a [u8]),
    /// The field has this value.
    Equals(&'a [u8], &'a [u8]),
}

/// A change of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldMutation<'a> {
    /// Sets a field.
    Put(&'a [u8], &'a [u8]),
    /// Appends bytes to a field; an absent field counts as empty.
    Append(&'a [u8], &'a [u8]),
    /// Removes a field.
    Delete(&'a [u8]),
    /// Removes all fields of a range.
    DeleteRange(FieldRange<'a>),
}

/// A range of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldRange<'a> {
    /// Lower end.
    pub from: Bound<&'a [u8]>,
    /// Upper end.
    pub to: Bound<&'a [u8]>,
}

/// A range of a value's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of the first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

impl Part {
    /// The whole value.
    pub const ALL: Self = Self { offset: 0, len: u64::MAX };

    /// How many bytes of a value of this length are in the range.
    #[must_use]
    pub fn within(self, len: u64) -> u64 {
        len.saturating_sub(self.offset).min(self.len)
    }
}

/// A page of the fields of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Which fields.
    pub range: FieldRange<'a>,
    /// Whether to list the fields in descending order.
    pub is_reverse: bool,
    /// Most fields to list.
    pub limit: u64,
    /// Which bytes of their values; none for no values.
    pub part: Option<Part>,
}

/// Fields on a page if the request does not say how many.
const PAGE_FIELDS_DEFAULT: u64 = 1000;

/// Most fields on a page, whatever the request says: short ones take more memory than their bytes.
const PAGE_FIELDS_MAX: u64 = 100_000;

impl<'a> OwnCommand<'a> {
    /// Whether a command of this name is one of these, judging by its prefix.
    #[must_use]
    pub fn is_own(name: &[u8]) -> bool {
        name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case(b"at."))
    }

    /// Parses a request.
    ///
    /// # Errors
    /// [`CommandError`]: nothing was done.
    pub fn of_request(request: &Request<'a>) -> Result<Self, CommandError> {
        Self::of(&request.iter().collect::<Vec<_>>())
    }

    /// Parses a command with its arguments.
    ///
    /// # Errors
    /// [`CommandError`]: nothing was done.
    pub fn of(words: &[&'a [u8]]) -> Result<Self, CommandError> {
        let (&name, arguments) = words.split_first().unwrap_or((&b"".as_slice(), &[]));
        let is = |own: &str| name.eq_ignore_ascii_case(own.as_bytes());
        let mut words = Words { name, rest: arguments };
        match name {
            _ if is("AT.EXPIRE") => expire(&mut words),
            _ if is("AT.BATCH") => batch(&mut words),
            _ if is("AT.RANGE") => range(&mut words),
            _ if is("AT.GET") => get(&mut words),
            name => Err(CommandError::Unknown { name: told(name), arguments: String::new() }),
        }
    }

    /// Whether it may change anything.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(self, Self::Expire(_) | Self::Batch(_))
    }

    /// Its keys.
    #[must_use]
    pub fn keys(&self) -> Vec<&'a [u8]> {
        match self {
            Self::Expire(keys) => keys.iter().map(|&(key, _)| key).collect(),
            Self::Batch(batch) => vec![batch.key],
            Self::Range(range) => vec![range.key],
            Self::Get { key, .. } => vec![*key],
        }
    }
}

/// Parses such a command for the table of all commands.
pub(super) fn own<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let mut words = vec![arguments.name()];
    words.extend(arguments.rest());
    OwnCommand::of(&words).map(Command::Own)
}

fn told(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(128)]).into_owned()
}

/// The remaining arguments.
struct Words<'w, 'a> {
    name: &'a [u8],
    rest: &'w [&'a [u8]],
}

impl<'a> Words<'_, 'a> {
    fn optional(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// A required argument.
    fn next(&mut self) -> Result<&'a [u8], CommandError> {
        let name = self.name;
        self.optional().ok_or_else(|| CommandError::Arity { name: told(name).to_ascii_lowercase() })
    }

    /// A required argument of an option word.
    fn behind(&mut self) -> Result<&'a [u8], CommandError> {
        self.optional().ok_or(CommandError::Syntax)
    }

    fn part(&mut self) -> Result<Part, CommandError> {
        Ok(Part { offset: natural(self.behind()?)?, len: natural(self.behind()?)? })
    }
}

/// A non-negative integer.
fn natural(text: &[u8]) -> Result<u64, CommandError> {
    parse_integer(text).and_then(|number| u64::try_from(number).ok()).ok_or(CommandError::Integer)
}

fn end(text: &[u8]) -> Result<Bound<&[u8]>, CommandError> {
    match text {
        b"-" | b"+" => Ok(Bound::Unbounded),
        [b'[', field @ ..] => Ok(Bound::Included(field)),
        [b'(', field @ ..] => Ok(Bound::Excluded(field)),
        _ => Err(CommandError::Syntax),
    }
}

fn field_range<'a>(from: &'a [u8], to: &'a [u8]) -> Result<FieldRange<'a>, CommandError> {
    // The other way round the range would be empty, which is surely a mistake.
    if from == b"+" || to == b"-" {
        return Err(CommandError::Syntax);
    }
    Ok(FieldRange { from: end(from)?, to: end(to)? })
}

fn expire<'a>(words: &mut Words<'_, 'a>) -> Result<OwnCommand<'a>, CommandError> {
    let mut keys = vec![(words.next()?, natural(words.next()?)?)];
    while !words.rest.is_empty() {
        keys.push((words.next()?, natural(words.next()?)?));
    }
    Ok(OwnCommand::Expire(keys))
}

fn batch<'a>(words: &mut Words<'_, 'a>) -> Result<OwnCommand<'a>, CommandError> {
    let mut batch = FieldBatch { key: words.next()?, ..FieldBatch::default() };
    while let Some(word) = words.optional() {
        let is = |own: &str| word.eq_ignore_ascii_case(own.as_bytes());
        let field = words.behind()?;
        match word {
            _ if is("PUT") => batch.mutations.push(FieldMutation::Put(field, words.behind()?)),
            _ if is("APPEND") => batch.mutations.push(FieldMutation::Append(field, words.behind()?)),
            _ if is("DEL") => batch.mutations.push(FieldMutation::Delete(field)),
            _ if is("DELRANGE") => {
                let range = field_range(field, words.behind()?)?;
                batch.mutations.push(FieldMutation::DeleteRange(range));
            }
            // Conditions are about the state before, so they come first.
            _ if !batch.mutations.is_empty() => return Err(CommandError::Syntax),
            _ if is("IFABSENT") => batch.conditions.push(FieldCondition::Absent(field)),
            _ if is("IFEQ") => batch.conditions.push(FieldCondition::Equals(field, words.behind()?)),
            _ => return Err(CommandError::Syntax),
        }
    }
    Ok(OwnCommand::Batch(batch))
}

fn range<'a>(words: &mut Words<'_, 'a>) -> Result<OwnCommand<'a>, CommandError> {
    let key = words.next()?;
    let range = field_range(words.next()?, words.next()?)?;
    let mut request =
        RangeRequest { key, range, is_reverse: false, limit: PAGE_FIELDS_DEFAULT, part: Some(Part::ALL) };
    while let Some(word) = words.optional() {
        let is = |own: &str| word.eq_ignore_ascii_case(own.as_bytes());
        match word {
            _ if is("REV") => request.is_reverse = true,
            _ if is("KEYS") => request.part = None,
            _ if is("BYTES") => request.part = Some(words.part()?),
            _ if is("LIMIT") => {
                request.limit = natural(words.behind()?)?.min(PAGE_FIELDS_MAX);
                if request.limit == 0 {
                    return Err(CommandError::Syntax);
                }
            }
            _ => return Err(CommandError::Syntax),
        }
    }
    Ok(OwnCommand::Range(request))
}

fn get<'a>(words: &mut Words<'_, 'a>) -> Result<OwnCommand<'a>, CommandError> {
    let (key, field) = (words.next()?, words.next()?);
    let part = if words.rest.is_empty() { Part::ALL } else { words.part()? };
    match words.rest.is_empty() {
        true => Ok(OwnCommand::Get { key, field, part }),
        false => Err(CommandError::Syntax),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<OwnCommand<'_>, CommandError> {
        OwnCommand::of(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    #[test]
    fn a_batch_is_its_conditions_and_then_its_mutations() {
        let line = "at.batch k ifabsent a IFEQ b 1 PUT c 2 append d 3 DEL e DELRANGE - (f DELRANGE [g +";
        let all = |from, to| FieldMutation::DeleteRange(FieldRange { from, to });
        let batch = FieldBatch {
            key: b"k",
            conditions: vec![FieldCondition::Absent(b"a"), FieldCondition::Equals(b"b", b"1")],
            mutations: vec![
                FieldMutation::Put(b"c", b"2"),
                FieldMutation::Append(b"d", b"3"),
                FieldMutation::Delete(b"e"),
                all(Bound::Unbounded, Bound::Excluded(b"f")),
                all(Bound::Included(b"g"), Bound::Unbounded),
            ],
        };
        assert_eq!(of(line), Ok(OwnCommand::Batch(batch)));
    }

    #[test]
    fn a_page_has_so_many_fields_whatever_is_asked_for() {
        for (line, limit) in [
            ("AT.RANGE k - +", PAGE_FIELDS_DEFAULT),
            ("AT.RANGE k - + LIMIT 7", 7),
            ("AT.RANGE k - + LIMIT 9223372036854775807", PAGE_FIELDS_MAX),
        ] {
            assert!(matches!(of(line), Ok(OwnCommand::Range(request)) if request.limit == limit), "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_says_why() {
        let arity = |name: &str| CommandError::Arity { name: name.to_owned() };
        for (line, error) in [
            ("AT.EXPIRE k", arity("at.expire")),
            ("AT.EXPIRE k 1 l", arity("at.expire")),
            ("AT.EXPIRE k -1", CommandError::Integer),
            ("AT.BATCH", arity("at.batch")),
            ("AT.BATCH k PUT f", CommandError::Syntax),
            ("AT.BATCH k PUT f v IFABSENT f", CommandError::Syntax),
            ("AT.BATCH k SET f v", CommandError::Syntax),
            ("AT.BATCH k DELRANGE a b", CommandError::Syntax),
            ("AT.BATCH k DELRANGE + -", CommandError::Syntax),
            ("AT.RANGE k -", arity("at.range")),
            ("AT.RANGE k - + LIMIT", CommandError::Syntax),
            ("AT.RANGE k - + LIMIT 0", CommandError::Syntax),
            ("AT.RANGE k - + BYTES 1", CommandError::Syntax),
            ("AT.GET k", arity("at.get")),
            ("AT.GET k f 1", CommandError::Syntax),
            ("AT.GET k f 1 2 3", CommandError::Syntax),
            ("AT.GET k f 1 x", CommandError::Integer),
        ] {
            assert_eq!(of(line), Err(error), "{line}");
        }
        assert!(matches!(of("AT.NONE k"), Err(CommandError::Unknown { .. })));
        assert!(OwnCommand::is_own(b"at.none") && !OwnCommand::is_own(b"at") && !OwnCommand::is_own(b"get"));
    }
}

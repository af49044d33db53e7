//! Waiting for a field, or the string at a key, to have a certain value, or to change.
//!
//! ```text
//! AT.WAIT  milliseconds key WHAT CONDITION       [1, value or nil], or [0, nil] at the timeout
//! AT.WATCH id milliseconds key WHAT CONDITION    OK, and once a push in version 3:
//!                                                [at.watch, id, 1, value or nil], [.., 0, nil] at the
//!                                                timeout, or [.., -1, why not]
//! AT.UNWATCH id                                  how many were cancelled
//!
//! WHAT         field | AS STRING
//! CONDITION    EQ value | NE value | ABSENT | PRESENT
//! ```
//! `PRESENT` matches any value; `NE` also matches an absent field or string.
//!
//! Invariant: the bytes of a value do not decide what a request means. Without `AS STRING`, `key EQ PRESENT`
//! could be about the value `PRESENT` of a string or about the field `EQ`. No condition is called `STRING`,
//! so a field may still be called `AS`.

use super::arguments::{Arguments, is_word};
use super::{Command, CommandError};

/// A condition to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest<'a> {
    /// The id of the watch on its connection, if the result is a push.
    pub id: Option<u64>,
    /// The timeout in milliseconds.
    pub milliseconds: u64,
    /// The key.
    pub key: &'a [u8],
    /// The field; none for the string at the key.
    pub field: Option<&'a [u8]>,
    /// The expected value.
    pub expected: Expected<&'a [u8]>,
}

/// An expected value; `None` stands for an absent field or string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<V> {
    /// Exactly this.
    Equals(Option<V>),
    /// Anything else.
    Differs(Option<V>),
}

impl<V: AsRef<[u8]>> Expected<V> {
    /// Whether a value is as expected.
    pub fn is_met(&self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Equals(expected) => expected.as_ref().map(AsRef::as_ref) == value,
            Self::Differs(former) => former.as_ref().map(AsRef::as_ref) != value,
        }
    }
}

/// `AT.WAIT`.
pub(super) fn wait<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    request(None, arguments).map(Command::Watch)
}

/// `AT.WATCH`.
pub(super) fn watch<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let id = natural(arguments)?;
    request(Some(id), arguments).map(Command::Watch)
}

/// `AT.UNWATCH`.
pub(super) fn unwatch<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    natural(arguments).map(Command::Unwatch)
}

fn request<'a>(id: Option<u64>, arguments: &mut Arguments<'a>) -> Result<WatchRequest<'a>, CommandError> {
    let milliseconds = natural(arguments)?;
    let (key, field, word) = (arguments.next(), arguments.next(), arguments.next());
    let (field, word) = match is_word(field, "AS") && is_word(word, "STRING") {
        true => (None, arguments.behind_word()?),
        false => (Some(field), word),
    };
    let expected = match word {
        word if is_word(word, "EQ") => Expected::Equals(Some(arguments.behind_word()?)),
        word if is_word(word, "NE") => Expected::Differs(Some(arguments.behind_word()?)),
        word if is_word(word, "ABSENT") => Expected::Equals(None),
        word if is_word(word, "PRESENT") => Expected::Differs(None),
        _ => return Err(CommandError::WatchCondition),
    };
    arguments.end()?;
    Ok(WatchRequest { id, milliseconds, key, field, expected })
}

fn natural(arguments: &mut Arguments<'_>) -> Result<u64, CommandError> {
    u64::try_from(arguments.integer()?).map_err(|_| CommandError::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_met_or_is_not() {
        let (a, b) = (Some(&b"a"[..]), Some(&b"b"[..]));
        for (expected, met) in [
            (Expected::Equals(a), [true, false, false]),
            (Expected::Differs(a), [false, true, true]),
            (Expected::Equals(None), [false, false, true]),
            (Expected::Differs(None), [true, true, false]),
        ] {
            assert_eq!([a, b, None].map(|value| expected.is_met(value)), met, "{expected:?}");
        }
    }
}

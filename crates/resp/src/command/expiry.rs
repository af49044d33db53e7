//! Deadlines of keys.

use super::arguments::{Arguments, is_word};
use super::error::told;
use super::{Command, CommandError};

/// Units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// When a key is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// This many milliseconds from now; zero and negative values mean now or the past.
    After(i64),
    /// At this time, in milliseconds since 1970.
    At(i64),
}

/// The condition under which a deadline is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiryRule {
    /// `NX`: only if there is none.
    pub if_none: bool,
    /// `XX`: only if there is one.
    pub if_some: bool,
    /// `GT`: only if it is later than the current one.
    pub if_later: bool,
    /// `LT`: only if it is earlier than the current one, or there is none.
    pub if_earlier: bool,
}

/// Milliseconds from 1970 to the year 2248, which no clock shows yet.
const NOW_MOST: i64 = 1 << 43;

impl Unit {
    /// The deadline after this many units, counted from now or from 1970; none after the last possible date.
    pub(super) fn deadline(self, count: i64, from: fn(i64) -> Deadline) -> Option<Deadline> {
        let milliseconds = match self {
            Self::Seconds => count.checked_mul(1000)?,
            Self::Milliseconds => count,
        };
        let deadline = from(milliseconds);
        let is_date = matches!(deadline, Deadline::At(_)) || milliseconds.checked_add(NOW_MOST).is_some();
        is_date.then_some(deadline)
    }
}

/// `EXPIRE key seconds [NX|XX|GT|LT]` and its variants.
fn expire<'a>(
    arguments: &mut Arguments<'a>,
    unit: Unit,
    deadline: fn(i64) -> Deadline,
) -> Result<Command<'a>, CommandError> {
    let name = String::from_utf8_lossy(arguments.name()).to_ascii_lowercase();
    let (key, count) = (arguments.next(), arguments.next());
    let rule = rule(arguments)?;
    let count = crate::parse_integer(count).ok_or(CommandError::Integer)?;
    let deadline = unit.deadline(count, deadline).ok_or(CommandError::Expiry { name })?;
    Ok(Command::Expire { key, deadline, rule })
}

fn rule(arguments: &mut Arguments<'_>) -> Result<ExpiryRule, CommandError> {
    let mut rule = ExpiryRule::default();
    while let Some(option) = arguments.optional() {
        match option {
            word if is_word(word, "NX") => rule.if_none = true,
            word if is_word(word, "XX") => rule.if_some = true,
            word if is_word(word, "GT") => rule.if_later = true,
            word if is_word(word, "LT") => rule.if_earlier = true,
            other => return Err(CommandError::Option(told(other))),
        }
    }
    match rule {
        ExpiryRule { if_none: true, if_some, if_later, if_earlier } if if_some || if_later || if_earlier => {
            let text = "NX and XX, GT or LT options at the same time are not compatible";
            Err(CommandError::ExpiryRules(text))
        }
        ExpiryRule { if_later: true, if_earlier: true, .. } => {
            Err(CommandError::ExpiryRules("GT and LT options at the same time are not compatible"))
        }
        rule => Ok(rule),
    }
}

pub(super) fn seconds<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    expire(arguments, Unit::Seconds, Deadline::After)
}

pub(super) fn milliseconds<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    expire(arguments, Unit::Milliseconds, Deadline::After)
}

pub(super) fn at_seconds<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    expire(arguments, Unit::Seconds, Deadline::At)
}

pub(super) fn at_milliseconds<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    expire(arguments, Unit::Milliseconds, Deadline::At)
}

fn lifetime<'a>(
    arguments: &mut Arguments<'a>,
    unit: Unit,
    is_absolute: bool,
) -> Result<Command<'a>, CommandError> {
    Ok(Command::Lifetime { key: arguments.next(), unit, is_absolute })
}

pub(super) fn ttl<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    lifetime(arguments, Unit::Seconds, false)
}

pub(super) fn pttl<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    lifetime(arguments, Unit::Milliseconds, false)
}

pub(super) fn expiretime<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    lifetime(arguments, Unit::Seconds, true)
}

pub(super) fn pexpiretime<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    lifetime(arguments, Unit::Milliseconds, true)
}

pub(super) fn persist<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Persist(arguments.next()))
}

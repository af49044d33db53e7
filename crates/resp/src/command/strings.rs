//! Commands on the string at a key.

use super::arguments::{Arguments, is_word};
use super::{Command, CommandError, Deadline, Unit};

/// `SET` and its variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetRequest<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new value.
    pub value: &'a [u8],
    /// The condition.
    pub condition: SetCondition<'a>,
    /// The lifetime.
    pub lifetime: SetLifetime,
    /// The kind of answer.
    pub answer: SetAnswer,
}

/// The answer of a `SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetAnswer {
    /// `OK`, or null if the condition does not hold.
    Ok,
    /// The former value, whether or not a new one was set.
    Former,
    /// 1 if the value was set, 0 otherwise.
    Whether,
}

/// The condition of a `SET`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SetCondition<'a> {
    /// Nothing.
    #[default]
    Always,
    /// `NX`: the key does not exist.
    Absent,
    /// `XX`: the key exists.
    Present,
    /// `IFEQ`: the key has this value.
    Equals(&'a [u8]),
}

/// The lifetime of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetLifetime {
    /// Unlimited, whatever was set before.
    #[default]
    Forever,
    /// That of the value it replaces.
    Kept,
    /// Until a deadline.
    Until(Deadline),
}

pub(super) fn get<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Get(arguments.next()))
}

/// `SET key value [NX|XX|IFEQ comparison] [GET] [EX|PX|EXAT|PXAT time|KEEPTTL]`.
pub(super) fn set<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let (key, value) = (arguments.next(), arguments.next());
    let (mut condition, mut lifetime) = (SetCondition::Always, None);
    let mut answer = SetAnswer::Ok;
    while let Some(option) = arguments.optional() {
        let wanted = match option {
            word if is_word(word, "NX") => SetCondition::Absent,
            word if is_word(word, "XX") => SetCondition::Present,
            word if is_word(word, "IFEQ") => SetCondition::Equals(arguments.behind_word()?),
            word if is_word(word, "GET") => {
                answer = SetAnswer::Former;
                continue;
            }
            word => {
                let is_kept = is_word(word, "KEEPTTL");
                let when = if is_kept { Some(When::Kept) } else { when(word, arguments)? };
                set_lifetime(&mut lifetime, when)?;
                continue;
            }
        };
        // The same condition twice is not a contradiction.
        if condition != SetCondition::Always && condition != wanted {
            return Err(CommandError::Syntax);
        }
        condition = wanted;
    }
    let lifetime = lifetime.map_or(Ok(SetLifetime::Forever), |when| when.lifetime("set"))?;
    Ok(Command::Set(SetRequest { key, value, condition, lifetime, answer }))
}

/// A lifetime as it was written: numbers are parsed once all words are known.
#[derive(Clone, Copy)]
enum When<'a> {
    Kept,
    Forever,
    Time(&'a [u8], Unit, Since),
}

/// From when a time is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Since {
    Now,
    Epoch,
}

fn when<'a>(word: &[u8], arguments: &mut Arguments<'a>) -> Result<Option<When<'a>>, CommandError> {
    let (unit, since) = match word {
        word if is_word(word, "EX") => (Unit::Seconds, Since::Now),
        word if is_word(word, "PX") => (Unit::Milliseconds, Since::Now),
        word if is_word(word, "EXAT") => (Unit::Seconds, Since::Epoch),
        word if is_word(word, "PXAT") => (Unit::Milliseconds, Since::Epoch),
        _ => return Ok(None),
    };
    Ok(Some(When::Time(arguments.behind_word()?, unit, since)))
}

/// Takes one more option about the lifetime. As with conditions, the same one twice is not a contradiction;
/// the last time counts.
fn set_lifetime<'a>(lifetime: &mut Option<When<'a>>, when: Option<When<'a>>) -> Result<(), CommandError> {
    let when = when.ok_or(CommandError::Syntax)?;
    match lifetime.replace(when) {
        Some(before) if !before.is_like(when) => Err(CommandError::Syntax),
        _ => Ok(()),
    }
}

impl When<'_> {
    /// Whether both are from the same option.
    fn is_like(self, other: When<'_>) -> bool {
        match (self, other) {
            (When::Kept, When::Kept) | (When::Forever, When::Forever) => true,
            (When::Time(_, unit, since), When::Time(_, other, from)) => (unit, since) == (other, from),
            _ => false,
        }
    }

    fn lifetime(self, name: &str) -> Result<SetLifetime, CommandError> {
        let (text, unit, since) = match self {
            Self::Kept => return Ok(SetLifetime::Kept),
            Self::Forever => return Ok(SetLifetime::Forever),
            Self::Time(text, unit, since) => (text, unit, since),
        };
        let count = crate::parse_integer(text).ok_or(CommandError::Integer)?;
        let from = match since {
            Since::Now => Deadline::After,
            Since::Epoch => Deadline::At,
        };
        let deadline = unit.deadline(count, from).filter(|_| count > 0);
        deadline.map(SetLifetime::Until).ok_or_else(|| CommandError::Expiry { name: name.to_owned() })
    }
}

fn plain<'a>(
    arguments: &mut Arguments<'a>,
    condition: SetCondition<'a>,
    answer: SetAnswer,
) -> Result<Command<'a>, CommandError> {
    let (key, value, lifetime) = (arguments.next(), arguments.next(), SetLifetime::Forever);
    Ok(Command::Set(SetRequest { key, value, condition, lifetime, answer }))
}

pub(super) fn setnx<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    plain(arguments, SetCondition::Absent, SetAnswer::Whether)
}

pub(super) fn getset<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    plain(arguments, SetCondition::Always, SetAnswer::Former)
}

fn set_for<'a>(arguments: &mut Arguments<'a>, unit: Unit, name: &str) -> Result<Command<'a>, CommandError> {
    let (key, time, value) = (arguments.next(), arguments.next(), arguments.next());
    let lifetime = When::Time(time, unit, Since::Now).lifetime(name)?;
    let (condition, answer) = (SetCondition::Always, SetAnswer::Ok);
    Ok(Command::Set(SetRequest { key, value, condition, lifetime, answer }))
}

pub(super) fn setex<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    set_for(arguments, Unit::Seconds, "setex")
}

pub(super) fn psetex<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    set_for(arguments, Unit::Milliseconds, "psetex")
}

pub(super) fn getdel<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::GetDelete(arguments.next()))
}

/// `GETEX key [EX|PX|EXAT|PXAT time|PERSIST]`.
pub(super) fn getex<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let key = arguments.next();
    let mut lifetime = None;
    while let Some(option) = arguments.optional() {
        let when = match option {
            word if is_word(word, "PERSIST") => Some(When::Forever),
            word => when(word, arguments)?,
        };
        set_lifetime(&mut lifetime, when)?;
    }
    match lifetime {
        None => Ok(Command::GetExpire { key, lifetime: SetLifetime::Kept }),
        Some(when) => Ok(Command::GetExpire { key, lifetime: when.lifetime("getex")? }),
    }
}

pub(super) fn append<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Append { key: arguments.next(), value: arguments.next() })
}

pub(super) fn strlen<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Length(arguments.next()))
}

pub(super) fn getrange<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::GetRange { key: arguments.next(), start: arguments.integer()?, end: arguments.integer()? })
}

pub(super) fn incr<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Increment { key: arguments.next(), by: 1 })
}

pub(super) fn decr<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Increment { key: arguments.next(), by: -1 })
}

pub(super) fn incrby<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Increment { key: arguments.next(), by: arguments.integer()? })
}

pub(super) fn decrby<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let key = arguments.next();
    let by = arguments.integer()?.checked_neg().ok_or(CommandError::Decrement)?;
    Ok(Command::Increment { key, by })
}

pub(super) fn mget<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::GetMany(arguments.rest()))
}

pub(super) fn mset<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::SetMany(arguments.pairs()?))
}

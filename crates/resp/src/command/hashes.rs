//! Commands on the fields of a key and their values.

use super::arguments::Arguments;
use super::{Command, CommandError};

fn set<'a>(arguments: &mut Arguments<'a>, says_ok: bool) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashSet { key: arguments.next(), pairs: arguments.pairs()?, says_ok })
}

pub(super) fn hset<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    set(arguments, false)
}

pub(super) fn hmset<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    set(arguments, true)
}

pub(super) fn hsetnx<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let (key, field, value) = (arguments.next(), arguments.next(), arguments.next());
    Ok(Command::HashSetAbsent { key, field, value })
}

pub(super) fn hget<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashGet { key: arguments.next(), field: arguments.next() })
}

pub(super) fn hmget<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashGetMany { key: arguments.next(), fields: arguments.rest() })
}

pub(super) fn hdel<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashDelete { key: arguments.next(), fields: arguments.rest() })
}

pub(super) fn hexists<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashExists { key: arguments.next(), field: arguments.next() })
}

pub(super) fn hlen<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashCount(arguments.next()))
}

pub(super) fn hstrlen<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashLength { key: arguments.next(), field: arguments.next() })
}

fn all<'a>(arguments: &mut Arguments<'a>, fields: bool, values: bool) -> Result<Command<'a>, CommandError> {
    Ok(Command::HashAll { key: arguments.next(), fields, values })
}

pub(super) fn hgetall<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    all(arguments, true, true)
}

pub(super) fn hkeys<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    all(arguments, true, false)
}

pub(super) fn hvals<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    all(arguments, false, true)
}

pub(super) fn hincrby<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let (key, field) = (arguments.next(), arguments.next());
    Ok(Command::HashIncrement { key, field, by: arguments.integer()? })
}

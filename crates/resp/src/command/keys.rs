//! Commands on keys of any type.

use super::arguments::{Arguments, is_word};
use super::{Command, CommandError};

pub(super) fn del<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Delete(arguments.rest()))
}

pub(super) fn delifeq<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::DeleteIfEqual { key: arguments.next(), value: arguments.next() })
}

/// `DELEX key [IFEQ value]`.
pub(super) fn delex<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let key = arguments.next();
    match arguments.optional() {
        None => Ok(Command::Delete(vec![key])),
        Some(word) if is_word(word, "IFEQ") => {
            let value = arguments.behind_word()?;
            arguments.end()?;
            Ok(Command::DeleteIfEqual { key, value })
        }
        Some(_) => Err(CommandError::Syntax),
    }
}

pub(super) fn exists<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Exists(arguments.rest()))
}

pub(super) fn kind<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    Ok(Command::Type(arguments.next()))
}

//! `AT.ID`: a write that is done once, however often it is repeated.
//!
//! ```text
//! AT.ID client sequence floor command [argument ...]    [whether it was done before, the command's answer]
//! ```
//! A client draws 128 bits once, written as up to 32 hexadecimal digits, and numbers its writes; it never
//! repeats one below the floor. The command must be one that changes keys of one slot. Its answer is in
//! version 2 of the protocol, whichever version the connection speaks, because the answer is stored.

use super::arguments::Arguments;
use super::{Command, CommandError, Keys, find};

/// A write that is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once<'a> {
    /// The client.
    pub client: u128,
    /// The number of the write.
    pub sequence: u64,
    /// Writes below this number need not be remembered.
    pub floor: u64,
    /// The write.
    pub command: Box<Command<'a>>,
}

/// The number of arguments before the command, including the name.
pub(super) const ARGUMENTS_BEFORE: u8 = 4;

/// Parses it for the table of all commands.
pub(super) fn once<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let client = hexadecimal(arguments.next()).ok_or(CommandError::RequestClient)?;
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let sequence = number(arguments.next()).ok_or(CommandError::Integer)?;
    let floor = number(arguments.next()).filter(|&floor| floor <= sequence).ok_or(CommandError::Floor)?;
    let request = arguments.request();
    let inner = request.get(0).and_then(find).ok_or_else(|| CommandError::unknown(&request))?;
    // The table does not know the keys of a request inside a request.
    if !inner.is_write() || matches!(inner.keys, Keys::NONE | Keys::OF_INNER) {
        return Err(CommandError::NotOnce { name: inner.name });
    }
    Ok(Command::Once(Once { client, sequence, floor, command: Box::new(Command::of(&request)?) }))
}

fn hexadecimal(text: &[u8]) -> Option<u128> {
    // The parser would accept a sign.
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_digits)?;
    u128::from_str_radix(text, 16).ok()
}

//! A write that is done once, however often it is asked for.
//!
//! ```text
//! AT.ID client sequence floor command [argument ...]    [whether it was done before, what the command answers]
//! ```
//! A client draws 128 bits once, written as up to 32 hexadecimal digits, and counts its writes; of those
//! below the floor it asks for none again. The command is one that changes keys of one slot. What it answers
//! is in version 2 of the protocol, whichever the connection speaks: it is kept.

use super::arguments::Arguments;
use super::{Command, CommandError, Keys, find};

/// A write that is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once<'a> {
    /// Whose.
    pub client: u128,
    /// Which of its writes.
    pub sequence: u64,
    /// Writes below this one need not be remembered.
    pub floor: u64,
    /// The write.
    pub command: Box<Command<'a>>,
}

/// Arguments before the command, the name counted.
pub(super) const ARGUMENTS: u8 = 4;

/// As the table of all commands reads them.
pub(super) fn once<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let client = hexadecimal(arguments.next()).ok_or(CommandError::RequestClient)?;
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let sequence = number(arguments.next()).ok_or(CommandError::Integer)?;
    let floor = number(arguments.next()).filter(|&floor| floor <= sequence).ok_or(CommandError::Floor)?;
    let request = arguments.request();
    let inner = request.get(0).and_then(find).ok_or_else(|| CommandError::unknown(&request))?;
    // A request inside a request has no keys that the table knows.
    if !inner.is_write() || matches!(inner.keys, Keys::NONE | Keys::OF_INNER) {
        return Err(CommandError::NotOnce { name: inner.name });
    }
    Ok(Command::Once(Once { client, sequence, floor, command: Box::new(Command::of(&request)?) }))
}

fn hexadecimal(text: &[u8]) -> Option<u128> {
    // A sign would be taken for one.
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_digits)?;
    u128::from_str_radix(text, 16).ok()
}

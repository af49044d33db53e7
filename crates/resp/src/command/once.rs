//! `AT.ID`: a write that is done once, however often it is repeated.
//!
//! ```text
//! AT.ID client[@date] sequence floor command [argument ...]    [done before, the command's answer]
//! ```
//! A client draws 128 bits once, written as up to 32 hexadecimal digits, and numbers its writes; it never
//! repeats one below the floor. The date says when it drew them: milliseconds since 1970 by the clock of a
//! node. With it no write is done twice, however late it is repeated. The command must be one that changes
//! keys of one slot. Its answer is in version 2 of the protocol, whichever version the connection speaks,
//! because the answer is stored.

use super::arguments::Arguments;
use super::{Command, CommandError, Keys, find};

/// A write that is done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once<'a> {
    /// The client.
    pub client: u128,
    /// When the client began, in milliseconds since 1970, if it says so.
    pub began_ms: Option<u64>,
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
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    let name = arguments.next();
    let at = name.iter().position(|&byte| byte == b'@').unwrap_or(name.len());
    let (client, date) = name.split_at_checked(at).unwrap_or((name, &[]));
    let client = hexadecimal(client).ok_or(CommandError::RequestClient)?;
    let began_ms = match date.strip_prefix(b"@") {
        Some(date) => Some(number(date).ok_or(CommandError::RequestClient)?),
        None => None,
    };
    let sequence = number(arguments.next()).ok_or(CommandError::Integer)?;
    let floor = number(arguments.next()).filter(|&floor| floor <= sequence).ok_or(CommandError::Floor)?;
    let request = arguments.request();
    let inner = request.get(0).and_then(find).ok_or_else(|| CommandError::unknown(&request))?;
    // The table does not know the keys of a request inside a request.
    if !inner.is_write() || matches!(inner.keys, Keys::NONE | Keys::OF_INNER) {
        return Err(CommandError::NotOnce { name: inner.name });
    }
    Ok(Command::Once(Once { client, began_ms, sequence, floor, command: Box::new(Command::of(&request)?) }))
}

fn hexadecimal(text: &[u8]) -> Option<u128> {
    // The parser would accept a sign.
    let is_digits = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(text).ok().filter(|_| is_digits)?;
    u128::from_str_radix(text, 16).ok()
}

//! Which node leads which slots, for clients that say which table they know already.
//!
//! ```text
//! AT.TABLE            a map: version; nodes, each as [host, port]; slots
//! AT.TABLE version    the same; nodes and slots are null if the client's table is this one or a later one
//! ```
//! `slots` is one list: a first slot, the last slot, and the place of their node in `nodes`, counted from 0;
//! then the same of the next range. A version is a text, which a client sends as it got it: see
//! [`TableVersion`].
//!
//! A client with another version gets the whole list, never only what changed. The list is rendered once for
//! each table and is then the same bytes for all clients, about 20 for each range. A difference would be
//! another one for each version that some client still has: a look at every slot for each of them, just when
//! all clients ask, and a history of the addresses of nodes. Nor do clients wait for the list to learn what
//! changed: `MOVED` tells them of the slots that they use.

use super::arguments::Arguments;
use super::{Command, CommandError};
use crate::parse_integer;

/// A version of the table of slots, by which a client and a node find out whose table is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableVersion<'a> {
    /// Names the ring and the keyspace: the same on all nodes, and different for any other ring or keyspace,
    /// because the numbers of two rings do not compare, and two keyspaces have the same numbers.
    pub of: &'a [u8],
    /// Counts the changes of the table.
    pub number: u64,
}

impl<'a> TableVersion<'a> {
    /// Reads the text of a version: what it is of, a dot, and its number. None if it is something else.
    #[must_use]
    pub fn read(text: &'a [u8]) -> Option<Self> {
        let dot = text.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0)?;
        let (of, number) = (text.get(..dot)?, text.get(dot + 1..)?);
        Some(Self { of, number: u64::try_from(parse_integer(number)?).ok()? })
    }

    /// The text by which nodes and clients name it.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        [self.of, b".", self.number.to_string().as_bytes()].concat()
    }

    /// Whether it is a version of the same table, and the same or a later one.
    #[must_use]
    pub fn is_at_least(&self, other: &TableVersion<'_>) -> bool {
        self.of == other.of && self.number >= other.number
    }
}

/// `AT.TABLE`.
pub(super) fn slot_table<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let known = match arguments.optional() {
        None => None,
        Some(text) => Some(TableVersion::read(text).ok_or(CommandError::TableVersion)?),
    };
    arguments.end()?;
    Ok(Command::SlotTable(known))
}

//! Commands for the operator of a ring.
//!
//! ```text
//! AT.RING STATUS               a map: which node this is, the version of the table, and of slots and nodes
//! AT.RING LEAVE node           OK: the node's copies move elsewhere, and then it leaves the ring
//! AT.RING STAY node            OK: it stays after all
//! AT.RING RECOVER version slot ...
//!                              OK: slots that lost all copies continue with what is left, if anything,
//!                              unless they have changed since this version of the table
//! ```
//! OK means that the change was requested; `STATUS` shows what came of it.

use super::arguments::{Arguments, is_word};
use super::error::told;
use super::{Command, CommandError};

/// A request of a ring's operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingRequest {
    /// `STATUS`.
    Status,
    /// `LEAVE`, with the number of the node.
    Leave(u32),
    /// `STAY`, with the number of the node.
    Stay(u32),
    /// `RECOVER`.
    Recover {
        /// The version of the table in which the slots were seen to be lost.
        version: u64,
        /// The slots.
        slots: Vec<u16>,
    },
}

/// `AT.RING`.
pub(super) fn ring<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let request = match arguments.next() {
        word if is_word(word, "STATUS") => RingRequest::Status,
        word if is_word(word, "LEAVE") => RingRequest::Leave(node(arguments)?),
        word if is_word(word, "STAY") => RingRequest::Stay(node(arguments)?),
        word if is_word(word, "RECOVER") && arguments.left() > 1 => {
            let version = u64::try_from(arguments.integer()?).map_err(|_| CommandError::Integer)?;
            let mut slots = Vec::with_capacity(arguments.left());
            while arguments.left() > 0 {
                slots.push(super::server::slot(arguments)?);
            }
            RingRequest::Recover { version, slots }
        }
        word if is_word(word, "RECOVER") => {
            return Err(CommandError::Arity { name: "at.ring|recover".to_owned() });
        }
        other => return Err(CommandError::UnknownPart { name: told(other), command: "AT.RING" }),
    };
    arguments.end()?;
    Ok(Command::Ring(request))
}

fn node(arguments: &mut Arguments<'_>) -> Result<u32, CommandError> {
    u32::try_from(arguments.integer()?).map_err(|_| CommandError::Integer)
}

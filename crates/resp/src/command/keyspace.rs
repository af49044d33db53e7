//! Keyspaces: keys of one are no others', and each has as many copies as it was made with.
//!
//! ```text
//! AT.KEYSPACE CREATE name [COPIES n] [MINSYNC n] [CLASS 5 | 50 | 500]
//!                                 OK: it was asked for, or is there with these rules; LIST tells what came of it
//! AT.KEYSPACE LIST                a list of maps, one for each keyspace that whoever asks may enter
//! AT.KEYSPACE USE name | number   OK: this connection is in that keyspace, as after SELECT
//! ```

use super::arguments::{Arguments, is_word};
use super::error::told;
use super::{Command, CommandError, LatencyClass};

/// What is asked for about keyspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyspaceRequest<'a> {
    /// `CREATE`.
    Create {
        /// What it is to be called.
        name: &'a [u8],
        /// How many copies each of its slots is to have; 0 for as many as the ring was made with.
        copies: u8,
        /// How many of them must be in sync for a write to be taken; 0 for as many as elsewhere in the ring.
        in_sync_min: u8,
        /// How long its requests may take, where a client says nothing of it.
        class: LatencyClass,
    },
    /// `LIST`.
    List,
    /// `USE`, with its name or its number.
    Use(&'a [u8]),
}

/// `AT.KEYSPACE`.
pub(super) fn keyspace<'a>(arguments: &mut Arguments<'a>) -> Result<Command<'a>, CommandError> {
    let request = match arguments.next() {
        word if is_word(word, "LIST") => KeyspaceRequest::List,
        word if is_word(word, "USE") => KeyspaceRequest::Use(behind(arguments, "use")?),
        word if is_word(word, "CREATE") => {
            let name = behind(arguments, "create")?;
            let (mut copies, mut in_sync_min, mut class) = (0, 0, LatencyClass::None);
            while let Some(word) = arguments.optional() {
                match word {
                    word if is_word(word, "COPIES") => copies = small(arguments)?,
                    word if is_word(word, "MINSYNC") => in_sync_min = small(arguments)?,
                    word if is_word(word, "CLASS") => {
                        let number = crate::parse_integer(arguments.behind_word()?);
                        let milliseconds = number.and_then(|number| u64::try_from(number).ok());
                        let known = milliseconds.and_then(LatencyClass::of_milliseconds);
                        class = known.ok_or(CommandError::LatencyClass)?;
                    }
                    _ => return Err(CommandError::Syntax),
                }
            }
            KeyspaceRequest::Create { name, copies, in_sync_min, class }
        }
        other => return Err(CommandError::UnknownPart { name: told(other), command: "AT.KEYSPACE" }),
    };
    arguments.end()?;
    Ok(Command::Keyspace(request))
}

fn behind<'a>(arguments: &mut Arguments<'a>, part: &str) -> Result<&'a [u8], CommandError> {
    arguments.optional().ok_or_else(|| CommandError::Arity { name: format!("at.keyspace|{part}") })
}

/// A number of copies: none is no number of them.
fn small(arguments: &mut Arguments<'_>) -> Result<u8, CommandError> {
    let number = crate::parse_integer(arguments.behind_word()?);
    number
        .and_then(|number| u8::try_from(number).ok())
        .filter(|&number| number > 0)
        .ok_or(CommandError::Integer)
}

//! Keyspaces: each has its own keys, and its own number of copies.
//!
//! ```text
//! AT.KEYSPACE CREATE name [COPIES n] [MINSYNC n] [CLASS 5 | 50 | 500] [DURABILITY class]
//!                                 OK: requested, or it exists with these rules; LIST shows the outcome
//! AT.KEYSPACE LIST                a list of maps, one for each keyspace that the client may use
//! AT.KEYSPACE USE name | number   OK: this connection is in that keyspace, as after SELECT
//! ```

use super::arguments::{Arguments, is_word};
use super::error::told;
use super::{Command, CommandError, LatencyClass};

/// A request about keyspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyspaceRequest<'a> {
    /// `CREATE`.
    Create {
        /// The name.
        name: &'a [u8],
        /// How many copies each of its slots is to have; 0 for the ring's default.
        copies: u8,
        /// How many of them must be in sync for a write to be accepted; 0 for the ring's default.
        in_sync_min: u8,
        /// The latency class of its requests, unless a client says otherwise.
        class: LatencyClass,
        /// The name of the class that says what its acknowledged writes survive; none for the nodes' default.
        durability: Option<&'a [u8]>,
    },
    /// `LIST`.
    List,
    /// `USE`, with a name or a number.
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
            let mut durability = None;
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
                    word if is_word(word, "DURABILITY") => durability = Some(arguments.behind_word()?),
                    _ => return Err(CommandError::Syntax),
                }
            }
            KeyspaceRequest::Create { name, copies, in_sync_min, class, durability }
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

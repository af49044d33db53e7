//! Why a request is not a command.

use crate::{ReplyWriter, Request};
use thiserror::Error;

/// Why a request is not a command; clients get its text after [`CommandError::word`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No command has this name.
    #[error("unknown command '{name}', with args beginning with: {arguments}")]
    Unknown {
        /// The name.
        name: String,
        /// The first arguments, in quotes.
        arguments: String,
    },
    /// The command has no such subcommand.
    #[error("unknown subcommand '{name}'. Try {command} HELP.")]
    UnknownPart {
        /// The name.
        name: String,
        /// The command.
        command: &'static str,
    },
    /// The number of arguments is wrong.
    #[error("wrong number of arguments for '{name}' command")]
    Arity {
        /// The command's name; with the subcommand, if there is one.
        name: String,
    },
    /// Arguments contradict each other, or one is unknown.
    #[error("syntax error")]
    Syntax,
    /// What a watch is on, or what it waits for, cannot be told.
    #[error(
        "syntax error: a key is followed by a field or AS STRING, then EQ value, NE value, ABSENT or PRESENT"
    )]
    WatchCondition,
    /// An argument is not a 64-bit integer.
    #[error("value is not an integer or out of range")]
    Integer,
    /// The client of an `AT.ID` request is not a 128-bit number, or its date is none.
    #[error("a client is 1 to 32 hexadecimal digits, and its date, if any, follows an @ in milliseconds")]
    RequestClient,
    /// The floor is not a number, or is above the number of the write.
    #[error("a floor is a number that is not above that of the write")]
    Floor,
    /// There is no such latency class.
    #[error("a latency class is 5, 50 or 500, in milliseconds, or NONE")]
    LatencyClass,
    /// The version of `AT.TABLE` is none.
    #[error("a version is what AT.TABLE returned, unchanged")]
    TableVersion,
    /// The command cannot be used within `AT.ID`.
    #[error("AT.ID takes a command that changes keys of one slot, and '{name}' does not")]
    NotOnce {
        /// The command.
        name: &'static str,
    },
    /// The decrement has no negation.
    #[error("decrement would overflow")]
    Decrement,
    /// The lifetime is not positive, or ends after the last possible date.
    #[error("invalid expire time in '{name}' command")]
    Expiry {
        /// The command.
        name: String,
    },
    /// The conditions of `EXPIRE` exclude each other.
    #[error("{0}")]
    ExpiryRules(&'static str),
    /// `EXPIRE` has no such option.
    #[error("Unsupported option {0}")]
    Option(String),
    /// There can be no keyspace with this number.
    #[error("DB index is out of range")]
    KeyspaceRange,
    /// The protocol version is not a number.
    #[error("Protocol version is not an integer or out of range")]
    NoProtocol,
    /// The protocol version is not supported.
    #[error("unsupported protocol version")]
    Protocol,
    /// `HELLO` has no such option, or its arguments are incomplete.
    #[error("Syntax error in HELLO option '{0}'")]
    HelloOption(String),
    /// The cursor is not one that was returned before.
    #[error("invalid cursor")]
    Cursor,
    /// The pattern is longer than [`PATTERN_BYTES_MAX`](super::PATTERN_BYTES_MAX).
    #[error(
        "a pattern: {bytes} bytes; allowed are {}, or {} where its only star is its last byte",
        super::PATTERN_BYTES_MAX,
        super::PREFIX_BYTES_MAX
    )]
    Pattern {
        /// The pattern's length.
        bytes: usize,
    },
    /// There is more of something than one request may have.
    #[error("{what}: {count}; allowed are {most}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many are allowed.
        most: usize,
    },
    /// The name has spaces or special characters, which would break the list of clients.
    #[error("{what} cannot contain spaces, newlines or special characters.")]
    ClientText {
        /// What the name is for.
        what: &'static str,
    },
    /// Clients have no such attribute.
    #[error("Unrecognized option '{0}'")]
    ClientAttribute(String),
    /// There are no clients of this type.
    #[error("Unknown client type '{0}'")]
    ClientKind(String),
    /// The id of a client is not a number.
    #[error("Invalid client ID")]
    ClientId,
    /// The timeout is not a number.
    #[error("timeout is not an integer or out of range")]
    TimeOut,
    /// The timeout is negative.
    #[error("timeout is negative")]
    NegativeTimeOut,
    /// There is no such slot.
    #[error("Invalid or out of range slot")]
    Slot,
    /// There is no such slot whose keys could be counted.
    #[error("Invalid slot")]
    CountedSlot,
    /// There is no such slot whose keys could be listed, or their number is negative.
    #[error("Invalid slot or number of keys")]
    ListedSlot,
    /// The request whose keys are asked for is not a command.
    #[error("Invalid command specified")]
    InvalidCommand,
    /// The request whose keys are asked for has none.
    #[error("The command has no key arguments")]
    NoKeys,
    /// The request whose keys are asked for has a wrong number of arguments.
    #[error("Invalid number of arguments specified for command")]
    InvalidArity,
}

/// Most bytes of an argument that an error quotes.
const QUOTED_BYTES_MAX: usize = 128;

impl CommandError {
    pub(super) fn unknown(request: &Request<'_>) -> Self {
        let name = told(request.get(0).unwrap_or_default());
        let mut arguments = String::new();
        for argument in request.iter().skip(1) {
            if arguments.len() >= QUOTED_BYTES_MAX {
                break;
            }
            arguments.extend(["'", &shortened(argument, QUOTED_BYTES_MAX - arguments.len()), "' "]);
        }
        Self::Unknown { name, arguments }
    }

    /// The first word of the answer, which programs look at.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Protocol => "NOPROTO",
            Self::Pattern { .. } | Self::TooMany { .. } => "LIMIT",
            _ => "ERR",
        }
    }

    /// Writes it as a reply.
    pub fn write(&self, writer: &mut ReplyWriter<'_>) {
        writer.error(self.word(), &self.to_string());
    }
}

/// An argument as errors quote it.
pub(super) fn told(argument: &[u8]) -> String {
    shortened(argument, QUOTED_BYTES_MAX)
}

fn shortened(argument: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&argument[..argument.len().min(most)]).into_owned()
}

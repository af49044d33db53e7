//! Why a request is no command.

use crate::{ReplyWriter, Request};
use thiserror::Error;

/// Why a request is no command; its text is what is answered behind [`CommandError::word`].
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
    /// The command has no such part.
    #[error("unknown subcommand '{name}'. Try {command} HELP.")]
    UnknownPart {
        /// The name.
        name: String,
        /// The command.
        command: &'static str,
    },
    /// It takes fewer or more arguments.
    #[error("wrong number of arguments for '{name}' command")]
    Arity {
        /// Its name; with a part, both.
        name: String,
    },
    /// Arguments that do not go together, or one that is not known.
    #[error("syntax error")]
    Syntax,
    /// An argument is no integer of 64 bits.
    #[error("value is not an integer or out of range")]
    Integer,
    /// A client of a request that is done once is no number of 128 bits.
    #[error("a client is 1 to 32 hexadecimal digits")]
    RequestClient,
    /// A floor that is no number, or above the write itself.
    #[error("a floor is a number that is not above that of the write")]
    Floor,
    /// A latency class that there is not.
    #[error("a latency class is 5, 50 or 500, in milliseconds, or NONE")]
    LatencyClass,
    /// A command that cannot be one that is done once.
    #[error("AT.ID takes a command that changes keys of one slot, and '{name}' does not")]
    NotOnce {
        /// The command.
        name: &'static str,
    },
    /// A decrement that has no opposite.
    #[error("decrement would overflow")]
    Decrement,
    /// A lifetime that is not above zero, or ends beyond all dates.
    #[error("invalid expire time in '{name}' command")]
    Expiry {
        /// The command.
        name: String,
    },
    /// Conditions of `EXPIRE` that exclude each other.
    #[error("{0}")]
    ExpiryRules(&'static str),
    /// An option of `EXPIRE` that there is not.
    #[error("Unsupported option {0}")]
    Option(String),
    /// A keyspace beyond those that there can be.
    #[error("DB index is out of range")]
    KeyspaceRange,
    /// A version of the protocol that is no number.
    #[error("Protocol version is not an integer or out of range")]
    NoProtocol,
    /// A version of the protocol that nobody speaks.
    #[error("unsupported protocol version")]
    Protocol,
    /// An option of `HELLO` that there is not, or of which something is missing.
    #[error("Syntax error in HELLO option '{0}'")]
    HelloOption(String),
    /// A cursor that was never given out.
    #[error("invalid cursor")]
    Cursor,
    /// A pattern that is longer than [`PATTERN_BYTES_MAX`](super::PATTERN_BYTES_MAX).
    #[error(
        "a pattern: {bytes} bytes; allowed are {}, or {} where its only star is its last byte",
        super::PATTERN_BYTES_MAX,
        super::PREFIX_BYTES_MAX
    )]
    Pattern {
        /// How long it is.
        bytes: usize,
    },
    /// More of something than are looked at for one request.
    #[error("{what}: {count}; allowed are {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// A name with spaces or signs that would break a list of clients.
    #[error("{what} cannot contain spaces, newlines or special characters.")]
    ClientText {
        /// What it would be the name of.
        what: &'static str,
    },
    /// An attribute of a client that there is not.
    #[error("Unrecognized option '{0}'")]
    ClientAttribute(String),
    /// A time-out that is no number.
    #[error("timeout is not an integer or out of range")]
    TimeOut,
    /// A time-out below zero.
    #[error("timeout is negative")]
    NegativeTimeOut,
    /// A slot that there is not.
    #[error("Invalid or out of range slot")]
    Slot,
    /// A request whose keys are asked for is itself none.
    #[error("Invalid command specified")]
    InvalidCommand,
    /// A request whose keys are asked for has none.
    #[error("The command has no key arguments")]
    NoKeys,
    /// A request whose keys are asked for takes other arguments.
    #[error("Invalid number of arguments specified for command")]
    InvalidArity,
}

/// Arguments are told up to so many bytes.
const TOLD: usize = 128;

impl CommandError {
    pub(super) fn unknown(request: &Request<'_>) -> Self {
        let name = told(request.get(0).unwrap_or_default());
        let mut arguments = String::new();
        for argument in request.iter().skip(1) {
            if arguments.len() >= TOLD {
                break;
            }
            arguments.extend(["'", &shortened(argument, TOLD - arguments.len()), "' "]);
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

    /// Answers it.
    pub fn write(&self, writer: &mut ReplyWriter<'_>) {
        writer.error(self.word(), &self.to_string());
    }
}

/// An argument as it is told in an error.
pub(super) fn told(argument: &[u8]) -> String {
    shortened(argument, TOLD)
}

fn shortened(argument: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&argument[..argument.len().min(most)]).into_owned()
}

//! Why a command is refused, in the words that a client gets.

use atoll_errors::ErrorKind;

/// Why a command is refused; nothing was changed. Its text is what is answered behind [`Refusal::word`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The key holds a string where a hash is meant, or a hash where a string is.
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
    /// What should be counted up is no integer.
    #[error("value is not an integer or out of range")]
    NotInteger,
    /// What should be counted up is no integer, in a field.
    #[error("hash value is not an integer")]
    FieldNotInteger,
    /// There is no integer that large.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// A string would become too long.
    #[error("string exceeds maximum allowed size (proto-max-bulk-len)")]
    TooLong,
    /// A partition of the contract has a name.
    #[error("a partition key is empty")]
    EmptyKey,
    /// It is too long ago that a client wrote this to be known, and it may have been done.
    #[error(
        "write {sequence} of this client is older than those that are remembered; it may or may not have happened"
    )]
    Forgotten {
        /// Which of its writes.
        sequence: u64,
    },
    /// The slot remembers writes of as many clients as it may.
    #[error("writes of too many clients are remembered; try again in some minutes")]
    Sessions,
    /// Something is longer than it may be.
    #[error("{what}: {actual}; allowed are {most}")]
    Limit {
        /// What is.
        what: &'static str,
        /// How long it is.
        actual: u64,
        /// How long it may be.
        most: u64,
    },
}

impl Refusal {
    /// The first word of the answer, which programs look at.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::WrongType => "WRONGTYPE",
            Self::Limit { .. } => ErrorKind::Limit.names().resp,
            Self::Forgotten { .. } => "FORGOTTEN",
            Self::Sessions => "TRYAGAIN",
            _ => "ERR",
        }
    }

    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Limit { .. } | Self::TooLong => ErrorKind::Limit,
            Self::Forgotten { .. } => ErrorKind::TimedOut,
            Self::Sessions => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidInput,
        }
    }
}

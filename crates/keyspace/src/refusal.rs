//! Why a command is refused, in the words that a client gets.

use atoll_errors::ErrorKind;

/// Why a command is refused; nothing was changed. Clients get its text after [`Refusal::word`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The key holds a string where a hash is expected, or a hash where a string is.
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
    /// The value to increment is not an integer.
    #[error("value is not an integer or out of range")]
    NotInteger,
    /// The value of the field to increment is not an integer.
    #[error("hash value is not an integer")]
    FieldNotInteger,
    /// The result would not be a valid integer.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// A string would become too long.
    #[error("string exceeds maximum allowed size (proto-max-bulk-len)")]
    TooLong,
    /// A partition of the contract must have a key.
    #[error("a partition key is empty")]
    EmptyKey,
    /// The write is older than those that the slot remembers of this client, so it may have been done.
    #[error(
        "write {sequence} of this client is older than the remembered ones; it may or may not have happened"
    )]
    Forgotten {
        /// The number of the write.
        sequence: u64,
    },
    /// The slot does not know a client that says that it began long ago: it may have forgotten it.
    #[error(
        "write {sequence} of this client may or may not have happened: its date is {age_ms} ms behind the time of \
         its slot, over {} minutes, and it is not remembered here; draw a new one every few minutes",
        crate::FRESH_MS_MAX / 60_000
    )]
    Expired {
        /// The number of the write.
        sequence: u64,
        /// How long ago the client began, by the time of the slot.
        age_ms: u64,
    },
    /// A client says that it begins later than now.
    #[error("the client's date is {ahead_ms} ms ahead of the ring's; take it from TIME of a node")]
    Early {
        /// By how much.
        ahead_ms: u64,
    },
    /// The slot remembers as many clients as it may.
    #[error("writes of too many clients are remembered; try again in some minutes")]
    Sessions,
    /// Something is longer than allowed.
    #[error("{what}: {actual}; allowed are {most}")]
    Limit {
        /// What is too long.
        what: &'static str,
        /// Its length.
        actual: u64,
        /// The longest that it may be.
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
            Self::Forgotten { .. } | Self::Expired { .. } => "FORGOTTEN",
            Self::Sessions => "TRYAGAIN",
            _ => "ERR",
        }
    }

    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Limit { .. } | Self::TooLong => ErrorKind::Limit,
            Self::Forgotten { .. } | Self::Expired { .. } => ErrorKind::TimedOut,
            Self::Sessions => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidInput,
        }
    }
}

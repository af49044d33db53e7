//! Why a slot could not be read or written: about the store and its caller, never about what a client asked
//! for.

use atoll_engine::EngineError;
use atoll_errors::ErrorKind;

/// Why a slot could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyspaceError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A cell does not say what cells say.
    #[error("{what} in a cell makes no sense")]
    Corrupt {
        /// What it should have been.
        what: &'static str,
    },
    /// There is no such slot.
    #[error("there is no slot {slot}")]
    NoSlot {
        /// The number that was given.
        slot: u16,
    },
    /// There is something where a keyspace should begin.
    #[error("a keyspace in memory begins empty")]
    NotEmpty,
    /// A slot that does not arrive in pieces was to take one.
    #[error("slot {slot} does not arrive")]
    NotArriving {
        /// The slot.
        slot: u16,
    },
    /// A slot was to be read or written of which not all has arrived yet.
    #[error("slot {slot} still arrives")]
    Arriving {
        /// The slot.
        slot: u16,
    },
    /// The command is not about what slots hold.
    #[error("the command is not about keys of a slot")]
    NotAboutKeys,
    /// The command changes something, and was to be read.
    #[error("the command is a write")]
    Write,
}

impl KeyspaceError {
    /// The kind, the same at every door.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Engine(error) => error.kind(),
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::Arriving { .. } => ErrorKind::Unavailable,
            Self::NotEmpty
            | Self::NoSlot { .. }
            | Self::NotArriving { .. }
            | Self::NotAboutKeys
            | Self::Write => ErrorKind::InvalidInput,
        }
    }

    /// Whether the write may have been done all the same.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_unknown())
    }
}

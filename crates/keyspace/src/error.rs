//! Why a slot could not be read or written: failures of the store and mistakes of its caller, never of a
//! client's command.

use atoll_engine::EngineError;
use atoll_errors::ErrorKind;

/// Why a slot could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyspaceError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A cell has invalid contents.
    #[error("{what} in a cell is invalid")]
    Corrupt {
        /// What the contents should have been.
        what: &'static str,
    },
    /// There is no such slot.
    #[error("there is no slot {slot}")]
    NoSlot {
        /// The number that was given.
        slot: u16,
    },
    /// The tree of a new keyspace in memory is not empty.
    #[error("a keyspace in memory begins empty")]
    NotEmpty,
    /// Cells were imported into a slot that is not being imported.
    #[error("slot {slot} is not being imported")]
    NotArriving {
        /// The slot.
        slot: u16,
    },
    /// A slot was read or written before all of it had arrived.
    #[error("slot {slot} is still being imported")]
    Arriving {
        /// The slot.
        slot: u16,
    },
    /// The command is not about the contents of slots.
    #[error("the command is not about keys of a slot")]
    NotAboutKeys,
    /// The command is a write, and was given to a read.
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

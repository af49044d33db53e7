//! Why an edit cannot become true in the version that is current now.

use super::{BlockId, ObjectId, RunId, Version};
use atoll_errors::ErrorKind;

/// Why an edit was refused. Nothing of it has become true.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// Everything the edit asks for is there already: no failure, and no reason for a version.
    #[error("the edit changes nothing")]
    AlreadyDone,
    /// The run has no such attempt.
    #[error("attempt {attempt} of run \"{run}\" has not begun")]
    NotBegun {
        /// The run.
        run: RunId,
        /// The attempt.
        attempt: u64,
    },
    /// A later attempt of the run has begun.
    #[error("attempt {current} of run \"{run}\" has taken over from attempt {attempt}")]
    StaleAttempt {
        /// The run.
        run: RunId,
        /// The attempt that was asked for.
        attempt: u64,
        /// The attempt that writes now.
        current: u64,
    },
    /// The attempt began with another number of ranks.
    #[error("run \"{run}\" has {actual} ranks in this attempt, not {asked}")]
    Ranks {
        /// The run.
        run: RunId,
        /// How many ranks the attempt began with.
        actual: u32,
        /// How many were asked for, or the rank that is too high plus one.
        asked: u32,
    },
    /// Steps of a rank come in rising order, and this one is too late.
    #[error("step {} of rank {} of run \"{}\" comes after step {last}", .id.step, .id.rank, .id.run)]
    StepOrder {
        /// The block.
        id: BlockId,
        /// The last step that this rank, or all of them, wrote.
        last: u64,
    },
    /// What a pack read is no longer what the table has: superseded, deleted whole, or packed by another.
    #[error("what was read of object {object} has been replaced")]
    InputGone {
        /// The object that is gone, or some of whose range is.
        object: ObjectId,
    },
    /// The name of a new object is in use, or two new pieces overlap.
    #[error("object {object} is named twice")]
    ObjectReused {
        /// The object.
        object: ObjectId,
    },
    /// A pack does not account for every row that it takes.
    #[error("a pack takes {removed} rows, but adds {added} and drops {dropped}")]
    RowsDoNotAddUp {
        /// Rows taken.
        removed: u64,
        /// Rows in new pieces.
        added: u64,
        /// Rows that tombstones had struck.
        dropped: u64,
    },
    /// A pack takes weights out of the middle of a piece; it may take its lower or upper end, or all.
    #[error("a pack takes the middle of a range of object {object}")]
    MiddleTaken {
        /// The object.
        object: ObjectId,
    },
    /// A pack counts other rows in a piece than its writer did.
    #[error("a pack takes {asked} rows of the {there} of a range of object {object}")]
    Miscounted {
        /// The object.
        object: ObjectId,
        /// Rows in the piece.
        there: u64,
        /// Rows that the pack takes.
        asked: u64,
    },
    /// A version was named that is not there yet.
    #[error("version {asked} is ahead of version {current}")]
    Ahead {
        /// The version named.
        asked: Version,
        /// The version that is current.
        current: Version,
    },
    /// Somebody else has added another column of that name.
    #[error("there is another column \"{column}\" by now")]
    ColumnThere {
        /// The name.
        column: String,
    },
    /// An object is to be forgotten that some version may still name.
    #[error("object {object} is still in use")]
    InUse {
        /// The object.
        object: ObjectId,
    },
}

impl EditError {
    /// What the caller can do about it, for whoever prints the error.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotBegun { attempt, .. } => {
                return Some(format!("begin attempt {attempt} of the run first, with its number of ranks"));
            }
            Self::StaleAttempt { current, .. } => {
                return Some(format!(
                    "stop: another start of this run writes attempt {current}; a new start takes a higher number"
                ));
            }
            Self::Ranks { .. } => {
                "ranks are numbered from 0, and all ranks begin with the same number of them"
            }
            Self::StepOrder { .. } => {
                "a rank writes its steps in rising order; begin a new attempt to go back"
            }
            Self::Ahead { .. } => "ask the table for its version",
            Self::ColumnThere { .. } => "use the column that is there, or choose another name",
            Self::InputGone { .. } => "nothing was lost; pack again from the version that is current",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::AlreadyDone
            | Self::StaleAttempt { .. }
            | Self::InputGone { .. }
            | Self::ColumnThere { .. } => ErrorKind::Conflict,
            Self::NotBegun { .. } => ErrorKind::NotFound,
            Self::Ranks { .. } | Self::StepOrder { .. } | Self::Ahead { .. } | Self::MiddleTaken { .. } => {
                ErrorKind::InvalidInput
            }
            Self::ObjectReused { .. }
            | Self::RowsDoNotAddUp { .. }
            | Self::Miscounted { .. }
            | Self::InUse { .. } => ErrorKind::Internal,
        }
    }
}

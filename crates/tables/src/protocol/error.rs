//! Reasons why an edit cannot be committed in the current version.

use super::{BlockId, ObjectId, RunId, Version};
use atoll_errors::ErrorKind;

/// Why an edit was refused. Nothing of it was committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// The table already has everything that the edit asks for. Not a failure, and no new version is needed.
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
        /// The attempt that was requested.
        attempt: u64,
        /// The attempt that may write.
        current: u64,
    },
    /// The last complete step of the run is not the one that the caller saw.
    #[error("run \"{run}\" has changed since it was looked at: {}", last_there(*.last))]
    RunWentOn {
        /// The run.
        run: RunId,
        /// Its last complete step, if any.
        last: Option<u64>,
    },
    /// The attempt began with a different number of ranks.
    #[error("run \"{run}\" has {actual} ranks in this attempt, not {asked}")]
    Ranks {
        /// The run.
        run: RunId,
        /// Number of ranks that the attempt began with.
        actual: u32,
        /// Number of ranks requested, or the rank that is too high plus one.
        asked: u32,
    },
    /// A rank writes its steps in rising order, and this step comes after a later one.
    #[error("step {} of rank {} of run \"{}\" comes after step {last}", .id.step, .id.rank, .id.run)]
    StepOrder {
        /// The block.
        id: BlockId,
        /// The last step that this rank, or all ranks, wrote.
        last: u64,
    },
    /// Whole steps cannot be loaded while some ranks' blocks of a step have arrived: the missing blocks of
    /// that step could no longer be appended after the load.
    #[error("step {} of run \"{}\" cannot be loaded: step {arriving} has arrived from some ranks only", .id.step, .id.run)]
    StepArriving {
        /// The step to load, as a block of rank 0.
        id: BlockId,
        /// The first step of which only some ranks' blocks have arrived.
        arriving: u64,
    },
    /// An input of a pack was replaced: superseded, deleted whole, or packed by another packer.
    #[error("the rows read from object {object} have been replaced")]
    InputGone {
        /// The object that is gone, or part of whose range is.
        object: ObjectId,
    },
    /// The name of a new object is in use, or two new pieces overlap.
    #[error("object {object} is named twice")]
    ObjectReused {
        /// The object.
        object: ObjectId,
    },
    /// A pack or a load does not account for every row that it takes.
    #[error("{removed} rows are taken, but {added} are added and {dropped} dropped")]
    RowsDoNotAddUp {
        /// Rows taken.
        removed: u64,
        /// Rows in the new pieces.
        added: u64,
        /// Rows dropped because tombstones had struck them.
        dropped: u64,
    },
    /// A pack takes weights out of the middle of a piece; it may take only its lower end, its upper end, or
    /// all.
    #[error("a pack takes the middle of a range of object {object}")]
    MiddleTaken {
        /// The object.
        object: ObjectId,
    },
    /// A pack counts a different number of rows in a piece than its writer did.
    #[error("a pack takes {asked} rows of the {there} of a range of object {object}")]
    Miscounted {
        /// The object.
        object: ObjectId,
        /// Rows in the piece.
        there: u64,
        /// Rows that the pack takes.
        asked: u64,
    },
    /// Some rows have ids that their run already has, in a table with unique ids.
    #[error("{}", repeated(.block, .repeats, *.has_more))]
    RepeatedIds {
        /// The block with these rows.
        block: BlockId,
        /// Some of the repeated ids.
        repeats: Vec<Repeat>,
        /// Whether the search found more than these. Parts that it did not reach may hold still others.
        has_more: bool,
    },
    /// Some step could never become complete: ranks write their steps in rising order, and one rank goes on,
    /// or has gone on, to a later step without writing this one.
    #[error("step {lost} of run \"{}\" can never be complete: rank {rank} goes on to step {later} without it", .id.run)]
    Skipped {
        /// The block that was refused.
        id: BlockId,
        /// The step that would stay incomplete: that of the block, or an earlier one of which other ranks'
        /// blocks have arrived.
        lost: u64,
        /// The rank that skips it.
        rank: u32,
        /// The later step of that rank.
        later: u64,
    },
    /// The edit names a version that does not exist yet.
    #[error("version {asked} is ahead of version {current}")]
    Ahead {
        /// The version named.
        asked: Version,
        /// The current version.
        current: Version,
    },
    /// Another process has added a different column of that name.
    #[error("a different column \"{column}\" has been added in the meantime")]
    ColumnThere {
        /// The name.
        column: String,
    },
    /// The edit forgets an object that some version may still name.
    #[error("object {object} is still in use")]
    InUse {
        /// The object.
        object: ObjectId,
    },
}

/// An id that would be in a run twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Repeat {
    /// The id, as `column=value` with commas between.
    pub id: String,
    /// Where it is already.
    pub there: RepeatedAt,
}

/// Where a repeated id already occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepeatedAt {
    /// Twice in the new rows, at these row numbers, counted from 0.
    Rows(u64, u64),
    /// In a visible step, or in another block of the same append.
    Step(u64),
    /// In a step that is still arriving.
    Arriving(u64),
}

impl std::fmt::Display for Repeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.there {
            RepeatedAt::Rows(first, second) => write!(f, "{} is in rows {first} and {second}", self.id),
            RepeatedAt::Step(step) => write!(f, "{} is in step {step} already", self.id),
            RepeatedAt::Arriving(step) => {
                write!(f, "{} is in step {step} already, which is arriving", self.id)
            }
        }
    }
}

fn last_there(last: Option<u64>) -> String {
    last.map_or_else(|| "it has no step".to_owned(), |last| format!("its last step is {last}"))
}

fn repeated(block: &BlockId, repeats: &[Repeat], has_more: bool) -> String {
    let BlockId { run, step, rank, .. } = block;
    let listed: Vec<String> = repeats.iter().map(Repeat::to_string).collect();
    let more = if has_more { "; and others" } else { "" };
    format!(
        "step {step} of rank {rank} of run \"{run}\" repeats ids, which must be unique within a run of this table: {}{more}",
        listed.join("; ")
    )
}

impl EditError {
    /// Advice to the caller, for a program that prints the error.
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
            Self::RunWentOn { .. } => "another process writes to this run: check its steps and begin again",
            Self::Ranks { .. } => {
                "ranks are numbered from 0, and all ranks begin with the same number of them"
            }
            Self::StepOrder { .. } => {
                "a rank writes its steps in rising order; begin a new attempt to go back"
            }
            Self::StepArriving { arriving, .. } => {
                return Some(format!(
                    "append step {arriving} of the other ranks first, or begin a new attempt"
                ));
            }
            Self::Ahead { .. } => "ask the table for its version",
            Self::ColumnThere { .. } => "use the column that is there, or choose another name",
            Self::Skipped { id, lost, .. } if id.step == *lost => {
                "every rank writes every step, without rows where it has none; begin a new attempt that does"
            }
            Self::Skipped { lost, rank, .. } => {
                return Some(format!(
                    "write step {lost} of rank {rank} first, without rows (arrays of length 0) if it has none"
                ));
            }
            Self::RepeatedIds { .. } => {
                "none of these rows were stored: leave out the repeated ids, or create the table without unique ids"
            }
            Self::InputGone { .. } => "nothing was lost; pack again from the current version",
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::AlreadyDone
            | Self::StaleAttempt { .. }
            | Self::RunWentOn { .. }
            | Self::StepArriving { .. }
            | Self::InputGone { .. }
            | Self::ColumnThere { .. } => ErrorKind::Conflict,
            Self::NotBegun { .. } => ErrorKind::NotFound,
            // Rows that contradict themselves are invalid; rows that contradict the table might have been
            // valid in another.
            Self::RepeatedIds { repeats, .. }
                if repeats.iter().any(|repeat| matches!(repeat.there, RepeatedAt::Rows(..))) =>
            {
                ErrorKind::InvalidInput
            }
            Self::RepeatedIds { .. } => ErrorKind::Conflict,
            Self::Skipped { .. }
            | Self::Ranks { .. }
            | Self::StepOrder { .. }
            | Self::Ahead { .. }
            | Self::MiddleTaken { .. } => ErrorKind::InvalidInput,
            Self::ObjectReused { .. }
            | Self::RowsDoNotAddUp { .. }
            | Self::Miscounted { .. }
            | Self::InUse { .. } => ErrorKind::Internal,
        }
    }
}

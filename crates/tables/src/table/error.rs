//! Why a table did not do what was asked: what is told of it, its kind at every door, and what the caller can
//! do.

use crate::SchemaError;
use crate::block::BlockError;
use crate::estimate::EstimateError;
use crate::expression::{EvaluateError, ExpressionError};
use crate::protocol::{BlockId, EditError, Version};
use crate::schema::suggested;
use atoll_errors::ErrorKind;
use atoll_store::{Outcome, StoreError};

/// Why a table did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// There is no such table.
    #[error("there is no table \"{name}\"")]
    NotFound {
        /// The name asked for.
        name: String,
    },
    /// There is one already.
    #[error("there is a table \"{name}\" already, with another schema: {differs}")]
    Exists {
        /// The name.
        name: String,
        /// In what its schema differs from the one that was asked for.
        differs: String,
    },
    /// There is one already, where a copy was to be.
    #[error("there is a table \"{name}\" already")]
    Taken {
        /// The name.
        name: String,
    },
    /// A copy of that name is on its way, or was broken off.
    #[error("table \"{name}\" is a copy that is not finished")]
    Arriving {
        /// The name.
        name: String,
    },
    /// There is no such run.
    #[error("table \"{table}\" has no run \"{run}\"")]
    NoRun {
        /// The table.
        table: String,
        /// The run asked for.
        run: String,
        /// The name of a run that is written almost the same.
        near: Option<String>,
    },
    /// A table or run cannot have this name.
    #[error("a {what} cannot be called {name:?}: {problem}")]
    Name {
        /// What cannot be called so.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A block.
    #[error("{object}: {source}")]
    Block {
        /// Which object; "new rows" for one that is not there yet.
        object: String,
        /// What is wrong with it.
        source: BlockError,
    },
    /// The version that is current does not admit the edit.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The session of this handle ended while it wrote: what it wrote last is in no version.
    #[error("the session of this process at table \"{table}\" has ended; open the table again")]
    Fenced {
        /// The table.
        table: String,
    },
    /// Nobody knows whether the edit became true.
    #[error("whether the edit of table \"{table}\" became true cannot be told any more")]
    Forgotten {
        /// The table.
        table: String,
    },
    /// A version that is asked for can be read no longer.
    #[error("version {asked} of table \"{table}\" is gone; the oldest that can be read is {oldest}")]
    VersionGone {
        /// The table.
        table: String,
        /// The version asked for.
        asked: Version,
        /// The oldest that is left.
        oldest: Version,
    },
    /// A version of several tables, which is one of each, can be read no longer, or this handle never could.
    #[error("{}", of_several(*.asked, *.tables, .name, *.was_seen))]
    UnionVersionGone {
        /// The name of the tables.
        name: String,
        /// How many they are.
        tables: usize,
        /// The version asked for.
        asked: Version,
        /// Whether this handle knows which versions of the tables it stands for: then one of these is gone.
        was_seen: bool,
    },
    /// There is no such snapshot.
    #[error("table \"{table}\" has no snapshot \"{name}\"")]
    NoSnapshot {
        /// The table.
        table: String,
        /// The name asked for.
        name: String,
    },
    /// There is a snapshot of that name, of another version.
    #[error("table \"{table}\" has a snapshot \"{name}\" already, of version {version}")]
    SnapshotExists {
        /// The table.
        table: String,
        /// The name.
        name: String,
        /// The version that it keeps.
        version: Version,
    },
    /// An object that a version names is not there: lost, unless a vacuum took it away meanwhile.
    #[error("table \"{table}\" is damaged: object {object} is named by a version and not there")]
    ObjectGone {
        /// The table.
        table: String,
        /// The object.
        object: crate::protocol::ObjectId,
    },
    /// Tables that are to be asked as one differ.
    #[error(
        "tables that are asked as one have the same roles and salt, and those of number {place} are others"
    )]
    Unlike {
        /// Which of them, counted from 1.
        place: usize,
    },
    /// Tables that are to be asked as one have a column of one name that is not the same.
    #[error(
        "column \"{column}\" of table number {place} is not the one that the tables before it have: {problem}"
    )]
    UnlikeColumn {
        /// Which table, counted from 1.
        place: usize,
        /// The column.
        column: String,
        /// What differs.
        problem: String,
    },
    /// The store failed while an edit was on its way: it may have become true, or may yet become so.
    #[error("whether the last edit of table \"{table}\" became true is not known: {source}")]
    InDoubt {
        /// The table.
        table: String,
        /// What failed.
        source: Box<TableError>,
    },
    /// The same of an append. Appended again under the same step its rows count once; as a next step they
    /// would be there twice.
    #[error("whether step {} of run \"{}\" became true is not known: {source}", .id.step, .id.run)]
    BlockInDoubt {
        /// The first block of the append.
        id: BlockId,
        /// What failed.
        source: Box<TableError>,
    },
    /// An append or a load that was begun before, of the same rank, failed: the steps of a rank come in
    /// order.
    #[error("step {} of rank {} of run \"{}\" waited behind one that failed", .id.step, .id.rank, .id.run)]
    Behind {
        /// The block that waited.
        id: BlockId,
    },
    /// Steps inside out, or none.
    #[error("there is no step from {from} to below {to}")]
    Steps {
        /// The first step.
        from: u64,
        /// The first step behind them.
        to: u64,
    },
    /// A column that is asked for is not there.
    #[error("table \"{table}\" has no column \"{column}\"{}", suggested(.nearest))]
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The column whose name is nearest, if one is near.
        nearest: Option<String>,
    },
    /// A query of the first rows or units was to be divided.
    #[error("the first rows or units of a query cannot be divided among readers")]
    Indivisible,
    /// A query was to be divided among nobody.
    #[error("a query cannot be divided among 0 readers")]
    NoReaders,
    /// A split names objects that the version does not have.
    #[error("this is no split of a query of this table and version")]
    NoSplit,
    /// A step of one rank has more rows than one object holds.
    #[error("the rows of one rank and step take {bytes} bytes, and an object of this store holds {max}")]
    TooLarge {
        /// What they take.
        bytes: u64,
        /// What is possible.
        max: u64,
    },
    /// More steps at once than one edit names.
    #[error("{steps} steps are too many to load at once: at most {max}")]
    TooManySteps {
        /// How many there are.
        steps: usize,
        /// How many may be.
        max: usize,
    },
    /// A pack was asked for in a way that makes no sense.
    #[error("{problem}")]
    PackOptions {
        /// What is wrong.
        problem: &'static str,
    },
    /// This release cannot read what another one wrote.
    #[error("this release cannot read {what}")]
    Unsupported {
        /// What it cannot read.
        what: &'static str,
    },
    /// What is stored about the table cannot be read.
    #[error("table \"{table}\" is damaged: {problem}")]
    Damaged {
        /// The table.
        table: String,
        /// What is wrong.
        problem: String,
    },
    /// The filter does not fit the table.
    #[error(transparent)]
    Filter(#[from] ExpressionError),
    /// The filter could not be asked of the rows.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// A cell that makes no sense, or a question that it cannot answer.
    #[error(transparent)]
    Boundary(#[from] crate::BoundaryError),
    /// What cannot be estimated.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// A column has no numbers to estimate anything from.
    #[error("column {column} is {data_type}, and estimates are of numbers, times and truth values")]
    NoNumbers {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TableError {
    /// The kind of error, as all doors name it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. }
            | Self::Column { .. }
            | Self::NoRun { .. }
            | Self::NoSnapshot { .. }
            | Self::VersionGone { .. }
            | Self::UnionVersionGone { .. } => ErrorKind::NotFound,
            Self::Exists { .. }
            | Self::Taken { .. }
            | Self::Arriving { .. }
            | Self::SnapshotExists { .. }
            | Self::Fenced { .. }
            | Self::Behind { .. } => ErrorKind::Conflict,
            Self::Name { .. }
            | Self::Steps { .. }
            | Self::NoNumbers { .. }
            | Self::PackOptions { .. }
            | Self::Indivisible
            | Self::NoReaders
            | Self::NoSplit
            | Self::Unlike { .. }
            | Self::UnlikeColumn { .. } => ErrorKind::InvalidInput,
            Self::Boundary(_) => ErrorKind::InvalidInput,
            Self::Estimate(error) => error.kind(),
            Self::Schema(error) => error.kind(),
            Self::Block { source, .. } => source.kind(),
            Self::Edit(error) => error.kind(),
            Self::Forgotten { .. } | Self::InDoubt { .. } | Self::BlockInDoubt { .. } => ErrorKind::TimedOut,
            Self::TooLarge { .. } | Self::TooManySteps { .. } => ErrorKind::Limit,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } | Self::ObjectGone { .. } => ErrorKind::Corrupt,
            Self::Filter(error) => error.kind(),
            Self::Evaluate(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }

    /// Whether a version that was to be read is gone.
    pub(crate) const fn is_version_gone(&self) -> bool {
        matches!(self, Self::VersionGone { .. } | Self::UnionVersionGone { .. })
    }

    /// Whether the call may have taken effect. Appending the same block again is harmless either way.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Forgotten { .. } | Self::InDoubt { .. } | Self::BlockInDoubt { .. } => Outcome::Unknown,
            Self::Store(error) => error.outcome(),
            _ => Outcome::Refused,
        }
    }

    /// What the caller can do about it, for whoever prints the error.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotFound { .. } => "see which tables the store has",
            Self::NoRun { near: Some(near), .. } => return Some(format!("did you mean \"{near}\"?")),
            Self::NoRun { .. } => "begin the run first, or see which runs there are",
            Self::Exists { .. } => "open it with the schema that it has, or choose another name",
            Self::Taken { .. } => "choose another name, or drop that table first",
            Self::Arriving { .. } => "copy it again: that goes on where it was; or drop it",
            Self::Name { what: "snapshot", .. } => {
                "a name has 1 to 255 bytes and no control characters, and is no whole number: put a letter before one, as in v3"
            }
            Self::Name { .. } => "a name has 1 to 255 bytes and no control characters",
            Self::Edit(error) => return error.hint(),
            Self::Filter(error) => return error.hint(),
            Self::Estimate(error) => return error.hint().map(str::to_owned),
            Self::Fenced { .. } => "open the table again; appends may be given again as they were",
            Self::Forgotten { .. } | Self::InDoubt { .. } => {
                "do it again: what was done already is not done twice"
            }
            Self::BlockInDoubt { id: BlockId { run, attempt, step, rank }, .. } => {
                return Some(format!(
                    "append the same rows again as step {step} of run \"{run}\" (attempt {attempt}, rank {rank}): what is \
                     there already counts once; where others append to that run, look first whose rows the step has"
                ));
            }
            Self::Behind { .. } => {
                "give the steps of this rank again, in order, from the one that failed; to a new loader if they were loaded"
            }
            Self::VersionGone { oldest, .. } => {
                return Some(format!(
                    "ask for version {oldest} or a later one, or keep versions by a snapshot"
                ));
            }
            Self::UnionVersionGone { .. } => {
                "ask this handle for its version: that one it can read, until many others came or a vacuum took it away"
            }
            Self::Steps { .. } => "the first step comes before the end, which is not among them",
            Self::Indivisible => {
                "divide it without them, and take the first of what comes: only the order of all rows tells which they are"
            }
            Self::NoReaders => "ask for one split at least",
            Self::NoSplit => "pass a split unchanged, with its version, to the table that gave it out",
            Self::Block { source: BlockError::TooMuchText { .. }, .. } => {
                "ask for fewer rows at a time, batch by batch or with a limit, or leave the column out; a pack takes fewer \
                 with a smaller `tree_bytes_max`"
            }
            Self::TooLarge { .. } => "write the step from more ranks, or output less at once",
            Self::TooManySteps { .. } => "give them to a loader one by one: it writes them as they come",
            Self::Unsupported { .. } => "use the release that wrote it, or a later one",
            Self::NoNumbers { .. } => "name a column of numbers; an element of a vector is written pos[0]",
            Self::NoSnapshot { .. } => "see which snapshots the table has",
            Self::SnapshotExists { .. } => "choose another name, or delete that one first",
            Self::Damaged { .. } | Self::ObjectGone { .. } => {
                "check the whole store: that tells the extent of the damage"
            }
            Self::Store(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Why a version of several tables cannot be read.
fn of_several(asked: Version, tables: usize, name: &str, was_seen: bool) -> String {
    if was_seen {
        format!(
            "version {asked} of {tables} tables \"{name}\" is gone: one of them cannot be read as it was then"
        )
    } else {
        format!("this handle of {tables} tables \"{name}\" has not seen a version {asked} of them lately")
    }
}

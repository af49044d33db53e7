//! Errors of tables: their messages, their kind, and hints for the caller.

use crate::SchemaError;
use crate::block::BlockError;
use crate::estimate::EstimateError;
use crate::expression::{EvaluateError, ExpressionError};
use crate::protocol::{BlockId, EditError, Version};
use crate::schema::suggested;
use atoll_errors::ErrorKind;
use atoll_store::{Outcome, StoreError};

/// Why an operation on a table failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The table does not exist.
    #[error("there is no table \"{name}\"")]
    NotFound {
        /// The requested name.
        name: String,
    },
    /// A table with this name but another schema exists.
    #[error("there is a table \"{name}\" already, with another schema: {differs}")]
    Exists {
        /// The name.
        name: String,
        /// How its schema differs from the requested one.
        differs: String,
    },
    /// The target of a copy exists already.
    #[error("there is a table \"{name}\" already")]
    Taken {
        /// The name.
        name: String,
    },
    /// An unfinished copy has this name; it is in progress or was interrupted.
    #[error("table \"{name}\" is an unfinished copy")]
    Arriving {
        /// The name.
        name: String,
    },
    /// The run does not exist.
    #[error("table \"{table}\" has no run \"{run}\"")]
    NoRun {
        /// The table.
        table: String,
        /// The requested run.
        run: String,
        /// An existing run whose name is spelled almost the same.
        near: Option<String>,
    },
    /// A table, run or snapshot cannot have this name.
    #[error("a {what} cannot be called {name:?}: {problem}")]
    Name {
        /// The kind of thing that was to be named.
        what: &'static str,
        /// The name.
        name: String,
        /// Why the name is invalid.
        problem: &'static str,
    },
    /// An error of the schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// An error of a block.
    #[error("{object}: {source}")]
    Block {
        /// The object; "new rows" for rows that are not stored yet.
        object: String,
        /// The error.
        source: BlockError,
    },
    /// The edit is not valid in the current version.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The session of this handle ended while it was writing: its last edit is in no version.
    #[error("the session of this process at table \"{table}\" has ended; open the table again")]
    Fenced {
        /// The table.
        table: String,
    },
    /// Whether the edit was committed can no longer be determined.
    #[error("it can no longer be determined whether the edit of table \"{table}\" was committed")]
    Forgotten {
        /// The table.
        table: String,
    },
    /// A requested version can no longer be read.
    #[error("version {asked} of table \"{table}\" is gone; the oldest that can be read is {oldest}")]
    VersionGone {
        /// The table.
        table: String,
        /// The requested version.
        asked: Version,
        /// The oldest version that can still be read.
        oldest: Version,
    },
    /// A version of a union can no longer be read, or is not known to this handle.
    #[error("{}", of_several(*.asked, *.tables, .name, *.was_seen))]
    UnionVersionGone {
        /// The common name of the tables.
        name: String,
        /// Number of tables.
        tables: usize,
        /// The requested version.
        asked: Version,
        /// Whether this handle knows which versions of the tables it stands for; if so, one of those is gone.
        was_seen: bool,
    },
    /// The snapshot does not exist.
    #[error("table \"{table}\" has no snapshot \"{name}\"")]
    NoSnapshot {
        /// The table.
        table: String,
        /// The requested name.
        name: String,
    },
    /// A snapshot of that name keeps another version.
    #[error("table \"{table}\" has a snapshot \"{name}\" already, of version {version}")]
    SnapshotExists {
        /// The table.
        table: String,
        /// The name.
        name: String,
        /// The version that it keeps.
        version: Version,
    },
    /// An object that a version names is missing: lost, unless a vacuum removed it in the meantime.
    #[error("table \"{table}\" is damaged: object {object} is named by a version but missing")]
    ObjectGone {
        /// The table.
        table: String,
        /// The object.
        object: crate::protocol::ObjectId,
    },
    /// Two tables of a union have rows in common: they are one table, or one is a copy of the other.
    #[error("tables {first} and {second} of the union have rows in common, which would count twice")]
    SameTable {
        /// The first of the two, counted from 1.
        first: usize,
        /// The second of the two.
        second: usize,
    },
    /// The tables of a union have different roles or salts.
    #[error("tables of a union must have the same roles and salt; those of table {place} differ")]
    Unlike {
        /// The first table that differs, counted from 1.
        place: usize,
    },
    /// The tables of a union have different columns of one name.
    #[error("column \"{column}\" of table {place} differs from that of the earlier tables: {problem}")]
    UnlikeColumn {
        /// The first table that differs, counted from 1.
        place: usize,
        /// The column.
        column: String,
        /// The difference.
        problem: String,
    },
    /// The times of the steps of the tables of a union are in different units.
    #[error(
        "the times of the steps of table {place} are in \"{unit}\", and those of the earlier tables in \"{earlier}\""
    )]
    UnlikeTimes {
        /// The first table that differs, counted from 1.
        place: usize,
        /// Its unit.
        unit: String,
        /// The unit of the earlier tables.
        earlier: String,
    },
    /// The store failed during a commit: the edit may have been committed, or may still be.
    #[error("it is unknown whether the last edit of table \"{table}\" was committed: {source}")]
    InDoubt {
        /// The table.
        table: String,
        /// The error.
        source: Box<TableError>,
    },
    /// Like `InDoubt`, for an append. Rows that are appended again under the same step count once; as a next
    /// step they would be in the table twice.
    #[error("it is unknown whether step {} of run \"{}\" was committed: {source}", .id.step, .id.run)]
    BlockInDoubt {
        /// The first block of the append.
        id: BlockId,
        /// The error.
        source: Box<TableError>,
    },
    /// Like `InDoubt`, for a delete. One that is repeated takes also rows that were added since.
    #[error("it is unknown whether the delete from table \"{table}\" was committed: {source}")]
    DeleteInDoubt {
        /// The table.
        table: String,
        /// The error.
        source: Box<TableError>,
    },
    /// A delete took the rows, but the store failed while notes and attributes of their runs were removed.
    #[error("the rows are deleted as of version {version}, but notes and attributes may be left: {source}")]
    NotesLeft {
        /// The first version without the rows.
        version: Version,
        /// The error.
        source: Box<TableError>,
    },
    /// An earlier append or load of the same rank failed. Steps of a rank are committed in order, so this one
    /// was not.
    #[error("step {} of rank {} of run \"{}\" was not written because an earlier step of this rank failed", .id.step, .id.rank, .id.run)]
    Behind {
        /// The block that was waiting.
        id: BlockId,
    },
    /// A range of steps that is empty or ends before it begins.
    #[error("there is no step from {from} to below {to}")]
    Steps {
        /// The first step.
        from: u64,
        /// The first step after the range.
        to: u64,
    },
    /// The column does not exist.
    #[error("table \"{table}\" has no column \"{column}\"{}", suggested(.nearest))]
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The column with the most similar name, if one is similar.
        nearest: Option<String>,
    },
    /// A query with a limit on rows or units cannot be divided.
    #[error("the first rows or units of a query cannot be divided among readers")]
    Indivisible,
    /// A query cannot be divided among zero readers.
    #[error("a query cannot be divided among 0 readers")]
    NoReaders,
    /// A split names objects that the version does not have.
    #[error("this is not a split of a query of this table and version")]
    NoSplit,
    /// The rows of one step and rank do not fit in one object.
    #[error("the rows of one rank and step take {bytes} bytes, and an object of this store holds {max}")]
    TooLarge {
        /// The bytes that they take.
        bytes: u64,
        /// The maximum.
        max: u64,
    },
    /// More steps than one edit can load.
    #[error("{steps} steps are too many to load at once: at most {max}")]
    TooManySteps {
        /// Number of steps.
        steps: usize,
        /// The maximum.
        max: usize,
    },
    /// Invalid options of a pack.
    #[error("{problem}")]
    PackOptions {
        /// The problem.
        problem: &'static str,
    },
    /// A pack was told to stop. It is for the pack itself: its caller gets a report instead.
    #[error("the pack was told to stop")]
    Stopped,
    /// A later release wrote something that this one cannot read.
    #[error("this release cannot read {what}")]
    Unsupported {
        /// What it cannot read.
        what: &'static str,
    },
    /// A stored cell of the table cannot be read.
    #[error("table \"{table}\" is damaged: {problem}")]
    Damaged {
        /// The table.
        table: String,
        /// The problem.
        problem: String,
    },
    /// The stored attributes of the store cannot be read.
    #[error("the attributes of the store are damaged: {problem}")]
    StoreAttributes {
        /// The problem.
        problem: String,
    },
    /// The filter does not fit the table.
    #[error(transparent)]
    Filter(#[from] ExpressionError),
    /// The filter failed on the rows.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// An invalid periodic cell, or a question that it cannot answer.
    #[error(transparent)]
    Boundary(#[from] crate::BoundaryError),
    /// An estimate that cannot be made.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// Estimates need numbers, and the column has none.
    #[error("column {column} is {data_type}, but only numbers, times and truth values can be estimated")]
    NoNumbers {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// A column of a type whose values have no least and no greatest.
    #[error("column {column} is {data_type}, but only numbers and times have a least and a greatest value")]
    Unordered {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
    },
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TableError {
    /// The kind of the error, shared by all interfaces.
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
            | Self::Behind { .. }
            | Self::Stopped => ErrorKind::Conflict,
            Self::SameTable { .. }
            | Self::Name { .. }
            | Self::Steps { .. }
            | Self::NoNumbers { .. }
            | Self::Unordered { .. }
            | Self::PackOptions { .. }
            | Self::Indivisible
            | Self::NoReaders
            | Self::NoSplit
            | Self::Unlike { .. }
            | Self::UnlikeColumn { .. }
            | Self::UnlikeTimes { .. } => ErrorKind::InvalidInput,
            Self::Boundary(_) => ErrorKind::InvalidInput,
            Self::Estimate(error) => error.kind(),
            Self::Schema(error) => error.kind(),
            Self::Block { source, .. } => source.kind(),
            Self::NotesLeft { source, .. } => source.kind(),
            Self::Edit(error) => error.kind(),
            Self::Forgotten { .. }
            | Self::InDoubt { .. }
            | Self::BlockInDoubt { .. }
            | Self::DeleteInDoubt { .. } => ErrorKind::TimedOut,
            Self::TooLarge { .. } | Self::TooManySteps { .. } => ErrorKind::Limit,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } | Self::ObjectGone { .. } | Self::StoreAttributes { .. } => {
                ErrorKind::Corrupt
            }
            Self::Filter(error) => error.kind(),
            Self::Evaluate(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }

    /// Whether the version that was to be read is gone.
    pub(crate) const fn is_version_gone(&self) -> bool {
        matches!(self, Self::VersionGone { .. } | Self::UnionVersionGone { .. })
    }

    /// Whether the call may have taken effect. Appending the same block again is harmless in any case.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Forgotten { .. }
            | Self::InDoubt { .. }
            | Self::BlockInDoubt { .. }
            | Self::DeleteInDoubt { .. }
            | Self::NotesLeft { .. } => Outcome::Unknown,
            Self::Store(error) => error.outcome(),
            _ => Outcome::Refused,
        }
    }

    /// Advice to the caller, for a program that prints the error.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NotFound { .. } => "see which tables the store has",
            Self::NoRun { near: Some(near), .. } => return Some(format!("did you mean \"{near}\"?")),
            Self::NoRun { .. } => "begin the run first, or see which runs there are",
            Self::Exists { .. } => "open it with the schema that it has, or choose another name",
            Self::Taken { .. } => "choose another name, or drop that table first",
            Self::Arriving { .. } => "repeat the copy, which continues it, or drop it",
            Self::Name { what: "snapshot", .. } => {
                "a name has 1 to 255 bytes and no control characters, and is not a whole number: put a letter before it, as in v3"
            }
            Self::Name { .. } => "a name has 1 to 255 bytes and no control characters",
            Self::Edit(error) => return error.hint(),
            Self::Filter(error) => return error.hint(),
            Self::Estimate(error) => return error.hint().map(str::to_owned),
            Self::Fenced { .. } => "open the table again; the same appends may be repeated",
            Self::Forgotten { .. } | Self::InDoubt { .. } => {
                "repeat it: what was already done is not done twice"
            }
            Self::BlockInDoubt { id: BlockId { run, attempt, step, rank }, .. } => {
                return Some(format!(
                    "append the same rows again as step {step} of run \"{run}\" (attempt {attempt}, rank {rank}): what is \
                     there already counts once; if others append to that run, check first whose rows the step has"
                ));
            }
            Self::DeleteInDoubt { .. } => LOOK_BEFORE_REPEATING,
            Self::NotesLeft { .. } => REPEAT_FOR_NOTES,
            Self::Behind { .. } => {
                "write the steps of this rank again, in order, from the one that failed; with a new loader if they were loaded"
            }
            Self::VersionGone { oldest, .. } => {
                return Some(format!(
                    "ask for version {oldest} or a later one, or keep versions with a snapshot"
                ));
            }
            Self::UnionVersionGone { .. } => {
                "ask this handle for its current version; it can read that until too many others follow or a vacuum removes it"
            }
            Self::Steps { .. } => "the first step must be below the end, which is excluded",
            Self::SameTable { .. } => {
                "open each store once: one of them has two names, such as two hosts of a ring, or is a copy of another"
            }
            Self::Indivisible => {
                "divide the query without the limit and sort the result: only the order of all rows determines which come first"
            }
            Self::NoReaders => "ask for at least one split",
            Self::NoSplit => "pass a split unchanged, with its version, to the table that gave it out",
            Self::Block { source: BlockError::TooMuchText { .. }, .. } => {
                "ask for fewer rows at a time, batch by batch or with a limit, or leave the column out; a pack takes fewer \
                 with a smaller `tree_bytes_max`"
            }
            Self::TooLarge { .. } => "write the step from more ranks, or output less at once",
            Self::TooManySteps { .. } => "pass them to a loader one by one: it writes them as they come",
            Self::Unsupported { .. } => "use the release that wrote it, or a later one",
            Self::NoNumbers { .. } | Self::Unordered { .. } => {
                "name a column of numbers; an element of a vector is written pos[0]"
            }
            Self::NoSnapshot { .. } => "see which snapshots the table has",
            Self::SnapshotExists { .. } => "choose another name, or delete that one first",
            Self::Damaged { .. } | Self::ObjectGone { .. } | Self::StoreAttributes { .. } => {
                "check the whole store to see the extent of the damage"
            }
            Self::Store(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

const LOOK_BEFORE_REPEATING: &str = "see whether the rows are still there before you repeat it: a delete takes also rows that were added since";
const REPEAT_FOR_NOTES: &str =
    "repeat it to remove the notes, but only if no rows were added since: a delete takes those too";

/// The message for a version of a union that cannot be read.
fn of_several(asked: Version, tables: usize, name: &str, was_seen: bool) -> String {
    if was_seen {
        format!(
            "version {asked} of {tables} tables \"{name}\" is gone: one of them cannot be read as it was then"
        )
    } else {
        format!("this handle of {tables} tables \"{name}\" has not seen a version {asked} of them lately")
    }
}

//! How a verb fails, and how the failure is reported: as text with causes and a hint, or as one JSON object.
//!
//! Invariant: the exit code follows from the error kind, and only from it.

use crate::text::TextError;
use crate::transfer::TransferError;
use atoll_errors::ErrorKind;
use atoll_open::RING_CHANGE;
use atoll_options::OptionsError;
use atoll_ring::NodeError;
use atoll_row_files::RowFileError;
use atoll_store::{Conflict, StoreError};
use atoll_tables::expression::ExpressionError;
use atoll_tables::{SchemaError, TableError};
use serde_json::{Value, json};
use std::error::Error;
use std::io;

/// Exit code of a wrong command line, the same as of the argument parser.
pub(crate) const USAGE_EXIT: u8 = 2;

/// The hint when it is unknown whether a ring was changed.
const RING_CHANGE_HINT: &str = "check with `atoll ring status` whether it happened, and how far it has come";

/// The hint when the result of a change was lost.
const UNREPORTED_HINT: &str = "do not repeat it: check what the store holds now";

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command line is wrong in a way that only the verb can see.
    #[error("{problem}")]
    Usage {
        /// What is wrong.
        problem: String,
        /// What would be right.
        hint: String,
    },
    /// A text on the command line is not in the encoding it should have.
    #[error("{what} cannot be read")]
    Text {
        /// Which argument.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: TextError,
    },
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no store, and the verb works on tables.
    #[error(transparent)]
    NoStore(StoreError),
    /// A ring does not answer, and the verb reports the state of rings.
    #[error(transparent)]
    NotServing(StoreError),
    /// The options cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A file cannot be read or written.
    #[error("cannot {action} {place}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        place: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The target exists and would be overwritten.
    #[error("{place} exists")]
    Exists {
        /// The file.
        place: String,
        /// What to do.
        hint: &'static str,
    },
    /// The cell asked for is absent.
    #[error("there is no cell {cell}")]
    Absent {
        /// Its keys.
        cell: String,
    },
    /// The cell does not hold what was expected.
    #[error("cell {cell} does not hold what was expected")]
    NotAsExpected {
        /// Its keys.
        cell: String,
        /// What it holds.
        conflict: Box<Conflict>,
    },
    /// A wait timed out.
    #[error("{what} within {time_out}")]
    WaitEnded {
        /// What did not happen.
        what: String,
        /// How long was waited.
        time_out: String,
    },
    /// A check found damage.
    #[error("{place} is damaged in {places} place(s)")]
    Damaged {
        /// The store.
        place: String,
        /// How many.
        places: usize,
    },
    /// A location is not suitable for a store.
    #[error("{place} is not fit for a store: {}", .problems.join("; "))]
    Unfit {
        /// The location.
        place: String,
        /// What makes it unsuitable.
        problems: Vec<String>,
    },
    /// An import or export failed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// A table refused the operation, or failed.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A schema was refused.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A node that this process started did not come up; it printed the reason itself.
    #[error("node {number} did not start")]
    Node {
        /// Which one.
        number: u32,
    },
    /// A node of a ring does not start, or failed.
    #[error(transparent)]
    Ring(Box<NodeError>),
    /// A file of rows cannot be read or written.
    #[error(transparent)]
    Rows(#[from] RowFileError),
    /// A file of rows is compressed as a whole.
    #[error("{error}")]
    Compressed {
        /// The failure as the reader of the file reports it.
        error: Box<RowFileError>,
        /// The command line that reads the file, for the verb at hand.
        line: String,
    },
    /// A condition or box on the command line is wrong.
    #[error("{what}: {error}")]
    Expression {
        /// Which argument.
        what: &'static str,
        /// What is wrong, and where.
        error: Box<ExpressionError>,
    },
    /// The table does not have a column that was asked for.
    #[error("table \"{table}\" has no column \"{column}\"")]
    Column {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The columns of the table.
        present: Vec<String>,
    },
    /// A condition on runs names an attribute that no run has.
    #[error("no run has an attribute \"{attribute}\"")]
    Attribute {
        /// The name asked for.
        attribute: String,
        /// The attributes of the runs.
        present: Vec<String>,
    },
    /// A role of the table names a column that the file does not have.
    #[error("{error}")]
    Role {
        /// What is wrong.
        error: Box<SchemaError>,
        /// The columns of the file.
        present: Vec<String>,
    },
    /// A file uses another delimiter than the one given.
    #[error("the file has no column \"{column}\": its only one is \"{}\"", .found.escape_debug())]
    Delimiter {
        /// The column asked for.
        column: String,
        /// The name of its only column.
        found: String,
        /// The delimiter found in that name, as it is typed.
        delimiter: &'static str,
    },
    /// There is no such table.
    #[error("there is no table \"{table}\"")]
    NoTable {
        /// The name asked for.
        table: String,
        /// The tables of the store.
        present: Vec<String>,
    },
    /// An existing run conflicts with what was asked for.
    #[error("run \"{run}\" {problem}")]
    Run {
        /// The run.
        run: String,
        /// What is wrong.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// The change was made, but its result could not be reported: running the verb again could repeat the
    /// change.
    #[error("it was done, but its result could not be written to standard output")]
    Unreported {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The reader of our output closed it: not an error.
    #[error("the output was closed")]
    OutputClosed,
    /// A signal asked us to stop.
    #[error("interrupted")]
    Interrupted {
        /// The exit code for that signal.
        exit: u8,
        /// How to continue later, where that is possible.
        hint: Option<&'static str>,
    },
}

impl Failure {
    /// The kind of the error; none for what is not an error of Atoll.
    #[must_use]
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Usage { .. } | Self::OutputClosed | Self::Interrupted { .. } => None,
            Self::Text { .. } => Some(ErrorKind::InvalidInput),
            Self::Store(error) | Self::NoStore(error) | Self::NotServing(error) => Some(error.kind()),
            Self::Options(error) => Some(error.kind()),
            Self::File { source, .. } => Some(kind_of_io(source)),
            Self::Exists { .. } | Self::NotAsExpected { .. } => Some(ErrorKind::Conflict),
            Self::Absent { .. } => Some(ErrorKind::NotFound),
            // A script should look before it retries.
            Self::WaitEnded { .. } | Self::Unreported { .. } => Some(ErrorKind::TimedOut),
            Self::Damaged { .. } => Some(ErrorKind::Corrupt),
            Self::Transfer(error) => Some(error.kind()),
            Self::Ring(error) => Some(error.kind()),
            Self::Node { .. } | Self::Unfit { .. } => Some(ErrorKind::Unavailable),
            Self::Table(error) => Some(error.kind()),
            Self::Schema(error) => Some(error.kind()),
            Self::Role { error, .. } => Some(error.kind()),
            Self::Rows(error) => Some(error.kind()),
            Self::Compressed { error, .. } => Some(error.kind()),
            Self::Expression { error, .. } => Some(error.kind()),
            // As for an unknown name in a condition, the question is wrong, whatever the table comes to hold
            // later.
            Self::Column { .. } | Self::Attribute { .. } | Self::Delimiter { .. } => {
                Some(ErrorKind::InvalidInput)
            }
            Self::NoTable { .. } => Some(ErrorKind::NotFound),
            Self::Run { .. } => Some(ErrorKind::Conflict),
        }
    }

    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            Self::Interrupted { exit, .. } => *exit,
            other => other.kind().map_or(USAGE_EXIT, |kind| kind.names().exit),
        }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Usage { hint, .. } => Some(hint.clone()),
            Self::Text { source, .. } => Some(source.hint().to_owned()),
            Self::Store(StoreError::Conflict(_)) | Self::NotAsExpected { .. } => {
                Some("look at what the cell holds now, and try again with that".to_owned())
            }
            // Only without a hint of its own: the nodes are missing, not the location.
            Self::Store(error @ StoreError::Unavailable { place, .. })
                if place.starts_with("ring://") && error.hint().is_none() =>
            {
                Some(
                    "start the nodes, or name one that is up; `atoll ring status --store URL` shows the state of a ring"
                        .to_owned(),
                )
            }
            Self::Store(StoreError::Owned { host, pid, .. }) if is_of_another_user(host, *pid) => {
                Some(format!(
                    "process {pid} belongs to another user, and no one else may attach to it: `ps -o user= -p {pid}` shows whose; \
                     file:PATH?mode=read shows the last state on disk"
                ))
            }
            Self::Store(StoreError::Unknown { what: RING_CHANGE, .. }) => Some(RING_CHANGE_HINT.to_owned()),
            // The obstacle may be a limit rather than a full disk.
            Self::Store(error @ StoreError::OutOfSpace { .. }) if hint_of_cause(error).is_some() => {
                hint_of_cause(error).map(|hint| format!("{hint}; nothing was lost"))
            }
            Self::Store(error) => {
                let hint = error.hint().or_else(|| hint_of_cause(error).map(str::to_owned));
                hint.or_else(|| hint_of_kind(error.kind()).map(str::to_owned))
            }
            Self::NoStore(_) => Some(
                "check the spelling; `atoll table create` creates a table, and a store for it if there is none"
                    .to_owned(),
            ),
            Self::NotServing(_) => Some("start the nodes, or name one that is up".to_owned()),
            Self::Options(error) => error.hint(),
            Self::File { source, .. } => hint_of_io(source).map(str::to_owned),
            Self::Exists { hint, .. } => Some((*hint).to_owned()),
            Self::Absent { .. } => Some("`atoll ls PARTITION` lists the keys of a partition".to_owned()),
            Self::WaitEnded { .. } => Some("wait longer with --timeout".to_owned()),
            Self::Damaged { .. } => Some(
                "keep a copy of its folder as it is; `atoll kv export FILE --partition P` saves each intact partition, with --store 'file:DIR?mode=salvage' if the log is what is broken"
                    .to_owned(),
            ),
            Self::Transfer(error) => error.hint(),
            Self::Node { .. } => Some("its own error message is above".to_owned()),
            Self::Unfit { .. } => Some("each bad finding says what would help".to_owned()),
            Self::Ring(error) => error.hint().or_else(|| hint_of_kind(error.kind())).map(str::to_owned),
            Self::Table(error) => crate::table_hints::of_table(error),
            Self::Schema(error) => crate::table_hints::of_schema(error),
            Self::Role { present, .. } => Some(crate::table_hints::of_role(present)),
            Self::Rows(error) => crate::table_hints::of_rows(error),
            Self::Compressed { line, .. } => Some(line.clone()),
            Self::Expression { error, .. } => Some(crate::table_hints::of_expression(error)),
            Self::Column { column, present, .. } => Some(crate::row_format::did_you_mean(column, present)),
            Self::Delimiter { delimiter, .. } => {
                Some(format!("add --delimiter '{delimiter}', which stands between the names"))
            }
            Self::Attribute { attribute, present } => {
                Some(crate::row_format::did_you_mean(attribute, present))
            }
            Self::NoTable { table, present } => Some(crate::table_hints::of_absent_table(table, present)),
            Self::Run { hint, .. } => Some(hint.clone()),
            Self::Interrupted { hint, .. } => hint.map(str::to_owned),
            Self::Unreported { .. } => Some(UNREPORTED_HINT.to_owned()),
            Self::OutputClosed => None,
        }
    }

    /// The failure as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let kind = match self {
            Self::Interrupted { .. } => "interrupted",
            other => other.kind().map_or("usage", ErrorKind::code),
        };
        let mut error = json!({
            "kind": kind,
            "message": self.to_string(),
            "causes": self.causes(),
            "hint": self.hint(),
            "exit": self.exit(),
        });
        if let (Some(conflict), Some(fields)) = (self.conflict(), error.as_object_mut()) {
            crate::cells::insert_bytes(fields, "sort", &conflict.sort);
            if let Some(actual) = &conflict.actual {
                crate::cells::insert_bytes(fields, "actual", actual);
            }
            fields.insert(
                "actual_bytes".to_owned(),
                json!(conflict.actual.as_ref().map(|_| conflict.actual_bytes)),
            );
        }
        json!({ "error": error })
    }

    /// The failure as lines of text.
    #[must_use]
    pub fn to_lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("error", self.to_string())];
        lines.extend(self.causes().into_iter().map(|cause| ("  cause", cause)));
        if let Self::Expression { error, .. } = self {
            lines.extend(crate::table_hints::pointed(error).into_iter().map(|line| ("  there", line)));
        }
        if let Some(conflict) = self.conflict() {
            let found = match &conflict.actual {
                None => "nothing: it is absent".to_owned(),
                Some(actual) => crate::text::shortened(actual, conflict.actual_bytes),
            };
            lines.push(("  found", found));
        }
        lines.extend(self.hint().map(|hint| ("hint", hint)));
        lines
    }

    /// What the cell holds instead of the expected value.
    fn conflict(&self) -> Option<&Conflict> {
        match self {
            Self::Store(StoreError::Conflict(conflict)) | Self::NotAsExpected { conflict, .. } => {
                Some(conflict)
            }
            _ => None,
        }
    }

    /// The causes, without those that the message already contains: messages about a ring end with their
    /// cause.
    fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let mut said = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            let told = cause.to_string();
            if !said.ends_with(&told) {
                said.clone_from(&told);
                causes.push(told);
            }
            next = cause.source();
        }
        causes
    }
}

/// The failure of a write to standard output.
pub(crate) fn output_failure(source: io::Error) -> Failure {
    if source.kind() == io::ErrorKind::BrokenPipe {
        return Failure::OutputClosed;
    }
    Failure::File { action: "write to", place: "standard output".to_owned(), source }
}

/// The same after a change was made: only the report of it was lost.
pub(crate) fn unreported(failure: Failure) -> Failure {
    match failure {
        Failure::File { source, .. } => Failure::Unreported { source },
        other => other,
    }
}

/// The kind of an error of the operating system.
pub(crate) fn kind_of_io(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => ErrorKind::Conflict,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            ErrorKind::OutOfSpace
        }
        io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
        io::ErrorKind::PermissionDenied => ErrorKind::Unauthenticated,
        io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => {
            ErrorKind::InvalidInput
        }
        _ => ErrorKind::Unavailable,
    }
}

/// The hint for store errors that bring none of their own.
fn hint_of_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotFound => {
            Some("check the spelling; verbs that write create a store where there is none")
        }
        ErrorKind::Conflict => Some("check the current state, then try again"),
        ErrorKind::Unavailable => Some("try again; `atoll doctor PATH` checks the place"),
        ErrorKind::TimedOut => Some("check whether it happened, or try again with a longer --deadline"),
        ErrorKind::Internal => Some("this is a bug in Atoll: please report it with the command that you ran"),
        _ => None,
    }
}

/// Whether a process runs on this machine under another user.
fn is_of_another_user(host: &str, process: u32) -> bool {
    use std::os::unix::fs::MetadataExt;
    let is_here = rustix::system::uname().nodename().to_string_lossy() == host;
    let user = std::fs::metadata(format!("/proc/{process}")).map(|process| process.uid());
    is_here && user.is_ok_and(|user| user != rustix::process::geteuid().as_raw())
}

/// The hint when the error of a store was caused by the operating system.
fn hint_of_cause(error: &StoreError) -> Option<&'static str> {
    error.io_cause().and_then(hint_of_io)
}

/// The hint for an error of the operating system.
pub(crate) fn hint_of_io(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::NotFound => Some("check the spelling; a relative path starts at the current folder"),
        io::ErrorKind::PermissionDenied => Some("check who may read and write there with `ls -l`"),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some("free some space, then try again"),
        io::ErrorKind::FileTooLarge => {
            Some("raise the limit of a file's size (`ulimit -f` shows it), or choose another file system")
        }
        io::ErrorKind::IsADirectory => Some("a file belongs there, not a folder"),
        io::ErrorKind::NotADirectory => Some("a part of the path is a file, where a folder belongs"),
        io::ErrorKind::InvalidFilename => {
            Some("choose a shorter path: most file systems take names of 255 bytes")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_may_not_be_opened_is_none_to_try_again() {
        let source = || io::Error::from(io::ErrorKind::PermissionDenied);
        let (file, place) = ("a.csv".to_owned(), "a.csv".to_owned());
        let failures = [
            Failure::File { action: "open", place, source: source() },
            Failure::Rows(RowFileError::Open { file: file.clone(), source: source() }),
            Failure::Transfer(TransferError::Open { file, source: source() }),
        ];
        for failure in failures {
            assert_eq!(failure.kind(), Some(ErrorKind::Unauthenticated), "{failure}");
            let hint = failure.hint().unwrap_or_default();
            assert!(hint.contains("who may read"), "{failure}: {hint}");
        }
    }
    #[test]
    fn a_node_that_may_not_listen_or_use_its_folder_is_none_to_try_again() {
        let source = || io::Error::from(io::ErrorKind::PermissionDenied);
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let failures = [
            (NodeError::Listen { address, source: source() }, "another port"),
            (NodeError::Folder { path: "ring".into(), source: source() }, "who may read"),
        ];
        for (error, helps) in failures {
            let failure = Failure::Ring(Box::new(error));
            assert_eq!(failure.kind(), Some(ErrorKind::Unauthenticated), "{failure}");
            let hint = failure.hint().unwrap_or_default();
            assert!(hint.contains(helps), "{failure}: {hint}");
        }
    }
}

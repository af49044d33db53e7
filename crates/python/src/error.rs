//! Errors of the crates below as Python exceptions: a class for each kind, with the hint as an attribute and
//! as a note.

use atoll_errors::ErrorKind;
use atoll_store::StoreError;
use atoll_tables::expression::ExpressionError;
use atoll_tables::{SchemaError, TableError, WeightError};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::error::Error;

/// Why a call from Python failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Schema(#[from] SchemaError),
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The caller's input does not fit.
    #[error("{problem}")]
    Input { problem: String, hint: Option<String> },
    #[error("column \"{name}\": {bytes} bytes of texts, but one append may have at most {}", i32::MAX)]
    TooLong { name: String, bytes: usize },
    /// Arrow rejected the caller's columns.
    #[error("the columns cannot be read: {0}")]
    Arrow(#[from] arrow_schema::ArrowError),
    #[error("several tables opened as one are read-only")]
    Several,
    /// A question that only a single table answers so far.
    #[error("{question} of several tables opened as one is not supported yet")]
    OfEach { question: &'static str },
    #[error("the store was closed")]
    Closed,
    #[error("this process was forked from one that had used atoll already")]
    Forked,
    #[error("the operating system refused a thread: {problem}")]
    NoThreads { problem: String },
    #[error("a call ended without an answer; this is a bug in Atoll")]
    Panicked,
}

impl Failure {
    pub(crate) fn input(problem: impl Into<String>) -> Self {
        Self::Input { problem: problem.into(), hint: None }
    }

    pub(crate) fn hinted(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Input { problem: problem.into(), hint: Some(hint.into()) }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Table(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Schema(error) => error.kind(),
            Self::Expression(error) => error.kind(),
            Self::Weight(error) => error.kind(),
            Self::Input { .. } | Self::Arrow(_) => ErrorKind::InvalidInput,
            Self::TooLong { .. } => ErrorKind::Limit,
            Self::Forked | Self::Several | Self::OfEach { .. } => ErrorKind::Unsupported,
            Self::Closed | Self::NoThreads { .. } => ErrorKind::Unavailable,
            Self::Panicked => ErrorKind::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Table(error) => of_table(error),
            Self::Schema(error) => of_schema(error),
            Self::Store(error) => error.hint(),
            Self::Expression(error) => error.hint(),
            Self::Input { hint, .. } => hint.clone(),
            Self::TooLong { .. } => Some("append the rows in several parts".to_owned()),
            Self::Several => Some("open the one store that holds it".to_owned()),
            Self::OfEach { .. } => Some("query the table of each store, and combine the answers".to_owned()),
            Self::Closed => Some("open it again with atoll.open".to_owned()),
            Self::Forked => Some(
                "start processes with multiprocessing.get_context(\"spawn\") or \"forkserver\"; \
                 tables and queries can be handed to them"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// The message: the error and its causes; for an expression, with carets under the position.
    fn message(&self) -> String {
        if let Self::Expression(error) | Self::Table(TableError::Filter(error)) = self {
            return error.render();
        }
        let mut message = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        message
    }
}

/// Only the command line has a verb that examines damaged bytes.
const CHECK: &str = "run `atoll store check` on the command line to see the extent of the damage";

/// Hints for table errors: in the terms of the Python package where it has its own, otherwise those of the
/// error itself.
fn of_table(error: &TableError) -> Option<String> {
    let hint = match error {
        TableError::Schema(error) => return of_schema(error),
        TableError::NotFound { .. } => "store.tables() lists the names of the tables",
        TableError::NoRun { near: None, .. } => "begin the run first; table.runs() lists those that exist",
        TableError::Arriving { .. } => {
            "repeat the copy, which continues it; or drop it with store.drop_table()"
        }
        TableError::NoSnapshot { .. } => "table.snapshots() lists those that exist",
        TableError::Damaged { .. } | TableError::ObjectGone { .. } => CHECK,
        other => return other.hint(),
    };
    Some(hint.to_owned())
}

/// Hints for schemas that are refused; none if the error says it all.
fn of_schema(error: &SchemaError) -> Option<String> {
    let hint = match error {
        SchemaError::Unknown { .. } | SchemaError::RoleTwice { .. } | SchemaError::RoleCount { .. } => {
            "id=, sample_key= and index= name columns of the schema"
        }
        SchemaError::RoleType { .. } => {
            "boxes are over numbers and times; ask about other columns with where()"
        }
        SchemaError::RoleNullable { .. } => "give the column a type without ?",
        SchemaError::Twice { .. } | SchemaError::Name { .. } | SchemaError::Taken { .. } => {
            "give it another name"
        }
        SchemaError::Type { .. } => "leave the column out, or give it another type",
        SchemaError::ColumnCount { .. } => "leave columns out, or put numbers together in vectors",
        SchemaError::AddedNotNullable { .. } => "give the column a type with ?",
        SchemaError::Damaged { .. } => CHECK,
        SchemaError::NewerFormat { .. } => "use the release that wrote it, or a later one",
        _ => return None,
    };
    Some(hint.to_owned())
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| raised(py, &failure).unwrap_or_else(|error| error))
    }
}

fn raised(py: Python<'_>, failure: &Failure) -> PyResult<PyErr> {
    let class = py.import("atoll.errors")?.getattr(failure.kind().names().python)?;
    let exception = class.call1((failure.message(),))?;
    if let Some(hint) = failure.hint() {
        exception.setattr("hint", &hint)?;
        if !failure.message().contains(&hint) {
            exception.call_method1("add_note", (format!("hint: {hint}"),))?;
        }
    }
    Ok(PyErr::from_value(exception))
}

/// The kinds of errors: code, class name, and whether a retry can help.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<(&'static str, &'static str, bool)> {
    let row = |kind: &ErrorKind| {
        let names = kind.names();
        (names.code, names.python, names.retry_can_help)
    };
    ErrorKind::ALL.iter().map(row).collect()
}

/// An error that only the package's own Python modules can cause, by misusing the native half.
pub(crate) fn misuse(problem: &str) -> PyErr {
    PyRuntimeError::new_err(problem.to_owned())
}

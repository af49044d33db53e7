//! How calls fail: refused (nothing happened) or unknown (it may have happened), with the facts of the case.

use crate::{Buffer, ErrorKind, SortKey};
use std::error::Error;
use std::io;
use std::sync::Arc;

/// The source of an error, kept for the code that prints it.
pub type Source = Arc<dyn Error + Send + Sync>;

/// Whether a failed call may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing happened.
    Refused,
    /// It may or may not have happened.
    Unknown,
}

/// The first condition of a batch that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its index among the conditions of the batch.
    pub condition: usize,
    /// The cell it is about.
    pub sort: SortKey,
    /// The first bytes of the cell's value, up to 1 MiB; none if the cell is absent.
    pub actual: Option<Buffer>,
    /// Length of the whole value in bytes.
    pub actual_bytes: u64,
}

impl Conflict {
    /// Most bytes of the actual value that a conflict carries.
    pub const ACTUAL_BYTES_MAX: usize = 1 << 20;

    /// The conflict of the condition at index `condition` of the batch, on a cell that holds `actual`.
    #[must_use]
    pub fn new(condition: usize, sort: SortKey, actual: Option<&Buffer>) -> Self {
        Self {
            condition,
            sort,
            // A copy, so that the part that is kept does not hold the rest of a long value in memory.
            actual: actual.map(|value| value.slice(..Self::ACTUAL_BYTES_MAX).to_owned_alone()),
            actual_bytes: actual.map_or(0, |value| value.len() as u64),
        }
    }
}

/// Why a call on a store failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A condition of the batch did not hold.
    #[error("condition {} on sort key \"{}\" does not hold", .0.condition, .0.sort.escape_ascii())]
    Conflict(Box<Conflict>),
    /// The version that was being read is gone, or the fencing token is old.
    #[error("{what} has moved on")]
    Superseded {
        /// What was read or held.
        what: String,
    },
    /// Something named does not exist.
    #[error("there is no {what} \"{name}\"")]
    NotFound {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The name for something new is taken.
    #[error("there is a {what} \"{name}\" already")]
    Exists {
        /// The kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The request is wrong.
    #[error("invalid {what}: {problem}")]
    InvalidInput {
        /// Which part of the request.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        hint: &'static str,
    },
    /// A limit was exceeded.
    #[error("{}", beyond(what, *actual, *max))]
    Limit {
        /// What is limited.
        what: &'static str,
        /// What was asked for.
        actual: u64,
        /// What is allowed.
        max: u64,
    },
    /// The store or build cannot do this.
    #[error("{what} is not supported here")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// What to do instead.
        hint: &'static str,
    },
    /// The caller did not prove who it is.
    #[error("not authenticated at {place}")]
    Unauthenticated {
        /// The door.
        place: String,
    },
    /// Another process owns the store and cannot be reached.
    #[error("{place} is owned by process {pid} on {host}, which cannot be reached from here")]
    Owned {
        /// The store.
        place: String,
        /// Host name of the owner.
        host: String,
        /// Process id of the owner.
        pid: u32,
    },
    /// The process on this machine that owns the store is suspended, and answers no one until it is resumed.
    #[error("{place} is owned by process {pid}, which is suspended")]
    Suspended {
        /// The store.
        place: String,
        /// Process id of the owner.
        pid: u32,
    },
    /// The store cannot serve now.
    #[error("{place} is unavailable: {reason}")]
    Unavailable {
        /// The store.
        place: String,
        /// Why.
        reason: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Source>,
    },
    /// A copy or backup into the folder was not finished, so no store can be opened there.
    #[error("a {what} into {place} was not finished")]
    Unfinished {
        /// Whether it was a copy or a backup.
        what: &'static str,
        /// The folder.
        place: String,
    },
    /// Bytes read back do not match their checksum.
    #[error("{place} is damaged: {problem}")]
    Corrupt {
        /// File and offset, or key.
        place: String,
        /// What does not match.
        problem: String,
    },
    /// No space is left.
    #[error("no space left in {place}")]
    OutOfSpace {
        /// Device or budget.
        place: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Source>,
    },
    /// The store is open for reading only.
    #[error("{place} is read-only")]
    ReadOnly {
        /// The store.
        place: String,
    },
    /// The operating system does not let us write where the store is.
    #[error("{place} may not be written to")]
    Denied {
        /// The store.
        place: String,
        /// The cause.
        #[source]
        source: Source,
    },
    /// The data was written by a newer release.
    #[error("{place} has format {found}; this build reads up to {supported}")]
    NewerFormat {
        /// The store.
        place: String,
        /// Format found.
        found: u32,
        /// Newest format this build reads.
        supported: u32,
    },
    /// The data has a feature of a newer release.
    #[error(
        "{place} has feature bit {bit}, which a build must know to {} it",
        if *to_write { "write to" } else { "read" }
    )]
    NewerFeature {
        /// The store.
        place: String,
        /// The lowest bit that this build does not know.
        bit: u32,
        /// Whether it is one of the features needed to write; the store can then be opened for reading.
        to_write: bool,
    },
    /// The operation failed below, and nothing happened.
    #[error("{what} failed at {place}")]
    Failed {
        /// The operation.
        what: &'static str,
        /// The place.
        place: String,
        /// The cause.
        #[source]
        source: Source,
    },
    /// It may or may not have happened.
    #[error("the outcome of {what} is unknown: {reason}")]
    Unknown {
        /// The operation.
        what: &'static str,
        /// Why it is not known.
        reason: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Source>,
    },
    /// An error of a store in another process, as that process reported it.
    #[error("{message}")]
    Remote {
        /// Its kind.
        kind: ErrorKind,
        /// Whether the call may have taken effect.
        unknown: bool,
        /// Its text.
        message: String,
        /// Its hint.
        hint: Option<String>,
    },
}

impl StoreError {
    /// The refusal of a store that was closed.
    #[must_use]
    pub fn closed(place: impl Into<String>) -> Self {
        Self::Unavailable { place: place.into(), reason: "it was closed".into(), source: None }
    }

    /// The kind, the same at every interface.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict(_) | Self::Superseded { .. } | Self::Exists { .. } => ErrorKind::Conflict,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::InvalidInput { .. } => ErrorKind::InvalidInput,
            Self::Limit { .. } => ErrorKind::Limit,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Unauthenticated { .. } => ErrorKind::Unauthenticated,
            Self::Failed { .. } if self.is_denied() => ErrorKind::Unauthenticated,
            Self::Owned { .. }
            | Self::Suspended { .. }
            | Self::Unavailable { .. }
            | Self::Unfinished { .. }
            | Self::Failed { .. } => ErrorKind::Unavailable,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::OutOfSpace { .. } => ErrorKind::OutOfSpace,
            Self::ReadOnly { .. } | Self::Denied { .. } => ErrorKind::ReadOnly,
            Self::NewerFormat { .. } | Self::NewerFeature { .. } => ErrorKind::NewerFormat,
            Self::Unknown { .. } => ErrorKind::TimedOut,
            Self::Remote { kind, .. } => *kind,
        }
    }

    /// The error of the operating system behind this one, if there is one: the first [`io::Error`] among the
    /// causes, also where several errors share it.
    #[must_use]
    pub fn io_cause(&self) -> Option<&io::Error> {
        let mut next = self.source();
        while let Some(error) = next {
            // A shared cause (an `Arc`) passes `source` on to the error inside, but does not downcast to that
            // error's type: look into the `Arc` as well.
            let shared = error.downcast_ref::<Source>().and_then(|shared| shared.downcast_ref::<io::Error>());
            if let Some(cause) = error.downcast_ref::<io::Error>().or(shared) {
                return Some(cause);
            }
            next = error.source();
        }
        None
    }

    /// Whether the operating system denied permission; to try again would not help.
    fn is_denied(&self) -> bool {
        self.io_cause().is_some_and(|cause| cause.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether the call may have taken effect.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Unknown { .. } | Self::Remote { unknown: true, .. } => Outcome::Unknown,
            _ => Outcome::Refused,
        }
    }

    /// What the user can do about it, to be printed with the error.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::InvalidInput { hint, .. } | Self::Unsupported { hint, .. } => (*hint).to_owned(),
            Self::Limit { what: "schema of a table", .. } => {
                "shorten what the columns have as metadata, such as their descriptions; attributes of the \
                 table hold further notes"
                    .to_owned()
            }
            Self::Limit { what, max, .. } => {
                let (what, unit) = in_bytes(what).map_or((*what, ""), |what| (what, " bytes"));
                format!("keep the {what} at {max}{unit} or less, or split the request")
            }
            Self::Exists { what, .. } => format!("choose another name, or delete that {what} first"),
            Self::NotFound { what: "keyspace", .. } => {
                "`atoll ring keyspace list` lists them, and `create` makes one".to_owned()
            }
            Self::NotFound { what: "token-file" | "password-file", .. } => {
                "name a file that holds it on its first line and that only you can read".to_owned()
            }
            Self::NotFound { what: "snapshot", .. } => {
                "`atoll store snapshot list` lists the names".to_owned()
            }
            Self::Unauthenticated { place } if place.starts_with("ring://") => {
                "name a file with the token of the ring, ring://HOST/?token-file=PATH, or with the password of \
                 user=NAME"
                    .to_owned()
            }
            Self::Owned { host, pid, .. } => {
                format!(
                    "run on {host}, stop process {pid} there, or copy the store; where {host} is gone or was started anew, make sure \
                     that the process has ended, and remove the file `owner` in the folder, if there is one"
                )
            }
            Self::Suspended { pid, .. } => {
                format!("`kill -CONT {pid}` wakes it, or `fg` in the shell that it was stopped in")
            }
            Self::Unfinished { what: "copy", .. } => {
                "run the same `atoll store copy` again to start it over".to_owned()
            }
            Self::Unfinished { .. } => {
                "run the same `atoll store backup` again to complete it; `atoll store copy` of it \
                 writes the state before elsewhere, if there was one"
                    .to_owned()
            }
            Self::Corrupt { .. } => "run `atoll store check` on it for the extent of the damage".to_owned(),
            Self::OutOfSpace { .. } => "free some space, then try again; nothing was lost".to_owned(),
            Self::NewerFeature { to_write: true, .. } => "use a newer atoll: the release that wrote it, or a \
                 later one; this one can read it, named as file:PATH?mode=read"
                .to_owned(),
            Self::NewerFormat { .. } => "use the release that wrote it, or a later one".to_owned(),
            Self::NewerFeature { .. } => {
                "use a newer atoll: the release that wrote it, or a later one".to_owned()
            }
            Self::ReadOnly { .. } => "open it for writing, on writable media".to_owned(),
            Self::Denied { .. } => {
                "`ls -l` shows who may; a user who may only read it names it as file:PATH?mode=read".to_owned()
            }
            Self::Unknown { .. } => {
                "read the cell to see whether it happened, or retry with a request id".to_owned()
            }
            Self::Remote { hint, .. } => return hint.clone(),
            _ => return None,
        };
        Some(hint)
    }
}

/// The name of what is limited, if its limit is in bytes; none if the limit is a count.
fn in_bytes(what: &str) -> Option<&str> {
    match what {
        "batch bytes" => Some("batch"),
        "partition key" | "sort key" | "key" | "value" | "value inside a condition" => Some(what),
        "set of attributes" | "set of notes" | "schema of a table" => Some(what),
        _ => None,
    }
}

/// The message for an exceeded limit, with its unit.
fn beyond(what: &str, actual: u64, max: u64) -> String {
    match in_bytes(what) {
        Some(what) => format!("{what} of {actual} bytes exceeds the limit of {max} bytes"),
        None => format!("{what}: {actual} exceeds the limit of {max}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_in_its_unit() {
        let told = |what| {
            let error = StoreError::Limit { what, actual: 30, max: 20 };
            (error.to_string(), error.hint().unwrap_or_default())
        };
        let (message, hint) = told("sort key");
        assert_eq!(message, "sort key of 30 bytes exceeds the limit of 20 bytes");
        assert!(hint.starts_with("keep the sort key at 20 bytes or less"), "{hint}");
        assert_eq!(told("batch bytes").0, "batch of 30 bytes exceeds the limit of 20 bytes");
        let (message, hint) = told("batch operations");
        assert_eq!(message, "batch operations: 30 exceeds the limit of 20");
        assert!(hint.starts_with("keep the batch operations at 20 or less"), "{hint}");
    }

    #[test]
    fn what_nobody_may_do_there_is_not_told_as_something_to_try_again() {
        let failed = |kind: io::ErrorKind| {
            let (what, place) = ("opening", "data".to_owned());
            let direct =
                StoreError::Failed { what, place: place.clone(), source: Arc::new(io::Error::from(kind)) };
            let below = StoreError::Failed { what, place, source: Arc::new(direct.clone()) };
            [direct.kind(), below.kind()]
        };
        assert_eq!(failed(io::ErrorKind::PermissionDenied), [ErrorKind::Unauthenticated; 2]);
        assert_eq!(failed(io::ErrorKind::ConnectionReset), [ErrorKind::Unavailable; 2]);
    }
}

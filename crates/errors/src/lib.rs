//! Error kinds: one small append-only list, the same in Rust, Python, RESP, HTTP and exit codes.
//!
//! [`nearest`] is for hints that suggest the name that was probably meant.
//!
//! Each library keeps its own typed errors with the details of the case. Every one of them maps to an
//! [`ErrorKind`], and the doors (command line, RESP, HTTP, Python) translate the kind and never the text.
//!
//! Invariant: a kind, once released, keeps its names and its exit code for ever.
//! Invariant: names, codes and exit codes are distinct (the tests below ensure that).

mod nearest;

pub use nearest::nearest;

/// What went wrong, in terms that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The thing named does not exist.
    NotFound,
    /// A condition did not hold, or the state moved on while the call was under way.
    Conflict,
    /// The request itself is wrong; the same request can never succeed.
    InvalidInput,
    /// A stated limit was exceeded; nothing was done.
    Limit,
    /// This store or build cannot do that.
    Unsupported,
    /// The caller did not prove who it is, or may not do that.
    Unauthenticated,
    /// The store cannot serve now; nothing was done.
    Unavailable,
    /// The outcome is not known: the call may or may not have taken effect.
    TimedOut,
    /// Bytes that were read back do not match their checksum.
    Corrupt,
    /// No space is left on the device or in the budget.
    OutOfSpace,
    /// The store was opened for reading, or lies on read-only media.
    ReadOnly,
    /// The data was written by a newer release.
    NewerFormat,
    /// A bug in Atoll.
    Internal,
}

/// The names of a kind at each door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Stable code, in kebab case: logs, `--json`, the wire.
    pub code: &'static str,
    /// First word of a RESP error reply.
    pub resp: &'static str,
    /// HTTP status.
    pub http: u16,
    /// Exception class in the Python package.
    pub python: &'static str,
    /// Exit code of the command line.
    pub exit: u8,
    /// Whether the same call may succeed later, unchanged.
    pub retry_can_help: bool,
}

impl ErrorKind {
    /// All kinds, in the order in which they were added.
    pub const ALL: [Self; 13] = [
        Self::NotFound,
        Self::Conflict,
        Self::InvalidInput,
        Self::Limit,
        Self::Unsupported,
        Self::Unauthenticated,
        Self::Unavailable,
        Self::TimedOut,
        Self::Corrupt,
        Self::OutOfSpace,
        Self::ReadOnly,
        Self::NewerFormat,
        Self::Internal,
    ];

    /// The names of this kind at each door.
    #[must_use]
    pub const fn names(self) -> Names {
        const fn row(
            code: &'static str,
            resp: &'static str,
            http: u16,
            python: &'static str,
            exit: u8,
            retry_can_help: bool,
        ) -> Names {
            Names { code, resp, http, python, exit, retry_can_help }
        }
        match self {
            Self::NotFound => row("not-found", "NOTFOUND", 404, "NotFoundError", 10, false),
            Self::Conflict => row("conflict", "CONFLICT", 409, "ConflictError", 11, true),
            Self::InvalidInput => row("invalid-input", "ERR", 400, "InvalidInputError", 12, false),
            Self::Limit => row("limit", "LIMIT", 413, "LimitError", 13, false),
            Self::Unsupported => row("unsupported", "UNSUPPORTED", 501, "UnsupportedError", 14, false),
            Self::Unauthenticated => row("unauthenticated", "NOAUTH", 401, "UnauthenticatedError", 15, false),
            Self::Unavailable => row("unavailable", "TRYAGAIN", 503, "UnavailableError", 16, true),
            Self::TimedOut => row("timed-out", "UNKNOWN", 504, "TimedOutError", 17, true),
            Self::Corrupt => row("corrupt", "CORRUPT", 500, "CorruptError", 18, false),
            Self::OutOfSpace => row("out-of-space", "OOM", 507, "OutOfSpaceError", 19, true),
            Self::ReadOnly => row("read-only", "READONLY", 403, "ReadOnlyError", 20, false),
            Self::NewerFormat => row("newer-format", "NEWERFORMAT", 505, "NewerFormatError", 21, false),
            Self::Internal => row("internal", "INTERNAL", 520, "InternalError", 70, false),
        }
    }

    /// Stable code, in kebab case.
    #[must_use]
    pub const fn code(self) -> &'static str {
        self.names().code
    }

    /// The kind with this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

impl std::fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn distinct<T: std::hash::Hash + Eq>(of: impl Fn(Names) -> T) -> bool {
        ErrorKind::ALL.iter().map(|kind| of(kind.names())).collect::<HashSet<_>>().len()
            == ErrorKind::ALL.len()
    }

    #[test]
    fn every_door_tells_every_kind_apart() {
        assert!(distinct(|names| names.code));
        assert!(distinct(|names| names.resp));
        assert!(distinct(|names| names.http));
        assert!(distinct(|names| names.python));
        assert!(distinct(|names| names.exit));
    }

    #[test]
    fn names_follow_from_the_code_and_round_trip() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), Some(kind));
            let camel: String =
                kind.code().split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            assert_eq!(kind.names().python, format!("{camel}Error"));
            assert_eq!(format!("{kind:?}"), camel);
        }
        assert_eq!(ErrorKind::from_code("no-such-kind"), None);
    }

    #[test]
    fn released_exit_codes_never_change() {
        let codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| (kind.code(), kind.names().exit)).collect();
        assert_eq!(
            codes,
            [
                ("not-found", 10),
                ("conflict", 11),
                ("invalid-input", 12),
                ("limit", 13),
                ("unsupported", 14),
                ("unauthenticated", 15),
                ("unavailable", 16),
                ("timed-out", 17),
                ("corrupt", 18),
                ("out-of-space", 19),
                ("read-only", 20),
                ("newer-format", 21),
                ("internal", 70),
            ]
        );
    }
}

//! Why bytes are no request or no reply.

use thiserror::Error;

/// Why bytes are no request or no reply. Where the next one begins is not known then: the connection ends
/// with it.
///
/// The text is what a server answers behind `ERR`, in the words of Redis where it has some.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is no number, or beyond the limit.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// The length of an argument is no number, negative, or beyond the limit.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// More arguments than somebody may send who has not said who they are.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// An argument longer than somebody may send who has not said who they are.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedLength,
    /// All arguments together are too long.
    #[error("Protocol error: request of more than {limit} bytes")]
    Total {
        /// The most that they may have.
        limit: usize,
    },
    /// Something else stands where an argument has to begin.
    #[error("Protocol error: expected '$', got '{}'", found.escape_ascii())]
    NoArgument {
        /// The byte found.
        found: u8,
    },
    /// A line does not end where it has to.
    #[error("Protocol error: expected CRLF")]
    LineEnd,
    /// A line has no end within the limit.
    #[error("Protocol error: too big {what}")]
    LongLine {
        /// What the line would have been.
        what: &'static str,
    },
    /// An inline request with a quote that does not end, or with something behind its end.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// A reply of no known type.
    #[error("Protocol error: a reply cannot begin with '{}'", found.escape_ascii())]
    NoReply {
        /// The byte found.
        found: u8,
    },
    /// A number, truth value or null of a reply that is none.
    #[error("Protocol error: '{}' is no {what}", found.escape_ascii())]
    NoScalar {
        /// What it should have been.
        what: &'static str,
        /// The first bytes of what it is.
        found: Vec<u8>,
    },
    /// A reply of more elements, or deeper, than the limit.
    #[error("Protocol error: a reply of more than {limit} {what}")]
    LargeReply {
        /// What there is too much of.
        what: &'static str,
        /// The most there may be.
        limit: usize,
    },
}

//! Why bytes are not a request or not a reply.

use thiserror::Error;

/// Why bytes are not a request or not a reply. The position of the next one is unknown then, so the
/// connection ends.
///
/// A server answers with this text after `ERR`; it is that of Redis where Redis has one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is not a number, or exceeds the limit.
    #[error("Protocol error: invalid multibulk length")]
    Count,
    /// The length of an argument is not a number, is negative, or exceeds the limit.
    #[error("Protocol error: invalid bulk length")]
    Length,
    /// More arguments than an unauthenticated client may send.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// A longer argument than an unauthenticated client may send.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedLength,
    /// All arguments together are too long.
    #[error("Protocol error: request of more than {limit} bytes")]
    Total {
        /// The limit in bytes.
        limit: usize,
    },
    /// An argument does not begin with `$`.
    #[error("Protocol error: expected '$', got '{}'", found.escape_ascii())]
    NoArgument {
        /// The byte found.
        found: u8,
    },
    /// A line does not end with CRLF.
    #[error("Protocol error: expected CRLF")]
    LineEnd,
    /// A line does not end within the limit.
    #[error("Protocol error: too big {what}")]
    LongLine {
        /// What the line would have been.
        what: &'static str,
    },
    /// An inline request has a quote that is not closed, or text directly after a closing quote.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// A reply has an unknown type.
    #[error("Protocol error: a reply cannot begin with '{}'", found.escape_ascii())]
    NoReply {
        /// The byte found.
        found: u8,
    },
    /// A number, truth value or null in a reply is malformed.
    #[error("Protocol error: '{}' is no {what}", found.escape_ascii())]
    NoScalar {
        /// What it should have been.
        what: &'static str,
        /// The first bytes that were found instead.
        found: Vec<u8>,
    },
    /// A reply has more elements, or deeper nesting, than the limit allows.
    #[error("Protocol error: a reply of more than {limit} {what}")]
    LargeReply {
        /// What there is too much of.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

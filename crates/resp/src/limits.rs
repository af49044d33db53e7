//! Limits on what a peer may send.

/// Limits on one request or one reply from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of a request, or elements of all aggregates of a reply together.
    pub elements: usize,
    /// Bytes of one string.
    pub string_bytes: usize,
    /// Bytes of all strings together.
    pub total_bytes: usize,
    /// Nesting of aggregates; for replies only.
    pub depth: usize,
}

/// Longest line, which is an inline request or the header of anything else, in bytes.
pub(crate) const LINE_BYTES: usize = 64 << 10;

impl Limits {
    /// The limits before authentication: ten arguments of 16 KiB, as in Redis.
    pub const UNAUTHENTICATED: Self =
        Self { elements: 10, string_bytes: 16 << 10, total_bytes: 64 << 10, depth: 1 };
}

impl Default for Limits {
    /// What the store contract allows in one request: a value of 64 MiB, or as many operations as a batch may
    /// have.
    fn default() -> Self {
        Self { elements: 1 << 20, string_bytes: 64 << 20, total_bytes: 72 << 20, depth: 32 }
    }
}

//! How much a peer may claim.

/// How much a peer may claim, in one request or one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments of a request, elements of all aggregates of a reply together.
    pub elements: usize,
    /// Bytes of one string.
    pub string_bytes: usize,
    /// Bytes of all strings together.
    pub total_bytes: usize,
    /// Aggregates within each other; of replies only.
    pub depth: usize,
}

/// Bytes of a line, that is of an inline request or of the head of anything else.
pub(crate) const LINE_BYTES: usize = 64 << 10;

impl Limits {
    /// What somebody may send who has not yet said who they are: ten arguments of 16 KiB, as with Redis.
    pub const UNAUTHENTICATED: Self =
        Self { elements: 10, string_bytes: 16 << 10, total_bytes: 64 << 10, depth: 1 };
}

impl Default for Limits {
    /// What the store contract allows in one request: a value of 64 MiB, or as many operations as go into a
    /// batch.
    fn default() -> Self {
        Self { elements: 1 << 20, string_bytes: 64 << 20, total_bytes: 72 << 20, depth: 32 }
    }
}

//! The outcome of reads, and expired keys.

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReadOutcome {
    /// The read was answered.
    Answered,
    /// Nothing was answered: these keys have expired, and have to be deleted first, through the log.
    Expired(Vec<Overdue>),
}

/// An expired key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overdue {
    /// Its slot.
    pub slot: u16,
    /// The key.
    pub key: Vec<u8>,
    /// The deadline that has passed, in milliseconds since 1970.
    pub deadline_ms: u64,
}

//! How reads end, and keys whose time is over.

/// How a read ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReadOutcome {
    /// It was answered.
    Answered,
    /// Nothing was answered: these keys have to be deleted first, through the log, since their time is over.
    Expired(Vec<Overdue>),
}

/// A key whose time is over.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overdue {
    /// Its slot.
    pub slot: u16,
    /// The key.
    pub key: Vec<u8>,
    /// When it should have been deleted, in milliseconds since 1970.
    pub deadline_ms: u64,
}

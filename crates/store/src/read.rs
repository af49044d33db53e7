//! Reads: single values, many values at once, scans, waits, listings, and where data lies.

use crate::{Buffer, PartitionKey, SortKey, SortRange};
use std::time::Duration;

/// A range of the bytes of a value, clamped to its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// How many bytes; to the end of the value for none.
    pub len: Option<u64>,
}

impl ByteRange {
    /// The whole value.
    pub const ALL: Self = Self { offset: 0, len: None };

    /// `len` bytes from `offset`.
    #[must_use]
    pub const fn new(offset: u64, len: u64) -> Self {
        Self { offset, len: Some(len) }
    }

    /// The range within a value of `total` bytes, as start and end.
    #[must_use]
    pub fn within(self, total: u64) -> (u64, u64) {
        let start = self.offset.min(total);
        let end = self.len.map_or(total, |len| start.saturating_add(len).min(total));
        (start, end)
    }
}

impl Default for ByteRange {
    fn default() -> Self {
        Self::ALL
    }
}

/// How a read is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Which bytes of the value.
    pub range: ByteRange,
    /// The vow of `create`: the cell is written at most once, so any copy may answer and bytes may be
    /// cached. Without it the read is linearizable.
    pub immutable: bool,
    /// How long the caller waits; forever for none. A read that is given up counts as refused: it has no
    /// effect.
    pub deadline: Option<Duration>,
}

/// One read of many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The partition.
    pub partition: PartitionKey,
    /// The cell in it.
    pub sort: SortKey,
    /// Which bytes of the value.
    pub range: ByteRange,
    /// The vow of `create`.
    pub immutable: bool,
}

impl Read {
    /// A linearizable read of a whole value.
    pub fn new(partition: impl Into<PartitionKey>, sort: impl Into<SortKey>) -> Self {
        Self { partition: partition.into(), sort: sort.into(), range: ByteRange::ALL, immutable: false }
    }
}

/// Order of a scan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending.
    #[default]
    Forward,
    /// Descending.
    Backward,
}

/// What a scan returns for each key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Projection {
    /// Only the key.
    KeysOnly,
    /// The whole value.
    #[default]
    Values,
    /// Some bytes of the value.
    Bytes(ByteRange),
}

/// Where a scan or listing resumes. Opaque, and valid only for the same request, whose page limit may change;
/// anything else is refused as `invalid-input`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub Vec<u8>);

/// A scan of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRequest {
    /// The partition.
    pub partition: PartitionKey,
    /// Which sort keys.
    pub range: SortRange,
    /// In which order.
    pub direction: Direction,
    /// What of each entry.
    pub projection: Projection,
    /// How many entries a page may hold, at least 1. The store may return fewer, but at least one as long as
    /// there are any. An entry larger than a page gets a page of its own.
    pub limit: usize,
    /// Where the former page ended.
    pub resume: Option<Token>,
}

impl ScanRequest {
    /// A forward scan of all values of `partition`, 1,000 entries a page.
    pub fn all(partition: impl Into<PartitionKey>) -> Self {
        Self {
            partition: partition.into(),
            range: SortRange::all(),
            direction: Direction::Forward,
            projection: Projection::Values,
            limit: 1000,
            resume: None,
        }
    }
}

/// One entry of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanEntry {
    /// The sort key.
    pub sort: SortKey,
    /// The bytes asked for; empty for keys only.
    pub value: Buffer,
    /// Length of the whole value in bytes.
    pub value_bytes: u64,
}

/// One atomic page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// Entries in the order of the scan.
    pub entries: Vec<ScanEntry>,
    /// Where to go on; none at the end.
    pub resume: Option<Token>,
}

/// What a wait is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The cell holds this value; for none, it is absent.
    Equals(Option<Buffer>),
    /// The cell holds anything but this value; for none, it exists.
    Differs(Option<Buffer>),
}

impl Expectation {
    /// Whether a cell with this value meets the expectation.
    #[must_use]
    pub fn is_met(&self, current: Option<&[u8]>) -> bool {
        match self {
            Self::Equals(value) => value.as_deref() == current,
            Self::Differs(value) => value.as_deref() != current,
        }
    }

    /// The bytes of a value that a wait has to read: enough to tell whether the expectation is met, and the
    /// whole value if it is.
    #[must_use]
    pub fn range(&self) -> ByteRange {
        match self {
            // One byte more shows that a value is longer than the expected one.
            Self::Equals(Some(value)) => ByteRange::new(0, (value.len() as u64).saturating_add(1)),
            Self::Equals(None) => ByteRange::new(0, 0),
            Self::Differs(_) => ByteRange::ALL,
        }
    }
}

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A value that the cell held at some moment between call and return; none if it was absent.
    Met(Option<Buffer>),
    /// The time ran out.
    TimedOut,
}

/// A listing of partition keys: unordered, for maintenance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionQuery {
    /// Only keys that start with this.
    pub prefix: Vec<u8>,
    /// Only keys of this split.
    pub split: Option<Split>,
    /// How many keys a page may hold, at least 1. The store may return fewer, even none: only a missing token
    /// marks the end.
    pub limit: usize,
    /// Where the former page ended.
    pub resume: Option<Token>,
}

impl PartitionQuery {
    /// All partition keys that start with `prefix`, 1,000 a page.
    pub fn prefix(prefix: impl Into<Vec<u8>>) -> Self {
        Self { prefix: prefix.into(), split: None, limit: 1000, resume: None }
    }
}

/// One page of partition keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionPage {
    /// The keys.
    pub partitions: Vec<PartitionKey>,
    /// Where to go on; none at the end.
    pub resume: Option<Token>,
}

/// One part of a store, for one of several parallel readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Opaque description of the part.
    pub token: Token,
    /// Where its data lies.
    pub place: Place,
}

/// Where data lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this process or on this machine.
    Here,
    /// On another machine.
    Host(String),
}

/// A moment of the store's clock, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment `duration` later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_wait_reads_of_a_value_decides_as_the_whole_value_does() {
        let values: Vec<&[u8]> = vec![b"", b"a", b"b", b"aa", b"ab", b"aaa"];
        let all: Vec<Option<&[u8]>> = values.into_iter().map(Some).chain([None]).collect();
        for &expected in &all {
            let buffer = expected.map(Buffer::copy_from);
            for expectation in [Expectation::Equals(buffer.clone()), Expectation::Differs(buffer)] {
                for &current in &all {
                    let read = current.map(|value| {
                        let (from, to) = expectation.range().within(value.len() as u64);
                        &value[from as usize..to as usize]
                    });
                    assert_eq!(
                        expectation.is_met(read),
                        expectation.is_met(current),
                        "{expectation:?} {current:?}"
                    );
                    assert!(!expectation.is_met(read) || read == current, "{expectation:?} {current:?}");
                }
            }
        }
    }
}

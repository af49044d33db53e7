//! Keys: which cell of which partition, and ranges of sort keys.

use std::ops::Bound;

/// A partition key: 1 B to 16 KiB.
pub type PartitionKey = Vec<u8>;

/// A sort key: 0 B to 16 KiB, ordered as bytes.
pub type SortKey = Vec<u8>;

/// One cell, by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cell<'a> {
    /// Which sorted map.
    pub partition: &'a [u8],
    /// Which entry of it.
    pub sort: &'a [u8],
}

impl<'a> Cell<'a> {
    /// The cell `sort` of `partition`.
    pub fn new(partition: &'a (impl AsRef<[u8]> + ?Sized), sort: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { partition: partition.as_ref(), sort: sort.as_ref() }
    }
}

/// A range of sort keys of one partition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortRange {
    /// Lower end.
    pub from: Bound<SortKey>,
    /// Upper end.
    pub to: Bound<SortKey>,
}

impl SortRange {
    /// Every sort key.
    #[must_use]
    pub const fn all() -> Self {
        Self { from: Bound::Unbounded, to: Bound::Unbounded }
    }

    /// The half-open range `[from, to)`.
    #[must_use]
    pub fn half_open(from: impl Into<SortKey>, to: impl Into<SortKey>) -> Self {
        Self { from: Bound::Included(from.into()), to: Bound::Excluded(to.into()) }
    }

    /// Every sort key that starts with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        let to = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Self { from: Bound::Included(prefix.to_vec()), to }
    }

    /// Whether `sort` lies in the range.
    #[must_use]
    pub fn contains(&self, sort: &[u8]) -> bool {
        let above = match &self.from {
            Bound::Included(from) => sort >= from.as_slice(),
            Bound::Excluded(from) => sort > from.as_slice(),
            Bound::Unbounded => true,
        };
        above
            && match &self.to {
                Bound::Included(to) => sort <= to.as_slice(),
                Bound::Excluded(to) => sort < to.as_slice(),
                Bound::Unbounded => true,
            }
    }

    /// Whether no key can lie in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
            | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
            _ => matches!(&self.to, Bound::Excluded(to) if to.is_empty()),
        }
    }
}

/// The smallest key above every key that starts with `prefix`; none when there is no such key.
fn prefix_end(prefix: &[u8]) -> Option<SortKey> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_holds_exactly_the_keys_with_the_prefix() {
        for prefix in [&b""[..], b"a", b"a\xff", b"\xff\xff"] {
            let range = SortRange::prefix(prefix);
            for key in [&b""[..], b"a", b"a\x00", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff\x01"] {
                assert_eq!(range.contains(key), key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }

    #[test]
    fn an_inverted_or_empty_range_says_so() {
        assert!(SortRange::half_open(*b"b", *b"a").is_empty());
        assert!(SortRange::half_open(*b"a", *b"a").is_empty());
        assert!(SortRange::half_open(*b"", *b"").is_empty());
        assert!(!SortRange::half_open(*b"a", *b"b").is_empty());
        assert!(!SortRange::all().is_empty());
    }
}

//! The net effect of a list of mutations: one change for each cell, and ranges that touch none of these
//! cells.
//!
//! All mutations of one conditional batch carry the same timestamp, and a deletion wins over a value with
//! that timestamp, whatever the order was. So the order is resolved here, and the batch that is sent has
//! none.
//!
//! Invariant: no range contains a cell that is changed on its own, and no two ranges overlap.

use atoll_store::{Buffer, Limits, Mutation, SortKey, SortRange, StoreError};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The new state of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The cell holds these bytes, concatenated.
    Put(Vec<Buffer>),
    /// These bytes are appended to its value.
    Append(Vec<Buffer>),
    /// The cell is deleted.
    Delete,
}

/// A half-open range: from the first sort key up to, but excluding, the second.
pub(crate) type HalfOpen = (SortKey, Option<SortKey>);

/// The net effect of a list of mutations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Net {
    /// Changes to single cells.
    pub(crate) cells: BTreeMap<SortKey, Change>,
    /// Ranges that are deleted besides.
    pub(crate) ranges: Vec<HalfOpen>,
}

impl Net {
    /// Computes the net effect for cells that have these lengths at present.
    ///
    /// # Errors
    /// `limit` if an append makes a value too long.
    pub(crate) fn of(
        mutations: &[Mutation],
        length: impl Fn(&[u8]) -> u64,
        limits: &Limits,
    ) -> Result<Self, StoreError> {
        let mut net = Self::default();
        for mutation in mutations {
            match mutation {
                Mutation::Put(sort, value) => {
                    net.cells.insert(sort.clone(), Change::Put(vec![value.clone()]));
                }
                Mutation::Append(sort, bytes) => {
                    net.append(sort, bytes);
                    limits.check_value(net.length(sort, &length))?;
                }
                Mutation::Delete(sort) => {
                    net.cells.insert(sort.clone(), Change::Delete);
                }
                Mutation::DeleteRange(range) if range.is_empty() => {}
                Mutation::DeleteRange(range) => {
                    net.cells.retain(|sort, _| !range.contains(sort));
                    net.ranges.push(half_open(range));
                }
            }
        }
        net.separate();
        Ok(net)
    }

    fn append(&mut self, sort: &SortKey, bytes: &Buffer) {
        let is_fresh = self.is_deleted(sort);
        let change = self.cells.entry(sort.clone()).or_insert_with(|| match is_fresh {
            true => Change::Put(Vec::new()),
            false => Change::Append(Vec::new()),
        });
        match change {
            Change::Put(parts) | Change::Append(parts) => parts.push(bytes.clone()),
            Change::Delete => *change = Change::Put(vec![bytes.clone()]),
        }
    }

    fn length(&self, sort: &[u8], before: impl Fn(&[u8]) -> u64) -> u64 {
        let sum = |parts: &[Buffer]| parts.iter().map(|part| part.len() as u64).sum::<u64>();
        match self.cells.get(sort) {
            None => before(sort),
            Some(Change::Put(parts)) => sum(parts),
            Some(Change::Append(parts)) => before(sort) + sum(parts),
            Some(Change::Delete) => 0,
        }
    }

    fn is_deleted(&self, sort: &[u8]) -> bool {
        self.ranges.iter().any(|range| contains(range, sort))
    }

    /// Joins ranges that overlap or touch, and cuts them at cells that are changed.
    fn separate(&mut self) {
        self.ranges.sort();
        let mut joined: Vec<HalfOpen> = Vec::new();
        for range in std::mem::take(&mut self.ranges) {
            match joined.last_mut() {
                Some((_, end)) if end.as_ref().is_none_or(|end| *end >= range.0) => {
                    *end = match (end.take(), range.1) {
                        (Some(one), Some(other)) => Some(one.max(other)),
                        _ => None,
                    };
                }
                _ => joined.push(range),
            }
        }
        self.cells.retain(|sort, change| {
            *change != Change::Delete || !joined.iter().any(|range| contains(range, sort))
        });
        for (from, to) in joined {
            self.cut(from, to);
        }
    }

    fn cut(&mut self, mut from: SortKey, to: Option<SortKey>) {
        let upper = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let written = self.cells.range::<SortKey, _>((Bound::Included(&from), upper));
        let written: Vec<SortKey> = written.map(|(sort, _)| sort.clone()).collect();
        for sort in written {
            let next = after(&sort);
            if from < sort {
                self.ranges.push((from, Some(sort)));
            }
            from = next;
        }
        if to.as_ref().is_none_or(|to| from < *to) {
            self.ranges.push((from, to));
        }
    }
}

fn contains((from, to): &HalfOpen, sort: &[u8]) -> bool {
    from.as_slice() <= sort && to.as_ref().is_none_or(|to| sort < to.as_slice())
}

/// The smallest sort key greater than `sort`.
pub(crate) fn after(sort: &[u8]) -> SortKey {
    [sort, &[0]].concat()
}

/// The range as its first key and the first key behind it.
pub(crate) fn half_open(range: &SortRange) -> HalfOpen {
    let from = match &range.from {
        Bound::Unbounded => SortKey::new(),
        Bound::Included(from) => from.clone(),
        Bound::Excluded(from) => after(from),
    };
    let to = match &range.to {
        Bound::Unbounded => None,
        Bound::Included(to) => Some(after(to)),
        Bound::Excluded(to) => Some(to.clone()),
    };
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::Batch;

    type Cells = BTreeMap<Vec<u8>, Vec<u8>>;

    const KEYS: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"ab", b"b", b"\xff", b"\xff\xff"];

    fn random_range(random: &mut fastrand::Rng) -> SortRange {
        let mut bound = || match (random.u8(0..3), KEYS[random.usize(0..KEYS.len())].to_vec()) {
            (0, _) => Bound::Unbounded,
            (1, key) => Bound::Included(key),
            (_, key) => Bound::Excluded(key),
        };
        SortRange { from: bound(), to: bound() }
    }

    fn random_batch(random: &mut fastrand::Rng) -> Batch {
        let mut batch = Batch::on(*b"p");
        for _ in 0..random.usize(0..7) {
            let key = KEYS[random.usize(0..KEYS.len())];
            let value = vec![random.u8(b'a'..=b'z')];
            batch = match random.u8(0..5) {
                0 => batch.put(key, value),
                1 => batch.append(key, value),
                2 => batch.delete(key),
                _ => batch.delete_range(random_range(random)),
            };
        }
        batch
    }

    fn in_order(mut cells: Cells, mutations: &[Mutation]) -> Cells {
        for mutation in mutations {
            match mutation {
                Mutation::Put(sort, value) => drop(cells.insert(sort.clone(), value.to_vec())),
                Mutation::Append(sort, bytes) => {
                    cells.entry(sort.clone()).or_default().extend_from_slice(bytes)
                }
                Mutation::Delete(sort) => drop(cells.remove(sort)),
                Mutation::DeleteRange(range) => cells.retain(|sort, _| !range.contains(sort)),
            }
        }
        cells
    }

    /// What the database does: deletions win over values with the same timestamp.
    fn without_order(before: &Cells, net: &Net) -> Cells {
        let mut cells = before.clone();
        for (sort, change) in &net.cells {
            match change {
                Change::Put(parts) => drop(cells.insert(sort.clone(), parts.concat_bytes())),
                Change::Append(parts) => {
                    cells.entry(sort.clone()).or_default().extend(parts.concat_bytes());
                }
                Change::Delete => {}
            }
        }
        cells.retain(|sort, _| {
            !net.ranges.iter().any(|range| contains(range, sort))
                && net.cells.get(sort) != Some(&Change::Delete)
        });
        cells
    }

    trait Joined {
        fn concat_bytes(&self) -> Vec<u8>;
    }

    impl Joined for Vec<Buffer> {
        fn concat_bytes(&self) -> Vec<u8> {
            self.iter().flat_map(|part| part.to_vec()).collect()
        }
    }

    #[test]
    fn what_is_left_without_order_is_what_the_order_came_to() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..20_000 {
            let batch = random_batch(&mut random);
            let before: Cells = KEYS
                .iter()
                .filter(|_| random.bool())
                .map(|key| (key.to_vec(), b"old".to_vec()))
                .collect::<Vec<_>>()
                .into_iter()
                .collect();
            let length = |sort: &[u8]| before.get(sort).map_or(0, |value| value.len() as u64);
            let net = Net::of(&batch.mutations, length, &Limits::CONTRACT).unwrap();
            assert_eq!(
                without_order(&before, &net),
                in_order(before.clone(), &batch.mutations),
                "seed {seed}, round {round}: {batch:?} became {net:?}"
            );
            let overlap =
                net.ranges.windows(2).find(|pair| pair[0].1.as_ref().is_none_or(|end| *end > pair[1].0));
            assert_eq!(overlap, None, "seed {seed}, round {round}");
        }
    }

    #[test]
    fn an_append_that_is_too_long_is_refused_even_if_the_cell_is_deleted_after_it() {
        let limits = Limits { value_bytes: 4, ..Limits::CONTRACT };
        let batch = Batch::on(*b"p").append(*b"a", b"12".to_vec()).delete(*b"a");
        assert!(Net::of(&batch.mutations, |_| 3, &limits).is_err());
        assert!(Net::of(&batch.mutations, |_| 2, &limits).is_ok());
    }
}

//! What a store can do, and the limits that every implementation checks in the same way.

use crate::{Batch, Cell, Condition, Durability, Expectation, Mutation, SortRange, StoreError};
use std::ops::Bound;
use std::time::Duration;

/// What a store can do and what things cost, for models and schedulers that adapt.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Sizes beyond which a call is refused.
    pub limits: Limits,
    /// Durability classes it offers, weakest first.
    pub durability: Vec<Durability>,
    /// The class of a write that names none.
    pub durability_default: Durability,
    /// Whether a keys-only scan skips large values without reading them.
    pub cheap_scans_across_large_values: bool,
    /// How many waits may be open at once.
    pub waiters_max: usize,
    /// Usual time from a write to the return of a wait for it.
    pub wait_latency: Duration,
    /// The number of requests in flight at which the store performs best.
    pub parallelism_best: usize,
    /// Usual cost of one request.
    pub round_trip: Duration,
    /// The least time for which a request id is remembered.
    pub request_memory: Duration,
    /// The least number of request ids, the latest ones, that are remembered; 0 where they are remembered by
    /// time alone.
    pub request_memory_count: usize,
}

impl Capabilities {
    /// The class at which a write that asks for `asked` is acknowledged: the weakest on offer that is at
    /// least as strong, or the default if it asks for none.
    ///
    /// # Errors
    /// `unsupported` if the store offers nothing as strong.
    pub fn durability_for(&self, asked: Option<Durability>) -> Result<Durability, StoreError> {
        let Some(asked) = asked else { return Ok(self.durability_default) };
        self.durability.iter().copied().filter(|&offered| offered >= asked).min().ok_or_else(|| {
            StoreError::Unsupported {
                what: format!("durability class {}", asked.name()),
                hint: "ask for a class that the store's capabilities name, or use a store on a folder",
            }
        })
    }
}

/// Sizes in bytes (except `batch_operations`, a count) beyond which a call is refused and nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest partition key.
    pub partition_key_bytes: usize,
    /// Longest sort key.
    pub sort_key_bytes: usize,
    /// Longest value, appends included.
    pub value_bytes: u64,
    /// Longest value in a condition.
    pub condition_bytes: usize,
    /// Most conditions and mutations of a batch.
    pub batch_operations: usize,
    /// Most bytes of keys and values of a batch. A single larger value goes alone: the value of a batch's
    /// only mutation is not counted.
    pub batch_bytes: usize,
    /// Most bytes of keys and values of a page.
    pub page_bytes: usize,
}

impl Limits {
    /// The limits of the contract; a store may report less, never more.
    pub const CONTRACT: Self = Self {
        partition_key_bytes: 16 << 10,
        sort_key_bytes: 16 << 10,
        value_bytes: 64 << 20,
        condition_bytes: 1 << 20,
        batch_operations: 1000,
        batch_bytes: 8 << 20,
        page_bytes: 4 << 20,
    };

    /// Checks a partition key.
    ///
    /// # Errors
    /// `invalid-input` for an empty key, `limit` for a long one.
    pub fn check_partition(&self, partition: &[u8]) -> Result<(), StoreError> {
        if partition.is_empty() {
            return Err(StoreError::InvalidInput {
                what: "partition key",
                problem: "it is empty".into(),
                hint: "a partition key has 1 byte to 16 KiB",
            });
        }
        check("partition key", partition.len() as u64, self.partition_key_bytes as u64)
    }

    /// Checks the keys of one cell.
    ///
    /// # Errors
    /// `invalid-input` for an empty partition key, `limit` for a long key.
    pub fn check_cell(&self, cell: Cell<'_>) -> Result<(), StoreError> {
        self.check_partition(cell.partition)?;
        self.check_sort(cell.sort)
    }

    /// Checks a sort key.
    ///
    /// # Errors
    /// `limit` for a long key.
    pub fn check_sort(&self, sort: &[u8]) -> Result<(), StoreError> {
        check("sort key", sort.len() as u64, self.sort_key_bytes as u64)
    }

    /// Checks the length of a value.
    ///
    /// # Errors
    /// `limit` for a long value.
    pub fn check_value(&self, bytes: u64) -> Result<(), StoreError> {
        check("value", bytes, self.value_bytes)
    }

    /// Checks everything about a batch that does not depend on the store's content.
    ///
    /// # Errors
    /// `invalid-input` or `limit`, naming what is wrong.
    pub fn check_batch(&self, batch: &Batch) -> Result<(), StoreError> {
        self.check_partition(&batch.partition)?;
        check("batch operations", batch.operations() as u64, self.batch_operations as u64)?;
        let mut total = 0;
        for condition in &batch.conditions {
            self.check_sort(condition.sort())?;
            total += condition.sort().len();
            if let Condition::Equals(_, value) = condition {
                self.check_condition_value(value)?;
                total += value.len();
            }
        }
        let is_alone = batch.mutations.len() == 1;
        for mutation in &batch.mutations {
            let (key_bytes, value_bytes) = self.check_mutation(mutation)?;
            total += key_bytes + if is_alone { 0 } else { value_bytes };
        }
        check("batch bytes", total as u64, self.batch_bytes as u64)
    }

    /// Checks both ends of a range.
    ///
    /// # Errors
    /// `limit` for a long key.
    pub fn check_range(&self, range: &SortRange) -> Result<(), StoreError> {
        bounds(range).try_for_each(|sort| self.check_sort(sort))
    }

    /// Checks the expectation of a wait; its value has the limit of a value inside a condition.
    ///
    /// # Errors
    /// `limit` for a long value.
    pub fn check_expectation(&self, expectation: &Expectation) -> Result<(), StoreError> {
        let (Expectation::Equals(value) | Expectation::Differs(value)) = expectation;
        self.check_condition_value(value.as_deref().unwrap_or_default())
    }

    fn check_condition_value(&self, value: &[u8]) -> Result<(), StoreError> {
        check("value inside a condition", value.len() as u64, self.condition_bytes as u64)
    }

    /// Checks one mutation and returns the bytes of its keys and of its value.
    fn check_mutation(&self, mutation: &Mutation) -> Result<(usize, usize), StoreError> {
        match mutation {
            Mutation::Put(sort, value) | Mutation::Append(sort, value) => {
                self.check_sort(sort)?;
                self.check_value(value.len() as u64)?;
                Ok((sort.len(), value.len()))
            }
            Mutation::Delete(sort) => self.check_sort(sort).map(|()| (sort.len(), 0)),
            Mutation::DeleteRange(range) => {
                self.check_range(range)?;
                Ok((bounds(range).map(Vec::len).sum(), 0))
            }
        }
    }
}

fn bounds(range: &SortRange) -> impl Iterator<Item = &Vec<u8>> {
    [&range.from, &range.to].into_iter().filter_map(|bound| match bound {
        Bound::Included(sort) | Bound::Excluded(sort) => Some(sort),
        Bound::Unbounded => None,
    })
}

fn check(what: &'static str, actual: u64, max: u64) -> Result<(), StoreError> {
    if actual <= max { Ok(()) } else { Err(StoreError::Limit { what, actual, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, ErrorKind};

    /// The contract's proportions, in sizes that are quick to fill.
    const SMALL: Limits = Limits {
        partition_key_bytes: 4,
        sort_key_bytes: 4,
        value_bytes: 100,
        condition_bytes: 10,
        batch_operations: 5,
        batch_bytes: 50,
        page_bytes: 40,
    };

    fn of(len: usize) -> Buffer {
        Buffer::build(len, |_| ())
    }

    fn refused(batch: &Batch) -> Option<(ErrorKind, String)> {
        SMALL.check_batch(batch).err().map(|error| (error.kind(), error.to_string()))
    }

    #[test]
    fn every_limit_takes_its_maximum_and_refuses_one_more() {
        let p = || Batch::on(*b"p");
        let cases = [
            (
                Batch::on(vec![1; 4]).put(vec![], of(0)),
                Batch::on(vec![1; 5]).put(vec![], of(0)),
                "partition key of ",
            ),
            (p().put(vec![1; 4], of(1)), p().put(vec![1; 5], of(1)), "sort key of "),
            (p().delete(vec![1; 4]), p().delete(vec![1; 5]), "sort key of "),
            (p().if_absent(vec![1; 4]), p().if_absent(vec![1; 5]), "sort key of "),
            (p().put(*b"k", of(100)), p().put(*b"k", of(101)), "value of "),
            (p().append(*b"k", of(100)), p().append(*b"k", of(101)), "value of "),
            (p().if_equals(*b"k", of(10)), p().if_equals(*b"k", of(11)), "value inside a condition of "),
            (
                p().put(*b"k", of(24)).put(*b"l", of(24)),
                p().put(*b"k", of(24)).put(*b"l", of(25)),
                "batch of ",
            ),
            (
                (0..5).fold(p(), |batch, at| batch.delete([at])),
                (0..6).fold(p(), |batch, at| batch.delete([at])),
                "batch operations: ",
            ),
            (
                p().delete_range(SortRange::half_open([1; 4], [2; 4])),
                p().delete_range(SortRange::half_open([1; 4], [2; 5])),
                "sort key of ",
            ),
        ];
        for (most, more, what) in cases {
            assert_eq!(refused(&most), None, "{what}");
            let (kind, message) = refused(&more).expect(what);
            assert_eq!(kind, ErrorKind::Limit, "{what}");
            assert!(message.starts_with(what), "{message}");
        }
    }

    #[test]
    fn a_single_larger_value_goes_alone_even_under_conditions() {
        let swap = Batch::on(*b"p").if_equals(*b"k", of(10)).put(*b"k", of(100));
        assert_eq!(refused(&swap), None);
        let in_company = swap.put(*b"l", of(0));
        assert_eq!(refused(&in_company).map(|(kind, _)| kind), Some(ErrorKind::Limit));
    }

    #[test]
    fn an_empty_partition_key_is_invalid_and_an_empty_sort_key_is_not() {
        assert_eq!(
            refused(&Batch::on(vec![]).put(*b"k", of(0))).map(|(kind, _)| kind),
            Some(ErrorKind::InvalidInput)
        );
        assert_eq!(refused(&Batch::on(*b"p").put(vec![], of(0))), None);
    }

    #[test]
    fn the_value_of_a_wait_is_limited_as_in_a_condition() {
        assert!(SMALL.check_expectation(&Expectation::Equals(Some(of(10)))).is_ok());
        assert!(SMALL.check_expectation(&Expectation::Differs(None)).is_ok());
        let error = SMALL.check_expectation(&Expectation::Differs(Some(of(11)))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
    }
}

//! What a store can do, and the limits that every implementation checks in the same way.

use crate::{Batch, Cell, Condition, Durability, Mutation, StoreError};
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
    /// Whether a keys-only scan steps over large values without reading them.
    pub cheap_scans_across_large_values: bool,
    /// How many waits may be open at once.
    pub waiters_max: usize,
    /// Usual time from a write to the return of a wait for it.
    pub wait_latency: Duration,
    /// Requests in flight with which it does best.
    pub parallelism_best: usize,
    /// Usual cost of one request.
    pub round_trip: Duration,
    /// For how long a request id is remembered at least.
    pub request_memory: Duration,
    /// How many request ids are remembered at least, the latest ones.
    pub request_memory_count: usize,
}

/// Sizes in bytes (but for `batch_operations`) beyond which a call is refused and nothing is done.
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
    /// Most bytes of keys and values of a batch; a batch of one mutation may exceed it.
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

    /// Checks everything about a batch that can be told without the store's content.
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
                check("value inside a condition", value.len() as u64, self.condition_bytes as u64)?;
                total += value.len();
            }
        }
        for mutation in &batch.mutations {
            total += self.check_mutation(mutation)?;
        }
        if batch.mutations.len() == 1 && batch.conditions.is_empty() {
            return Ok(());
        }
        check("batch bytes", total as u64, self.batch_bytes as u64)
    }

    fn check_mutation(&self, mutation: &Mutation) -> Result<usize, StoreError> {
        match mutation {
            Mutation::Put(sort, value) | Mutation::Append(sort, value) => {
                self.check_sort(sort)?;
                self.check_value(value.len() as u64)?;
                Ok(sort.len() + value.len())
            }
            Mutation::Delete(sort) => {
                self.check_sort(sort)?;
                Ok(sort.len())
            }
            Mutation::DeleteRange(range) => {
                let mut bytes = 0;
                for bound in [&range.from, &range.to] {
                    if let std::ops::Bound::Included(sort) | std::ops::Bound::Excluded(sort) = bound {
                        self.check_sort(sort)?;
                        bytes += sort.len();
                    }
                }
                Ok(bytes)
            }
        }
    }
}

fn check(what: &'static str, actual: u64, max: u64) -> Result<(), StoreError> {
    if actual <= max { Ok(()) } else { Err(StoreError::Limit { what, actual, max }) }
}

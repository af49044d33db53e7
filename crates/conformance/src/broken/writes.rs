//! Planted flaws of writes, one type each.

use super::planted::Flaw;
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, Cell, Condition, Conflict, Durability, Expectation, Mutation, ReadOptions, SortRange,
    Store, StoreError, StoreFuture, Waited, WriteOptions, Written,
};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::yield_now;

const DONE: Written = Written { durability: Durability::Buffered, repeated: false };

async fn read(honest: &MemoryStore, partition: &[u8], sort: &[u8]) -> Result<Option<Buffer>, StoreError> {
    honest.get(Cell::new(partition, sort), ReadOptions::default()).await
}

/// Rewrites each mutation of the batch.
fn mapped(mut batch: Batch, map: impl FnMut(Mutation) -> Mutation) -> Batch {
    batch.mutations = batch.mutations.into_iter().map(map).collect();
    batch
}

/// Appends by reading, adding and writing back.
#[derive(Default)]
pub struct LostAppend;

impl Flaw for LostAppend {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let [Mutation::Append(sort, bytes)] = batch.mutations.as_slice() else {
                return honest.write(batch, options).await;
            };
            let former = read(honest, &batch.partition, sort).await?.unwrap_or_default();
            yield_now().await;
            let value = [&former[..], bytes].concat();
            let put = Batch { mutations: vec![], ..batch.clone() }.put(sort.clone(), value);
            honest.write(put, options).await
        })
    }
}

/// Applies the mutations one by one, not atomically.
#[derive(Default)]
pub struct BatchInSteps;

impl Flaw for BatchInSteps {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let Batch { partition, conditions, mut mutations } = batch;
            let rest = mutations.split_off(mutations.len().min(1));
            let written =
                honest.write(Batch { partition: partition.clone(), conditions, mutations }, options).await?;
            for mutation in rest {
                yield_now().await;
                let step = Batch { mutations: vec![mutation], ..Batch::on(partition.clone()) };
                honest.write(step, WriteOptions::default()).await?;
            }
            Ok(written)
        })
    }
}

/// Applies all puts before all deletes.
#[derive(Default)]
pub struct MutationsReordered;

impl Flaw for MutationsReordered {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        mut batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        batch
            .mutations
            .sort_by_key(|mutation| matches!(mutation, Mutation::Delete(_) | Mutation::DeleteRange(_)));
        honest.write(batch, options)
    }
}

/// Checks conditions against the values that the batch itself puts.
#[derive(Default)]
pub struct ConditionAfterMutation;

impl Flaw for ConditionAfterMutation {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        mut batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        let puts: Vec<_> = batch.mutations.clone();
        batch.conditions.retain(|condition| {
            !puts.iter().any(|mutation| match mutation {
                Mutation::Put(sort, value) => sort == condition.sort() && condition.holds(Some(value)),
                Mutation::Delete(sort) => sort == condition.sort() && condition.holds(None),
                _ => false,
            })
        });
        honest.write(batch, options)
    }
}

/// Reports the last condition that does not hold, not the first.
#[derive(Default)]
pub struct ConflictTellsLastCondition;

impl Flaw for ConflictTellsLastCondition {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let result = honest.write(batch.clone(), options).await;
            let Err(StoreError::Conflict(first)) = result else { return result };
            for (at, condition) in batch.conditions.iter().enumerate().rev() {
                let actual = read(honest, &batch.partition, condition.sort()).await?;
                if !condition.holds(actual.as_deref()) {
                    let last = Conflict::new(at, condition.sort().to_vec(), actual.as_ref());
                    return Err(StoreError::Conflict(Box::new(last)));
                }
            }
            Err(StoreError::Conflict(first))
        })
    }
}

/// Reports the expected value instead of the value found.
#[derive(Default)]
pub struct ConflictTellsWrongValue;

impl Flaw for ConflictTellsWrongValue {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let conditions = batch.conditions.clone();
            honest.write(batch, options).await.map_err(|error| match error {
                StoreError::Conflict(conflict) => {
                    let expected = match &conditions[conflict.condition] {
                        Condition::Absent(_) => None,
                        Condition::Equals(_, value) => Some(value),
                    };
                    StoreError::Conflict(Box::new(Conflict::new(conflict.condition, conflict.sort, expected)))
                }
                other => other,
            })
        })
    }
}

/// Also deletes the end of a half-open range.
#[derive(Default)]
pub struct DeleteRangeOffByOne;

impl Flaw for DeleteRangeOffByOne {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        let widened = mapped(batch, |mutation| match mutation {
            Mutation::DeleteRange(SortRange { from, to: Bound::Excluded(to) }) => {
                Mutation::DeleteRange(SortRange { from, to: Bound::Included(to) })
            }
            other => other,
        });
        honest.write(widened, options)
    }
}

/// Gives conditional writes timestamps in the future, so that a plain put right after one is lost.
#[derive(Default)]
pub struct PlainAndConditionalMixed {
    ahead: Mutex<HashSet<(Vec<u8>, Vec<u8>)>>,
}

impl Flaw for PlainAndConditionalMixed {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let [Mutation::Put(sort, _)] = batch.mutations.as_slice() else {
                return honest.write(batch, options).await;
            };
            let cell = (batch.partition.clone(), sort.clone());
            if batch.conditions.is_empty() && self.ahead.lock().remove(&cell) {
                return Ok(DONE);
            }
            let is_conditional = !batch.conditions.is_empty();
            let written = honest.write(batch, options).await?;
            if is_conditional {
                self.ahead.lock().insert(cell);
            }
            Ok(written)
        })
    }
}

/// Checks conditions first and writes later.
#[derive(Default)]
pub struct LostUpdate;

impl Flaw for LostUpdate {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let check = Batch { mutations: vec![], ..batch.clone() };
            honest.write(check, WriteOptions::default()).await?;
            yield_now().await;
            honest.write(Batch { conditions: vec![], ..batch }, options).await
        })
    }
}

/// The number of writes under way; a write that overlaps another one times out.
#[derive(Default)]
struct Traffic(AtomicUsize);

impl Traffic {
    /// Whether no other write came within a moment.
    async fn is_calm(&self) -> bool {
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        yield_now().await;
        self.0.fetch_sub(1, Ordering::SeqCst);
        before == 0
    }
}

/// Times out if another write is under way, does nothing, and reports the write as done.
#[derive(Default)]
pub struct UnknownReportedAsDone(Traffic);

impl Flaw for UnknownReportedAsDone {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(
            async move { if self.0.is_calm().await { honest.write(batch, options).await } else { Ok(DONE) } },
        )
    }
}

/// Loses the answer if another write is under way, and reports that nothing happened.
#[derive(Default)]
pub struct DoneReportedAsRefused(Traffic);

impl Flaw for DoneReportedAsRefused {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let is_calm = self.0.is_calm().await;
            let written = honest.write(batch, options).await?;
            let reason = "too busy".into();
            let refused = StoreError::Unavailable { place: "the store".into(), reason, source: None };
            if is_calm { Ok(written) } else { Err(refused) }
        })
    }
}

/// Keeps 1 MiB of a value and silently drops the rest.
#[derive(Default)]
pub struct TruncatedValue;

impl Flaw for TruncatedValue {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        let truncated = mapped(batch, |mutation| match mutation {
            Mutation::Put(sort, value) if value.len() < 60 << 20 => {
                Mutation::Put(sort, value.slice(..1 << 20))
            }
            other => other,
        });
        honest.write(truncated, options)
    }
}

/// Accepts a batch of any number of operations, and applies it in parts.
#[derive(Default)]
pub struct BatchLimitIgnored;

impl Flaw for BatchLimitIgnored {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        mut batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            if batch.mutations.len() > 500 {
                let rest = batch.mutations.split_off(500);
                let rest = Batch { mutations: rest, ..Batch::on(batch.partition.clone()) };
                honest.write(batch, options).await?;
                return honest.write(rest, WriteOptions::default()).await;
            }
            honest.write(batch, options).await
        })
    }
}

/// Acknowledges an append that would make the value too large, without applying it.
#[derive(Default)]
pub struct AppendLimitSwallowed;

impl Flaw for AppendLimitSwallowed {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(async move {
            let appends = matches!(batch.mutations.as_slice(), [Mutation::Append(..)]);
            match honest.write(batch, options).await {
                Err(StoreError::Limit { what: "value", .. }) if appends => Ok(DONE),
                result => result,
            }
        })
    }
}

/// Keeps all cells under the plain concatenation of partition key and sort key.
#[derive(Default)]
pub struct PartitionMixing;

impl Flaw for PartitionMixing {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            let joined = [cell.partition, cell.sort].concat();
            honest.get(Cell::new("all", &joined), options).await
        })
    }

    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        let joined = |sort: Vec<u8>| [batch.partition.as_slice(), &sort].concat();
        let mut all = Batch { partition: b"all".to_vec(), ..batch.clone() };
        for condition in &mut all.conditions {
            let (Condition::Absent(sort) | Condition::Equals(sort, _)) = condition;
            *sort = joined(std::mem::take(sort));
        }
        let all = mapped(all, |mutation| match mutation {
            Mutation::Put(sort, value) => Mutation::Put(joined(sort), value),
            Mutation::Append(sort, value) => Mutation::Append(joined(sort), value),
            Mutation::Delete(sort) => Mutation::Delete(joined(sort)),
            other => other,
        });
        honest.write(all, options)
    }

    fn wait<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(async move {
            let joined = [cell.partition, cell.sort].concat();
            honest.wait(Cell::new("all", &joined), expectation, time_out).await
        })
    }
}

/// Treats `create` as `put`.
#[derive(Default)]
pub struct CreateOverwrites;

impl Flaw for CreateOverwrites {
    fn create<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        value: Buffer,
    ) -> Option<StoreFuture<'a, Written>> {
        Some(honest.write(Batch::on(cell.partition).put(cell.sort, value), WriteOptions::default()))
    }
}

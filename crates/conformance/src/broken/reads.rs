//! Planted flaws of reads, one type each.

use super::planted::Flaw;
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, ByteRange, Cell, Mutation, Read, ReadOptions, Store, StoreFuture, StoreStream,
    WriteOptions, Written,
};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

type Key = (Vec<u8>, Vec<u8>);

fn key(cell: Cell<'_>) -> Key {
    (cell.partition.to_vec(), cell.sort.to_vec())
}

/// Caches reads, and drops them on a plain write, but not on a conditional one.
#[derive(Default)]
pub struct StaleReadAfterSwap {
    cache: Mutex<HashMap<Key, Option<Buffer>>>,
}

impl Flaw for StaleReadAfterSwap {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            if let Some(cached) =
                self.cache.lock().get(&key(cell)).filter(|_| options.range == ByteRange::ALL)
            {
                return Ok(cached.clone());
            }
            let value = honest.get(cell, options).await?;
            if options.range == ByteRange::ALL {
                self.cache.lock().insert(key(cell), value.clone());
            }
            Ok(value)
        })
    }

    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        if batch.conditions.is_empty() {
            self.cache.lock().retain(|(partition, _), _| *partition != batch.partition);
        }
        honest.write(batch, options)
    }
}

/// Treats an empty value as no value.
#[derive(Default)]
pub struct EmptyValueAbsent;

impl Flaw for EmptyValueAbsent {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move { Ok(honest.get(cell, options).await?.filter(|value| !value.is_empty())) })
    }
}

/// Treats the end of a byte range as included.
#[derive(Default)]
pub struct ByteRangeOffByOne;

impl Flaw for ByteRangeOffByOne {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        mut options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        options.range.len = options.range.len.map(|len| len.saturating_add(1));
        honest.get(cell, options)
    }
}

/// Returns values from the middle of something else.
#[derive(Default)]
pub struct UnalignedValue;

impl Flaw for UnalignedValue {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            let value = honest.get(cell, options).await?;
            Ok(value.map(|value| Buffer::concat(value.len() + 8, [&[0; 8][..], &value]).slice(8..)))
        })
    }
}

/// Numbers many answers by the order of arrival instead of by their requests.
#[derive(Default)]
pub struct AnswersMixedUp;

impl Flaw for AnswersMixedUp {
    fn get_many<'a>(
        &'a self,
        honest: &'a MemoryStore,
        mut reads: Vec<Read>,
    ) -> StoreStream<'a, Option<Buffer>> {
        if reads.len() > 500 {
            // Backwards, so that an invalid read, one with an empty key, is not answered first.
            reads.sort_by(|one, other| other.partition.cmp(&one.partition));
        }
        honest.get_many(reads)
    }
}

/// Remembers for ever that an immutable cell was absent.
#[derive(Default)]
pub struct AbsenceCached {
    absent: Mutex<HashSet<Key>>,
}

impl Flaw for AbsenceCached {
    fn get<'a>(
        &'a self,
        honest: &'a MemoryStore,
        cell: Cell<'a>,
        options: ReadOptions,
    ) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            if options.immutable && self.absent.lock().contains(&key(cell)) {
                return Ok(None);
            }
            let value = honest.get(cell, options).await?;
            if options.immutable && value.is_none() {
                self.absent.lock().insert(key(cell));
            }
            Ok(value)
        })
    }

    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        // Plain puts do clear the entry, so that only `create`, which takes another path, leaves it.
        for mutation in &batch.mutations {
            if let Mutation::Put(sort, _) = mutation {
                self.absent.lock().remove(&(batch.partition.clone(), sort.clone()));
            }
        }
        honest.write(batch, options)
    }
}

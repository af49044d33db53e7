//! The path of a write: first the pages that it will change are read, then conditions, mutations and the
//! request id go into one commit, then the write waits for the sync that it asked for.
//!
//! Small puts that the engine keeps beside leaves that are not in memory wait for no page, and succeed even
//! where a page cannot be read.
//!
//! A write that decides nothing, without conditions or a request id, needs no moment between two others. If
//! it changes one cell, the engine makes it in place, while other tasks do the same elsewhere; tasks that
//! wait for a sync share it.
//!
//! Invariant: a waiter for a cell is woken after the commit that changed it, never before.

use super::{EmbeddedStore, Inner, LIMITS, keys, requests};
use atoll_engine::{Beside, Durability as Class, EngineError, ReadTicket, Reader, SyncTicket, WriteBatch};
use atoll_store::{
    Batch, Cell, Condition, Conflict, Durability, Mutation, Outcome, RequestId, Store, StoreError,
    WriteOptions, Written, within,
};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most reads ahead of a write for one of its keys: more than a tree has levels. Other writers may undo what
/// a read brought in; the commit, which they cannot disturb, then reads the rest.
const READS_AHEAD_MAX: usize = 8;

impl EmbeddedStore {
    pub(super) async fn commit(&self, batch: Batch, options: WriteOptions) -> Result<Written, StoreError> {
        LIMITS.check_batch(&batch)?;
        let durability = self.capabilities().durability_for(options.durability)?;
        let deadline = options.deadline;
        let has_begun = AtomicBool::new(false);
        let written = async {
            let ranges = batch.mutations.iter().any(|mutation| matches!(mutation, Mutation::DeleteRange(_)));
            if ranges && !self.inner.is_in_memory {
                // A range may have to be read from disk as a whole.
                let decided = move |inner: &Inner| inner.commit(&batch, options, durability);
                has_begun.store(true, Ordering::Release);
                return self.made_durable(self.off_thread("write", decided).await?).await;
            }
            self.read_before(&batch).await?;
            has_begun.store(true, Ordering::Release);
            self.made_durable(self.inner.commit(&batch, options, durability)?).await
        };
        // A write that was under way at the deadline may still take effect; one that only waited for its turn
        // does not.
        let may_be_done = || has_begun.load(Ordering::Acquire);
        let written = within(deadline, ("write", &self.inner.place), may_be_done, written).await;
        written.map_err(|error| self.inner.told_again(options.request, error))
    }

    /// Waits for room, and reads the pages that a write will change, on other threads.
    async fn read_before(&self, batch: &Batch) -> Result<(), StoreError> {
        if self.inner.is_in_memory {
            return Ok(());
        }
        self.wait_for_room(batch.mutations.iter().map(|mutation| match mutation {
            Mutation::Put(_, bytes) | Mutation::Append(_, bytes) => bytes.len(),
            Mutation::Delete(_) | Mutation::DeleteRange(_) => 0,
        }))
        .await?;
        // The current value of a cell with a condition is needed before it is changed.
        let looked_at: HashSet<&[u8]> = batch.conditions.iter().map(Condition::sort).collect();
        let key_of = |sort: &[u8]| keys::joined(Cell::new(&batch.partition, sort));
        for condition in &batch.conditions {
            self.read_before_key(&key_of(condition.sort())).await?;
        }
        let mut beside = Beside::default();
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Put(sort, value) if !looked_at.contains(sort.as_slice()) => {
                    self.read_before_put(&key_of(sort), value.len(), &mut beside).await?;
                }
                Mutation::Put(sort, _) | Mutation::Append(sort, _) | Mutation::Delete(sort) => {
                    self.read_before_key(&key_of(sort)).await?;
                }
                Mutation::DeleteRange(_) => {}
            }
        }
        Ok(())
    }

    async fn read_before_key(&self, key: &[u8]) -> Result<(), StoreError> {
        for _ in 0..READS_AHEAD_MAX {
            let Some(ticket) = self.inner.cells.read_before_write(key) else { break };
            self.read_elsewhere(ticket).await?;
        }
        Ok(())
    }

    /// The same for a put without a condition; `beside` counts the puts before it in the same batch.
    pub(super) async fn read_before_put(
        &self,
        key: &[u8],
        value_len: usize,
        beside: &mut Beside,
    ) -> Result<(), StoreError> {
        for _ in 0..READS_AHEAD_MAX {
            let Some(ticket) = self.inner.cells.read_before_put(key, value_len, beside) else { break };
            self.read_elsewhere(ticket).await?;
        }
        Ok(())
    }

    async fn read_elsewhere(&self, ticket: ReadTicket) -> Result<(), StoreError> {
        self.off_thread("write", |inner| ticket.run().map_err(|error| inner.refused("write", error))).await
    }

    /// Waits for the sync that a write asked for.
    async fn made_durable(
        &self,
        (written, ticket): (Written, Option<SyncTicket>),
    ) -> Result<Written, StoreError> {
        if let Some(ticket) = ticket {
            self.off_thread("write", |inner| ticket.run().map_err(|error| inner.refused("write", error)))
                .await?;
        } else if written.repeated && written.durability > Durability::Buffered {
            // The write took effect before, but perhaps at a weaker class, or its sync has not ended, or
            // failed.
            self.off_thread("write", |inner| {
                inner.engine.sync().map_err(|error| took_effect(inner.refused("write", error)))
            })
            .await?;
        }
        Ok(written)
    }
}

impl Inner {
    /// Applies conditions, mutations and the request id in one commit, then wakes the waiters.
    fn commit(
        &self,
        batch: &Batch,
        options: WriteOptions,
        durability: Durability,
    ) -> Result<(Written, Option<SyncTicket>), StoreError> {
        if batch.conditions.is_empty() && options.request.is_none() {
            return self.commit_blind(batch, durability);
        }
        let now = options.request.map(|_| self.options.clock.now());
        let remembering = options.request.zip(now).zip(self.requests.as_ref());
        let mut remembered = None;
        let decide = |reader: &Reader<'_>| -> Result<_, Failed> {
            if let Some(((id, _), requests)) = remembering
                && requests.is_known(id).map_err(Failed::of_lookup)?
            {
                return Ok((None, ()));
            }
            self.check_conditions(reader, batch)?;
            let mut changes = self.changes_of(batch);
            if let Some(((id, now), requests)) = remembering {
                remembered = Some((requests, id, requests.remember(id, now, &mut changes)));
            }
            Ok((Some(changes), ()))
        };
        let ended = if durability == Durability::Synced && !self.is_in_memory {
            self.engine.update_visible(decide).map(|((), ticket)| (ticket.is_none(), ticket))
        } else {
            let ended = self.engine.update(class_of(durability), decide);
            ended.map(|((), commit)| (commit.is_none(), None))
        };
        let (repeated, ticket) = match ended {
            Ok(ended) => ended,
            Err(failed) => {
                if let (Some((requests, id, cleared)), false) = (remembered, failed.is_unknown()) {
                    requests.forget(id, cleared);
                }
                return Err(failed.into_store_error(self));
            }
        };
        if !repeated {
            self.watches.wrote(batch);
        }
        Ok((Written { durability, repeated }, ticket))
    }

    /// The same for a write that decides nothing. The engine takes the writer lock only if the write does
    /// not fit in place, and then only for the commit: the batch is complete before.
    fn commit_blind(
        &self,
        batch: &Batch,
        durability: Durability,
    ) -> Result<(Written, Option<SyncTicket>), StoreError> {
        let changes = self.changes_of(batch);
        let committed = if durability == Durability::Synced && !self.is_in_memory {
            self.engine.write_visible(&changes).map(Some)
        } else {
            self.engine.write(&changes, class_of(durability)).map(|_| None)
        };
        let ticket = committed.map_err(|error| self.refused("write", error))?;
        self.watches.wrote(batch);
        Ok((Written { durability, repeated: false }, ticket))
    }

    /// The error to report for a write with a request id. An error that stops a retry says nothing about an
    /// earlier write with the same id, which may have taken effect.
    fn told_again(&self, request: Option<RequestId>, error: StoreError) -> StoreError {
        // If the write got that far, its id was looked up under the writer's lock and is not known. Searching
        // all ids costs much more than a conflict, and there may be many conflicts.
        if matches!(error, StoreError::Conflict(_) | StoreError::Limit { .. }) {
            return error;
        }
        let is_again = || request.zip(self.requests.as_ref()).is_some_and(|(id, requests)| requests.has(id));
        if error.outcome() == Outcome::Refused && is_again() { took_effect(error) } else { error }
    }

    fn check_conditions(&self, reader: &Reader<'_>, batch: &Batch) -> Result<(), Failed> {
        for (place, condition) in batch.conditions.iter().enumerate() {
            let key = keys::joined(Cell::new(&batch.partition, condition.sort()));
            let value = reader.get(&self.cells, &key)?;
            let holds = match (condition, &value) {
                (Condition::Absent(_), value) => value.is_none(),
                (Condition::Equals(..), None) => false,
                // Different lengths need no look at the bytes.
                (Condition::Equals(_, expected), Some(value)) => {
                    value.len() == expected.len() as u64 && *value.to_buffer()? == **expected
                }
            };
            if !holds {
                // All writers wait meanwhile, so only the bytes that the conflict carries are read back and
                // kept.
                let told = value.as_ref().map(|value| value.read(0, Conflict::ACTUAL_BYTES_MAX as u64));
                let conflict = Conflict {
                    condition: place,
                    sort: condition.sort().to_vec(),
                    actual: told.transpose()?.map(|told| told.to_owned_alone()),
                    actual_bytes: value.map_or(0, |value| value.len()),
                };
                return Err(Failed::Store(StoreError::Conflict(Box::new(conflict))));
            }
        }
        Ok(())
    }

    fn changes_of(&self, batch: &Batch) -> WriteBatch {
        let mut changes = WriteBatch::new();
        let key = |sort: &[u8]| keys::joined(Cell::new(&batch.partition, sort));
        for mutation in &batch.mutations {
            match mutation {
                Mutation::Put(sort, value) => {
                    changes.put_buffer(&self.cells, &key(sort), value.to_owned_alone())
                }
                Mutation::Append(sort, bytes) => {
                    changes.append_buffer(&self.cells, &key(sort), bytes.to_owned_alone())
                }
                Mutation::Delete(sort) => changes.delete(&self.cells, &key(sort)),
                Mutation::DeleteRange(range) if range.is_empty() => {}
                Mutation::DeleteRange(range) => {
                    let range = keys::KeyRange::of(&batch.partition, range);
                    changes.delete_range(&self.cells, range.bounds());
                }
            }
        }
        changes
    }

    /// Sets one cell without conditions: the shortest path through the engine.
    pub(super) fn put_one(
        &self,
        cell: Cell<'_>,
        key: &[u8],
        value: &[u8],
        class: Durability,
    ) -> Result<Written, StoreError> {
        let put = self.cells.put(key, value, class_of(class));
        put.map_err(|error| self.refused("put", error))?;
        self.watches.wrote_cell(cell);
        Ok(Written { durability: class, repeated: false })
    }
}

/// Why a write was given up while it was decided.
enum Failed {
    Engine(EngineError),
    Store(StoreError),
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Failed {
    /// The failure to look up a request id.
    fn of_lookup(error: EngineError) -> Self {
        if !requests::is_damage(&error) {
            return Self::Engine(error);
        }
        let reason = format!("whether it took effect before cannot be read: {error}");
        Self::Store(StoreError::Unknown { what: "write", reason, source: Some(Arc::new(error)) })
    }

    /// Whether the write may have taken effect nevertheless.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Engine(error) if error.is_unknown())
    }

    fn into_store_error(self, inner: &Inner) -> StoreError {
        match self {
            Self::Engine(error) => inner.refused("write", error),
            Self::Store(error) => error,
        }
    }
}

/// The error of a retry whose write took effect at an earlier attempt.
fn took_effect(error: StoreError) -> StoreError {
    let reason = format!("it took effect before and may not survive; to ask again was refused: {error}");
    StoreError::Unknown { what: "write", reason, source: Some(Arc::new(error)) }
}

fn class_of(durability: Durability) -> Class {
    match durability {
        Durability::Buffered => Class::Buffered,
        Durability::Flushed => Class::Flushed,
        Durability::Synced => Class::Synced,
    }
}

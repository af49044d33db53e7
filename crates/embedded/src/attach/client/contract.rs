//! The contract of a store that another process owns: each call becomes a request to the owner, or goes to
//! the store in this process.
//!
//! Invariant: a call that moves from one to the other does so with the rest of its deadline.

use super::{Asked, AttachedStore};
use crate::attach::buffered;
use crate::attach::call::Call;
use crate::attach::link::Link;
use crate::attach::{Request, many};
use atoll_store::{
    Batch, Buffer, Capabilities, Cell, Expectation, PartitionPage, PartitionQuery, Place, Read, ReadOptions,
    ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture, StoreStream, Timestamp, Waited,
    WriteOptions, Written,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

impl Store for AttachedStore {
    fn capabilities(&self) -> Capabilities {
        if let Some(local) = self.local() {
            return local.capabilities();
        }
        // There is a link from the start, and a store that is not local keeps its last link.
        match &*self.shared.link.lock() {
            None => many::no_capabilities(),
            Some((_, Link::LastState(state))) => state.store.capabilities(),
            Some((_, Link::Owner(attachment))) => {
                let mut capabilities = (*attachment.capabilities).clone();
                capabilities.round_trip = capabilities.round_trip.max(Duration::from_micros(30));
                capabilities
            }
        }
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        if let Some(local) = self.local() {
            return local.get(cell, options);
        }
        Box::pin(async move {
            let request = Request::Get(cell.partition.to_vec(), cell.sort.to_vec(), options);
            let call = Call::new(&request);
            match self.ask_whom(&call).await?.0 {
                Asked::Answer(value) => Ok(value),
                Asked::Local(store) => store.get(cell, call.left_to_read(options)).await,
            }
        })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        match self.local() {
            Some(local) => local.get_many(reads),
            None => many::get_many(self, reads),
        }
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        if let Some(local) = self.local() {
            return local.write(batch, options);
        }
        Box::pin(async move {
            // A batch that is too long for the owner is too long for the connection, which other calls share.
            self.capabilities().limits.check_batch(&batch)?;
            let request = Request::Write(batch.clone(), options);
            let call = Call::new(&request);
            match self.ask_whom(&call).await?.0 {
                Asked::Answer(written) => Ok(written),
                Asked::Local(store) => {
                    let written = store.write(batch, call.left_to_write(options)).await;
                    written.map_err(|error| call.failed(error))
                }
            }
        })
    }

    fn create<'a>(
        &'a self,
        cell: Cell<'a>,
        value: Buffer,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        if let Some(local) = self.local() {
            return local.create(cell, value, options);
        }
        Box::pin(async move {
            let limits = self.capabilities().limits;
            limits.check_cell(cell)?;
            limits.check_value(value.len() as u64)?;
            let (partition, sort) = (cell.partition.to_vec(), cell.sort.to_vec());
            let request = Request::Create(partition, sort, value.clone(), options);
            let call = Call::new(&request);
            match self.ask_whom(&call).await?.0 {
                Asked::Answer(written) => Ok(written),
                Asked::Local(store) => {
                    let written = store.create(cell, value, call.left_to_write(options)).await;
                    written.map_err(|error| call.failed(error))
                }
            }
        })
    }

    fn delete_partition<'a>(
        &'a self,
        partition: &'a [u8],
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        if let Some(local) = self.local() {
            return local.delete_partition(partition, options);
        }
        Box::pin(async move {
            let request = Request::DeletePartition(partition.to_vec(), options);
            let call = Call::new(&request);
            match self.ask_whom(&call).await?.0 {
                Asked::Answer(written) => Ok(written),
                Asked::Local(store) => {
                    let written = store.delete_partition(partition, call.left_to_write(options)).await;
                    written.map_err(|error| call.failed(error))
                }
            }
        })
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        if let Some(local) = self.local() {
            return local.scan(request);
        }
        Box::pin(async move {
            match self.ask(&Request::Scan(request.clone())).await? {
                Asked::Answer(page) => Ok(page),
                Asked::Local(store) => store.scan(request).await,
            }
        })
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        if let Some(local) = self.local() {
            return local.wait(cell, expectation, time_out);
        }
        Box::pin(async move {
            let started = Instant::now();
            loop {
                let left = time_out.saturating_sub(started.elapsed());
                let (partition, sort) = (cell.partition.to_vec(), cell.sort.to_vec());
                let store = match self.ask(&Request::Wait(partition, sort, expectation.clone(), left)).await?
                {
                    Asked::Answer(waited) => return Ok(waited),
                    Asked::Local(store) => store,
                };
                let left = time_out.saturating_sub(started.elapsed());
                // Nothing changes in a last state, so the wait in it is limited, and a new owner is asked
                // next.
                let state = self.shared.last_state();
                let part = state.map_or(left, |state| state.left().unwrap_or_default().min(left));
                match store.wait(cell, expectation.clone(), part).await? {
                    Waited::TimedOut if part < left && started.elapsed() < time_out => {}
                    waited => return Ok(waited),
                }
            }
        })
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        if let Some(local) = self.local() {
            return local.partition_keys(query);
        }
        Box::pin(async move {
            match self.ask(&Request::PartitionKeys(query.clone())).await? {
                Asked::Answer(page) => Ok(page),
                Asked::Local(store) => store.partition_keys(query).await,
            }
        })
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        if let Some(local) = self.local() {
            return local.splits(readers);
        }
        Box::pin(async move {
            match self.ask(&Request::Splits(readers as u64)).await? {
                Asked::Answer(splits) => Ok(splits),
                Asked::Local(store) => store.splits(readers).await,
            }
        })
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        if let Some(local) = self.local() {
            return local.place(partition);
        }
        Box::pin(async move {
            match self.ask(&Request::Place(partition.to_vec())).await? {
                Asked::Answer(place) => Ok(place),
                Asked::Local(store) => store.place(partition).await,
            }
        })
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        if let Some(local) = self.local() {
            return local.now();
        }
        Box::pin(async move {
            match self.ask(&Request::Now).await? {
                Asked::Answer(now) => Ok(now),
                Asked::Local(store) => store.now().await,
            }
        })
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let to_cover = self.shared.buffered.now();
            let (asked, by) = self.ask_whom::<()>(&Call::new(&Request::Sync)).await?;
            if let Asked::Local(store) = asked {
                store.sync().await?;
            }
            self.check_kept(to_cover, by)
        })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if self.shared.is_closed.load(Ordering::Acquire) {
                return Ok(());
            }
            let synced = match (self.shared.is_read_only, self.is_local()) {
                (true, _) => Ok(()),
                (false, false) => self.sync().await,
                // This process' own writes are synced as it closes; those of the owner before it are not.
                (false, true) => self.check_kept(self.shared.buffered.now(), 0),
            };
            if self.shared.is_closed.swap(true, Ordering::AcqRel) {
                return Ok(());
            }
            self.shared.reattach.give_up();
            if let Some((_, Link::Owner(attachment))) = &*self.shared.link.lock() {
                attachment.client.close();
            }
            let shared = Arc::clone(&self.shared);
            let closing = self.shared.runtime.spawn(async move {
                // A search that is just becoming the owner finishes first, so that its store is closed as
                // well.
                let _only_one = shared.reattaching.lock().await;
                shared.reattach.close(shared.store_here()).await
            });
            let closed = closing.await;
            synced?;
            closed.unwrap_or_else(|_| Err(StoreError::closed(&self.shared.place)))
        })
    }
}

impl AttachedStore {
    /// Checks that a sync that was answered over connection `by`, 0 for this process, covers all that it had
    /// to.
    fn check_kept(&self, to_cover: buffered::State, by: u64) -> Result<(), StoreError> {
        if self.shared.buffered.synced(to_cover, by) {
            return Ok(());
        }
        let reason =
            "the owner was lost with buffered writes that it may not have had on its disk".to_owned();
        Err(StoreError::Unknown { what: "sync", reason, source: None })
    }
}

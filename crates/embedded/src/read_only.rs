//! A store that is read beside an owner that cannot be reached, in its last committed state.
//!
//! The owner may meanwhile reuse the space of the state that is being read. A checksum then does not match,
//! although nothing is damaged: the newest state is opened, and the call is made once more.
//!
//! Invariant: damage is reported only if it is in the newest state. No wrong row is returned, and no byte is
//! written.

use crate::open::open_last_state;
use crate::store::{EmbeddedStore, StoreOptions};
use atoll_store::{
    Batch, Buffer, Capabilities, Cell, ErrorKind, Expectation, PartitionPage, PartitionQuery, Place, Read,
    ReadOptions, ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture, StoreStream, Timestamp,
    Waited, WriteOptions, Written,
};
use futures::StreamExt;
use parking_lot::RwLock;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

/// The last committed state of a folder.
pub(crate) struct ReadOnlyStore {
    folder: PathBuf,
    options: StoreOptions,
    current: RwLock<EmbeddedStore>,
}

impl ReadOnlyStore {
    pub(crate) async fn open(folder: PathBuf, options: StoreOptions) -> Result<Self, StoreError> {
        let current = RwLock::new(open_last_state(&folder, options.clone()).await?);
        Ok(Self { folder, options, current })
    }

    /// Makes `call` on the open state, and once more on the newest state if the open one was overwritten.
    async fn on_newest<T, F>(&self, call: impl Fn(EmbeddedStore) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let current = self.current.read().clone();
        let error = match call(current.clone()).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => error,
            answer => return answer,
        };
        let newest = open_last_state(&self.folder, self.options.clone()).await?;
        if newest.engine().recovery().checkpoint == current.engine().recovery().checkpoint {
            return Err(error);
        }
        *self.current.write() = newest.clone();
        match call(newest).await {
            Err(error) if error.kind() == ErrorKind::Corrupt => Err(StoreError::Superseded {
                what: format!("the state of {} that was read", self.folder.display()),
            }),
            answer => answer,
        }
    }
}

impl Store for ReadOnlyStore {
    fn capabilities(&self) -> Capabilities {
        self.current.read().capabilities()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(self.on_newest(move |store| async move { store.get(cell, options).await }))
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let answers = reads.into_iter().enumerate().map(move |(place, read)| async move {
            let options = ReadOptions { range: read.range, immutable: read.immutable, deadline: None };
            (place, self.get(Cell::new(&read.partition, &read.sort), options).await)
        });
        futures::stream::iter(answers).buffer_unordered(16).boxed()
    }

    fn write(&self, _batch: Batch, _options: WriteOptions) -> StoreFuture<'_, Written> {
        let place = self.folder.display().to_string();
        Box::pin(std::future::ready(Err(StoreError::ReadOnly { place })))
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        Box::pin(self.on_newest(move |store| {
            let request = request.clone();
            async move { store.scan(request).await }
        }))
    }

    /// Nothing changes in this state, so an expectation that is not met at once will not be.
    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(self.on_newest(move |store| {
            let expectation = expectation.clone();
            async move { store.wait(cell, expectation, time_out).await }
        }))
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        Box::pin(self.on_newest(move |store| {
            let query = query.clone();
            async move { store.partition_keys(query).await }
        }))
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        Box::pin(self.on_newest(move |store| async move { store.splits(readers).await }))
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        Box::pin(self.on_newest(move |store| async move { store.place(partition).await }))
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(self.on_newest(|store| async move { store.now().await }))
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        let current = self.current.read().clone();
        Box::pin(async move { current.close().await })
    }
}

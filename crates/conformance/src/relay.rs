//! Stores in front of stores: a relay passes every call on to the store behind it, except those that it
//! overrides to count, hold, lose or change them.
//!
//! Invariant: a call that a relay does not override reaches the store behind it unchanged.

use atoll_store::{
    Batch, Buffer, Capabilities, Cell, Expectation, PartitionPage, PartitionQuery, Place, Read, ReadOptions,
    ScanPage, ScanRequest, Split, Store, StoreFuture, StoreStream, Timestamp, Waited, WriteOptions, Written,
};
use futures::future::BoxFuture;
use std::time::Duration;

/// A layer in front of a store. Only [`Relay::inner`] is required; the other methods are those of [`Store`],
/// and pass the call on.
pub trait Relay: Send + Sync + 'static {
    /// The store behind.
    fn inner(&self) -> &dyn Store;

    /// See [`Store::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// See [`Store::get`].
    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.inner().get(cell, options)
    }

    /// See [`Store::get_many`].
    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        self.inner().get_many(reads)
    }

    /// See [`Store::write`]; puts, appends, deletes, swaps and creations take this path too.
    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        self.inner().write(batch, options)
    }

    /// See [`Store::scan`].
    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.inner().scan(request)
    }

    /// See [`Store::wait`].
    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        self.inner().wait(cell, expectation, time_out)
    }

    /// See [`Store::rest`].
    fn rest(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.inner().rest(time)
    }

    /// See [`Store::partition_keys`].
    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        self.inner().partition_keys(query)
    }

    /// See [`Store::place`].
    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        self.inner().place(partition)
    }

    /// See [`Store::now`].
    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.inner().now()
    }
}

/// A relay as a store.
#[derive(Clone, Debug, Default)]
pub struct Relayed<R>(pub R);

impl<R> std::ops::Deref for Relayed<R> {
    type Target = R;

    fn deref(&self) -> &R {
        &self.0
    }
}

impl<R: Relay> Store for Relayed<R> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.0.get(cell, options)
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        self.0.get_many(reads)
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        self.0.write(batch, options)
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.0.scan(request)
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        self.0.wait(cell, expectation, time_out)
    }

    fn rest(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.0.rest(time)
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        self.0.partition_keys(query)
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        self.0.inner().splits(readers)
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        self.0.place(partition)
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.0.now()
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        self.0.inner().sync()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.0.inner().close()
    }
}

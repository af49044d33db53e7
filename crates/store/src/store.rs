//! The trait that every store implements.

use crate::create_conditionally;
use crate::{
    Batch, Buffer, Capabilities, Cell, Expectation, PartitionPage, PartitionQuery, Place, Read, ReadOptions,
    ScanPage, ScanRequest, Split, StoreError, Timestamp, Waited, WriteOptions, Written,
};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use std::time::Duration;

/// The future of one answer of a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Answers of a store in the order of their arrival, each with the index of its request.
pub type StoreStream<'a, T> = BoxStream<'a, (usize, Result<T, StoreError>)>;

/// A map of sorted maps. The crate's documentation says what holds on every implementation.
///
/// A partition with no cells does not exist: deleting its last cell removes it from listings.
///
/// Futures may be dropped at any time: the call is then abandoned, and a write may or may not happen.
pub trait Store: Send + Sync + 'static {
    /// What this store can do, with its limits and costs.
    fn capabilities(&self) -> Capabilities;

    /// The value of a cell, or none.
    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>>;

    /// The values of many cells, in any partitions. The reads are issued together, and each is answered
    /// exactly once, in any order. A read that fails does not affect the others.
    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>>;

    /// Applies a batch: all conditions hold at one point and all mutations apply, or none do.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] names the first condition that does not hold.
    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written>;

    /// Sets one cell.
    fn put<'a>(&'a self, cell: Cell<'a>, value: &'a [u8], options: WriteOptions) -> StoreFuture<'a, Written> {
        self.write(Batch::on(cell.partition).put(cell.sort, value), options)
    }

    /// Adds bytes at the end of one cell; an absent cell counts as empty.
    fn append<'a>(
        &'a self,
        cell: Cell<'a>,
        bytes: &'a [u8],
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.write(Batch::on(cell.partition).append(cell.sort, bytes), options)
    }

    /// Removes one cell; an absent cell is no error.
    fn delete<'a>(&'a self, cell: Cell<'a>, options: WriteOptions) -> StoreFuture<'a, Written> {
        self.write(Batch::on(cell.partition).delete(cell.sort), options)
    }

    /// Sets one cell if it holds `expected` (none: if it is absent).
    fn compare_and_swap<'a>(
        &'a self,
        cell: Cell<'a>,
        expected: Option<&'a [u8]>,
        value: &'a [u8],
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.write(Batch::on(cell.partition).if_is(cell.sort, expected).put(cell.sort, value), options)
    }

    /// Sets a cell with the vow that it is written at most once, ever, with this value.
    ///
    /// Creating it again with the same value succeeds ([`Written::repeated`]), so that a retry is harmless;
    /// with another value it is a conflict. The name of a deleted created cell is never used again.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the cell holds another value.
    fn create<'a>(
        &'a self,
        cell: Cell<'a>,
        value: Buffer,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        Box::pin(create_conditionally(self, cell, value, options))
    }

    /// Removes all cells of a partition.
    fn delete_partition<'a>(
        &'a self,
        partition: &'a [u8],
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.write(Batch::on(partition).delete_range(crate::SortRange::all()), options)
    }

    /// One page of an ordered scan. Each page is atomic; the scan as a whole returns once every key that
    /// was there throughout.
    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage>;

    /// Waits until the cell meets the expectation, or the time runs out. A value that the cell holds only for
    /// a moment may be missed.
    ///
    /// The cell is read at least once, however short the time-out. If nobody answers, a wait of no time fails
    /// with `unavailable`; a longer one may also report that its time ran out. A value in the expectation has
    /// the limit of a value in a condition. Closing the store ends its waits with `unavailable`.
    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited>;

    /// Sleeps by a timer of this process, so that no node has to be reachable. It is for back-off; to wait
    /// for a value use [`wait`](Self::wait). A simulated store overrides it with its own time. Needs tokio's
    /// timer.
    fn rest(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    /// One page of partition keys that have at least one cell.
    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage>;

    /// Divides the store among about `readers` parallel readers (at least 1). Every partition key lies in
    /// exactly one split.
    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>>;

    /// Where a partition lies.
    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place>;

    /// The store's clock.
    fn now(&self) -> StoreFuture<'_, Timestamp>;

    /// Raises everything acknowledged so far to [`crate::Durability::Synced`], or to the strongest class
    /// the store offers.
    fn sync(&self) -> StoreFuture<'_, ()>;

    /// Syncs and closes. Later calls are refused as `unavailable`; closing twice is no error.
    fn close(&self) -> StoreFuture<'_, ()>;
}

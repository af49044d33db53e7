//! A line between client and store that loses requests and answers, so that outcomes become unknown.
//!
//! Invariant: it tells `unknown` whenever it interferes, and otherwise passes calls on unchanged.

use crate::subject::SharedStore;
use atoll_store::{
    Batch, Buffer, Capabilities, Cell, Expectation, PartitionPage, PartitionQuery, Place, Read, ReadOptions,
    ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture, StoreStream, Timestamp, Waited,
    WriteOptions, Written,
};
use parking_lot::Mutex;
use std::time::Duration;

/// A store behind a line that loses some writes or their answers.
pub struct Flaky {
    inner: SharedStore,
    random: Mutex<fastrand::Rng>,
}

impl Flaky {
    /// Puts `inner` behind such a line; what it loses follows from the seed.
    #[must_use]
    pub fn new(inner: SharedStore, seed: u64) -> Self {
        Self { inner, random: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }
}

fn lost(what: &str) -> StoreError {
    StoreError::Unknown { what: "a write", reason: format!("the line lost {what}"), source: None }
}

impl Store for Flaky {
    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let (luck, delay) = {
            let mut random = self.random.lock();
            (random.u8(0..12), random.u8(0..10))
        };
        Box::pin(async move {
            match luck {
                0 => Err(lost("the request")),
                1 => {
                    self.inner.write(batch, options).await.ok();
                    Err(lost("the answer"))
                }
                2 => {
                    // The request is still under way when the client gives up.
                    let inner = self.inner.clone();
                    tokio::spawn(async move {
                        for _ in 0..delay {
                            tokio::task::yield_now().await;
                        }
                        inner.write(batch, options).await.ok();
                    });
                    Err(lost("patience"))
                }
                _ => self.inner.write(batch, options).await,
            }
        })
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.inner.get(cell, options)
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        self.inner.get_many(reads)
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.inner.scan(request)
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        self.inner.wait(cell, expectation, time_out)
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        self.inner.partition_keys(query)
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        self.inner.splits(readers)
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        self.inner.place(partition)
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.inner.now()
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        self.inner.sync()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}

//! A store whose calls have the durability class and the deadline of the options, unless the caller chose its
//! own. So the options hold for every verb, also for those on tables, which write through their own crate.
//!
//! Invariant: nothing else is changed about a call, and no call is made that was not asked for.

use atoll_store::{
    Batch, Buffer, Capabilities, Cell, Durability, Expectation, PartitionPage, PartitionQuery, Place, Read,
    ReadOptions, ScanPage, ScanRequest, Split, Store, StoreError, StoreFuture, StoreStream, Timestamp,
    Waited, WriteOptions, Written, within,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Wraps a store; without a durability class and a deadline it stays as it is.
pub(crate) fn with_defaults(store: Arc<dyn Store>, options: WriteOptions, place: &str) -> Arc<dyn Store> {
    let WriteOptions { durability, deadline, .. } = options;
    match (durability, deadline) {
        (None, None) => store,
        _ => Arc::new(WithDefaults { inner: store, durability, deadline, place: place.to_owned() }),
    }
}

struct WithDefaults {
    inner: Arc<dyn Store>,
    durability: Option<Durability>,
    deadline: Option<Duration>,
    /// The name of the store in messages.
    place: String,
}

impl WithDefaults {
    fn write_options(&self, options: WriteOptions) -> WriteOptions {
        WriteOptions {
            durability: options.durability.or(self.durability),
            deadline: options.deadline.or(self.deadline),
            ..options
        }
    }

    /// The answer to a read that has no deadline of its own.
    fn in_time<'a, T: Send + 'a>(&'a self, reading: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(within(self.deadline, ("read", &self.place), || false, reading))
    }
}

impl Store for WithDefaults {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        let deadline = options.deadline.or(self.deadline);
        self.inner.get(cell, ReadOptions { deadline, ..options })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let Some(deadline) = self.deadline else { return self.inner.get_many(reads) };
        let missing: BTreeSet<usize> = (0..reads.len()).collect();
        let (answers, place) = (self.inner.get_many(reads), &self.place);
        // Without the answers once one was late: those that are missing are late as well.
        Box::pin(futures::stream::unfold(
            (Some(answers), missing),
            move |(answers, mut missing)| async move {
                let first = missing.first().copied()?;
                if let Some(mut answers) = answers
                    && let Ok(answer) = tokio::time::timeout(deadline, answers.next()).await
                {
                    let (index, answer) = answer?;
                    missing.remove(&index);
                    return Some(((index, answer), (Some(answers), missing)));
                }
                missing.remove(&first);
                let reason = format!("no answer within {deadline:?}");
                let late = StoreError::Unavailable { place: place.clone(), reason, source: None };
                Some(((first, Err(late)), (None, missing)))
            },
        ))
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        self.inner.write(batch, self.write_options(options))
    }

    fn put<'a>(&'a self, cell: Cell<'a>, value: &'a [u8], options: WriteOptions) -> StoreFuture<'a, Written> {
        self.inner.put(cell, value, self.write_options(options))
    }

    fn append<'a>(
        &'a self,
        cell: Cell<'a>,
        bytes: &'a [u8],
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.inner.append(cell, bytes, self.write_options(options))
    }

    fn delete<'a>(&'a self, cell: Cell<'a>, options: WriteOptions) -> StoreFuture<'a, Written> {
        self.inner.delete(cell, self.write_options(options))
    }

    fn compare_and_swap<'a>(
        &'a self,
        cell: Cell<'a>,
        expected: Option<&'a [u8]>,
        value: &'a [u8],
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.inner.compare_and_swap(cell, expected, value, self.write_options(options))
    }

    fn create<'a>(
        &'a self,
        cell: Cell<'a>,
        value: Buffer,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.inner.create(cell, value, self.write_options(options))
    }

    fn delete_partition<'a>(
        &'a self,
        partition: &'a [u8],
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.inner.delete_partition(partition, self.write_options(options))
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.in_time(self.inner.scan(request))
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        // It has a time-out of its own.
        self.inner.wait(cell, expectation, time_out)
    }

    fn rest(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.inner.rest(time)
    }

    fn partition_keys(&self, query: PartitionQuery) -> StoreFuture<'_, PartitionPage> {
        self.in_time(self.inner.partition_keys(query))
    }

    fn splits(&self, readers: usize) -> StoreFuture<'_, Vec<Split>> {
        self.in_time(self.inner.splits(readers))
    }

    fn place<'a>(&'a self, partition: &'a [u8]) -> StoreFuture<'a, Place> {
        self.in_time(self.inner.place(partition))
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        self.in_time(self.inner.now())
    }

    fn sync(&self) -> StoreFuture<'_, ()> {
        self.inner.sync()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_conformance::{Relay, Relayed};
    use atoll_memory::MemoryStore;
    use std::sync::Mutex;

    /// Notes the options of calls, answers one of many reads, and no scan.
    #[derive(Default)]
    struct Noting {
        store: MemoryStore,
        writes: Mutex<Vec<WriteOptions>>,
        reads: Mutex<Vec<ReadOptions>>,
    }

    impl Relay for Noting {
        fn inner(&self) -> &dyn Store {
            &self.store
        }

        fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
            self.reads.lock().unwrap().push(options);
            self.store.get(cell, ReadOptions::default())
        }

        fn get_many(&self, _: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
            Box::pin(futures::stream::iter([(1, Ok(None))]).chain(futures::stream::pending()))
        }

        fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
            self.writes.lock().unwrap().push(options);
            self.store.write(batch, WriteOptions::default())
        }

        fn scan(&self, _: ScanRequest) -> StoreFuture<'_, ScanPage> {
            Box::pin(std::future::pending())
        }
    }

    fn noting(options: WriteOptions) -> (Arc<Relayed<Noting>>, Arc<dyn Store>) {
        let noting = Arc::new(Relayed(Noting::default()));
        let store = with_defaults(Arc::clone(&noting) as Arc<dyn Store>, options, "here");
        (noting, store)
    }

    #[tokio::test]
    async fn every_write_and_read_has_the_options_unless_it_has_its_own() {
        let deadline = Some(Duration::from_secs(9));
        let asked = WriteOptions { deadline, ..WriteOptions::durable(Durability::Synced) };
        let (noting, store) = noting(asked);
        let (cell, plain) = (Cell::new(b"p", b"s"), WriteOptions::default());
        store.write(Batch::on(b"p".as_slice()).put(b"s".as_slice(), b"1".as_slice()), plain).await.unwrap();
        store.put(cell, b"2", plain).await.unwrap();
        store.append(cell, b"3", plain).await.unwrap();
        store.compare_and_swap(cell, Some(b"23"), b"4", plain).await.unwrap();
        store.delete(cell, plain).await.unwrap();
        store.delete_partition(b"p", plain).await.unwrap();
        let writes = noting.writes.lock().unwrap().clone();
        assert_eq!(writes, [asked; 6]);
        let own = WriteOptions {
            deadline: Some(Duration::from_secs(1)),
            ..WriteOptions::durable(Durability::Flushed)
        };
        store.put(cell, b"5", own).await.unwrap();
        assert_eq!(noting.writes.lock().unwrap().last(), Some(&own));
        store.get(cell, ReadOptions::default()).await.unwrap();
        store.get(cell, ReadOptions { deadline: own.deadline, ..ReadOptions::default() }).await.unwrap();
        let reads: Vec<_> = noting.reads.lock().unwrap().iter().map(|options| options.deadline).collect();
        assert_eq!(reads, [deadline, own.deadline]);
    }

    #[tokio::test]
    async fn reads_that_get_no_answer_end_at_the_deadline_and_each_is_answered_once() {
        let deadline = Some(Duration::from_millis(20));
        let (_, store) = noting(WriteOptions { deadline, ..WriteOptions::default() });
        let scanned = store.scan(ScanRequest::all(b"p".as_slice())).await;
        assert!(matches!(&scanned, Err(StoreError::Unavailable { place, .. }) if place == "here"));
        let read = Read::new(b"p".as_slice(), b"s".as_slice());
        let answers: Vec<_> = store.get_many(vec![read; 4]).collect().await;
        let told: Vec<_> = answers.iter().map(|(index, answer)| (*index, answer.is_ok())).collect();
        assert_eq!(told, [(1, true), (0, false), (2, false), (3, false)]);
    }
}

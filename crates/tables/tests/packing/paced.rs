//! Packs that rest or work for a long time: they pay back what they owe, and are not taken for dead
//! meanwhile.

use crate::run;
use crate::tube::{Tube, schema};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Cell, ErrorKind, Expectation, Store, StoreError, StoreFuture, Timestamp, Waited, WriteOptions,
    Written,
};
use atoll_tables::cube::Shape;
use atoll_tables::{AttributesOf, PackOptions, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store whose clock is ahead by the time that was waited for, so that waiting takes no time.
struct Ahead {
    inner: Arc<dyn Store>,
    ahead: AtomicU64,
    /// How long writing an object takes, in nanoseconds.
    slowness: AtomicU64,
    /// The number of coming writes to manifests whose answers are lost.
    lost_answers: AtomicU64,
    /// The number of coming waits that fail.
    failing: AtomicU64,
}

impl Ahead {
    fn of(inner: Arc<dyn Store>) -> Self {
        let [ahead, slowness, lost_answers, failing] = [const { AtomicU64::new(0) }; 4];
        Self { inner, ahead, slowness, lost_answers, failing }
    }

    /// Advances the clock, and then removes what no process seems to need.
    async fn pass(&self, nanoseconds: u64) {
        self.ahead.fetch_add(nanoseconds, Ordering::SeqCst);
        let passer_by = Relayed(Ahead::of(Arc::clone(&self.inner)));
        passer_by.ahead.store(self.ahead.load(Ordering::SeqCst), Ordering::SeqCst);
        let table = Table::open(Arc::new(passer_by), "run").await.unwrap();
        table.vacuum().await.unwrap();
    }
}

impl Relay for Ahead {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        Box::pin(async {
            let now = self.inner.now().await?.0;
            Ok(Timestamp(now + self.ahead.load(Ordering::SeqCst)))
        })
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move {
            let is_manifest = batch.partition.ends_with(b"/m");
            let slowness = self.slowness.load(Ordering::SeqCst);
            if slowness > 0 && !is_manifest && !batch.partition.ends_with(b"/a") {
                self.pass(slowness).await;
            }
            let written = self.inner.write(batch, options).await?;
            let less = |left: u64| left.checked_sub(u64::from(is_manifest));
            match self.lost_answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
                Ok(_) if is_manifest => Err(StoreError::Unknown {
                    what: "a write",
                    reason: "it was planned so".to_owned(),
                    source: None,
                }),
                _ => Ok(written),
            }
        })
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        Box::pin(async move {
            if let Waited::Met(value) = self.inner.wait(cell, expectation, Duration::ZERO).await? {
                return Ok(Waited::Met(value));
            }
            let less = |left: u64| left.checked_sub(1);
            if self.failing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
                let (place, reason) = ("here".to_owned(), "it was planned so".to_owned());
                return Err(StoreError::Unavailable { place, reason, source: None });
            }
            self.pass(time_out.as_nanos() as u64).await;
            Ok(Waited::TimedOut)
        })
    }
}

#[test]
fn a_pack_that_rests_for_hours_pays_what_it_owes_and_is_done_once() {
    run(async {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let store = Arc::new(Relayed(Ahead::of(inner)));
        let shared: Arc<dyn Store> = store.clone();
        let table = Table::create(shared, "run", schema(false)).await.unwrap();
        Tube::new(6, 1_000, 20).write(&table).await;
        // Attributes of a run, whatever their names, do not end a rest.
        let kept = [("state".to_owned(), Some("at rest".into()))].into();
        table.note(AttributesOf::Run("rest"), &kept).await.unwrap();
        let bytes = table.info().await.unwrap().bytes;
        // The first renewal is carried out, but its answer is lost.
        store.lost_answers.store(1, Ordering::SeqCst);
        // Reading alone takes ten hours.
        let budget = (bytes / 36_000).max(1);
        let options = PackOptions { bytes_per_second: Some(budget), ..PackOptions::whole() };
        let report = table.pack(&options).await.unwrap();
        assert_eq!((report.lost, store.lost_answers.load(Ordering::SeqCst)), (0, 0), "{report:?}");
        let owed = (report.bytes_read + report.bytes_written) / budget;
        let rested = store.ahead.load(Ordering::SeqCst) / 1_000_000_000;
        assert!(rested * 10 >= owed * 9, "{rested} s of {owed} s");
    });
}

#[test]
fn a_store_that_fails_for_a_moment_ends_no_pack_that_rests_and_one_that_is_gone_does() {
    run(async {
        let store = Arc::new(Relayed(Ahead::of(Arc::new(MemoryStore::new()))));
        let shared: Arc<dyn Store> = store.clone();
        let table = Table::create(shared, "run", schema(false)).await.unwrap();
        Tube::new(6, 1_000, 20).write(&table).await;
        let options = PackOptions { bytes_per_second: Some(64 << 10), ..PackOptions::whole() };
        store.failing.store(u64::MAX, Ordering::SeqCst);
        let gone = table.pack(&options).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Unavailable);
        store.failing.store(5, Ordering::SeqCst);
        let report = table.pack(&options).await.unwrap();
        assert!(report.version.is_some() && report.lost == 0, "{report:?}");
        assert_eq!(store.failing.load(Ordering::SeqCst), 0);
        assert!(store.ahead.load(Ordering::SeqCst) > 0);
    });
}

/// Options for many small objects.
fn small(options: PackOptions) -> PackOptions {
    PackOptions {
        shape: Shape { cube_rows: 200, leaf_rows: 300, object_bytes: 8 << 10, ..options.shape },
        ..options
    }
}

#[test]
fn a_pack_whose_tree_takes_hours_to_be_written_is_done_once() {
    run(async {
        let store = Arc::new(Relayed(Ahead::of(Arc::new(MemoryStore::new()))));
        let shared: Arc<dyn Store> = store.clone();
        let table = Table::create(shared, "run", schema(false)).await.unwrap();
        Tube::new(6, 1_000, 60).write(&table).await;
        store.slowness.store(60_000_000_000, Ordering::SeqCst);
        let report = table.pack(&small(PackOptions::whole())).await.unwrap();
        assert!(report.objects_after > 100, "{report:?}");
        assert_eq!((report.trees, report.lost), (1, 0), "{report:?}");
    });
}

#[test]
fn a_pack_by_whoever_was_idle_for_so_long_that_its_session_ended_is_done_once() {
    run(async {
        let store = Arc::new(Relayed(Ahead::of(Arc::new(MemoryStore::new()))));
        let shared: Arc<dyn Store> = store.clone();
        let table = Table::create(shared, "run", schema(false)).await.unwrap();
        Tube::new(6, 1_000, 20).write(&table).await;
        store.pass(2 * 3_600_000_000_000).await;
        let options = PackOptions { bytes_per_second: Some(64 << 10), ..PackOptions::whole() };
        let report = table.pack(&options).await.unwrap();
        assert_eq!((report.trees, report.lost), (1, 0), "{report:?}");
    });
}

//! Packs that are told to stop: they leave nothing of what they have written, keep the trees that are done,
//! and do not rest to the end first.

use crate::run;
use crate::tube::{Tube, schema};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Cell, Expectation, PartitionQuery, Store, StoreFuture, Waited, WriteOptions, Written,
};
use atoll_tables::cube::Shape;
use atoll_tables::{KeepPacked, PackOptions, PackReport, Query, Table};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// What a pack does when it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// It writes an object.
    Object,
    /// It writes to the manifest: it begins its session, then commits one tree after another.
    Manifest,
    /// It rests.
    Rest,
}

/// A store that tells a packer to stop as it does something for the n-th time.
struct Stopping {
    inner: Arc<dyn Store>,
    when: When,
    left: AtomicU64,
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

/// The longest single wait of a pack that rests.
const REST: Duration = Duration::from_secs(60);

impl Stopping {
    fn did(&self, what: When) {
        if what == self.when && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            drop(self.stop.lock().unwrap().take());
        }
    }
}

/// An object's name has the ids of its session and itself.
fn is_object(partition: &[u8]) -> bool {
    partition.starts_with(b"\0atoll.table/") && partition.len() > 40
}

impl Relay for Stopping {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        if is_object(&batch.partition) {
            self.did(When::Object);
        } else if batch.partition.ends_with(b"/m") {
            self.did(When::Manifest);
        }
        self.inner.write(batch, options)
    }

    fn wait<'a>(
        &'a self,
        cell: Cell<'a>,
        expectation: Expectation,
        time_out: Duration,
    ) -> StoreFuture<'a, Waited> {
        if time_out == REST {
            self.did(When::Rest);
        }
        self.inner.wait(cell, expectation, time_out)
    }
}

/// A table of twenty steps with 500 rows each.
async fn made() -> (Arc<dyn Store>, Table) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = Table::create(Arc::clone(&store), "run", schema(false)).await.unwrap();
    Tube::new(6, 500, 20).write(&table).await;
    (store, table)
}

async fn objects(store: &Arc<dyn Store>) -> usize {
    let page = store.partition_keys(PartitionQuery::prefix(Vec::new())).await.unwrap();
    assert!(page.resume.is_none(), "too many for one page");
    page.partitions.iter().filter(|name| is_object(name)).count()
}

/// Many small objects.
fn small() -> PackOptions {
    let whole = PackOptions::whole();
    let shape = Shape { cube_rows: 100, leaf_rows: 150, object_bytes: 1 << 10, ..whole.shape };
    PackOptions { shape, ..whole }
}

/// Keeps the table packed until it does something for the n-th time; the handle goes on to live, and with it
/// its session.
async fn kept_until(inner: &Arc<dyn Store>, when: (When, u64), pack: PackOptions) -> (Table, PackReport) {
    let (stop, stopped) = oneshot::channel::<()>();
    let (inner, stop, left) = (Arc::clone(inner), Mutex::new(Some(stop)), AtomicU64::new(when.1));
    let store = Arc::new(Relayed(Stopping { inner, when: when.0, left, stop }));
    let table = Table::open(Arc::clone(&store) as Arc<dyn Store>, "run").await.unwrap();
    // Waits for the lease are not taken for those of a pack.
    let how = KeepPacked { pack, lease: Duration::from_secs(7200), ..KeepPacked::default() };
    let until = async {
        let _ = stopped.await;
    };
    let mut told = PackReport::default();
    let kept = table.keep_packed(&how, until, |report| told += *report).await.unwrap();
    assert!(store.stop.lock().unwrap().is_none(), "{when:?}: it was not told to stop");
    assert_eq!(kept, told);
    (table, kept)
}

#[test]
fn a_pack_that_is_told_to_stop_while_it_writes_leaves_no_objects() {
    run(async {
        let (store, table) = made().await;
        let before = objects(&store).await;
        for number in [1, 3, 40] {
            let (_stands, report) = kept_until(&store, (When::Object, number), small()).await;
            assert_eq!(report, PackReport::default(), "stopped at object {number}");
            assert_eq!(objects(&store).await, before, "stopped at object {number}");
        }
        assert_eq!(table.count(&Query::default()).await.unwrap().rows, 20 * 500);
        let whole = table.pack(&small()).await.unwrap();
        assert!(whole.objects_after > 80, "it would have ended by itself: {whole:?}");
    });
}

#[test]
fn the_trees_that_were_done_by_then_stay() {
    run(async {
        let (store, table) = made().await;
        let before = objects(&store).await;
        // The rows of a block take 16,000 bytes in memory: two trees of eight blocks each, and four blocks.
        let pack = PackOptions { tree_bytes_max: 130_000, ..PackOptions::whole() };
        let (_stands, report) = kept_until(&store, (When::Manifest, 2), pack).await;
        assert_eq!((report.trees, report.rows), (1, 8 * 500), "{report:?}");
        assert_eq!(table.info().await.unwrap().blocks, 12);
        // What the tree replaced stays until a vacuum.
        assert_eq!(objects(&store).await as u64, before as u64 + report.objects_after);
        assert_eq!(table.count(&Query::default()).await.unwrap().rows, 20 * 500);
    });
}

#[test]
fn a_pack_that_rests_for_hours_is_stopped_at_once() {
    run(async {
        let (store, table) = made().await;
        let pack = PackOptions { bytes_per_second: Some(1), ..PackOptions::whole() };
        let kept = kept_until(&store, (When::Rest, 1), pack);
        let (_stands, report) = tokio::time::timeout(REST / 2, kept).await.unwrap();
        assert_eq!(report, PackReport::default());
        assert_eq!(table.info().await.unwrap().blocks, 20);
    });
}

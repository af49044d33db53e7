//! Packing in the background: it keeps up, finishes at rest, elects one of several packers, and stops on
//! request.

use crate::run;
use crate::tube::{Tube, schema};
use atoll_conformance::{Relay, Relayed};
use atoll_errors::ErrorKind;
use atoll_memory::MemoryStore;
use atoll_store::{Buffer, Cell, Expectation, PartitionQuery, ReadOptions, Store, StoreFuture, Timestamp};
use atoll_tables::protocol::BlockId;
use atoll_tables::{KeepPacked, PackOptions, PackReport, Query, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const ROWS: usize = 100;

/// Packs without resting, with a lease that outlasts any test.
fn at_once() -> KeepPacked {
    KeepPacked {
        idle: Duration::from_millis(30),
        pause: Duration::from_millis(1),
        lease: Duration::from_secs(7200),
        ..KeepPacked::default()
    }
}

async fn made() -> (Arc<dyn Store>, Table) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = Table::create(Arc::clone(&store), "run", schema(false)).await.unwrap();
    (store, table)
}

async fn append(table: &Table, tube: &mut Tube, steps: std::ops::Range<i32>) {
    table.begin("tube", 1, 1).await.unwrap();
    for step in steps {
        let rows = tube.frame(&table.schema(), step);
        let id = BlockId { run: "tube".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &rows).await.unwrap();
    }
}

type PackReportReceiver = mpsc::UnboundedReceiver<PackReport>;
type Ended = tokio::task::JoinHandle<Result<PackReport, atoll_tables::TableError>>;

/// Keeps the table packed in a task of its own, which reports each pack and ends when the sender is dropped.
async fn keeper(store: &Arc<dyn Store>, how: KeepPacked) -> (oneshot::Sender<()>, PackReportReceiver, Ended) {
    keeper_of(store, "run", how).await
}

async fn keeper_of(
    store: &Arc<dyn Store>,
    name: &str,
    how: KeepPacked,
) -> (oneshot::Sender<()>, PackReportReceiver, Ended) {
    let table = Table::open(Arc::clone(store), name).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell, told) = mpsc::unbounded_channel();
    let until = async {
        let _ = stopped.await;
    };
    let on_pack = move |report: &PackReport| {
        let _ = tell.send(*report);
    };
    let ended = tokio::spawn(async move { table.keep_packed(&how, until, on_pack).await });
    (stop, told, ended)
}

/// The lease and its cell, as soon as a packer holds it.
async fn lease(store: &Arc<dyn Store>) -> (Vec<u8>, Buffer) {
    loop {
        let page = store.partition_keys(PartitionQuery::prefix(Vec::new())).await.unwrap();
        for partition in &page.partitions {
            let cell = Cell::new(partition, b"\0packer");
            if let Some(lease) = store.get(cell, ReadOptions::default()).await.unwrap() {
                return (partition.to_vec(), lease);
            }
        }
        tokio::task::yield_now().await;
    }
}

/// Returns when the lease has another holder than now.
async fn handed_on(store: &Arc<dyn Store>) {
    let (partition, mut now) = lease(store).await;
    let holder = now[..16].to_vec();
    while now[..16] == holder {
        let cell = Cell::new(&partition, b"\0packer");
        let changes = Expectation::Differs(Some(now.clone()));
        store.wait(cell, changes, Duration::from_secs(300)).await.unwrap();
        now = store.get(cell, ReadOptions::default()).await.unwrap().unwrap();
    }
}

/// The next pack; fails if none comes.
async fn next(told: &mut PackReportReceiver) -> PackReport {
    tokio::time::timeout(Duration::from_secs(300), told.recv()).await.unwrap().unwrap()
}

#[test]
fn a_table_at_rest_has_no_blocks_left_and_few_trees_however_little_came() {
    run(async {
        let (store, table) = made().await;
        let mut tube = Tube::new(1, ROWS, 60);
        let (stop, mut told, ended) = keeper(&store, at_once()).await;
        append(&table, &mut tube, 0..40).await;
        while table.info().await.unwrap().blocks > 0 {
            next(&mut told).await;
        }
        append(&table, &mut tube, 40..60).await;
        while table.info().await.unwrap().blocks > 0 {
            next(&mut told).await;
        }
        drop(stop);
        let total = ended.await.unwrap().unwrap();
        assert!(total.rows >= 60 * ROWS as u64, "{total:?}");
        assert_eq!(table.query(&Query::default()).await.unwrap().rows.num_rows(), 60 * ROWS);
        let left = table.pack(&PackOptions { is_settling: true, ..PackOptions::default() }).await.unwrap();
        assert_eq!(left.version, None, "nothing is left to do");
    });
}

#[test]
fn a_table_at_rest_drops_what_several_conditions_deleted() {
    run(async {
        let (store, table) = made().await;
        append(&table, &mut Tube::new(9, ROWS, 10), 0..10).await;
        let (stop, mut told, ended) = keeper(&store, at_once()).await;
        while table.info().await.unwrap().blocks > 0 {
            next(&mut told).await;
        }
        for pid in 0..PackOptions::default().fan {
            table.delete(None, None, Some(&format!("pid = {pid}"))).await.unwrap();
        }
        let deleted = PackOptions::default().fan as u64 * 10;
        let mut dropped = 0;
        while dropped < deleted {
            dropped += next(&mut told).await.dropped;
        }
        drop(stop);
        let total = ended.await.unwrap().unwrap();
        assert_eq!((dropped, total.dropped), (deleted, deleted));
        let left = 10 * ROWS as u64 - deleted;
        assert_eq!(table.count(&Query::default()).await.unwrap().rows, left);
        assert_eq!(table.pack(&PackOptions::whole()).await.unwrap().version, None, "nothing is struck");
    });
}

#[test]
fn of_several_that_keep_a_table_packed_one_packs_and_the_next_follows_when_it_ends() {
    run(async {
        let (store, table) = made().await;
        let mut tube = Tube::new(2, ROWS, 40);
        let (first_stop, mut first_told, first) = keeper(&store, at_once()).await;
        append(&table, &mut tube, 0..20).await;
        next(&mut first_told).await;
        let (second_stop, mut second_told, second) = keeper(&store, at_once()).await;
        append(&table, &mut tube, 20..30).await;
        while table.info().await.unwrap().blocks > 0 {
            next(&mut first_told).await;
        }
        assert!(second_told.try_recv().is_err(), "the second packs beside the first");
        drop(first_stop);
        first.await.unwrap().unwrap();
        append(&table, &mut tube, 30..40).await;
        // Hours before the first packer's lease would have expired.
        next(&mut second_told).await;
        drop(second_stop);
        assert_eq!(second.await.unwrap().unwrap().lost, 0);
    });
}

#[test]
fn resting_again_and_again_writes_a_row_a_few_times() {
    run(async {
        let (_, table) = made().await;
        let mut tube = Tube::new(3, 20, 400);
        let options = PackOptions { is_settling: true, ..PackOptions::default() };
        let (mut written, mut trees) = (0, 0);
        for step in 0..400 {
            append(&table, &mut tube, step..step + 1).await;
            let report = table.pack(&options).await.unwrap();
            written += report.rows;
            let info = table.info().await.unwrap();
            assert_eq!(info.blocks, 0);
            trees = trees.max(info.cubes);
        }
        let times = written as f64 / (400.0 * 20.0);
        // One tree after another would be 200 times, and each step by itself 400 trees.
        assert!(times <= 25.0 && trees <= 8, "each row was written {times:.1} times, into {trees} trees");
    });
}

#[test]
fn a_copy_is_kept_packed_by_nobody_before_somebody_begins() {
    run(async {
        let (store, table) = made().await;
        append(&table, &mut Tube::new(4, ROWS, 5), 0..5).await;
        let (stop, mut told, ended) = keeper(&store, at_once()).await;
        next(&mut told).await;
        let (partition, _) = lease(&store).await;
        let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
        table.copy_to(&other, "copy", None, &mut |_| {}).await.unwrap();
        drop(stop);
        ended.await.unwrap().unwrap();
        let (stop, mut told, ended) = keeper_of(&other, "copy", at_once()).await;
        let copy = Table::open(Arc::clone(&other), "copy").await.unwrap();
        append(&copy, &mut Tube::new(5, ROWS, 5), 5..8).await;
        // A copied lease of hours would prevent any pack.
        next(&mut told).await;
        drop(stop);
        ended.await.unwrap().unwrap();
        assert!(
            store.get(Cell::new(&partition, b"\0packer"), ReadOptions::default()).await.unwrap().is_none()
        );
    });
}

#[test]
fn whoever_is_told_to_end_ends_and_hinders_nobody() {
    run(async {
        let (store, table) = made().await;
        append(&table, &mut Tube::new(4, ROWS, 5), 0..5).await;
        let nothing = table.keep_packed(&at_once(), std::future::ready(()), |_| {}).await.unwrap();
        assert_eq!(nothing, PackReport::default());
        let (stop, mut told, ended) = keeper(&store, at_once()).await;
        next(&mut told).await;
        drop(stop);
        ended.await.unwrap().unwrap();
    });
}

#[test]
fn what_goes_wrong_for_good_ends_it_with_the_error() {
    run(async {
        let (store, table) = made().await;
        append(&table, &mut Tube::new(5, ROWS, 5), 0..5).await;
        let (_stop, mut told, ended) = keeper(&store, at_once()).await;
        next(&mut told).await;
        Table::drop_table(&*store, "run").await.unwrap();
        assert_eq!(ended.await.unwrap().unwrap_err().kind(), ErrorKind::NotFound);
        let how = KeepPacked { pack: PackOptions { share: 0.0, ..PackOptions::default() }, ..at_once() };
        let refused = table.keep_packed(&how, std::future::ready(()), |_| {}).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_pack_moves_no_more_bytes_a_second_than_it_may() {
    run(async {
        let (store, table) = made().await;
        append(&table, &mut Tube::new(6, 1_000, 20), 0..20).await;
        let budget = 4_000_000;
        let options = PackOptions { bytes_per_second: Some(budget), ..PackOptions::whole() };
        let began = store.now().await.unwrap().0;
        let report = table.pack(&options).await.unwrap();
        let moved = (report.bytes_read + report.bytes_written) as f64;
        let least = moved / budget as f64;
        assert!(least > 0.2, "too little to tell: {moved} bytes");
        let took = (store.now().await.unwrap().0 - began) as f64 / 1e9;
        assert!(took >= least * 0.9, "{moved} bytes in {took} s");
    });
}

/// A store whose clock the test controls: it stands still while anything is done, and advances while all
/// wait.
struct Paused {
    inner: MemoryStore,
    began: tokio::time::Instant,
}

impl Relay for Paused {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn now(&self) -> StoreFuture<'_, Timestamp> {
        let nanoseconds = self.began.elapsed().as_nanos() as u64;
        Box::pin(std::future::ready(Ok(Timestamp(1_000_000_000 + nanoseconds))))
    }
}

#[tokio::test(start_paused = true)]
async fn a_pack_that_takes_longer_than_the_lease_is_not_done_twice() {
    let began = tokio::time::Instant::now();
    let store: Arc<dyn Store> = Arc::new(Relayed(Paused { inner: MemoryStore::new(), began }));
    let table = Table::create(Arc::clone(&store), "run", schema(false)).await.unwrap();
    append(&table, &mut Tube::new(6, 1_000, 20), 0..20).await;
    // So slow that the lease would expire twice during the pack.
    let lease = Duration::from_secs(2);
    let blocks = table.info().await.unwrap().bytes;
    let pack = PackOptions { bytes_per_second: Some(blocks / 4), ..PackOptions::default() };
    let how = KeepPacked { lease, pack, ..at_once() };
    let (first_stop, mut first_told, first) = keeper(&store, how.clone()).await;
    let (second_stop, mut second_told, second) = keeper(&store, how).await;
    tokio::select! {
        report = first_told.recv() => drop(report.unwrap()),
        report = second_told.recv() => drop(report.unwrap()),
        () = handed_on(&store) => panic!("somebody else has begun to pack"),
    }
    let took = began.elapsed();
    assert!(took > lease * 2, "too quick to tell: {took:?}");
    drop((first_stop, second_stop));
    assert_eq!(first.await.unwrap().unwrap().lost, 0);
    assert_eq!(second.await.unwrap().unwrap().lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_by_a_clock_that_was_far_ahead_keeps_nobody_from_packing() {
    let began = tokio::time::Instant::now();
    let store: Arc<dyn Store> = Arc::new(Relayed(Paused { inner: MemoryStore::new(), began }));
    let table = Table::create(Arc::clone(&store), "run", schema(false)).await.unwrap();
    // The lease expires in a year, and its holder is killed.
    let (_stop, _told, killed) =
        keeper(&store, KeepPacked { lease: Duration::from_secs(366 * 24 * 3600), ..at_once() }).await;
    let (_, left) = lease(&store).await;
    killed.abort();
    assert!(killed.await.unwrap_err().is_cancelled());
    append(&table, &mut Tube::new(8, ROWS, 20), 0..20).await;
    let (stop, mut told, ended) =
        keeper(&store, KeepPacked { lease: Duration::from_secs(60), ..at_once() }).await;
    assert_eq!(next(&mut told).await.rows, 20 * ROWS as u64);
    assert_ne!(lease(&store).await.1, left);
    drop(stop);
    ended.await.unwrap().unwrap();
}

#[test]
fn packing_while_steps_come_loses_nothing() {
    run(async {
        let (store, table) = made().await;
        let how =
            KeepPacked { pack: PackOptions { rows_min: 500, fan: 2, ..PackOptions::default() }, ..at_once() };
        let seen = Arc::new(AtomicU64::new(0));
        let (stop, mut told, ended) = keeper(&store, how).await;
        let counted = Arc::clone(&seen);
        let listener = tokio::spawn(async move {
            while let Some(report) = told.recv().await {
                counted.fetch_add(report.rows, Ordering::Relaxed);
            }
        });
        append(&table, &mut Tube::new(7, ROWS, 100), 0..100).await;
        while table.info().await.unwrap().blocks > 0 {
            tokio::task::yield_now().await;
        }
        drop(stop);
        let total = ended.await.unwrap().unwrap();
        listener.await.unwrap();
        assert_eq!(seen.load(Ordering::Relaxed), total.rows, "it is told of every pack");
        assert_eq!(table.count(&Query::default()).await.unwrap().rows, 100 * ROWS as u64);
    });
}

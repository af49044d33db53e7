//! Concurrent packers, writers and readers: nothing is lost or doubled, whichever is faster.

use crate::run;
use crate::seeds::for_seeds;
use crate::tube::{Tube, schema};
use arrow_array::RecordBatch;
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Batch, Store, StoreFuture, WriteOptions, Written};
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Table, WholeStep};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The ids of all rows, which must be distinct.
async fn ids(table: &Table) -> BTreeSet<(i32, i32)> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    let rows = table.query(&Query::default()).await.unwrap().rows;
    let numbers = |place: usize| rows.column(place).as_primitive::<Int32Type>().values().to_vec();
    let pairs: Vec<(i32, i32)> = numbers(0).into_iter().zip(numbers(1)).collect();
    let ids: BTreeSet<_> = pairs.iter().copied().collect();
    assert_eq!(ids.len(), pairs.len(), "a row is there twice");
    ids
}

#[test]
fn three_packers_and_a_writer_that_starts_again_lose_and_double_nothing() {
    for_seeds("three_packers_and_a_writer", 6, |random| {
        run(async {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let table = Table::create(Arc::clone(&store), "run", schema(random.bool())).await.unwrap();
            let packer = |seed: u64| {
                let store = Arc::clone(&store);
                async move {
                    let table = Table::open(store, "run").await.unwrap();
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut done = (0, 0);
                    for _ in 0..25 {
                        let rows_min = random.u64(1..800);
                        let is_whole = random.bool();
                        let options = PackOptions { is_whole, rows_min, fan: 2, ..PackOptions::default() };
                        // A packer that loses again and again gives up, which does no harm.
                        if let Ok(report) = table.pack(&options).await {
                            done = (done.0 + report.trees, done.1 + report.lost);
                        }
                        tokio::task::yield_now().await;
                    }
                    done
                }
            };
            let packers: Vec<_> =
                (0..3).map(|number| tokio::spawn(packer(random.u64(..) + number))).collect();
            // The second attempt restarts at a step of the first, whose rows may have been packed by then.
            let again = random.i32(5..25);
            for (attempt, steps) in [(1, 0..30), (2, again..40)] {
                table.begin("tube", attempt, 1).await.unwrap();
                let mut tube = Tube::new(attempt, if attempt == 1 { 150 } else { 90 }, 40);
                for step in steps {
                    let rows = tube.frame(&table.schema(), step);
                    let id = BlockId { run: "tube".into(), attempt, step: step as u64, rank: 0 };
                    table.append(id, &rows).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
            let mut trees = 0;
            for packer in packers {
                trees += packer.await.unwrap().0;
            }
            let expected: BTreeSet<(i32, i32)> = (0..40)
                .flat_map(|step| (0..if step < again { 150 } else { 90 }).map(move |pid| (pid, step)))
                .collect();
            assert_eq!(ids(&table).await, expected);
            let report = table.pack(&PackOptions::whole()).await.unwrap();
            assert_eq!(ids(&table).await, expected);
            assert!(trees + report.trees > 0);
            assert_eq!(
                table.pack(&PackOptions::whole()).await.unwrap().version,
                None,
                "struck rows are gone"
            );
        });
    });
}

#[test]
fn what_is_superseded_after_it_was_packed_is_in_no_answer_and_in_no_later_tree() {
    run(async {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let table = Table::create(Arc::clone(&store), "run", schema(false)).await.unwrap();
        Tube::new(1, 100, 30).write(&table).await;
        assert_eq!(table.pack(&PackOptions::whole()).await.unwrap().trees, 1);
        table.begin("tube", 2, 1).await.unwrap();
        let rows = Tube::new(2, 40, 30).frame(&table.schema(), 12);
        let id = BlockId { run: "tube".into(), attempt: 2, step: 12, rank: 0 };
        table.append(id, &rows).await.unwrap();
        let pids = |step| 0..if step < 12 { 100 } else { 40 };
        let expected: BTreeSet<(i32, i32)> =
            (0..13).flat_map(|step| pids(step).map(move |pid| (pid, step))).collect();
        assert_eq!(ids(&table).await, expected);
        assert_eq!(table.count(&Query::default()).await.unwrap().rows, 1240);
        let report = table.pack(&PackOptions::whole()).await.unwrap();
        assert_eq!((report.trees, report.rows, report.dropped), (1, 1240, 1800));
        assert_eq!(ids(&table).await, expected);
    });
}

/// A store in which another process loads a tree after each write to the manifest, as long as it has any.
struct Loaded {
    inner: Arc<dyn Store>,
    other: Table,
    trees: Vec<RecordBatch>,
    loaded: AtomicUsize,
}

impl Relay for Loaded {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        Box::pin(async move {
            let is_manifest = batch.partition.ends_with(b"/m");
            let written = self.inner.write(batch, options).await?;
            let number = self.loaded.fetch_add(usize::from(is_manifest), Ordering::SeqCst);
            if let Some(rows) = self.trees.get(number).filter(|_| is_manifest) {
                let step = WholeStep { step: number as u64, time: None, rows: rows.clone() };
                let as_a_tree = PackOptions { rows_min: 1, ..PackOptions::default() };
                self.other.load("more", 1, &[step], &as_a_tree).await.unwrap();
            }
            Ok(written)
        })
    }
}

#[test]
fn a_pack_does_not_go_on_with_what_others_load_meanwhile() {
    run(async {
        let settling = PackOptions { is_settling: true, ..PackOptions::default() };
        for options in [PackOptions::whole(), settling] {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let table = Table::create(Arc::clone(&inner), "run", schema(false)).await.unwrap();
            Tube::new(1, 100, 30).write(&table).await;
            table.begin("more", 1, 1).await.unwrap();
            let mut tube = Tube::new(2, 100, 30);
            let trees = (0..30).map(|step| tube.frame(&table.schema(), step)).collect();
            let other = table.clone();
            let store = Loaded { inner: Arc::clone(&inner), other, trees, loaded: AtomicUsize::new(0) };
            let store = Arc::new(Relayed(store));
            let packer = Table::open(Arc::clone(&store) as Arc<dyn Store>, "run").await.unwrap();
            let report = packer.pack(&options).await.unwrap();
            assert_eq!((report.trees, report.rows), (1, 3000), "{report:?}");
            let loaded = store.loaded.load(Ordering::SeqCst);
            assert!((1..30).contains(&loaded), "{loaded} trees were loaded meanwhile");
            let rest = table.pack(&options).await.unwrap();
            assert!(rest.rows >= 100, "the next pack takes them: {rest:?}");
            let rows = table.count(&Query::default()).await.unwrap().rows;
            assert_eq!(rows, 3000 + 100 * loaded as u64);
        }
    });
}

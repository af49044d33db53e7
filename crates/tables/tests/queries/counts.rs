//! The work of queries, counted: noise does not affect the counts, so they are exact, and a change that costs
//! more fails here.

use crate::counted::{Counted, Counts};
use crate::particles::{batch, schema, some};
use crate::run;
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::expression::{Column, Expression, parse_box};
use atoll_tables::lattice::Scalar;
use atoll_tables::protocol::BlockId;
use atoll_tables::{Query, Table, Work};
use fastrand::Rng;
use std::sync::Arc;

/// The rows of a block.
const ROWS: i64 = 60_000;

/// Blocks of one rank, one for each step, on a counting store.
async fn blocks(count: i64, rows: i64) -> (Arc<dyn Store>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let store = Relayed(Counted { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) });
    let store: Arc<dyn Store> = Arc::new(store);
    let table = Table::create(Arc::clone(&store), "run", schema(false, 0)).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let mut random = Rng::with_seed(9);
    for step in 0..count {
        let rows = some(&mut random, &table.schema(), step, 0..rows);
        let id = BlockId { run: "run".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &batch(&table.schema(), &rows)).await.unwrap();
    }
    (store, counts)
}

/// The table, reopened, so that it knows no directory yet.
async fn open(store: &Arc<dyn Store>) -> Table {
    Table::open(Arc::clone(store), "run").await.unwrap()
}

/// The work and the rounds of a query as it reports them, compared with the store's count.
async fn took(store: &Arc<dyn Store>, counts: &Counts, query: &Query) -> (Work, u64) {
    let table = open(store).await;
    counts.take();
    let work = table.query(query).await.unwrap().work;
    let (requests, bytes, rounds) = counts.take();
    assert_eq!((work.requests, work.bytes), (requests, bytes), "what was counted is not what was said");
    (work, rounds)
}

fn filter(text: &str) -> Query {
    Query::default().filter(Expression::parse(text).unwrap())
}

#[test]
fn a_sample_of_everything_touches_at_most_twice_its_rows_and_a_band_of_each_block() {
    run(async {
        let (store, counts) = blocks(4, ROWS).await;
        for share in [0.001, 0.01, 0.015, 0.1, 0.3, 1.0] {
            let (work, rounds) = took(&store, &counts, &Query::default().sample(share).unwrap()).await;
            assert!(work.rows_touched <= 2 * work.rows_returned + 4 * 256, "{share}: {work:?}");
            assert_eq!(rounds, 2, "{share}: directories, then slices");
            assert!(work.requests <= 8 + work.bytes / (3 << 20), "{share}: {work:?}");
        }
        let (work, _) = took(&store, &counts, &Query::default().sample(0.01).unwrap()).await;
        assert_eq!((work.blocks, work.bands, work.rows_touched, work.requests), (4, 12, 4096, 8));
    });
}

#[test]
fn the_first_rows_of_everything_are_found_in_one_round() {
    run(async {
        let (store, counts) = blocks(4, ROWS).await;
        let (work, rounds) = took(&store, &counts, &Query::default().first(1000)).await;
        assert_eq!((work.rows_returned, work.rows_touched, rounds), (1000, 2048, 2));
        // One row in four passes: the first round learns this share, and the second brings the rest.
        let (work, rounds) = took(&store, &counts, &filter("kind = 1").first(1000)).await;
        assert_eq!((work.rows_returned, work.rows_touched, rounds), (1000, 8192, 3));
    });
}

#[test]
fn columns_that_nobody_needs_are_not_read() {
    run(async {
        let (store, counts) = blocks(2, ROWS).await;
        let (all, _) = took(&store, &counts, &Query::default()).await;
        let (one, _) = took(&store, &counts, &Query::default().select(["vz"])).await;
        // The weight, the id and the velocity take 28 of about 60 bytes.
        assert!(one.bytes * 2 < all.bytes, "{} of {} bytes", one.bytes, all.bytes);
        let (certain, _) = took(&store, &counts, &filter("x < 100 and step >= 0").select(["vz"])).await;
        assert_eq!(certain.bytes, one.bytes, "every row is known to satisfy it: x need not be read");
        let (filtered, _) = took(&store, &counts, &filter("x < 0.5").select(["vz"])).await;
        assert!(filtered.bytes > one.bytes);
    });
}

#[test]
fn blocks_and_bands_beside_a_box_are_not_read_and_counting_reads_what_is_not_certain() {
    run(async {
        let (store, counts) = blocks(8, 6000).await;
        let only = |text: &str| Query::default().in_box(&parse_box(text).unwrap());
        let (work, _) = took(&store, &counts, &only("step=3:4")).await;
        assert_eq!((work.blocks, work.rows_touched, work.rows_returned), (8, 6000, 6000));
        let (work, rounds) = took(&store, &counts, &only("step=30:40")).await;
        assert_eq!((work.bands, work.requests, rounds), (0, 0, 0), "the version knows where each block lies");
        let (work, rounds) = took(&store, &counts, &filter("x > 1 and x < 0")).await;
        assert_eq!((work.requests, rounds), (0, 0), "nothing can satisfy it");
        let (work, _) = took(&store, &counts, &filter("(step = 1 and x < 5) or (step = 6 and x > -5)")).await;
        assert_eq!((work.rows_touched, work.rows_returned), (12_000, 12_000));

        let everything = open(&store).await.count(&Query::default()).await.unwrap();
        assert_eq!((everything.rows, everything.work.requests), (48_000, 0), "the version knows");
        let steps = open(&store).await.count(&only("step=2:5")).await.unwrap();
        assert_eq!((steps.rows, steps.work.bands, steps.work.requests), (18_000, 0, 0), "the version knows");
        let sample = open(&store).await.count(&Query::default().sample(0.5).unwrap()).await.unwrap();
        assert_eq!(sample.work.bands, 8, "only the band that the cut goes through");
        assert!(sample.work.rows_touched < 8 * 3000 && sample.rows > 23_000);
    });
}

#[test]
fn the_ends_of_an_index_column_are_known_where_whole_blocks_match_and_are_searched_best_first() {
    run(async {
        let (store, counts) = blocks(8, 6000).await;
        let ends = async |text: &str, column: &str| {
            let query = if text.is_empty() { Query::default() } else { filter(text) };
            let column = Column::named(column);
            let least = open(&store).await.minimum(&query, &column).await.unwrap();
            (least, open(&store).await.maximum(&query, &column).await.unwrap())
        };
        for (text, column) in [("", "x"), ("", "step"), ("step >= 2 and step < 5", "x")] {
            counts.take();
            let (least, greatest) = ends(text, column).await;
            assert!(least.value < greatest.value, "{least:?}, {greatest:?}");
            let (requests, ..) = counts.take();
            assert_eq!((least.work.requests, greatest.work.requests, requests), (0, 0, 0), "{text} {column}");
        }
        let (least, greatest) = ends("step >= 2 and step < 5", "step").await;
        assert_eq!((least.value, greatest.value), (Some(Scalar::Signed(2)), Some(Scalar::Signed(4))));
        // Steps drift to the right by a tenth: only the first block reaches as far to the left.
        let (least, _) = ends("x < 0.9", "x").await;
        assert!(least.work.rows_touched <= 6000, "{least:?}");
        assert!(least.work.requests <= 12, "{least:?}");
        // Nothing is known beforehand of a column that is not in the index.
        let (least, _) = ends("", "vz").await;
        assert_eq!(least.work.rows_touched, 48_000);
        let (none, _) = ends("x > 100", "vz").await;
        assert_eq!((none.value, none.work.requests), (None, 0));
        let text = open(&store).await.minimum(&Query::default(), &Column::named("name")).await.unwrap_err();
        assert!(text.to_string().contains("only numbers and times") && text.hint().is_some(), "{text}");
    });
}

#[test]
fn a_small_block_is_one_request_and_a_large_answer_few() {
    run(async {
        let (store, counts) = blocks(20, 50).await;
        let (work, rounds) = took(&store, &counts, &Query::default()).await;
        assert_eq!((work.rows_returned, work.requests, rounds), (1000, 20, 1));
        let (store, counts) = blocks(1, 400_000).await;
        let (work, rounds) = took(&store, &counts, &Query::default()).await;
        assert_eq!((work.rows_returned, rounds), (400_000, 2));
        assert!(work.requests <= 1 + 1 + work.bytes / (2 << 20), "{work:?}");
        // A block that is wanted completely costs hardly more than its own bytes.
        assert!(work.bytes < 400_000 * 62, "{} bytes a row", work.bytes / 400_000);
    });
}

#[test]
fn a_refinement_reads_no_band_twice() {
    run(async {
        let (store, counts) = blocks(4, ROWS).await;
        let query = filter("kind <> 0");
        let (whole, _) = took(&store, &counts, &query).await;
        let mut refinement = open(&store).await.refine(&query);
        let mut batches = Vec::new();
        while let Some(refined) = refinement.next().await.unwrap() {
            batches.push((refined.rows.num_rows(), refined.work));
        }
        let last = batches.last().unwrap().1;
        assert_eq!((last.bands, last.rows_touched), (whole.bands, whole.rows_touched));
        assert!(batches[0].0 >= 1000 && batches[0].1.rows_touched <= 4096, "{:?}", batches[0]);
        assert!(batches.len() >= 5, "{} batches", batches.len());
    });
}

#[test]
fn a_row_whose_key_is_given_is_looked_for_in_the_bands_that_its_weight_can_lie_in() {
    run(async {
        let (store, counts) = blocks(4, ROWS).await;
        for pid in [17, 1234] {
            let (work, _) = took(&store, &counts, &filter(&format!("pid = {pid} and step = 2"))).await;
            assert_eq!((work.rows_returned, work.bands), (1, 1), "{work:?}");
            let (work, _) = took(&store, &counts, &filter(&format!("pid in ({pid}, -1) and step < 4"))).await;
            assert_eq!(work.rows_returned, 4);
            let counted =
                open(&store).await.count(&filter(&format!("pid = {pid} and step = 2"))).await.unwrap();
            assert_eq!((counted.rows, counted.work.bands), (1, 1));
        }
        let (work, rounds) = took(&store, &counts, &filter("pid = 1.5 and step = 2")).await;
        assert_eq!((work.requests, rounds), (0, 0), "no number of a particle is that");
    });
}

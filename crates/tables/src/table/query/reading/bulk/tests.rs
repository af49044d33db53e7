//! Tests that rows of equal weight and id come in storage order, however they are decoded, and that what is
//! opened in portions gives the same answers and holds one portion.

use super::super::super::Query;
use super::super::super::bound_query::BoundQuery;
use super::super::Reach;
use super::super::plan::portion_ends;
use super::*;
use crate::expression::Expression;
use crate::protocol::BlockId;
use crate::table::tests::schema;
use crate::{PackOptions, Table, WholeStep};
use arrow_array::{Float64Array, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use atoll_memory::MemoryStore;

/// Number of rows of each run.
const ROWS: i64 = 700;

/// The same particles in each run; `vz` tells the run.
fn rows(run: usize) -> RecordBatch {
    let pid: ArrayRef = Arc::new((0..ROWS).collect::<Int64Array>());
    let step: ArrayRef = Arc::new(Int64Array::from(vec![0; ROWS as usize]));
    let x: ArrayRef = Arc::new((0..ROWS).map(|row| (row * 37 % ROWS) as f64).collect::<Float64Array>());
    let vz: ArrayRef = Arc::new(Float64Array::from(vec![run as f64; ROWS as usize]));
    RecordBatch::try_new(Arc::clone(schema().columns()), vec![pid, step, Arc::clone(&x), x, vz]).unwrap()
}

/// Five runs of the same particles, alternately packed and as appended.
async fn written() -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema()).await.unwrap();
    let options = PackOptions { rows_min: 0, ..PackOptions::default() };
    for (place, run) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        table.begin(run, 1, 1).await.unwrap();
        if place % 2 == 0 {
            let step = WholeStep { step: 0, time: None, rows: rows(place) };
            table.load(run, 1, &[step], &options).await.unwrap();
        } else {
            let block = BlockId { run: run.into(), attempt: 1, step: 0, rank: 0 };
            table.append(block, &rows(place)).await.unwrap();
        }
    }
    table
}

#[tokio::test]
async fn what_is_equal_in_weight_and_id_has_one_order_however_many_threads_decode_it() {
    let (table, query) = (written().await, Query::default());
    let manifest = table.ledger.current().await.unwrap().manifest;
    let asked = BoundQuery::rows(&table, &query).unwrap();
    let mut reading = Reading::open(&table, asked, &manifest, Reach::Everything).await.unwrap();
    reading.plan_by_place();
    let fetched = reading.fetched(reading.planned.len(), &mut Work::default()).await.unwrap();
    let (schema, id) = (&reading.schema, reading.asked.id(&table.schema));
    for beside in [RowExtras::Weights, RowExtras::WeightsAndPlaces] {
        for threads in [1, 2, 3, 8] {
            let mut found = reading.decode_all(&fetched, beside, threads).unwrap();
            if beside == RowExtras::WeightsAndPlaces {
                // As if some rows had been read in another round.
                found.reverse();
                found = found.into_iter().map(|found| found.rising().unwrap()).collect();
            }
            let ordered = OrderedRows::by_weight(found, schema, &id).unwrap();
            let rows = ordered.batch(0..ordered.rows(), schema, &reading.asked.answered).unwrap();
            let runs: &Float64Array = rows.column(4).as_any().downcast_ref().unwrap();
            let expected = (0..5 * ROWS).map(|row| (row % 5) as f64);
            assert!(runs.values().iter().copied().eq(expected), "{beside:?} by {threads} threads");
        }
    }
}

/// The runs and particles of these rows, run by run: a scan says nothing of the order of objects, only of
/// rows in one of them.
fn by_run(batches: &[RecordBatch]) -> Vec<(i64, i64)> {
    let all = together(batches).unwrap();
    let pids: &Int64Array = all.column(0).as_any().downcast_ref().unwrap();
    let runs: &Float64Array = all.column(4).as_any().downcast_ref().unwrap();
    let runs = runs.values().iter().map(|run| *run as i64);
    let mut rows: Vec<(i64, i64)> = runs.zip(pids.values().iter().copied()).collect();
    rows.sort_by_key(|(run, _)| *run);
    rows
}

/// A reading that opens one object at a time, and keeps nothing of what it read to open it.
async fn one_at_a_time(table: &Table, asked: BoundQuery) -> Reading {
    let manifest = table.ledger.current().await.unwrap().manifest;
    let mut reading = Reading::open(table, asked, &manifest, Reach::AsNeeded).await.unwrap();
    assert!(!reading.opens_in_portions());
    reading.waiting.portion_bytes_max = 1;
    reading
}

#[tokio::test]
async fn an_answer_whose_objects_are_opened_in_portions_is_the_same_and_holds_one_of_them() {
    let (table, query) = (written().await, Query::default());
    let rows = |query: &Query| BoundQuery::rows(&table, query).unwrap();
    let mut reading = one_at_a_time(&table, rows(&query)).await;
    assert!(reading.opens_in_portions());
    assert_eq!(reading.read_whole().await.unwrap().rows, table.query(&query).await.unwrap().rows);
    assert_eq!((reading.sources.len(), reading.fronts_kept()), (1, 0));
    let mut reading = one_at_a_time(&table, rows(&query)).await;
    let scanned = reading.scan().await.unwrap();
    assert_eq!(by_run(&scanned), by_run(&table.scan(&query).await.unwrap().batches));
    assert_eq!((reading.sources.len(), reading.fronts_kept()), (1, 0));
    // Not on an index column, so that each row has to be judged.
    let filtered = Query::default().filter(Expression::parse("vz >= 2").unwrap());
    let mut reading = one_at_a_time(&table, BoundQuery::count(&table, &filtered).unwrap()).await;
    reading.read_count().await.unwrap();
    assert_eq!(reading.count(), 3 * ROWS as u64);
    assert_eq!((reading.sources.len(), reading.fronts_kept()), (1, 0));
}

#[tokio::test]
async fn the_first_rows_are_found_when_nothing_is_kept_of_what_was_read_to_open_their_objects() {
    let (table, query) = (written().await, Query::default().first(300));
    let asked = BoundQuery::rows(&table, &query).unwrap();
    let mut reading = one_at_a_time(&table, asked).await;
    assert!(!reading.opens_in_portions(), "the lightest rows may be anywhere");
    reading.read_toward(None).await.unwrap();
    assert_eq!(reading.hand_over(None).unwrap().rows, table.query(&query).await.unwrap().rows);
    assert!(reading.sources.len() > 1 && reading.fronts_kept() == 0, "{} opened", reading.sources.len());
}

#[test]
fn no_portion_is_larger_than_it_may_be_unless_it_is_one_item() {
    let ends = |items: &[u64]| portion_ends(items.iter().copied(), 10);
    assert_eq!(ends(&[]), Vec::<usize>::new());
    assert_eq!(ends(&[4, 6, 1, 20, 3, 3]), [2, 3, 4, 6]);
    assert_eq!(ends(&[u64::MAX, u64::MAX]), [1, 2]);
    assert_eq!(ends(&[0; 5]), [5]);
}

#[test]
fn rows_are_joined_until_they_are_many_or_have_many_bytes() {
    let schema = Arc::new(Schema::new(vec![Field::new("note", DataType::Utf8, false)]));
    let batch = |rows: usize, text: &str| {
        let column: ArrayRef = Arc::new(StringArray::from(vec![text; rows]));
        RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap()
    };
    let rows = |all: Vec<RecordBatch>| -> Vec<usize> {
        joined(all).unwrap().iter().map(RecordBatch::num_rows).collect()
    };
    assert_eq!(rows(Vec::new()), Vec::<usize>::new());
    assert_eq!(rows(vec![batch(1000, "short"); 20]), [17_000, 3000]);
    let long = batch(1, &"t".repeat(BATCH_BYTES_MAX / 3 + 1));
    assert_eq!(rows(vec![long.clone(); 5]), [2, 2, 1]);
    // What is longer by itself stays alone, and a slice counts as what it has of its buffers.
    let longer = batch(1, &"t".repeat(BATCH_BYTES_MAX + 1));
    let short = batch(1000, "short");
    assert_eq!(rows(vec![short.clone(), longer, short]), [1000, 1, 1000]);
    let many = batch(5000, &"t".repeat(10_000));
    assert_eq!(rows((0..10).map(|row| many.slice(row, 1)).collect()), [10]);
}

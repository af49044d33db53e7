//! Totals of regions: their number of rows is known where versions and directories tell it, and where it is
//! not, a part of it may be.

use super::counted::{Counted, Counts};
use super::{ROWS, STEPS, append, assert_same, filter, of_vz, rows, schema, table};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::cube::Shape;
use atoll_tables::estimate::{
    Confidence, Estimate, EstimateRequest, KnownPart, Quantity, Subject, Tolerance, Units, calibrated_sum,
};
use atoll_tables::expression::Column;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Readable, Salt, Table, Weight, weights};
use std::sync::Arc;

/// The rows of a query's sample: units, values of vz, and steps.
async fn sampled(table: &Table, query: &Query) -> (Units, Vec<f64>, Vec<i64>) {
    let answer = table.query(query).await.unwrap();
    let weights: &[Weight] = &answer.weights;
    let units = Units::within(weights, query.window).unwrap();
    let vz = answer.rows.column_by_name("vz").unwrap().as_primitive::<Float64Type>();
    let steps = answer.rows.column_by_name("step").unwrap().as_primitive::<Int64Type>();
    (units, vz.iter().map(|value| value.unwrap_or(f64::NAN)).collect(), steps.values().to_vec())
}

/// The true sum of vz of a query's rows.
async fn sum_of(table: &Table, query: &Query) -> f64 {
    let all = Query { window: Query::default().window, ..query.clone() };
    sampled(table, &all).await.1.into_iter().filter(|value| !value.is_nan()).sum()
}

/// So certain that an interval of one seed contains the truth.
fn sure() -> Confidence {
    Confidence::new(0.9999).unwrap()
}

fn sum_of_vz() -> EstimateRequest {
    of_vz(Subject::Sum).confidence(sure())
}

fn count_of_rows() -> EstimateRequest {
    EstimateRequest::new(Subject::Count).confidence(sure())
}

fn sum_of_rows(rows: Option<u64>) -> Quantity {
    Quantity::Sum { rows }
}

#[tokio::test]
async fn the_rows_of_whole_steps_are_known_without_reading_them() {
    let table = table(&[]).await;
    let query = Query::default().filter(filter("step >= 1 and step < 4")).sample(0.1).unwrap();
    let (units, values, _) = sampled(&table, &query).await;
    let rows = 3 * ROWS as u64;
    let expected = sum_of_rows(Some(rows)).estimate(&units, &values, &sure()).unwrap();
    let found = table.estimate(&query, &sum_of_vz()).await.unwrap();
    assert_same(&found.estimate, &expected);
    assert!(found.estimate.holds(sum_of(&table, &query).await), "{}", found.estimate);
    let mean = table.estimate(&query, &of_vz(Subject::Mean)).await.unwrap();
    assert_eq!(found.work.rows_touched, mean.work.rows_touched, "counting read nothing");
    let count = count_of_rows();
    let counted = table.estimate(&query, &count).await.unwrap().estimate;
    assert_eq!((counted.value, counted.is_exact()), (rows as f64, true));
    // A reading that goes on, and one that its caller follows, know it from the beginning.
    let whole = Query { window: Query::default().window, ..query.clone() };
    let within = count.clone().within(Tolerance::Relative(0.5), None);
    let counted = table.estimate(&whole, &within).await.unwrap();
    assert_eq!((counted.estimate.value, counted.rows_read), (rows as f64, 0));
    let within = of_vz(Subject::Sum).within(Tolerance::Relative(0.02), None);
    let narrow = table.estimate(&whole, &within).await.unwrap();
    assert!(
        narrow.rows_read < rows / 4,
        "{} of {rows} rows: half are due without their number",
        narrow.rows_read
    );
    let readable = Readable::One(table.clone());
    let mut estimates = readable.refine_estimate(&whole, &count).await.unwrap();
    let (_, first) = estimates.next().await.unwrap().unwrap();
    assert_eq!((first.value, first.is_exact()), (rows as f64, true));
}

/// How far x moves in a step.
const DRIFT: f64 = 0.1;

/// A region of [`drifting`] that contains all rows of the first four steps, and most of the last.
const REGION: &str = "x < 1.3";

/// The number of rows of these four steps.
const CONTAINED: u64 = 4 * ROWS as u64;

/// The table with particles that drift, so that steps lie apart.
pub(super) async fn drifting(sample_key: &[&str]) -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(sample_key)).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for step in 0..STEPS {
        let rows = rows(step);
        let mut columns = rows.columns().to_vec();
        let x = columns[2].as_primitive::<Float64Type>().values();
        let moved = Float64Array::from_iter_values(x.iter().map(|x| x + step as f64 * DRIFT));
        columns[2] = Arc::new(moved);
        let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
        table.append(BlockId { run: "run".into(), attempt: 1, step, rank: 0 }, &rows).await.unwrap();
    }
    table
}

/// A sample of [`REGION`], and the sum that is estimated of it.
struct Calibrated {
    table: Table,
    query: Query,
    units: Units,
    values: Vec<f64>,
    found: Estimate,
}

/// Estimates the sum of a region, which must be calibrated on the steps that the region contains.
async fn calibrated(sample_key: &[&str]) -> Calibrated {
    let table = drifting(sample_key).await;
    let query = Query::default().filter(filter(REGION)).sample(0.1).unwrap();
    let (units, values, steps) = sampled(&table, &query).await;
    let of_rows: Vec<bool> = steps.iter().map(|step| *step < 4).collect();
    let known = KnownPart { rows: CONTAINED, of_rows: &of_rows };
    let expected = calibrated_sum(&units, &values, known, &sure()).unwrap();
    let found = table.estimate(&query, &sum_of_vz()).await.unwrap().estimate;
    assert_same(&found, &expected);
    Calibrated { table, query, units, values, found }
}

#[tokio::test]
async fn a_sum_is_calibrated_on_the_steps_that_a_region_contains() {
    let Calibrated { table, query, units, values, found } = calibrated(&[]).await;
    let alone = sum_of_rows(None).estimate(&units, &values, &sure()).unwrap();
    assert!(1.5 * found.half_width() < alone.half_width(), "{found}, and {alone} without the steps");
    let truth = sum_of(&table, &query).await;
    assert!(found.holds(truth), "{found}, truth {truth}");
    // The number of its rows is that of the steps, and an estimate of the others.
    let count = count_of_rows();
    let counted = table.estimate(&query, &count).await.unwrap().estimate;
    let whole = Query { window: Query::default().window, ..query.clone() };
    let rows = table.count(&whole).await.unwrap().rows as f64;
    assert!(counted.holds(rows) && counted.low > CONTAINED as f64, "{counted}, truth {rows}");
    // So it is where reading goes on until it is narrow enough, and for several questions at once.
    let within = sum_of_vz().within(Tolerance::Absolute(found.half_width()), None);
    let narrow = table.estimate(&whole, &within).await.unwrap();
    assert!((narrow.rows_read as f64) < rows / 4.0, "{} of {rows} rows", narrow.rows_read);
    assert!(narrow.estimate.holds(truth), "{}, truth {truth}", narrow.estimate);
    let together = table.estimate_all(&query, &[sum_of_vz(), count]).await.unwrap();
    assert_same(&together[0].estimate, &found);
    assert_same(&together[1].estimate, &counted);
}

#[tokio::test]
async fn a_sum_of_entities_is_calibrated_unit_by_unit() {
    let Calibrated { table, query, units, found, .. } = calibrated(&["pid"]).await;
    assert!(units.len() < units.rows() && found.holds(sum_of(&table, &query).await), "{found}");
}

/// Of the rows of the heavier half one in this many lies far outside.
const OUTSIDE: usize = 40;

/// Two steps that are ranges of weights, as slices of a gathered table are, with twice as many particles as a
/// step of [`table`]. Some rows in each band of the second one lie far outside, so that counting it would
/// take reading all of it.
async fn in_order_of_weights() -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(&["pid"])).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let pids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2 * ROWS as i64));
    let weights = weights(&[pids], Salt(0)).unwrap();
    let mut pids: Vec<usize> = (0..2 * ROWS).collect();
    pids.sort_by_key(|pid| weights[*pid]);
    for (step, pids) in (0u64..).zip(pids.chunks(ROWS)) {
        let of = |pid: &usize| (*pid * 7919 % ROWS) as f64 / ROWS as f64;
        let x = |(place, pid): (usize, &usize)| if step == 1 && place % OUTSIDE == 0 { 2.0 } else { of(pid) };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(pids.iter().map(|pid| *pid as i64))),
            Arc::new(Int64Array::from_iter_values(std::iter::repeat_n(step as i64, ROWS))),
            Arc::new(Float64Array::from_iter_values(pids.iter().enumerate().map(x))),
            Arc::new(Float64Array::from_iter_values(pids.iter().map(|pid| 5.0 + of(pid)))),
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n("light", ROWS))),
        ];
        let rows = RecordBatch::try_new(Arc::clone(schema(&[]).columns()), columns).unwrap();
        table.append(BlockId { run: "run".into(), attempt: 1, step, rank: 0 }, &rows).await.unwrap();
    }
    table
}

#[tokio::test]
async fn a_block_that_is_a_range_of_weights_is_no_part_to_calibrate_on() {
    let table = in_order_of_weights().await;
    // Contains the lighter half as a whole, and most of the heavier half.
    let whole = Query::default().filter(filter("x < 1.5"));
    let truth = sum_of(&table, &whole).await;
    let query = whole.clone().sample(0.1).unwrap();
    let (units, values, _) = sampled(&table, &query).await;
    let expected = sum_of_rows(None).estimate(&units, &values, &sure()).unwrap();
    let found = table.estimate(&query, &sum_of_vz()).await.unwrap().estimate;
    assert_same(&found, &expected);
    assert!(found.holds(truth), "{found}, truth {truth}");
    let counted = table.estimate(&query, &count_of_rows()).await.unwrap().estimate;
    assert!(counted.holds((2 * ROWS - ROWS.div_ceil(OUTSIDE)) as f64), "{counted}");
    let within = sum_of_vz().within(Tolerance::Relative(0.1), None);
    let narrow = table.estimate(&whole, &within).await.unwrap().estimate;
    assert!(narrow.holds(truth), "{narrow}, truth {truth}");
}

/// The shape of a tree of many objects, far smaller than those of a real table.
const SMALL: Shape =
    Shape { cube_rows: 500, leaf_rows: 1000, layer_rows: 250, band_rows: 64, object_bytes: 1 << 13 };

/// A packed table.
async fn packed(shape: Shape) -> Table {
    let table = table(&[]).await;
    table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap();
    table
}

#[tokio::test]
async fn rows_across_a_border_are_counted_if_that_takes_no_more_than_the_sample() {
    let table = packed(Shape::default()).await;
    let query = Query::default().filter(filter("x < 0.5")).sample(0.5).unwrap();
    let (units, values, _) = sampled(&table, &query).await;
    let rows = table.count(&Query { window: Query::default().window, ..query.clone() }).await.unwrap().rows;
    let expected = sum_of_rows(Some(rows)).estimate(&units, &values, &sure()).unwrap();
    let found = table.estimate(&query, &sum_of_vz()).await.unwrap();
    assert_same(&found.estimate, &expected);
    let mean = table.estimate(&query, &of_vz(Subject::Mean)).await.unwrap();
    assert!(found.work.rows_touched > mean.work.rows_touched, "the border was read");
    assert!(found.work.rows_touched <= 2 * mean.work.rows_touched, "{:?}, {:?}", found.work, mean.work);
}

/// The table in a store that counts what is read of it.
pub(super) async fn counted_table() -> (Arc<Counts>, Arc<dyn Store>, Table) {
    let counts = Arc::new(Counts::default());
    let counted = Counted { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) };
    let store: Arc<dyn Store> = Arc::new(Relayed(counted));
    let table = Table::create(Arc::clone(&store), "run", schema(&[])).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for step in 0..STEPS {
        append(&table, step).await;
    }
    (counts, store, table)
}

#[tokio::test]
async fn directories_are_not_read_to_count_for_a_tiny_sample() {
    let (counts, store, table) = counted_table().await;
    table.pack(&PackOptions { shape: SMALL, ..PackOptions::whole() }).await.unwrap();
    let query = Query::default().filter(filter("x < 0.9")).sample(0.001).unwrap();
    let mut read = Vec::new();
    for subject in [Subject::Mean, Subject::Sum] {
        // A handle that knows no object yet.
        let table = Table::open(Arc::clone(&store), "run").await.unwrap();
        counts.take();
        table.estimate(&query, &of_vz(subject)).await.unwrap();
        read.push(counts.take());
    }
    assert_eq!(read[0], read[1]);
}

#[tokio::test]
async fn of_a_tree_that_a_region_cuts_no_object_counts_by_itself() {
    let table = packed(SMALL).await;
    // Heavy rows inside of the region lie in objects of their own, light ones in objects that reach beyond.
    let query = Query::default().filter(filter("x < 0.9")).sample(0.01).unwrap();
    let (units, values, _) = sampled(&table, &query).await;
    let alone = sum_of_rows(None).estimate(&units, &values, &sure()).unwrap();
    let found = table.estimate(&query, &sum_of_vz()).await.unwrap().estimate;
    assert_same(&found, &alone);
    // A tree that a region contains as a whole does.
    let whole = Query::default().filter(filter("x < 2 and step >= 0")).sample(0.01).unwrap();
    let (units, values, _) = sampled(&table, &whole).await;
    let all = sum_of_rows(Some(STEPS * ROWS as u64));
    let expected = all.estimate(&units, &values, &sure()).unwrap();
    let found = table.estimate(&whole, &sum_of_vz()).await.unwrap().estimate;
    assert_same(&found, &expected);
}

#[tokio::test]
async fn the_rows_of_a_run_are_known_and_deleted_ones_are_not_among_them() {
    let table = table(&[]).await;
    let query = Query::default().of_runs(atoll_tables::OfRuns::new(["run"])).sample(0.1).unwrap();
    let count = count_of_rows();
    let counted = table.estimate(&query, &count).await.unwrap().estimate;
    assert_eq!((counted.value, counted.is_exact()), ((STEPS * ROWS as u64) as f64, true));
    table.delete(None, None, Some("vz > 5.5")).await.unwrap();
    let whole = Query { window: Query::default().window, ..query.clone() };
    let rows = table.count(&whole).await.unwrap().rows as f64;
    let found = table.estimate(&query, &count).await.unwrap().estimate;
    assert!(!found.is_exact() && found.holds(rows), "{found}, truth {rows}");
    assert!(rows < (STEPS * ROWS as u64) as f64);
    let x = table.estimate(&query, &EstimateRequest::new(Subject::Sum(Column::named("x")))).await.unwrap();
    assert!(x.estimate.value < rows, "x lies between 0 and 1: {}", x.estimate);
}

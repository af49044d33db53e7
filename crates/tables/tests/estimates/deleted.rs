//! Rows that were deleted by a condition: no version knows how many are left, and small samples stay small.

use super::{ROWS, STEPS, assert_same, filter, of_vz, table};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use atoll_tables::estimate::{
    Confidence, EstimateError, EstimateRequest, Quantity, Subject, Tolerance, Units,
};
use atoll_tables::expression::Column;
use atoll_tables::{Query, Readable, Table, TableError};

/// A condition on no index column, which leaves the rows of every block in doubt.
const DELETED: &str = "vz > 6.5";

async fn with_deleted_rows(sample_key: &[&str]) -> Table {
    let table = table(sample_key).await;
    table.delete(None, None, Some(DELETED)).await.unwrap();
    table
}

/// Rows that an estimate decodes if it decodes no more than a mean, which needs no number of rows.
async fn rows_of_mean(table: &Table, query: &Query) -> u64 {
    let rows = table.estimate(query, &of_vz(Subject::Mean)).await.unwrap().work.rows_touched;
    assert!(rows > 0 && rows * 4 < STEPS * ROWS as u64, "a small sample decodes {rows} rows");
    rows
}

#[tokio::test]
async fn a_total_of_a_small_sample_decodes_little_after_a_delete() {
    let table = with_deleted_rows(&[]).await;
    let sure = Confidence::new(0.9999).unwrap();
    for condition in [None, Some("kind = 'heavy'")] {
        let query = Query { filter: condition.map(filter), ..Query::default() }.sample(0.02).unwrap();
        let of_mean = rows_of_mean(&table, &query).await;
        let answer = table.query(&query).await.unwrap();
        let units = Units::within(&answer.weights, query.window).unwrap();
        let vz = answer.rows.column_by_name("vz").unwrap().as_primitive::<Float64Type>();
        let values: Vec<f64> = vz.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
        let expected = Quantity::Sum { rows: None }.estimate(&units, &values, &sure).unwrap();
        let found = table.estimate(&query, &of_vz(Subject::Sum).confidence(sure)).await.unwrap();
        assert_same(&found.estimate, &expected);
        assert!(found.work.rows_touched <= 2 * of_mean, "{:?}, {of_mean} for the mean", found.work);
        let count = EstimateRequest::new(Subject::Count).confidence(sure);
        let found = table.estimate(&query, &count).await.unwrap();
        let whole = Query { window: Query::default().window, ..query.clone() };
        let rows = table.count(&whole).await.unwrap().rows;
        assert!(!found.estimate.is_exact() && found.estimate.holds(rows as f64), "{}", found.estimate);
        assert!(found.work.rows_touched <= 2 * of_mean, "{:?}, {of_mean} for the mean", found.work);
    }
}

#[tokio::test]
async fn the_number_of_all_rows_is_exact_after_a_delete() {
    for sample_key in [&[][..], &["pid"]] {
        let table = with_deleted_rows(sample_key).await;
        let rows = table.count(&Query::default()).await.unwrap().rows;
        let count = EstimateRequest::new(Subject::Count);
        let found = table.estimate(&Query::default(), &count).await.unwrap();
        assert!(rows < STEPS * ROWS as u64);
        assert_eq!((found.estimate.value, found.estimate.is_exact()), (rows as f64, true));
        let edges = [5.0, 6.0, 7.0];
        let (vz, how) = (Column::named("vz"), (Confidence::default(), false));
        let found = table.estimate_histogram(&Query::default(), &vz, &edges, how).await.unwrap();
        assert_eq!(found.rows, Some(rows));
    }
}

#[tokio::test]
async fn a_histogram_of_a_small_sample_decodes_only_the_sample_after_a_delete() {
    let table = with_deleted_rows(&[]).await;
    let query = Query::default().sample(0.02).unwrap();
    let of_mean = rows_of_mean(&table, &query).await;
    let (vz, how) = (Column::named("vz"), (Confidence::default(), false));
    let found = table.estimate_histogram(&query, &vz, &[5.0, 6.0, 7.0], how).await.unwrap();
    assert_eq!(found.rows, None);
    assert!(found.work.rows_touched <= of_mean, "{:?}, {of_mean} for the mean", found.work);
}

#[tokio::test]
async fn a_tolerance_is_met_by_a_part_of_the_rows_after_a_delete() {
    let table = with_deleted_rows(&[]).await;
    let within = of_vz(Subject::Sum).within(Tolerance::Relative(0.2), None);
    let found = table.estimate(&Query::default(), &within).await.unwrap();
    assert!(found.estimate.is_valid() && !found.estimate.is_exact(), "{}", found.estimate);
    assert!(found.work.rows_touched < STEPS * ROWS as u64 / 2, "{:?}", found.work);
}

#[tokio::test]
async fn bounds_are_of_use_after_a_delete_once_the_rows_were_counted() {
    let table = with_deleted_rows(&[]).await;
    let query = Query::default().sample(0.02).unwrap();
    let mean = EstimateRequest::new(Subject::Mean(Column::named("x"))).bounded(0.0, 1.0);
    let refused = table.estimate(&query, &mean).await.unwrap_err();
    let is_unused = matches!(refused, TableError::Estimate(EstimateError::BoundsUnused { .. }));
    assert!(is_unused && refused.hint().is_some(), "{refused}");
    let rows = table.count(&Query::default()).await.unwrap().rows;
    let known = table.estimate(&query, &mean.clone().of_rows(rows)).await.unwrap().estimate;
    // A sample that decodes all rows may as well count them.
    let all = table.estimate(&Query::default().sample(0.9).unwrap(), &mean).await.unwrap().estimate;
    assert!(known.is_valid() && all.half_width() < known.half_width(), "{known}, {all}");
}

#[tokio::test]
async fn an_estimate_that_improves_reads_nothing_beforehand() {
    let (counts, store, table) = super::regions::counted_table().await;
    table.delete(None, None, Some(DELETED)).await.unwrap();
    // A handle that knows no object yet.
    let readable = Readable::One(Table::open(store, "run").await.unwrap());
    counts.take();
    let mut estimates = readable.refine_estimate(&Query::default(), &of_vz(Subject::Sum)).await.unwrap();
    assert_eq!(counts.take(), (0, 0, 0));
    let (_, first) = estimates.next().await.unwrap().unwrap();
    assert!(first.value > 0.0, "{first}");
}

#[tokio::test]
async fn a_union_over_two_index_columns_spares_the_steps_outside_of_it() {
    let table = super::regions::drifting(&[]).await;
    // Of five steps that lie apart, the first and the last have rows of the union.
    let query = Query::default().filter(filter("x < 0.05 or step > 3"));
    let found = table.estimate(&query, &of_vz(Subject::Sum)).await.unwrap();
    assert!(found.estimate.is_exact(), "{}", found.estimate);
    assert!(found.work.rows_touched <= 2 * ROWS as u64, "{:?}", found.work);
}

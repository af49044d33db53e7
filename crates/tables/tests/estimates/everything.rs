//! Numbers of everything: exact, equal to what the estimators make of all rows, and folded as rows are read.

use super::counted::{Counted, Counts};
use super::{ROWS, STEPS, filter, of_vz, rows, schema, table};
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::estimate::{
    Confidence, Estimate, EstimateRequest, Quantity, Subject, Units, group_means, histogram,
};
use atoll_tables::expression::Column;
use atoll_tables::protocol::BlockId;
use atoll_tables::{
    Answer, Cut, PackOptions, Query, Readable, Roles, Table, TableSchema, Union, Window, column,
};
use std::sync::Arc;

/// All rows of an answer as the estimators see them.
fn units(answer: &Answer) -> Units {
    Units::within(&answer.weights, Window::below(Cut::ALL)).unwrap()
}

fn numbers(answer: &Answer, name: &str) -> Vec<f64> {
    let column = answer.rows.column_by_name(name).unwrap().as_primitive::<Float64Type>();
    column.iter().map(|value| value.unwrap_or(f64::NAN)).collect()
}

#[track_caller]
fn assert_exact(found: &Estimate, expected: &Estimate) {
    let near = |found: f64, expected: f64, part: f64| (found - expected).abs() <= part * expected.abs();
    assert!(near(found.value, expected.value, 1e-14), "{found} is not {expected}");
    assert!(
        near(found.deviation, expected.deviation, 1e-10),
        "{} of {}",
        found.deviation,
        expected.deviation
    );
    assert_eq!((found.low, found.high, found.confidence), (found.value, found.value, 1.0));
    assert_eq!((found.units, found.rows, found.method), (expected.units, expected.rows, expected.method));
    assert!(found.is_exact() && found.doubts.is_empty());
}

async fn check_numbers(table: &Readable, query: &Query) {
    let answer = table.query(query).await.unwrap();
    let (units, vz, confidence) = (units(&answer), numbers(&answer, "vz"), Confidence::default());
    let light = answer.rows.column_by_name("kind").unwrap().as_string::<i32>();
    let light: Vec<f64> = light.iter().map(|kind| f64::from(u8::from(kind == Some("light")))).collect();
    let ones = vec![1.0; vz.len()];
    let rows = Some(answer.rows.num_rows() as u64);
    let quantile = |share| Subject::Quantile(Column::named("vz"), share);
    for (subject, quantity, values) in [
        (Subject::Mean(Column::named("vz")), Quantity::Mean, &vz),
        (Subject::Sum(Column::named("vz")), Quantity::Sum { rows }, &vz),
        (Subject::Share(filter("kind = 'light'")), Quantity::Share, &light),
        (Subject::Count, Quantity::Count { rows }, &ones),
        (quantile(0.5), Quantity::Quantile { share: 0.5 }, &vz),
        (quantile(0.999), Quantity::Quantile { share: 0.999 }, &vz),
    ] {
        let request = EstimateRequest::new(subject);
        let expected = quantity.estimate(&units, values, &confidence).unwrap();
        let found = table.estimate(query, &request).await.unwrap();
        let together = table.estimate_all(query, &[of_vz(Subject::Mean), request.clone()]).await.unwrap();
        assert_eq!(together[1].estimate, found.estimate);
        assert_eq!(found.version, answer.version);
        if matches!(request.subject, Subject::Count) && query.filter.is_none() {
            assert_eq!((found.estimate.value, found.rows_read), (vz.len() as f64, 0), "nothing is read");
            continue;
        }
        assert_exact(&found.estimate, &expected);
        assert_eq!(found.rows_read, answer.rows.num_rows() as u64);
        assert!(found.work.rows_touched <= answer.work.rows_touched, "{:?}", found.work);
    }
}

async fn check_parts(table: &Readable, query: &Query) {
    let answer = table.query(query).await.unwrap();
    let (units, vz, confidence) = (units(&answer), numbers(&answer, "vz"), Confidence::default());
    let kinds = answer.rows.column_by_name("kind").unwrap().as_string::<i32>();
    let group =
        |kind: Option<&str>| ["ghost", "heavy", "light"].iter().position(|known| Some(*known) == kind);
    let groups: Vec<Option<u32>> = kinds.iter().map(|kind| group(kind).map(|group| group as u32)).collect();
    let expected = group_means(&units, &groups, &vz, 3, &confidence).unwrap();
    let known: ArrayRef = Arc::new(StringArray::from(vec!["ghost", "heavy"]));
    let how = (confidence, true);
    let by = table.estimate_groups(query, &Column::named("vz"), "kind", Some(known), how).await.unwrap();
    assert_eq!(by.groups.as_ref(), &StringArray::from(vec!["ghost", "heavy", "light"]));
    assert!(by.means[0].is_none() && by.rows_read == vz.len() as u64);
    for (found, expected) in by.means.iter().zip(&expected).skip(1) {
        assert_exact(found.as_ref().unwrap(), expected.as_ref().unwrap());
    }
    let edges = [5.0, 5.25, 5.5, 6.0, 6.5];
    let expected = histogram(&units, &vz, &edges, &confidence).unwrap();
    let found = table.estimate_histogram(query, &Column::named("vz"), &edges, how).await.unwrap();
    assert_eq!(found.bins.len(), expected.len());
    found.bins.iter().zip(&expected).for_each(|(found, expected)| assert_exact(found, expected));
    assert_eq!(found.rows, query.filter.is_none().then_some(vz.len() as u64));
}

#[tokio::test]
async fn numbers_of_everything_are_those_of_the_estimators_on_all_rows() {
    for sample_key in [&[][..], &["pid"]] {
        let one = table(sample_key).await;
        for is_packed in [false, true] {
            if is_packed {
                one.pack(&PackOptions::whole()).await.unwrap();
            }
            let table = Readable::One(one.clone());
            for query in [Query::default(), Query::default().filter(filter("x < 0.5"))] {
                check_numbers(&table, &query).await;
                check_parts(&table, &query).await;
            }
        }
    }
}

#[tokio::test]
async fn numbers_of_everything_in_several_tables_are_over_all_of_them() {
    let one = table(&["pid"]).await;
    let other = Table::create(Arc::new(MemoryStore::new()), "run", schema(&["pid"])).await.unwrap();
    other.begin("run", 1, 1).await.unwrap();
    // More steps of the same particles, each of which is one unit.
    for step in STEPS..STEPS + 2 {
        let block = BlockId { run: "run".into(), attempt: 1, step, rank: 0 };
        other.append(block, &rows(step)).await.unwrap();
    }
    let table = Readable::Many(Union::new(vec![one, other]).unwrap());
    check_numbers(&table, &Query::default()).await;
    check_parts(&table, &Query::default().filter(filter("x < 0.5"))).await;
    let mean = table.estimate(&Query::default(), &of_vz(Subject::Mean)).await.unwrap();
    assert_eq!(mean.estimate.rows, (ROWS as u64) * (STEPS + 2));
    // A number of rows applies to all requests together.
    let first = table.estimate(&Query::default().limit(100), &of_vz(Subject::Mean)).await.unwrap();
    assert_eq!((first.rows_read, first.estimate.is_exact()), (100, false));
}

/// A table with one column of numbers besides the id, in which each row takes `row_bytes` bytes.
async fn written(store: Arc<dyn Store>, steps: u64, values: &[f64], row_bytes: usize) -> Table {
    let columns = Schema::new(vec![
        column("id", DataType::Int64, false),
        column("x", DataType::Float64, false),
        column("note", DataType::Utf8, false),
    ]);
    let names = |name: &str| vec![name.to_owned()];
    let roles = Roles { id: names("id"), sample_key: Vec::new(), index: names("x"), salt: 0 };
    let schema = TableSchema::new(columns, &roles).unwrap();
    let table = Table::create(store, "notes", schema).await.unwrap();
    table.begin("a", 1, 1).await.unwrap();
    for step in 0..steps {
        let first = step as i64 * values.len() as i64;
        let id: ArrayRef = Arc::new((first..first + values.len() as i64).collect::<Int64Array>());
        let x: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        let note = values.iter().map(|_| Some(" ".repeat(row_bytes)));
        let note: ArrayRef = Arc::new(note.collect::<StringArray>());
        let rows = RecordBatch::try_new(Arc::clone(table.schema().columns()), vec![id, x, note]).unwrap();
        table.append(BlockId { run: "a".into(), attempt: 1, step, rank: 0 }, &rows).await.unwrap();
    }
    table
}

#[tokio::test]
async fn a_number_of_everything_is_read_some_objects_at_a_time() {
    let counts = Arc::new(Counts::default());
    let counted = Counted { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) };
    let store: Arc<dyn Store> = Arc::new(Relayed(counted));
    // 38 MB, of which the first portion is 8 MB.
    written(Arc::clone(&store), 80, &[1.0; 8], 60_000).await;
    let x = || Column::named("x");
    for subject in [Subject::Mean(x()), Subject::Sum(x()), Subject::Share(filter("x > 0.5"))] {
        // A handle that knows no object yet.
        let table = Table::open(Arc::clone(&store), "notes").await.unwrap();
        counts.take();
        let found = table.estimate(&Query::default(), &EstimateRequest::new(subject)).await.unwrap();
        let (_, _, rounds) = counts.take();
        assert!(found.estimate.is_exact() && found.rows_read == 640);
        assert!(rounds >= 3, "all objects were opened in {rounds} rounds");
    }
}

#[tokio::test]
async fn sums_of_everything_lose_nothing_to_rounding_in_whatever_order_rows_come() {
    let values = [1e16, 1.0, -1e16, 0.1, 1e16, 1.0, -1e16, 0.1];
    let table = written(Arc::new(MemoryStore::new()), 50, &values, 1).await;
    let of = async |subject: Subject| {
        table.estimate(&Query::default(), &EstimateRequest::new(subject)).await.unwrap().estimate.value
    };
    let sum = of(Subject::Sum(Column::named("x"))).await;
    assert!((sum - 110.0).abs() < 1e-9, "{sum}");
    assert!((of(Subject::Mean(Column::named("x"))).await - 110.0 / 400.0).abs() < 1e-12);
    let alike = written(Arc::new(MemoryStore::new()), 50, &[0.1; 8], 1).await;
    let mean = EstimateRequest::new(Subject::Mean(Column::named("x")));
    let mean = alike.estimate(&Query::default(), &mean).await.unwrap().estimate;
    assert!((mean.value - 0.1).abs() < 1e-16 && mean.deviation < 1e-15, "{mean}, {}", mean.deviation);
}

#[tokio::test]
async fn whole_numbers_of_everything_are_summed_before_they_are_rounded() {
    const LARGE: i64 = 1 << 53;
    let table = written(Arc::new(MemoryStore::new()), 0, &[], 0).await;
    for (step, ids) in (0..).zip([[LARGE + 1, 5], [-LARGE, 3]]) {
        let id: ArrayRef = Arc::new(Int64Array::from(ids.to_vec()));
        let (x, note) = (Float64Array::from(vec![0.5, 1.5]), StringArray::from(vec!["", ""]));
        let columns = vec![id, Arc::new(x) as ArrayRef, Arc::new(note)];
        let rows = RecordBatch::try_new(Arc::clone(table.schema().columns()), columns).unwrap();
        table.append(BlockId { run: "a".into(), attempt: 1, step, rank: 0 }, &rows).await.unwrap();
    }
    let of = async |subject: fn(Column) -> Subject, query: &Query| {
        let request = EstimateRequest::new(subject(Column::named("id")));
        let found = table.estimate(query, &request).await.unwrap().estimate;
        assert!(found.is_exact(), "{found}");
        found.value
    };
    let (all, some) = (Query::default(), Query::default().filter(filter("x < 1")));
    assert_eq!((of(Subject::Sum, &all).await, of(Subject::Mean, &all).await), (9.0, 2.25));
    assert_eq!((of(Subject::Sum, &some).await, of(Subject::Mean, &some).await), (1.0, 0.5));
}

#[tokio::test]
async fn units_of_everything_are_rows_where_each_row_is_sampled_by_itself() {
    // Two runs of the same particles: rows with one id are one unit of a sample, and separate rows all the
    // same.
    for (sample_key, expected) in [(&[][..], 2 * ROWS as u64), (&["pid"], ROWS as u64)] {
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(sample_key)).await.unwrap();
        for run in ["a", "b"] {
            table.begin(run, 1, 1).await.unwrap();
            let block = BlockId { run: run.into(), attempt: 1, step: 0, rank: 0 };
            table.append(block, &rows(0)).await.unwrap();
        }
        let share = EstimateRequest::new(Subject::Share(filter("kind = 'light'")));
        let found = table.estimate(&Query::default(), &share).await.unwrap();
        assert_eq!((found.estimate.units, found.estimate.rows), (expected, 2 * ROWS as u64));
    }
}

//! Estimates through tables: they equal what the estimators make of the same rows, at a known cost.

#![allow(clippy::unwrap_used)]

#[path = "queries/counted.rs"]
mod counted;
#[path = "estimates/deleted.rs"]
mod deleted;
#[path = "estimates/everything.rs"]
mod everything;
#[path = "estimates/limits.rs"]
mod limits;
#[path = "estimates/missing.rs"]
mod missing;
#[path = "estimates/regions.rs"]
mod regions;
#[path = "estimates/uneven.rs"]
mod uneven;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};
use atoll_errors::ErrorKind;
use atoll_memory::MemoryStore;
use atoll_tables::estimate::{
    Confidence, Doubt, Estimate, EstimateError, EstimateRequest, Method, Quantity, Stopping, Subject,
    Tolerance, Units, mean,
};
use atoll_tables::expression::{Column, Expression};
use atoll_tables::protocol::BlockId;
use atoll_tables::{
    Cut, Query, Readable, Roles, Salt, Table, TableError, TableSchema, Weight, Window, column, weights,
};
use fastrand::Rng;
use std::sync::Arc;

/// The rows of a step.
const ROWS: usize = 4000;

/// The steps of the table.
const STEPS: u64 = 5;

/// The rows of the table.
const ALL: f64 = (ROWS * STEPS as usize) as f64;

fn schema(sample_key: &[&str]) -> TableSchema {
    let columns = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("step", DataType::Int64, false),
        column("x", DataType::Float64, false),
        column("vz", DataType::Float64, true),
        column("kind", DataType::Utf8, false),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles {
        id: names(&["pid", "step"]),
        sample_key: names(sample_key),
        index: names(&["x", "step"]),
        salt: 0,
    };
    TableSchema::new(columns, &roles).unwrap()
}

/// Particles with a velocity of their own and some noise; every twentieth value is missing.
fn rows(step: u64) -> RecordBatch {
    let mut random = Rng::with_seed(step);
    let pid = Int64Array::from_iter_values(0..ROWS as i64);
    let steps = Int64Array::from_iter_values(std::iter::repeat_n(step as i64, ROWS));
    let x = Float64Array::from_iter_values((0..ROWS).map(|_| random.f64()));
    let velocity = |pid: usize, noise: f64| 5.0 + (pid * 7919 % ROWS) as f64 / ROWS as f64 + noise;
    let vz: Float64Array =
        (0..ROWS).map(|pid| (pid % 20 != 3).then(|| velocity(pid, random.f64()))).collect();
    let kind =
        StringArray::from_iter_values((0..ROWS).map(|pid| if pid % 3 == 0 { "heavy" } else { "light" }));
    let columns: Vec<ArrayRef> =
        vec![Arc::new(pid), Arc::new(steps), Arc::new(x), Arc::new(vz), Arc::new(kind)];
    RecordBatch::try_new(Arc::clone(schema(&[]).columns()), columns).unwrap()
}

async fn table(sample_key: &[&str]) -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(sample_key)).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for step in 0..STEPS {
        append(&table, step).await;
    }
    table
}

async fn append(table: &Table, step: u64) {
    table.append(BlockId { run: "run".into(), attempt: 1, step, rank: 0 }, &rows(step)).await.unwrap();
}

fn filter(text: &str) -> Expression {
    Expression::parse(text).unwrap()
}

fn of_vz(subject: fn(Column) -> Subject) -> EstimateRequest {
    EstimateRequest::new(subject(Column::named("vz")))
}

/// All rows in weight order: weight, vz, x, whether heavy. Computed without any query code.
fn by_weight(sample_key: usize) -> Vec<(Weight, f64, f64, bool)> {
    let mut all = Vec::new();
    for step in 0..STEPS {
        let rows = rows(step);
        let of = |name: &str| rows.column_by_name(name).unwrap().clone();
        let weights = weights(&rows.columns()[..sample_key], Salt(0)).unwrap();
        let (vz, x, kind) = (of("vz"), of("x"), of("kind"));
        let vz: Vec<Option<f64>> = vz.as_any().downcast_ref::<Float64Array>().unwrap().iter().collect();
        let x = x.as_any().downcast_ref::<Float64Array>().unwrap().values().to_vec();
        let kind: Vec<bool> = kind
            .as_any()
            .downcast_ref::<StringArray>()
            .unwrap()
            .iter()
            .map(|kind| kind == Some("heavy"))
            .collect();
        for row in 0..ROWS {
            all.push((weights[row], vz[row].unwrap_or(f64::NAN), x[row], kind[row]));
        }
    }
    all.sort_by_key(|row| row.0);
    all
}

fn truth(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.filter(|value| !value.is_nan()).fold((0.0, 0.0), |sum, value| (sum.0 + value, sum.1 + 1.0))
}

#[track_caller]
fn assert_same(found: &Estimate, expected: &Estimate) {
    let near = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * expected.abs();
    let is_same =
        near(found.value, expected.value) && near(found.low, expected.low) && near(found.high, expected.high);
    assert!(is_same && found.units == expected.units, "{found} is not {expected}");
    assert_eq!(found.doubts, expected.doubts);
}

#[tokio::test]
async fn an_estimate_of_a_sample_is_that_of_the_estimators_on_the_same_rows() {
    for (sample_key, columns) in [(&[][..], 2), (&["pid"][..], 1)] {
        let table = table(sample_key).await;
        let cut = Cut::of_share(0.1).unwrap();
        let all = by_weight(columns);
        let sampled: Vec<_> = all.iter().filter(|row| cut.takes(row.0)).collect();
        let weights: Vec<Weight> = sampled.iter().map(|row| row.0).collect();
        let values: Vec<f64> = sampled.iter().map(|row| row.1).collect();
        let units = Units::within(&weights, Window::below(cut)).unwrap();
        let confidence = Confidence::default();
        let query = Query::default().sample(0.1).unwrap();
        let found = table.estimate(&query, &of_vz(Subject::Mean)).await.unwrap();
        assert_same(&found.estimate, &mean(&units, &values, &confidence).unwrap());
        assert_eq!(found.rows_read, sampled.len() as u64);
        let sum = Quantity::Sum { rows: Some(ALL as u64) }.estimate(&units, &values, &confidence).unwrap();
        assert_same(&table.estimate(&query, &of_vz(Subject::Sum)).await.unwrap().estimate, &sum);
        let median = Quantity::Quantile { share: 0.5 }.estimate(&units, &values, &confidence).unwrap();
        let request = EstimateRequest::new(Subject::Quantile(Column::named("vz"), 0.5));
        assert_same(&table.estimate(&query, &request).await.unwrap().estimate, &median);
    }
}

#[tokio::test]
async fn a_count_of_everything_reads_nothing() {
    let table = table(&[]).await;
    let found = table.estimate(&Query::default(), &EstimateRequest::new(Subject::Count)).await.unwrap();
    assert_eq!((found.estimate.value, found.estimate.is_exact()), (ALL, true));
    assert_eq!((found.rows_read, found.work.bands, found.work.bytes), (0, 0, 0));
    // Nor does the number of rows that a sum uses; a handle reads directories once, so both questions come
    // after they are known.
    let query = Query::default().sample(0.01).unwrap();
    table.estimate(&query, &of_vz(Subject::Mean)).await.unwrap();
    let mean = table.estimate(&query, &of_vz(Subject::Mean)).await.unwrap();
    let sum = table.estimate(&query, &of_vz(Subject::Sum)).await.unwrap();
    assert_eq!(sum.work, mean.work);
}

#[tokio::test]
async fn a_count_of_a_filter_that_prunes_nothing_rests_on_the_number_of_all_rows() {
    let table = table(&[]).await;
    let all = by_weight(2);
    let cut = Cut::of_share(0.1).unwrap();
    let sampled: Vec<_> = all.iter().filter(|row| cut.takes(row.0)).collect();
    let weights: Vec<Weight> = sampled.iter().map(|row| row.0).collect();
    let heavy: Vec<f64> = sampled.iter().map(|row| f64::from(u8::from(row.3))).collect();
    let units = Units::within(&weights, Window::below(cut)).unwrap();
    let expected =
        Quantity::Count { rows: Some(ALL as u64) }.estimate(&units, &heavy, &Confidence::default()).unwrap();
    let query = Query::default().sample(0.1).unwrap();
    let heavy = query.clone().filter(filter("kind = 'heavy'"));
    let count = EstimateRequest::new(Subject::Count);
    assert_same(&table.estimate(&heavy, &count).await.unwrap().estimate, &expected);
    // A region of the index is sampled by itself, so only its own rows are known.
    let region = query.filter(filter("x < 0.5"));
    let found = table.estimate(&region, &count).await.unwrap();
    let inside: Vec<Weight> = sampled.iter().filter(|row| row.2 < 0.5).map(|row| row.0).collect();
    let units = Units::within(&inside, Window::below(cut)).unwrap();
    let ones = vec![1.0; inside.len()];
    let expected = Quantity::Count { rows: None }.estimate(&units, &ones, &Confidence::default()).unwrap();
    assert_same(&found.estimate, &expected);
    assert!(found.estimate.holds(all.iter().filter(|row| row.2 < 0.5).count() as f64));
}

#[tokio::test]
async fn a_sum_of_a_region_is_surer_if_its_rows_were_counted() {
    let table = table(&[]).await;
    let region = Query::default().filter(filter("x < 0.25"));
    let count = table.count(&region).await.unwrap().rows;
    let sampled = region.sample(0.1).unwrap();
    let alone = table.estimate(&sampled, &of_vz(Subject::Sum)).await.unwrap().estimate;
    let known = table.estimate(&sampled, &of_vz(Subject::Sum).of_rows(count)).await.unwrap().estimate;
    let (sum, _) = truth(by_weight(2).iter().filter(|row| row.2 < 0.25).map(|row| row.1));
    assert!(alone.holds(sum) && known.holds(sum), "{alone}, {known}, truth {sum}");
    assert!(3.0 * known.half_width() < alone.half_width(), "{known} and {alone}");
}

#[tokio::test]
async fn shares_and_first_units_are_those_of_the_query() {
    let table = table(&[]).await;
    let request = EstimateRequest::new(Subject::Share(filter("kind = 'heavy'")));
    let found = table.estimate(&Query::default().first(500), &request).await.unwrap().estimate;
    // The last unit sets the cut.
    assert_eq!((found.units, found.is_exact()), (499, false));
    let heavy = by_weight(2).iter().take(499).filter(|row| row.3).count() as f64;
    assert!((found.value - heavy / 499.0).abs() < 1e-12);
    // More units than exist: everything.
    let found = table.estimate(&Query::default().first(1_000_000), &request).await.unwrap().estimate;
    assert!(
        found.is_exact()
            && (found.value - by_weight(2).iter().filter(|row| row.3).count() as f64 / ALL).abs() < 1e-12
    );
}

#[tokio::test]
async fn a_tolerance_is_met_and_costs_never_more_than_the_exact_answer() {
    let table = table(&[]).await;
    let (sum, count) = truth(by_weight(2).iter().map(|row| row.1));
    let exact = table.query(&Query::default().select(["vz"])).await.unwrap().work;
    for relative in [0.01, 0.005, 0.002, 1e-9] {
        let request = of_vz(Subject::Mean).within(Tolerance::Relative(relative), None);
        let found = table.estimate(&Query::default(), &request).await.unwrap();
        let estimate = &found.estimate;
        assert!(estimate.half_width() <= relative * estimate.value && estimate.is_valid(), "{estimate}");
        assert!(
            found.work.rows_touched <= exact.rows_touched && found.work.bytes <= exact.bytes,
            "{:?}",
            found.work
        );
        if relative == 0.01 {
            assert!(found.work.rows_touched < exact.rows_touched / 4, "{:?} of {exact:?}", found.work);
        }
        if relative == 1e-9 {
            assert!(estimate.is_exact() && (estimate.value - sum / count).abs() < 1e-9, "{estimate}");
            assert_eq!(found.rows_read, ALL as u64);
        }
    }
}

#[tokio::test]
async fn several_estimates_of_one_sample_are_those_that_each_has_alone() {
    let table = table(&["pid"]).await;
    let anytime = Confidence::default().stopping(Stopping::ANYTIME);
    let requests = [
        of_vz(Subject::Mean),
        EstimateRequest::new(Subject::Count),
        of_vz(Subject::Sum),
        of_vz(Subject::Mean).confidence(anytime),
        EstimateRequest::new(Subject::Share(filter("kind = 'heavy'"))),
        EstimateRequest::new(Subject::Quantile(Column::named("x"), 0.9)),
    ];
    for condition in [None, Some("x < 0.5"), Some("kind = 'light'"), Some("vz > 5.5")] {
        let query = Query { filter: condition.map(filter), ..Query::default() }.sample(0.2).unwrap();
        let together = table.estimate_all(&query, &requests).await.unwrap();
        assert_eq!(together.len(), requests.len());
        for (found, request) in together.iter().zip(&requests) {
            let alone = table.estimate(&query, request).await.unwrap();
            assert_same(&found.estimate, &alone.estimate);
            assert_eq!((found.version, found.rows_read), (alone.version, alone.rows_read), "{request:?}");
        }
    }
    assert!(table.estimate_all(&Query::default(), &[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn several_tolerances_are_met_from_one_reading() {
    let table = table(&["pid"]).await;
    let tolerances = [0.02, 0.2, 0.05];
    let request = |tolerance| of_vz(Subject::Mean).within(Tolerance::Absolute(tolerance), None);
    let together = table.estimate_all(&Query::default(), &tolerances.map(request)).await.unwrap();
    for (found, tolerance) in together.iter().zip(tolerances) {
        assert!(found.estimate.half_width() <= tolerance, "{} of {tolerance}", found.estimate);
        let alone = table.estimate(&Query::default(), &request(tolerance)).await.unwrap();
        // Each stops when it is narrow enough, not when the last of them is.
        assert!(found.rows_read <= alone.rows_read * 2, "{} and {}", found.rows_read, alone.rows_read);
    }
    let most = together.iter().map(|found| found.work.rows_touched).max();
    assert_eq!(most, Some(together[0].work.rows_touched), "the narrowest takes the most");
}

#[tokio::test]
async fn a_limit_of_rows_is_kept() {
    let table = table(&[]).await;
    let request = of_vz(Subject::Mean).within(Tolerance::Relative(1e-6), Some(3000));
    let found = table.estimate(&Query::default(), &request).await.unwrap();
    assert!(found.rows_read <= 3000 && found.rows_read > 2000, "{}", found.rows_read);
    assert_eq!(found.estimate.doubts, [Doubt::TooWide]);
}

#[tokio::test]
async fn a_second_sample_shares_no_unit_with_the_first() {
    let table = table(&[]).await;
    let of = async |from: f64| {
        let query = Query::default().window(from, from + 0.1).unwrap();
        table.estimate(&query, &of_vz(Subject::Mean)).await.unwrap().estimate
    };
    let (first, second) = (of(0.0).await, of(0.1).await);
    assert!(first.value != second.value && !second.is_exact());
    assert!((first.half_width() / second.half_width() - 1.0).abs() < 0.1);
    // Reading on begins where the window does.
    let request = of_vz(Subject::Mean).within(Tolerance::Relative(0.01), None);
    let query = Query::default().window(0.5, 1.0).unwrap();
    let fresh = table.estimate(&query, &request).await.unwrap().estimate;
    let old = table.estimate(&Query::default(), &request).await.unwrap().estimate;
    assert!(fresh.value != old.value && fresh.half_width() <= 0.01 * fresh.value);
}

#[tokio::test]
async fn bounds_of_values_give_an_interval_without_approximation() {
    let table = table(&[]).await;
    let query = Query::default().sample(0.05).unwrap();
    let request = EstimateRequest::new(Subject::Mean(Column::named("x"))).bounded(0.0, 1.0);
    let found = table.estimate(&query, &request).await.unwrap().estimate;
    let (sum, count) = truth(by_weight(2).iter().map(|row| row.2));
    assert_eq!(found.method, Method::EmpiricalBernstein);
    assert!(found.holds(sum / count), "{found}, truth {}", sum / count);
}

#[tokio::test]
async fn what_has_no_answer_is_refused_with_what_to_do_instead() {
    let table = table(&[]).await;
    let estimate =
        async |subject: Subject| table.estimate(&Query::default(), &EstimateRequest::new(subject)).await;
    let unknown = estimate(Subject::Mean(Column::named("vzz"))).await.unwrap_err();
    assert!(matches!(unknown, TableError::Column { .. }));
    let text = estimate(Subject::Mean(Column::named("kind"))).await.unwrap_err();
    assert!(text.to_string().contains("kind") && text.kind() == ErrorKind::InvalidInput, "{text}");
    let zero =
        EstimateRequest::new(Subject::Mean(Column::named("x"))).within(Tolerance::Relative(0.01), Some(1500));
    let centred = Query::default().filter(filter("x > 2.0"));
    let nothing = table.estimate(&centred, &zero).await.unwrap().estimate;
    assert!(nothing.value.is_nan() && nothing.rows == 0);
}

#[tokio::test]
async fn an_empty_table_has_no_mean_and_a_count_of_zero() {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(&[])).await.unwrap();
    let count = table.estimate(&Query::default(), &EstimateRequest::new(Subject::Count)).await.unwrap();
    assert_eq!((count.estimate.value, count.estimate.is_exact()), (0.0, true));
    let request = of_vz(Subject::Mean).within(Tolerance::Relative(0.1), None);
    for request in [of_vz(Subject::Mean), request] {
        let mean = table.estimate(&Query::default(), &request).await.unwrap().estimate;
        assert!(mean.value.is_nan());
    }
}

#[tokio::test]
async fn an_older_version_is_estimated_as_it_was() {
    let table = table(&[]).await;
    let version = table.version().await.unwrap();
    let query = Query::default().sample(0.1).unwrap();
    let request = of_vz(Subject::Sum).confidence(Confidence::default().stopping(Stopping::ANYTIME));
    let before = table.estimate(&query, &request).await.unwrap();
    append(&table, STEPS).await;
    let after = table.estimate(&query, &request).await.unwrap();
    let again = table.estimate(&query.as_of(version), &request).await.unwrap();
    assert_eq!((again.version, &again.estimate), (version, &before.estimate));
    assert!(after.version > version && after.estimate.value > 1.15 * before.estimate.value);
}

#[tokio::test]
async fn groups_have_their_means_and_known_ones_are_not_seen_rather_than_left_out() {
    let table = table(&[]).await;
    let query = Query::default().sample(0.1).unwrap();
    let vz = Column::named("vz");
    let known: ArrayRef = Arc::new(StringArray::from(vec!["ghost", "heavy"]));
    let at = (Confidence::default(), false);
    let found = table.estimate_groups(&query, &vz, "kind", Some(known), at).await.unwrap();
    assert_eq!(found.groups.as_ref(), &StringArray::from(vec!["ghost", "heavy", "light"]));
    assert!(found.means[0].is_none());
    // Each is the mean of the rows in its group.
    for (group, kind) in [(1, "heavy"), (2, "light")] {
        let of_group = query.clone().filter(filter(&format!("kind = '{kind}'")));
        let alone = table.estimate(&of_group, &of_vz(Subject::Mean)).await.unwrap().estimate;
        let mean = found.means[group].as_ref().unwrap();
        assert!(
            (mean.low - alone.low).abs() < 1e-9 && (mean.high - alone.high).abs() < 1e-9,
            "{mean} is not {alone}"
        );
    }
    let together =
        table.estimate_groups(&query, &vz, "kind", None, (Confidence::default(), true)).await.unwrap();
    assert_eq!(together.groups.len(), 2);
    let heavy =
        |means: &[Option<Estimate>]| means.iter().flatten().map(Estimate::half_width).fold(0.0, f64::max);
    assert!(heavy(&together.means) > 1.1 * heavy(&found.means));
    let wrong: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let refused = table.estimate_groups(&query, &vz, "kind", Some(wrong), at).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let unknown = table.estimate_groups(&query, &vz, "kinds", None, at).await.unwrap_err();
    assert!(matches!(unknown, TableError::Column { .. }));
}

#[tokio::test]
async fn a_histogram_of_a_sample_shares_out_its_rows() {
    let table = table(&[]).await;
    let query = Query::default().sample(0.2).unwrap();
    let edges = [0.0, 0.25, 0.5, 1.0];
    let x = Column::named("x");
    let found = table.estimate_histogram(&query, &x, &edges, (Confidence::default(), false)).await.unwrap();
    assert_eq!(found.rows, Some(ALL as u64));
    assert!((found.bins.iter().map(|bin| bin.value).sum::<f64>() - 1.0).abs() < 1e-9);
    for (bin, (from, to)) in found.bins.iter().zip([(0.0, 0.25), (0.25, 0.5), (0.5, 1.0)]) {
        let inside = by_weight(2).iter().filter(|row| from <= row.2 && row.2 < to).count() as f64;
        assert!(bin.clone().scaled(ALL).holds(inside), "{bin}, truth {inside}");
    }
    let wide = table.estimate_histogram(&query, &x, &edges, (Confidence::default(), true)).await.unwrap();
    assert!(wide.bins[0].half_width() > 1.1 * found.bins[0].half_width());
    let all = table
        .estimate_histogram(&Query::default(), &x, &edges, (Confidence::default(), false))
        .await
        .unwrap();
    assert!(all.bins.iter().all(Estimate::is_exact));
}

#[tokio::test]
async fn bounds_that_would_not_be_looked_at_are_refused_with_what_to_do_instead() {
    let table = table(&[]).await;
    let sample = Query::default().sample(0.05).unwrap();
    let of = |subject| EstimateRequest::new(subject).bounded(0.0, 1.0);
    let mean = || of(Subject::Mean(Column::named("x")));
    let within = mean().within(Tolerance::Absolute(0.1), None);
    let filtered = sample.clone().filter(filter("x > 0.5"));
    let cases = [
        (&sample, within),
        (&sample, of(Subject::Sum(Column::named("x")))),
        (&sample, of(Subject::Quantile(Column::named("x"), 0.5))),
        (&filtered, mean()),
    ];
    for (query, request) in cases {
        let refused = table.estimate(query, &request).await.unwrap_err();
        let is_unused = matches!(refused, TableError::Estimate(EstimateError::BoundsUnused { .. }));
        assert!(is_unused && refused.hint().is_some(), "{refused}");
    }
    let readable = Readable::One(table.clone());
    let refused = readable.refine_estimate(&sample, &mean()).await.unwrap_err();
    assert!(refused.hint().is_some(), "{refused}");
    // With the number of rows, bounds are of use; of all rows, the mean needs no number.
    let rows =
        table.count(&Query { window: Query::default().window, ..filtered.clone() }).await.unwrap().rows;
    let bounded = table.estimate(&filtered, &mean().of_rows(rows)).await.unwrap().estimate;
    assert_eq!(bounded.method, Method::EmpiricalBernstein);
    let all = table.estimate(&Query::default().filter(filter("x > 0.5")), &mean()).await.unwrap().estimate;
    assert!(all.is_exact());
}

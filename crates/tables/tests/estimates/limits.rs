//! Limits of rows: the unit in which a limit is reached is a large one more often than not.

use super::{of_vz, schema};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use atoll_memory::MemoryStore;
use atoll_tables::estimate::{Confidence, Doubt, Estimate, Subject, Tolerance};
use atoll_tables::expression::Column;
use atoll_tables::protocol::BlockId;
use atoll_tables::{Query, Readable, Table};
use std::sync::Arc;

/// Entities of one row, and those of a thousand: these have ten of eleven rows.
const SMALL: i64 = 2000;
const LARGE: i64 = 20;
const LARGE_ROWS: i64 = 1000;

/// Fewer rows than a large entity has with the small ones that usually come before it.
const LIMIT: usize = 1000;

/// A table whose large entities have the value 1, and whose small ones have values near 0.
async fn uneven(sample_key: &[&str]) -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema(sample_key)).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let small = (0..SMALL).map(|pid| (pid, 0));
    let large = (SMALL..SMALL + LARGE).flat_map(|pid| (0..LARGE_ROWS).map(move |step| (pid, step)));
    let ids: Vec<(i64, i64)> = small.chain(large).collect();
    let value = |pid: i64| if pid < SMALL { (pid % 7) as f64 * 0.01 } else { 1.0 };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(ids.iter().map(|(pid, _)| *pid))),
        Arc::new(Int64Array::from_iter_values(ids.iter().map(|(_, step)| *step))),
        Arc::new(Float64Array::from_iter_values(ids.iter().map(|_| 0.5))),
        Arc::new(Float64Array::from_iter_values(ids.iter().map(|(pid, _)| value(*pid)))),
        Arc::new(StringArray::from_iter_values(ids.iter().map(|_| "light"))),
    ];
    let rows = RecordBatch::try_new(Arc::clone(schema(&[]).columns()), columns).unwrap();
    table.append(BlockId { run: "run".into(), attempt: 1, step: 0, rank: 0 }, &rows).await.unwrap();
    table
}

fn is_cut_off(estimate: &Estimate) -> bool {
    estimate.doubts.iter().any(|doubt| matches!(doubt, Doubt::UnitCutOff { rows } if *rows > 90))
}

#[tokio::test]
async fn a_limit_of_rows_that_cuts_off_a_large_unit_is_a_reason_for_doubt() {
    let table = uneven(&["pid"]).await;
    let limited = Query::default().limit(LIMIT);
    for subject in [Subject::Mean, Subject::Sum] {
        let found = table.estimate(&limited, &of_vz(subject)).await.unwrap().estimate;
        assert!(is_cut_off(&found), "{found}");
    }
    let how = (Confidence::default(), false);
    let bins = table.estimate_histogram(&limited, &Column::named("vz"), &[0.0, 0.5, 2.0], how).await;
    let bins = bins.unwrap().bins;
    assert!(bins.iter().all(is_cut_off), "{bins:?}");
    let within = of_vz(Subject::Mean).within(Tolerance::Absolute(0.5), Some(LIMIT as u64));
    let found = table.estimate(&Query::default(), &within).await.unwrap().estimate;
    assert!(is_cut_off(&found), "{found}");
    let readable = Readable::One(table.clone());
    let mut estimates = readable.refine_estimate(&limited, &of_vz(Subject::Mean)).await.unwrap();
    let mut last = None;
    while let Some((_, estimate)) = estimates.next().await.unwrap() {
        last = Some(estimate);
    }
    assert!(last.as_ref().is_some_and(is_cut_off), "{last:?}");
}

#[tokio::test]
async fn a_number_of_units_and_a_limit_among_rows_cut_off_nothing_that_is_large() {
    let entities = uneven(&["pid"]).await;
    let first = entities.estimate(&Query::default().first(500), &of_vz(Subject::Mean)).await.unwrap();
    assert!(!is_cut_off(&first.estimate), "{}", first.estimate);
    let rows = uneven(&[]).await;
    let limited = rows.estimate(&Query::default().limit(LIMIT), &of_vz(Subject::Mean)).await.unwrap();
    assert!(limited.estimate.is_valid(), "{}", limited.estimate);
}

//! Tables made from a sample of another one, under the same salt: totals that rest on the share of a sample
//! are doubted, and all others are as good as ever.

use super::{append, assert_same, filter, of_vz, schema, table};
use atoll_memory::MemoryStore;
use atoll_tables::estimate::{Confidence, Doubt, EstimateRequest, Subject, Tolerance};
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Readable, Table, Union};
use std::sync::Arc;

/// A region whose rows have to be read to be counted, since no directory tells of velocities.
const REGION: &str = "x < 0.5 and vz > 0";

/// A table with the rows of a query of the table of rows, or of the one of entities.
async fn made_from(sample_key: &[&str], query: Query) -> Table {
    let rows = table(sample_key).await.query(&query).await.unwrap().rows;
    let made = Table::create(Arc::new(MemoryStore::new()), "made", schema(sample_key)).await.unwrap();
    made.begin("run", 1, 1).await.unwrap();
    made.append(BlockId { run: "run".into(), attempt: 1, step: 0, rank: 0 }, &rows).await.unwrap();
    made
}

fn region() -> Query {
    Query::default().filter(filter(REGION))
}

fn totals() -> [EstimateRequest; 2] {
    // So certain that an interval of one seed contains the truth.
    let confidence = Confidence::new(0.9999).unwrap();
    [EstimateRequest::new(Subject::Count), of_vz(Subject::Sum)].map(|request| request.confidence(confidence))
}

/// Asserts that totals of the region are doubted, or that they are not, in whatever way they are asked for;
/// and that other numbers never are.
async fn assert_uneven(of: &Readable, share: f64, is_uneven: bool) {
    let rows = of.count(&region()).await.unwrap().rows as f64;
    let sample = region().sample(share).unwrap();
    let doubts: &[Doubt] = if is_uneven { &[Doubt::UnevenWeights] } else { &[] };
    let together = of.estimate_all(&sample, &totals()).await.unwrap();
    for (request, other) in totals().into_iter().zip(together) {
        let found = of.estimate(&sample, &request).await.unwrap().estimate;
        assert_eq!(found.doubts, doubts, "{found}");
        assert_same(&found, &other.estimate);
        assert_eq!(other.estimate.doubts, doubts, "{found}");
        let within = request.clone().within(Tolerance::Relative(0.2), None);
        let found = of.estimate(&region(), &within).await.unwrap().estimate;
        assert!(!found.is_exact(), "{found}");
        assert_eq!(found.doubts, doubts, "{found}");
        let mut estimates = of.refine_estimate(&region(), &request).await.unwrap();
        let (_, first) = estimates.next().await.unwrap().unwrap();
        assert!(!first.is_exact(), "{first}");
        assert_eq!(first.doubts, doubts, "{first}");
        let mut last = first;
        while let Some((_, estimate)) = estimates.next().await.unwrap() {
            last = estimate;
        }
        assert!(last.is_exact() && last.is_valid(), "{last}");
        assert!(request.subject != Subject::Count || last.value == rows, "{last}, not {rows}");
    }
    let wrong = of.estimate(&sample, &totals()[0]).await.unwrap().estimate;
    assert_eq!(wrong.holds(rows), !is_uneven, "{wrong}, truth {rows}");
    for request in [of_vz(Subject::Mean), EstimateRequest::new(Subject::Share(filter("vz > 5.5")))] {
        let found = of.estimate(&sample, &request).await.unwrap().estimate;
        assert!(found.is_valid(), "{found}");
    }
    // Neither is a total whose number of rows is known.
    let known = of_vz(Subject::Sum).of_rows(rows as u64);
    let found = of.estimate(&sample, &known).await.unwrap().estimate;
    assert!(found.is_valid(), "{found}");
}

#[tokio::test]
async fn totals_of_a_table_made_from_a_sample_are_doubted_where_they_rest_on_a_share() {
    let made = made_from(&[], Query::default().sample(0.5).unwrap()).await;
    assert_uneven(&Readable::One(made.clone()), 0.1, true).await;
    assert_uneven(&Readable::Many(Union::new(vec![made.clone()]).unwrap()), 0.1, true).await;
    made.pack(&PackOptions::whole()).await.unwrap();
    assert_uneven(&Readable::One(made), 0.1, true).await;
    let window = made_from(&[], Query::default().window(0.2, 1.0).unwrap()).await;
    assert_uneven(&Readable::One(window), 0.4, true).await;
}

#[tokio::test]
async fn totals_of_a_table_whose_weights_lie_anywhere_are_not_doubted() {
    let whole = table(&[]).await;
    assert_uneven(&Readable::One(whole.clone()), 0.1, false).await;
    assert_uneven(&Readable::Many(Union::new(vec![whole.clone()]).unwrap()), 0.1, false).await;
    whole.pack(&PackOptions::whole()).await.unwrap();
    assert_uneven(&Readable::One(whole), 0.1, false).await;
    // All rows come in the order of their weights.
    let gathered = made_from(&[], Query::default()).await;
    assert_uneven(&Readable::One(gathered), 0.1, false).await;
}

#[tokio::test]
async fn entities_are_as_many_as_there_are_units_of_them() {
    let made = made_from(&["pid"], Query::default().sample(0.5).unwrap()).await;
    let sample = region().sample(0.1).unwrap();
    let found = made.estimate(&sample, &totals()[0]).await.unwrap().estimate;
    assert_eq!(found.doubts, [Doubt::UnevenWeights], "{found}");
    let found = table(&["pid"]).await.estimate(&sample, &totals()[0]).await.unwrap().estimate;
    assert!(found.is_valid(), "{found}");
}

#[tokio::test]
async fn what_is_more_than_the_table_has_is_doubted_although_some_rows_lie_anywhere() {
    // Four steps of a sample, and one as it was written: its weights lie as far apart as any.
    let made = made_from(&[], Query::default().filter(filter("step < 4")).sample(0.1).unwrap()).await;
    append(&made, 4).await;
    let all = Query::default().filter(filter("x < 2 and vz > 0")).sample(0.05).unwrap();
    let found = made.estimate(&all, &totals()[0]).await.unwrap().estimate;
    assert_eq!(found.doubts, [Doubt::UnevenWeights], "{found}");
}

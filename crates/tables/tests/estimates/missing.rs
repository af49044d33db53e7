//! Rows without a value do not contribute, and the estimate reports how many there were.

use super::*;

/// Every twentieth of all rows; also the heavy ones among them.
const MISSING: u64 = 1000;
const MISSING_HEAVY: u64 = 335;

fn missing_of(rows: &[(Weight, f64, f64, bool)]) -> u64 {
    rows.iter().filter(|row| row.1.is_nan()).count() as u64
}

async fn answer(table: &Table, query: &Query, request: &EstimateRequest) -> Estimate {
    table.estimate(query, request).await.unwrap().estimate
}

#[tokio::test]
async fn what_is_exact_tells_how_many_rows_have_no_value() {
    let (table, all) = (table(&[]).await, Query::default());
    let of_median = |column| Subject::Quantile(column, 0.5);
    for subject in [Subject::Mean, Subject::Sum, of_median] {
        let found = answer(&table, &all, &of_vz(subject)).await;
        assert_eq!((found.rows, found.missing), (ALL as u64, MISSING), "{found}");
        assert!(found.to_string().ends_with("(exact, 20000 rows, 1000 without a value)"), "{found}");
        // Whether rows that a condition leaves out have a value does not matter; a sum reads them
        // nevertheless.
        let heavy = answer(&table, &all.clone().filter(filter("kind = 'heavy'")), &of_vz(subject)).await;
        assert_eq!(heavy.missing, MISSING_HEAVY, "{heavy}");
    }
    for subject in [Subject::Count, Subject::Share(filter("vz > 5.5")), Subject::Mean(Column::named("x"))] {
        assert_eq!(answer(&table, &all, &EstimateRequest::new(subject)).await.missing, 0);
    }
    let both = [of_vz(Subject::Mean), of_vz(Subject::Sum)];
    let both = table.estimate_all(&all, &both).await.unwrap();
    assert!(both.iter().all(|found| found.estimate.missing == MISSING));
}

#[tokio::test]
async fn what_rests_on_a_sample_tells_how_many_of_its_rows_have_no_value() {
    let (table, rows) = (table(&[]).await, by_weight(2));
    let cut = Cut::of_share(0.2).unwrap();
    let sampled = rows.partition_point(|row| cut.takes(row.0));
    let found = answer(&table, &Query::default().sample(0.2).unwrap(), &of_vz(Subject::Mean)).await;
    assert_eq!((found.rows, found.missing), (sampled as u64, missing_of(&rows[..sampled])), "{found}");
    let narrow = of_vz(Subject::Mean).within(Tolerance::Relative(0.01), None);
    let found = answer(&table, &Query::default(), &narrow).await;
    assert!(!found.is_exact() && found.missing > 0, "{found}");
    assert_eq!(found.missing, missing_of(&rows[..found.rows as usize]), "{found}");
    // The last of the first rows sets the cut and is not part of the sample; here it has no value.
    let end = 400 + rows[400..].iter().position(|row| row.1.is_nan()).unwrap();
    let limited = Query { limit: Some(end + 1), ..Query::default() };
    let first = answer(&table, &limited, &of_vz(Subject::Mean)).await;
    assert_eq!((first.rows, first.missing), (end as u64, missing_of(&rows[..end])), "{first}");
    let readable = Readable::One(table);
    let mut refined = readable.refine_estimate(&Query::default(), &of_vz(Subject::Mean)).await.unwrap();
    let mut last = None;
    while let Some((_, found)) = refined.next().await.unwrap() {
        assert_eq!(found.missing, missing_of(&rows[..found.rows as usize]), "{found}");
        last = Some(found.missing);
    }
    assert_eq!(last, Some(MISSING));
}

#[tokio::test]
async fn groups_tell_their_own_rows_and_bins_those_of_all() {
    let (table, rows) = (table(&[]).await, by_weight(2));
    let (vz, at) = (Column::named("vz"), (Confidence::default(), false));
    let cut = Cut::of_share(0.2).unwrap();
    let sampled = &rows[..rows.partition_point(|row| cut.takes(row.0))];
    let sample = Query::default().sample(0.2).unwrap();
    for (query, rows) in [(Query::default(), &rows[..]), (sample, sampled)] {
        let found = table.estimate_groups(&query, &vz, "kind", None, at).await.unwrap();
        let names = found.groups.as_any().downcast_ref::<StringArray>().unwrap();
        assert_eq!(found.means.len(), 2);
        for (name, mean) in names.iter().zip(&found.means) {
            let is_own = |row: &&(Weight, f64, f64, bool)| row.3 == (name == Some("heavy"));
            let own: Vec<_> = rows.iter().filter(is_own).copied().collect();
            let mean = mean.as_ref().unwrap();
            assert_eq!((mean.rows, mean.missing), (own.len() as u64, missing_of(&own)), "{name:?}: {mean}");
        }
        // A group without any value differs from a group that was not met.
        let nothing = query.clone().filter(filter("vz is null and kind = 'heavy'"));
        let found = table.estimate_groups(&nothing, &vz, "kind", None, at).await.unwrap();
        let mean = found.means[0].as_ref().unwrap();
        assert!(mean.value.is_nan() && mean.missing == mean.rows && mean.rows > 0, "{mean}");
        let found = table.estimate_histogram(&query, &vz, &[5.0, 5.5, 6.0], at).await.unwrap();
        assert!(found.bins.iter().all(|bin| bin.missing == missing_of(rows)), "{:?}", found.bins);
    }
}

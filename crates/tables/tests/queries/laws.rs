//! The laws of samples, one by one.

use crate::particles::{Particle, batch, schema, some};
use crate::run;
use crate::seeds::for_seeds;
use arrow_array::{Int64Array, RecordBatch};
use atoll_memory::MemoryStore;
use atoll_tables::expression::{Expression, parse_box};
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Table};
use fastrand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A table of a few steps of one run, and its rows.
async fn written(random: &mut Rng, samples_entities: bool) -> (Table, Vec<Particle>) {
    let schema = schema(samples_entities, 0);
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema.clone()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let mut all = Vec::new();
    for step in 0..6 {
        let count = random.i64(200..1500);
        let rows = some(random, &schema, step as i64, 0..count);
        let id = BlockId { run: "run".into(), attempt: 1, step, rank: 0 };
        table.append(id, &batch(&schema, &rows)).await.unwrap();
        all.extend(rows);
    }
    (table, all)
}

async fn rows(table: &Table, query: &Query) -> RecordBatch {
    table.query(query).await.unwrap().rows
}

fn pids(rows: &RecordBatch) -> BTreeSet<i64> {
    let column: &Int64Array = rows.column_by_name("pid").unwrap().as_any().downcast_ref().unwrap();
    column.values().iter().copied().collect()
}

#[test]
fn a_smaller_sample_is_the_beginning_of_a_larger_one() {
    for_seeds("a_smaller_sample_is_the_beginning", 10, |random| {
        run(async {
            let samples_entities = random.bool();
            let (table, _) = written(random, samples_entities).await;
            let filter = Expression::parse("x < 1.2 and kind != 2").unwrap();
            let of = |share| Query::default().filter(filter.clone()).sample(share).unwrap();
            let (small, large) = (random.f64() * random.f64(), random.f64());
            let (small, large) = (small.min(large), small.max(large));
            let (small, large) = (rows(&table, &of(small)).await, rows(&table, &of(large)).await);
            assert_eq!(small, large.slice(0, small.num_rows()));
        });
    });
}

#[test]
fn a_sample_of_a_part_is_that_part_of_the_sample() {
    for_seeds("a_sample_of_a_part", 10, |random| {
        run(async {
            let samples_entities = random.bool();
            let (table, all) = written(random, samples_entities).await;
            let left = parse_box(&format!("x={:?}:", random.f64())).unwrap();
            let right = parse_box(&format!("step=1:{}", random.i64(2..6))).unwrap();
            let sample = Query::default().sample(random.f64()).unwrap();
            let both = rows(&table, &sample.clone().in_box(&left).in_box(&right)).await;
            let one = rows(&table, &sample.clone().in_box(&left)).await;
            let bound = Query::default().in_box(&right).filter.unwrap().bind(&one.schema()).unwrap();
            let kept = bound.evaluate(&one).unwrap();
            let kept = arrow_select::filter::filter_record_batch(&one, &kept).unwrap();
            assert_eq!(both, kept);
            assert!(both.num_rows() < all.len());
        });
    });
}

#[test]
fn windows_side_by_side_share_out_the_rows_and_have_no_unit_in_common() {
    for_seeds("windows_side_by_side", 10, |random| {
        run(async {
            let (table, all) = written(random, true).await;
            let mut ends = [0.0, random.f64(), random.f64(), 1.0];
            ends.sort_by(f64::total_cmp);
            let (mut seen, mut count) = (BTreeSet::new(), 0);
            for pair in ends.windows(2) {
                let rows = rows(&table, &Query::default().window(pair[0], pair[1]).unwrap()).await;
                let units = pids(&rows);
                assert!(seen.is_disjoint(&units));
                seen.extend(units);
                count += rows.num_rows();
            }
            assert_eq!(count, all.len());
        });
    });
}

#[test]
fn the_first_units_come_with_their_whole_path_and_a_limit_counts_rows() {
    for_seeds("the_first_units", 10, |random| {
        run(async {
            let (table, all) = written(random, true).await;
            let query = Query::default().first(random.usize(1..50));
            let first = rows(&table, &query).await;
            let units = pids(&first);
            assert_eq!(units.len(), query.units.unwrap());
            let paths = all.iter().filter(|row| units.contains(&row.pid)).count();
            assert_eq!(first.num_rows(), paths, "an entity was split");
            let limited = rows(&table, &query.limit(7)).await;
            assert_eq!(limited, first.slice(0, first.num_rows().min(7)));
        });
    });
}

#[test]
fn the_same_query_of_the_same_version_answers_alike_whatever_is_written_meanwhile() {
    run(async {
        let mut random = Rng::with_seed(8);
        let (table, _) = written(&mut random, false).await;
        let version = table.version().await.unwrap();
        let query = Query::default().sample(0.3).unwrap();
        let before = rows(&table, &query).await;
        let mut refinement = table.refine(&query);
        let mut batches = vec![refinement.next().await.unwrap().unwrap().rows];
        // Another attempt supersedes all but the first step.
        table.begin("run", 2, 1).await.unwrap();
        let again = some(&mut random, &table.schema(), 1, 0..500);
        let id = BlockId { run: "run".into(), attempt: 2, step: 1, rank: 0 };
        table.append(id, &batch(&table.schema(), &again)).await.unwrap();
        assert_ne!(rows(&table, &query).await, before);
        assert_eq!(rows(&table, &query.clone().as_of(version)).await, before);
        while let Some(refined) = refinement.next().await.unwrap() {
            assert_eq!(refined.version, version);
            batches.push(refined.rows);
        }
        let refined = arrow_select::concat::concat_batches(&before.schema(), &batches).unwrap();
        assert_eq!(refined, before);
    });
}

#[test]
fn what_cannot_be_asked_is_refused_with_its_reason() {
    run(async {
        let (table, _) = written(&mut Rng::with_seed(1), false).await;
        let refused = async |query: Query| table.query(&query).await.unwrap_err();
        let filter = |text: &str| Query::default().filter(Expression::parse(text).unwrap());
        let unknown = refused(filter("vx > 0")).await;
        assert!(unknown.to_string().contains("vx"), "{unknown}");
        assert!(refused(filter("name > 3")).await.to_string().contains("text"));
        let ahead = refused(Query::default().as_of(atoll_tables::protocol::Version(1000))).await;
        assert!(ahead.to_string().contains("version 1000 is ahead of version"), "{ahead}");
        assert!(table.count(&Query::default().select(["nope"])).await.is_err());
    });
}

#[test]
fn every_row_is_found_by_its_key() {
    for_seeds("every_row_is_found_by_its_key", 2, |random| {
        run(async {
            for samples_entities in [false, true] {
                let (table, all) = written(random, samples_entities).await;
                if random.bool() {
                    table.pack(&PackOptions { rows_min: 0, ..PackOptions::default() }).await.unwrap();
                }
                // Enough particles that some are the first or the last of a band, at the ends of its weights.
                for pid in (0..200).chain(1400..1420) {
                    let of_pid: Vec<i64> =
                        all.iter().filter(|row| row.pid == pid).map(|row| row.step).collect();
                    let query = Query::default().filter(Expression::parse(&format!("pid = {pid}")).unwrap());
                    assert_eq!(rows(&table, &query).await.num_rows(), of_pid.len(), "pid {pid}");
                    let step = of_pid.first().copied().unwrap_or_default();
                    let query = query.filter(Expression::parse(&format!("step = {step}")).unwrap());
                    let found = rows(&table, &query).await.num_rows();
                    assert_eq!(found, usize::from(!of_pid.is_empty()), "pid {pid} in step {step}");
                }
            }
        });
    });
}

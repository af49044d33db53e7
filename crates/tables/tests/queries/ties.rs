//! Rows with one id, which only their place tells apart: they come in one order, whatever the way of asking.

use crate::packs::some_options;
use crate::particles::{Particle, batch, schema, some};
use crate::run;
use crate::seeds::for_seeds;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use atoll_memory::MemoryStore;
use atoll_tables::expression::Expression;
use atoll_tables::protocol::BlockId;
use atoll_tables::{OfRuns, Query, Readable, Table, TableSchema, Union};
use fastrand::Rng;
use std::sync::Arc;

/// The steps of each run.
const STEPS: u64 = 3;

/// Appends a step of a run.
async fn append(table: &Table, name: &str, step: u64, rows: &[Particle]) {
    let id = BlockId { run: name.into(), attempt: 1, step, rank: 0 };
    table.append(id, &batch(&table.schema(), rows)).await.unwrap();
}

/// A table with three runs of the same particles but other values, sometimes packed.
async fn written(random: &mut Rng, schema: &TableSchema) -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema.clone()).await.unwrap();
    for name in ["a", "b", "c"] {
        table.begin(name, 1, 1).await.unwrap();
        for step in 0..STEPS {
            let count = random.i64(200..600);
            let mut rows = some(random, schema, step as i64, 0..count);
            // The lightest rows may be in one run alone, so that bands of a later run begin lighter.
            rows.sort_by_key(|row| row.weight);
            rows.drain(..random.usize(..3));
            append(&table, name, step, &rows).await;
            if random.u8(..4) == 0 {
                table.pack(&some_options(random, 500)).await.unwrap();
            }
            if random.u8(..4) == 0 {
                table.delete(None, None, Some("kind = 3 and x > 0.5")).await.unwrap();
            }
        }
    }
    table
}

/// An answer to a part of the query is a prefix of the answer, and the batches of a refinement are the
/// answer.
async fn check(random: &mut Rng, table: &Readable, query: &Query) {
    let all = table.query(query).await.unwrap().rows;
    for _ in 0..8 {
        let rows = if random.bool() { random.usize(..12) } else { random.usize(..=all.num_rows()) };
        let limited = table.query(&query.clone().limit(rows)).await.unwrap().rows;
        assert_eq!(limited, all.slice(0, rows.min(all.num_rows())), "the first {rows} of {query:?}");
    }
    for wanted in [40, 700] {
        let mut refining = table.refine(query);
        let mut batches = vec![RecordBatch::new_empty(all.schema())];
        refining.want(wanted);
        while let Some(refined) = refining.next().await.unwrap() {
            batches.push(refined.rows);
            refining.want(wanted);
        }
        let together = concat_batches(&all.schema(), &batches).unwrap();
        assert_eq!(together, all, "{query:?} by {wanted} rows");
    }
}

/// A random query.
fn some_query(random: &mut Rng) -> Query {
    let query = match random.u8(..4) {
        0 => Query::default().filter(Expression::parse("x < 0.7 and kind != 2").unwrap()),
        1 => Query::default().of_runs(OfRuns::new(["a", "c"])),
        _ => Query::default(),
    };
    if random.bool() { query.sample(random.f64()).unwrap() } else { query }
}

#[test]
fn rows_of_one_id_come_in_one_order_however_they_are_asked_for() {
    for_seeds("rows_of_one_id_come_in_one_order", 12, |random| {
        run(async {
            let schema = schema(random.bool(), 0);
            let table = Readable::One(written(random, &schema).await);
            for _ in 0..3 {
                let query = some_query(random);
                check(random, &table, &query).await;
            }
        });
    });
}

#[test]
fn rows_of_one_id_in_several_tables_come_in_the_order_of_the_tables() {
    for_seeds("rows_of_one_id_in_several_tables", 8, |random| {
        run(async {
            let schema = schema(random.bool(), 0);
            let mut tables = Vec::new();
            for _ in 0..3 {
                tables.push(written(random, &schema).await);
            }
            let union = Readable::Many(Union::new(tables).unwrap());
            for _ in 0..2 {
                let query = some_query(random);
                check(random, &union, &query).await;
            }
        });
    });
}

#[test]
fn the_lightest_row_of_a_later_run_puts_none_of_its_rows_before_those_of_an_earlier_one() {
    run(async {
        let (random, schema) = (&mut Rng::with_seed(3), schema(false, 0));
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema.clone()).await.unwrap();
        let (mut first, second) = (some(random, &schema, 0, 0..300), some(random, &schema, 0, 0..300));
        let lightest = first.iter().map(|row| row.weight).min().unwrap();
        first.retain(|row| row.weight != lightest);
        for (name, rows) in [("a", &first), ("b", &second)] {
            table.begin(name, 1, 1).await.unwrap();
            append(&table, name, 0, rows).await;
        }
        let all = table.query(&Query::default()).await.unwrap().rows;
        let two = table.query(&Query::default().limit(2)).await.unwrap().rows;
        assert_eq!(two, all.slice(0, 2));
    });
}

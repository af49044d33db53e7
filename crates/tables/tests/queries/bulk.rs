//! Large answers, which are read another way than small ones: the rows are the same, and so is their order.
//!
//! A limit that no table reaches asks for the same rows the other way.

use crate::conditions::Condition;
use crate::particles::{batch, schema, some};
use crate::run;
use crate::seeds::for_seeds;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use atoll_memory::MemoryStore;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Table, TableSchema};
use fastrand::Rng;
use std::sync::Arc;

/// More than the rows that begin a thread, and than the rows that are judged at a time.
const ROWS: i64 = 40_000;

/// Three steps: two of them packed, one a block, and rows of all of them deleted before or after.
async fn written(random: &mut Rng, schema: &TableSchema, has_deletes: bool) -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema.clone()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for step in 0..3 {
        let rows = some(random, schema, step, 0..ROWS);
        let id = BlockId { run: "run".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &batch(schema, &rows)).await.unwrap();
        if has_deletes {
            table.delete(None, Some(0..2), Some("kind = 3 and x > 0.5")).await.unwrap();
        }
        if step == 1 {
            table.pack(&PackOptions::whole()).await.unwrap();
        }
    }
    table
}

async fn check(random: &mut Rng, table: &Table) {
    let condition = (random.u8(..4) > 0).then(|| Condition::any(random, 2));
    let query = Query { filter: condition.as_ref().map(Condition::expression), ..Query::default() };
    let query = match random.u8(..4) {
        0 => query.sample(random.f64()).unwrap(),
        1 => query.window(0.2, 0.9).unwrap(),
        _ => query,
    };
    let query = if random.bool() { query.select(["vz", "name", "y", "step"]) } else { query };
    let one_by_one = table.query(&query.clone().limit(usize::MAX)).await.unwrap();
    let in_bulk = table.query(&query).await.unwrap();
    assert_eq!(in_bulk.rows, one_by_one.rows, "{query:?}");
    assert_eq!((in_bulk.weights, in_bulk.cut), (one_by_one.weights, one_by_one.cut));
    assert_eq!(in_bulk.work.rows_touched, one_by_one.work.rows_touched);
    let mut batches = table.batches(&query);
    let mut found = vec![RecordBatch::new_empty(in_bulk.rows.schema())];
    while let Some(batch) = batches.next().await.unwrap() {
        found.push(batch);
    }
    assert!(found.len() <= 20, "{} batches are too many small ones", found.len());
    let found = concat_batches(&found[0].schema(), &found).unwrap();
    assert_eq!(lines(&found), lines(&in_bulk.rows), "{query:?}");
    let scanned = table.scan(&query).await.unwrap();
    assert_eq!((scanned.version, scanned.work), (in_bulk.version, in_bulk.work));
    let scanned = concat_batches(&in_bulk.rows.schema(), &scanned.batches).unwrap();
    assert_eq!(lines(&scanned), lines(&in_bulk.rows), "{query:?}");
}

/// Every row as a text, in their order as texts.
fn lines(rows: &RecordBatch) -> Vec<String> {
    let row = |row| {
        let cells = rows.columns().iter().map(|column| format!("{:?}", column.slice(row, 1)));
        cells.collect::<Vec<_>>().concat()
    };
    let mut lines: Vec<String> = (0..rows.num_rows()).map(row).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn large_answers_have_the_rows_and_the_order_of_small_ones() {
    for_seeds("large_answers_have_the_rows", 1, |random| {
        for (samples_entities, has_deletes) in [(false, false), (false, true), (true, false), (true, true)] {
            run(async {
                let schema = schema(samples_entities, 0);
                let table = written(random, &schema, has_deletes).await;
                for _ in 0..6 {
                    check(random, &table).await;
                }
            });
        }
    });
}

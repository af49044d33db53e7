//! Large answers, decoded in parts by several threads: rows and order are those of brute force.

use crate::conditions::Condition;
use crate::particles::{Particle, batch, schema, some};
use crate::run;
use crate::seeds::for_seeds;
use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use atoll_memory::MemoryStore;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Table, TableSchema, Work};
use fastrand::Rng;
use std::sync::Arc;

/// More than the rows that start another thread, and more than the rows that are judged at a time.
const ROWS: i64 = 40_000;

/// A table, and its visible rows.
struct Written {
    table: Table,
    rows: Vec<Particle>,
}

/// Three steps, of which two are packed and one is a block; rows of all of them are deleted before or after
/// packing.
async fn written(random: &mut Rng, schema: &TableSchema, has_deletes: bool) -> Written {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema.clone()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let mut rows = Vec::new();
    for step in 0..3 {
        let of_step = some(random, schema, step, 0..ROWS);
        let id = BlockId { run: "run".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &batch(schema, &of_step)).await.unwrap();
        rows.extend(of_step);
        if has_deletes {
            table.delete(None, Some(0..2), Some("kind = 3 and x > 0.5")).await.unwrap();
            rows.retain(|row| !(row.step < 2 && row.kind == 3 && row.x > 0.5));
        }
        if step == 1 {
            table.pack(&PackOptions::whole()).await.unwrap();
        }
    }
    rows.sort_by_key(|row| (row.weight, row.pid, row.step));
    Written { table, rows }
}

async fn check(random: &mut Rng, Written { table, rows }: &Written) {
    let condition = (random.u8(..4) > 0).then(|| Condition::any(random, 2));
    let query = Query {
        filter: condition.as_ref().map(|condition| condition.expression(&table.schema())),
        ..Query::default()
    };
    let query = match random.u8(..4) {
        0 => query.sample(random.f64()).unwrap(),
        1 => query.window(0.2, 0.9).unwrap(),
        _ => query,
    };
    let takes = |row: &&Particle| condition.as_ref().is_none_or(|condition| condition.takes(row));
    let range: Vec<Particle> =
        rows.iter().filter(|row| query.window.takes(row.weight)).filter(takes).cloned().collect();
    let expected = batch(&table.schema(), &range);
    let columns = ["vz", "name", "y", "step"];
    let is_some = random.bool();
    let query = if is_some { query.select(columns) } else { query };
    let places = columns.map(|name| expected.schema().index_of(name).unwrap());
    let expected = if is_some { expected.project(&places).unwrap() } else { expected };
    let answer = table.query(&query).await.unwrap();
    assert_eq!(answer.rows, expected, "{query:?}");
    assert!(answer.weights.iter().eq(range.iter().map(|row| &row.weight)));
    let some = random.usize(..=range.len());
    let first = table.query(&query.clone().limit(some)).await.unwrap();
    assert_eq!(first.rows, expected.slice(0, some), "the first {some} of {query:?}");
    assert_eq!(table.count(&query).await.unwrap().rows, range.len() as u64, "{query:?}");
    let mut batches = table.batches(&query);
    let mut found = vec![RecordBatch::new_empty(expected.schema())];
    while let Some(batch) = batches.next().await.unwrap() {
        found.push(batch);
    }
    assert!(found.len() <= 20, "{} batches are too many small ones", found.len());
    let found = concat_batches(&found[0].schema(), &found).unwrap();
    assert_eq!(lines(&found), lines(&expected), "{query:?}");
    let scanned = table.scan(&query).await.unwrap();
    // The first of the two opened objects that the second already knew.
    let counts = |work: Work| (work.bands, work.rows_touched, work.rows_returned);
    assert_eq!((scanned.version, counts(scanned.work)), (answer.version, counts(answer.work)));
    let scanned = concat_batches(&expected.schema(), &scanned.batches).unwrap();
    assert_eq!(lines(&scanned), lines(&expected), "{query:?}");
}

/// All rows as sorted texts.
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
fn large_answers_equal_brute_force_in_rows_and_order() {
    for_seeds("large_answers_equal_brute_force", 1, |random| {
        for (samples_entities, has_deletes) in [(false, false), (false, true), (true, false), (true, true)] {
            run(async {
                let schema = schema(samples_entities, 0);
                let written = written(random, &schema, has_deletes).await;
                for _ in 0..6 {
                    check(random, &written).await;
                }
            });
        }
    });
}

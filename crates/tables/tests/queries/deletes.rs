//! Deletes: deleted rows are in no answer, later rows are, and older versions keep everything.

use crate::conditions::Condition;
use crate::particles::{Particle, any_schema, batch, said_of, some};
use crate::run;
use crate::seeds::for_seeds;
use atoll_memory::MemoryStore;
use atoll_tables::protocol::BlockId;
use atoll_tables::{Query, Table};
use std::sync::Arc;

/// The rows that a filter selects, in the order of an answer.
fn expected(rows: &[Particle], condition: Option<&Condition>) -> Vec<Particle> {
    let takes = |row: &&Particle| condition.is_none_or(|condition| condition.takes(row));
    let mut rows: Vec<Particle> = rows.iter().filter(takes).cloned().collect();
    rows.sort_by_key(|row| (row.weight, row.pid, row.step));
    rows
}

#[test]
fn rows_that_a_delete_struck_are_in_no_answer_and_rows_that_came_later_are() {
    let (mut tables, mut deleted_from) = (0, 0);
    for_seeds("rows_that_a_delete_struck", 20, |random| {
        let struck = run(async {
            let schema = any_schema(random);
            let table = Table::create(Arc::new(MemoryStore::new()), "run", schema.clone()).await.unwrap();
            table.begin("run", 1, 1).await.unwrap();
            let (mut alive, mut struck) = (Vec::new(), 0);
            for step in 0..8_u64 {
                let count = random.i64(0..900);
                let rows = some(random, &schema, step as i64, 0..count);
                let id = BlockId { run: "run".into(), attempt: 1, step, rank: 0 };
                table.append(id, &batch(&schema, &rows)).await.unwrap();
                alive.extend(rows);
                let before = (table.version().await.unwrap(), alive.clone());
                if random.u8(..3) > 0 {
                    let (depth, from) = (random.usize(..3), random.u64(0..9));
                    let condition = Condition::any(random, depth);
                    let steps = random.bool().then(|| from..from + random.u64(1..4));
                    table
                        .delete(None, steps.clone(), Some(&said_of(&schema, &condition.text)))
                        .await
                        .unwrap();
                    let in_steps = |row: &Particle| {
                        steps.as_ref().is_none_or(|steps| steps.contains(&(row.step as u64)))
                    };
                    alive.retain(|row| !(in_steps(row) && condition.takes(row)));
                    struck += before.1.len() - alive.len();
                }
                for _ in 0..4 {
                    let depth = random.usize(..3);
                    let condition = random.bool().then(|| Condition::any(random, depth));
                    let filter = condition.as_ref().map(|condition| condition.expression(&schema));
                    let query = Query { filter, ..Query::default() };
                    let now = expected(&alive, condition.as_ref());
                    assert_eq!(table.query(&query).await.unwrap().rows, batch(&schema, &now), "{query:?}");
                    assert_eq!(table.count(&query).await.unwrap().rows, now.len() as u64, "{query:?}");
                    let past = expected(&before.1, condition.as_ref());
                    let answer = table.query(&query.as_of(before.0)).await.unwrap();
                    assert_eq!(answer.rows, batch(&schema, &past));
                }
            }
            struck
        });
        tables += 1;
        deleted_from += u32::from(struck > 0);
    });
    assert!(deleted_from * 4 >= tables * 3, "rows were deleted from {deleted_from} of {tables} tables alone");
}

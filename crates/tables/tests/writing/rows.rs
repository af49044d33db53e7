//! The table of these tests, its rows, and what it contains.

use arrow_array::{Array, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use atoll_store::Store;
use atoll_tables::protocol::BlockId;
use atoll_tables::{Query, Roles, Table, TableSchema, column};
use std::collections::BTreeMap;
use std::sync::Arc;

pub fn schema() -> TableSchema {
    let columns = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("step", DataType::Int64, false),
        column("x", DataType::Float64, false),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles =
        Roles { id: names(&["pid", "step"]), sample_key: Vec::new(), index: names(&["x", "step"]), salt: 0 };
    TableSchema::new(columns, &roles).unwrap()
}

/// Rows of one step: particles `first..first + count`, x rising from 0.
pub fn rows(step: u64, first: i64, count: usize) -> RecordBatch {
    let pid: Int64Array = (first..first + count as i64).collect::<Vec<_>>().into();
    let steps: Int64Array = vec![step as i64; count].into();
    let x: Float64Array = (0..count).map(|row| row as f64 / count as f64).collect::<Vec<_>>().into();
    let columns: [Arc<dyn Array>; 3] = [Arc::new(pid), Arc::new(steps), Arc::new(x)];
    RecordBatch::try_new(Arc::clone(schema().columns()), columns.to_vec()).unwrap()
}

pub fn block(run: &str, attempt: u64, step: u64, rank: u32) -> BlockId {
    BlockId { run: run.into(), attempt, step, rank }
}

pub async fn create(store: &Arc<dyn Store>) -> Table {
    Table::create(Arc::clone(store), "run", schema()).await.unwrap()
}

pub async fn open(store: &Arc<dyn Store>) -> Table {
    Table::open(Arc::clone(store), "run").await.unwrap()
}

/// How often each (step, particle) occurs.
pub async fn seen(table: &Table) -> BTreeMap<(u64, i64), u32> {
    let rows = table.query(&Query::default()).await.unwrap().rows;
    let numbers = |place: usize| {
        let column = rows.column(place).as_any().downcast_ref::<Int64Array>().unwrap();
        column.values().to_vec()
    };
    let mut seen = BTreeMap::new();
    for (pid, step) in numbers(0).into_iter().zip(numbers(1)) {
        *seen.entry((step as u64, pid)).or_default() += 1;
    }
    seen
}

/// The steps with their numbers of rows, none of which may occur twice.
pub async fn steps_seen(table: &Table) -> Vec<(u64, usize)> {
    let mut steps = BTreeMap::new();
    for ((step, pid), count) in seen(table).await {
        assert_eq!(count, 1, "particle {pid} of step {step} is there {count} times");
        *steps.entry(step).or_default() += 1;
    }
    steps.into_iter().collect()
}

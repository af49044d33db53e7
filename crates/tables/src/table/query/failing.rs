//! Helpers for tests of handing over: a table of one block, and a row that cannot be combined with others.

use super::Table;
use super::found_rows::FoundRows;
use crate::Weight;
use crate::protocol::BlockId;
use crate::table::tests::schema;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{Field, Schema};
use atoll_memory::MemoryStore;
use std::sync::Arc;

/// Number of rows in the table.
pub(super) const ROWS: i64 = 500;

/// A table of one block whose particles are numbered from `first` on.
pub(super) async fn table(first: i64) -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    let pid: ArrayRef = Arc::new((first..first + ROWS).collect::<Int64Array>());
    let step: ArrayRef = Arc::new(Int64Array::from(vec![0; ROWS as usize]));
    let x: ArrayRef = Arc::new((0..ROWS).map(|row| row as f64).collect::<Float64Array>());
    let columns = vec![pid, step, Arc::clone(&x), Arc::clone(&x), x];
    let rows = RecordBatch::try_new(Arc::clone(schema().columns()), columns).unwrap();
    table.append(BlockId { run: "run".into(), attempt: 1, step: 0, rank: 0 }, &rows).await.unwrap();
    table
}

/// A position that no row has.
const NOWHERE: u64 = u64::MAX;

/// Adds a row whose column at a place is a string, so that it cannot be combined with rows of the table. It
/// stands for anything that may go wrong when an answer is assembled.
pub(super) fn spoil(found: &mut Vec<FoundRows>, column: usize) {
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let float: ArrayRef = Arc::new(Float64Array::from(vec![7.0]));
    let mut columns = [vec![whole; 2], vec![float; 3]].concat();
    columns[column] = Arc::new(StringArray::from(vec!["no number"]));
    let field = |column: &ArrayRef| Field::new("some", column.data_type().clone(), false);
    let fields: Vec<Field> = columns.iter().map(field).collect();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    found.push(FoundRows { rows, weights: vec![Weight::LEAST], lies_at: vec![NOWHERE] });
}

/// Removes that row again.
pub(super) fn mend(found: &mut Vec<FoundRows>) {
    found.retain(|found| found.lies_at != [NOWHERE]);
}

//! Tests that rows of equal weight and id come in storage order, however they are decoded.

use super::super::super::Query;
use super::super::super::bound_query::BoundQuery;
use super::super::Reach;
use super::*;
use crate::protocol::BlockId;
use crate::table::tests::schema;
use crate::{PackOptions, Table, WholeStep};
use arrow_array::{ArrayRef, Float64Array, Int64Array};
use atoll_memory::MemoryStore;

/// Number of rows of each run.
const ROWS: i64 = 700;

/// The same particles in each run; `vz` tells the run.
fn rows(run: usize) -> RecordBatch {
    let pid: ArrayRef = Arc::new((0..ROWS).collect::<Int64Array>());
    let step: ArrayRef = Arc::new(Int64Array::from(vec![0; ROWS as usize]));
    let x: ArrayRef = Arc::new((0..ROWS).map(|row| (row * 37 % ROWS) as f64).collect::<Float64Array>());
    let vz: ArrayRef = Arc::new(Float64Array::from(vec![run as f64; ROWS as usize]));
    RecordBatch::try_new(Arc::clone(schema().columns()), vec![pid, step, Arc::clone(&x), x, vz]).unwrap()
}

/// Five runs of the same particles, alternately packed and as appended.
async fn written() -> Table {
    let table = Table::create(Arc::new(MemoryStore::new()), "run", schema()).await.unwrap();
    let options = PackOptions { rows_min: 0, ..PackOptions::default() };
    for (place, run) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
        table.begin(run, 1, 1).await.unwrap();
        if place % 2 == 0 {
            let step = WholeStep { step: 0, time: None, rows: rows(place) };
            table.load(run, 1, &[step], &options).await.unwrap();
        } else {
            let block = BlockId { run: run.into(), attempt: 1, step: 0, rank: 0 };
            table.append(block, &rows(place)).await.unwrap();
        }
    }
    table
}

#[tokio::test]
async fn what_is_equal_in_weight_and_id_has_one_order_however_many_threads_decode_it() {
    let (table, query) = (written().await, Query::default());
    let manifest = table.ledger.current().await.unwrap().manifest;
    let asked = BoundQuery::rows(&table, &query).unwrap();
    let mut reading = Reading::open(&table, asked, &manifest, Reach::Everything).await.unwrap();
    reading.plan_by_place();
    let fetched = reading.fetched(reading.planned.len(), &mut Work::default()).await.unwrap();
    let (schema, id) = (&reading.schema, reading.asked.id(&table.schema));
    for beside in [RowExtras::Weights, RowExtras::WeightsAndPlaces] {
        for threads in [1, 2, 3, 8] {
            let mut found = reading.decode_all(&fetched, beside, threads).unwrap();
            if beside == RowExtras::WeightsAndPlaces {
                // As if some rows had been read in another round.
                found.reverse();
                found = found.into_iter().map(|found| found.rising().unwrap()).collect();
            }
            let ordered = OrderedRows::by_weight(found, schema, &id).unwrap();
            let rows = ordered.batch(0..ordered.rows(), schema, &reading.asked.answered).unwrap();
            let runs: &Float64Array = rows.column(4).as_any().downcast_ref().unwrap();
            let expected = (0..5 * ROWS).map(|row| (row % 5) as f64);
            assert!(runs.values().iter().copied().eq(expected), "{beside:?} by {threads} threads");
        }
    }
}

//! Answers in batches: the first arrives before the whole table was searched, and together they are the
//! answer.

use crate::counted::{Counted, Counts};
use crate::run;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Roles, Table, TableSchema, column};
use std::sync::Arc;

/// The steps, the rows of each, and the bytes of a row: 38 MB together.
const STEPS: i64 = 80;
const ROWS: i64 = 8;
const ROW_BYTES: usize = 60_000;

fn schema() -> TableSchema {
    let columns = Schema::new(vec![
        column("id", DataType::Int64, false),
        column("x", DataType::Float64, false),
        column("note", DataType::Utf8, false),
    ]);
    let names = |name: &str| vec![name.to_owned()];
    let roles = Roles { id: names("id"), sample_key: Vec::new(), index: names("x"), salt: 0 };
    TableSchema::new(columns, &roles).unwrap()
}

async fn written(store: Arc<dyn Store>) -> Table {
    let table = Table::create(store, "notes", schema()).await.unwrap();
    table.begin("a", 1, 1).await.unwrap();
    for step in 0..STEPS {
        let ids = step * ROWS..(step + 1) * ROWS;
        let id: ArrayRef = Arc::new(ids.clone().collect::<Int64Array>());
        let x: ArrayRef = Arc::new(ids.clone().map(|id| id as f64).collect::<Float64Array>());
        let note: ArrayRef =
            Arc::new(ids.map(|id| Some(format!("{id:ROW_BYTES$}"))).collect::<StringArray>());
        let rows = RecordBatch::try_new(Arc::clone(schema().columns()), vec![id, x, note]).unwrap();
        let block = BlockId { run: "a".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(block, &rows).await.unwrap();
    }
    table
}

#[test]
fn the_first_batch_comes_before_all_objects_were_opened_and_the_batches_are_the_answer() {
    run(async {
        let counts = Arc::new(Counts::default());
        let counted = Counted { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) };
        let store: Arc<dyn Store> = Arc::new(Relayed(counted));
        let written = written(Arc::clone(&store)).await;
        for is_packed in [false, true] {
            if is_packed {
                written.pack(&PackOptions::whole()).await.unwrap();
            }
            // A handle that knows no object yet.
            let table = Table::open(Arc::clone(&store), "notes").await.unwrap();
            let mut batches = table.batches(&Query::default());
            counts.take();
            let mut next = batches.next().await.unwrap();
            let (requests, bytes, _) = counts.take();
            assert!(requests < STEPS as u64 / 2, "{requests} requests for the first batch");
            assert!(bytes < 12 << 20, "{bytes} bytes for the first batch");
            let mut ids = Vec::new();
            while let Some(batch) = next {
                assert!(batch.num_rows() > 0);
                ids.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
                next = batches.next().await.unwrap();
            }
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..STEPS * ROWS));
            assert_eq!(batches.work().rows_returned, (STEPS * ROWS) as u64);
            assert!(batches.next().await.unwrap().is_none());
        }
    });
}

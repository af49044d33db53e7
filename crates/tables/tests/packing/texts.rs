//! Texts of very different lengths: even where long ones lie together, no object is larger than a store
//! accepts.

use crate::run;
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};
use atoll_memory::{MemoryStore, Options};
use atoll_store::{Limits, Store};
use atoll_tables::cube::Shape;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Roles, Table, TableSchema, column};
use std::sync::Arc;

const STEPS: u64 = 16;

/// Rows of a step; how many of them have long texts.
const ROWS: usize = 1275;
const LONG: usize = 25;

/// Bytes of a long text, and of one that exceeds the intended size of an object.
const TEXT_BYTES: usize = 8 << 10;
const LONGEST_BYTES: usize = 600 << 10;

/// The intended size of an object, and the limit of the store.
const OBJECT_BYTES: usize = 256 << 10;
const VALUE_BYTES: usize = 1 << 20;

fn schema() -> TableSchema {
    let columns = Schema::new(vec![
        column("id", DataType::Int64, false),
        column("x", DataType::Float64, false),
        column("note", DataType::Utf8, true),
    ]);
    let names = |name: &str| vec![name.to_owned()];
    let roles = Roles { id: names("id"), sample_key: Vec::new(), index: names("x"), salt: 0 };
    TableSchema::new(columns, &roles).unwrap()
}

/// Rows of a step, in which those with long texts are neighbours.
fn rows(step: u64) -> RecordBatch {
    let first = step as i64 * ROWS as i64;
    let id: ArrayRef = Arc::new((first..first + ROWS as i64).collect::<Int64Array>());
    let x: ArrayRef = Arc::new((0..ROWS).map(|row| row as f64 / ROWS as f64).collect::<Float64Array>());
    let text = |row: usize| match row {
        0 if step == 3 => Some("a".repeat(LONGEST_BYTES)),
        0..LONG => Some(format!("{row:TEXT_BYTES$}")),
        _ => (!row.is_multiple_of(3)).then(|| format!("row {row}")),
    };
    let note: ArrayRef = Arc::new((0..ROWS).map(text).collect::<StringArray>());
    RecordBatch::try_new(Arc::clone(schema().columns()), vec![id, x, note]).unwrap()
}

#[test]
fn long_texts_that_lie_together_are_packed_into_objects_that_a_store_takes() {
    run(async {
        let limits = Limits { value_bytes: VALUE_BYTES as u64, ..Limits::CONTRACT };
        let store = MemoryStore::open(Options { limits, ..Options::default() }).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let table = Table::create(Arc::clone(&store), "notes", schema()).await.unwrap();
        table.begin("a", 1, 1).await.unwrap();
        for step in 0..STEPS {
            table.append(BlockId { run: "a".into(), attempt: 1, step, rank: 0 }, &rows(step)).await.unwrap();
        }
        let before = table.query(&Query::default()).await.unwrap();
        let mut options = PackOptions::whole();
        options.shape = Shape { object_bytes: OBJECT_BYTES, ..options.shape };
        let report = table.pack(&options).await.unwrap();
        assert_eq!(report.rows, STEPS * ROWS as u64);
        // No more objects than their bytes need, and half as many again where a cube had to be divided.
        let objects = report.bytes_written.div_ceil(OBJECT_BYTES as u64);
        assert!(report.objects_after <= 2 * objects, "{report:?}");
        let table = Table::open(store, "notes").await.unwrap();
        let after = table.query(&Query::default()).await.unwrap();
        assert_eq!(after.rows, before.rows);
        assert_eq!(table.query(&Query::default().limit(500)).await.unwrap().rows, before.rows.slice(0, 500));
    });
}

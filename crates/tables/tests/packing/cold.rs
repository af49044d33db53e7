//! What a handle with cold directories opens: the objects that can answer, and nothing else.

use crate::counted::{Counted, Counts};
use crate::run;
use crate::tube::{Tube, schema};
use arrow_array::{ArrayRef, Float32Array, Int32Array, RecordBatch};
use atoll_conformance::Relayed;
use atoll_memory::MemoryStore;
use atoll_store::Store;
use atoll_tables::cube::Shape;
use atoll_tables::expression::Expression;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Table, TableSchema};
use std::sync::Arc;

/// A counting store with an empty table in it.
async fn table(schema: TableSchema) -> (Arc<dyn Store>, Arc<Counts>, Table) {
    let counts = Arc::new(Counts::default());
    let store = Relayed(Counted { inner: Arc::new(MemoryStore::new()), counts: Arc::clone(&counts) });
    let store: Arc<dyn Store> = Arc::new(store);
    let table = Table::create(Arc::clone(&store), "run", schema).await.unwrap();
    (store, counts, table)
}

async fn opened_anew(store: &Arc<dyn Store>) -> Table {
    Table::open(Arc::clone(store), "run").await.unwrap()
}

fn filter(text: &str) -> Query {
    Query::default().filter(Expression::parse(text).unwrap())
}

/// Ten rows of a run, far from the rows of any other run.
fn rows_of(schema: &TableSchema, run: usize) -> RecordBatch {
    let floats =
        |from: f32| Arc::new(Float32Array::from_iter_values((0..10).map(|at| from + at as f32 / 10.0)));
    let pids = (0..10).map(|at| (run * 10 + at) as i32);
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(Int32Array::from_iter_values(pids)), Arc::new(Int32Array::from(vec![7; 10]))];
    columns.push(floats(run as f32));
    columns.extend((0..5).map(|_| floats(0.0) as ArrayRef));
    RecordBatch::try_new(Arc::clone(schema.columns()), columns).unwrap()
}

#[test]
fn of_many_small_runs_only_those_are_opened_that_lie_in_the_box() {
    run(async {
        let (store, counts, table) = table(schema(false)).await;
        for run in 0..200 {
            let name = format!("run {run:03}");
            table.begin(&name, 1, 1).await.unwrap();
            let id = BlockId { run: name.as_str().into(), attempt: 1, step: 7, rank: 0 };
            table.append(id, &rows_of(&table.schema(), run)).await.unwrap();
        }
        for (text, rows, requests) in [
            ("x >= 17 and x < 18", 10, 1),
            ("x >= 17.5 and x < 19.5", 20, 3),
            ("x < 2 or x >= 199", 30, 3),
            ("x >= 200", 0, 0),
            ("x < 0 or step <> 7", 0, 0),
        ] {
            let anew = opened_anew(&store).await;
            counts.take();
            let answer = anew.query(&filter(text)).await.unwrap();
            let (asked, ..) = counts.take();
            assert_eq!((answer.rows.num_rows(), asked), (rows, requests), "{text}");
            assert_eq!(answer.work.requests, asked, "{text}");
        }
        // A piece whose box lies inside is counted without being opened; a piece whose box is cut is opened.
        for (text, rows, requests) in [("x < 300", 2000, 0), ("x < 150.5", 1505, 1), ("step = 7", 2000, 0)] {
            let anew = opened_anew(&store).await;
            counts.take();
            assert_eq!(anew.count(&filter(text)).await.unwrap().rows, rows, "{text}");
            assert_eq!(counts.take().0, requests, "{text}");
        }
        // Once rows were deleted, the box alone does not give the count.
        table.delete(None, None, Some("x >= 5 and x < 5.45")).await.unwrap();
        let anew = opened_anew(&store).await;
        assert_eq!(anew.count(&filter("x < 300")).await.unwrap().rows, 1995);
    });
}

#[test]
fn a_cold_handle_opens_a_few_of_the_objects_of_a_packed_table_with_one_request_each() {
    run(async {
        let (store, counts, table) = table(schema(false)).await;
        Tube::new(5, 2000, 50).write(&table).await;
        let shape = Shape { object_bytes: 64 << 10, leaf_rows: 2048, cube_rows: 512, ..Shape::default() };
        let objects = table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap().objects_after;
        assert!(objects > 40, "{objects}");
        let box_of_one = filter("x >= 1 and x < 1.3 and y < 0 and z < -5 and step >= 40 and step < 42");
        let rows = table.query(&box_of_one).await.unwrap().rows.num_rows();
        assert!(rows > 0);
        let cold = opened_anew(&store).await;
        counts.take();
        let told = cold.explain(&box_of_one).await.unwrap();
        let (requests, bytes, rounds) = counts.take();
        assert!(told.blocks_opened * 4 <= objects, "{} of {objects}", told.blocks_opened);
        assert_eq!(
            (requests, rounds),
            (told.blocks_opened, 1),
            "each directory is one request of its length"
        );
        let answer = cold.query(&box_of_one).await.unwrap();
        assert_eq!(answer.rows.num_rows(), rows);
        let (more, ..) = counts.take();
        assert!(more <= told.blocks_opened + 24, "{more}");
        // All directories together, by a query that needs each of them.
        let all = opened_anew(&store).await.explain(&Query::default()).await.unwrap();
        let (of_all, bytes_of_all, _) = counts.take();
        assert_eq!((of_all, all.blocks_opened), (objects, objects));
        assert!(bytes * 3 <= bytes_of_all, "{bytes} of {bytes_of_all}");
    });
}

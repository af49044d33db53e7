//! Readers beside the nodes: each splits the query by itself and reads its local splits; together they return
//! every row once.

use crate::contacts;
use arrow_array::{Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use atoll_cassandra::{CassandraStore, Options};
use atoll_store::{Place, Store};
use atoll_tables::cube::Shape;
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Roles, Table, TableSchema, column};
use std::collections::BTreeSet;
use std::sync::Arc;

const STEPS: i64 = 24;
const ROWS: i64 = 1000;

fn schema() -> TableSchema {
    let columns = Schema::new(vec![
        column("pid", DataType::Int64, false),
        column("step", DataType::Int64, false),
        column("x", DataType::Float64, false),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles { id: names(&["pid", "step"]), sample_key: Vec::new(), index: names(&["x"]), salt: 0 };
    TableSchema::new(columns, &roles).unwrap()
}

fn rows(step: i64) -> RecordBatch {
    let x: Float64Array =
        (0..ROWS).map(|pid| (pid * 37 % ROWS) as f64 / ROWS as f64).collect::<Vec<_>>().into();
    let pids = Int64Array::from_iter_values(0..ROWS);
    let steps = Int64Array::from_iter_values(std::iter::repeat_n(step, ROWS as usize));
    RecordBatch::try_new(Arc::clone(schema().columns()), vec![Arc::new(pids), Arc::new(steps), Arc::new(x)])
        .unwrap()
}

async fn opened(options: &Options, beside: Option<&str>) -> Arc<dyn Store> {
    let beside = beside.map(|contact| contact.rsplit_once(':').map_or(contact, |(host, _)| host));
    let options = Options { beside: beside.map(|host| host.parse().unwrap()), ..options.clone() };
    Arc::new(CassandraStore::open(options).await.unwrap())
}

async fn written(store: Arc<dyn Store>) -> Table {
    let table = Table::create(store, "run", schema()).await.unwrap();
    table.begin("run", 1, 1).await.unwrap();
    for step in 0..STEPS {
        let id = BlockId { run: "run".into(), attempt: 1, step: step as u64, rank: 0 };
        table.append(id, &rows(step)).await.unwrap();
        if step == 15 {
            let shape = Shape { cube_rows: 400, leaf_rows: 800, object_bytes: 16 << 10, ..Shape::default() };
            table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap();
        }
    }
    table
}

fn ids(rows: &RecordBatch) -> Vec<(i64, i64)> {
    let numbers = |place: usize| {
        let column = rows.column(place).as_any().downcast_ref::<Int64Array>().unwrap();
        column.values().to_vec()
    };
    numbers(0).into_iter().zip(numbers(1)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_beside_the_nodes_have_every_row_once() {
    let Some(contacts) = contacts() else { return };
    let namespace = fastrand::u128(..).to_be_bytes().to_vec();
    let options = Options { namespace, ..Options::of(contacts.clone(), "conformance") };
    let table = written(opened(&options, None).await).await;
    let version = table.version().await.unwrap();
    for filter in [None, Some("x < 0.3")] {
        let query = Query { as_of: Some(version), ..Query::default() };
        let query = filter.map_or(query.clone(), |text| query.filter(text.parse().unwrap()));
        let expected: BTreeSet<(i64, i64)> =
            ids(&table.query(&query).await.unwrap().rows).into_iter().collect();
        let (mut count, mut found) = (0, BTreeSet::new());
        for contact in &contacts {
            let table = Table::open(opened(&options, Some(contact)).await, "run").await.unwrap();
            let splits = table.splits(&query, 2 * contacts.len()).await.unwrap();
            let hosts: BTreeSet<String> = splits.iter().map(|split| format!("{:?}", split.place)).collect();
            assert_eq!(hosts.len(), contacts.len(), "each node has some: {hosts:?}");
            let mut mine = 0;
            for split in splits.iter().filter(|split| split.place == Place::Here) {
                let rows = ids(&table.query(&split.query).await.unwrap().rows);
                mine += rows.len();
                found.extend(rows);
            }
            println!("beside {contact}: {mine} rows of {}, in {} splits", expected.len(), splits.len());
            assert!(mine > 0);
            count += mine;
        }
        assert_eq!((count, &found), (expected.len(), &expected));
    }
}

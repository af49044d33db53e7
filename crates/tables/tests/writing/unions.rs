//! Several tables as one: a handle of a union that knows less than other handles do.

use super::rows::{block, rows, schema};
use arrow_array::Array;
use arrow_schema::{DataType, Field, Metadata};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, ErrorKind, PartitionQuery, Read, ScanEntry, ScanRequest, Store, StoreStream, WriteOptions,
};
use atoll_tables::estimate::{EstimateRequest, Subject, Tolerance};
use atoll_tables::expression::{Column, Expression};
use atoll_tables::{PackOptions, Query, Readable, Table, TableError, Union};
use futures::{FutureExt, StreamExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Two tables of one step each.
async fn two() -> Vec<Table> {
    let mut tables = Vec::new();
    for name in ["one", "two"] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let table = Table::create(store, name, schema()).await.unwrap();
        table.begin("a", 1, 1).await.unwrap();
        table.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
        tables.push(table);
    }
    tables
}

#[tokio::test(start_paused = true)]
async fn a_union_that_has_not_seen_the_current_version_waits_for_the_next_one_all_the_same() {
    let tables = two().await;
    let now = Union::new(tables.clone()).unwrap().version().await.unwrap();
    let hour = Duration::from_secs(3600);
    let follow = |since| {
        let union = Union::new(tables.clone()).unwrap();
        async move { union.follow(since, hour).await }
    };
    assert_eq!(follow(now).await.unwrap(), now, "nothing came");
    let mut waiting = std::pin::pin!(follow(now));
    assert!(waiting.as_mut().now_or_never().is_none(), "it did not wait");
    tables[1].append(block("a", 1, 1, 0), &rows(1, 0, 10)).await.unwrap();
    let next = waiting.await.unwrap();
    assert_eq!(next.0, now.0 + 1);
    assert_eq!(follow(now).await.unwrap(), next, "at once");
    let ahead = follow(atoll_tables::protocol::Version(next.0 + 1)).await.unwrap_err();
    let of_table = tables[0].follow(next, hour).await.unwrap_err();
    assert_eq!(
        (ahead.kind(), of_table.kind()),
        (ErrorKind::InvalidInput, ErrorKind::InvalidInput),
        "{ahead}"
    );
}

#[tokio::test]
async fn times_in_one_unit_or_in_none_go_together_and_those_in_two_units_do_not() {
    let timed = async |unit: Option<&str>| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let schema = match unit {
            Some(unit) => schema().with_time_unit(unit).unwrap(),
            None => schema(),
        };
        Table::create(Arc::clone(&store), "t", schema).await.unwrap();
        Table::open(store, "t").await.unwrap()
    };
    let (none, ps, fs) = (timed(None).await, timed(Some("ps")).await, timed(Some("fs")).await);
    assert_eq!((none.schema().time_unit(), ps.schema().time_unit()), (None, Some("ps")));
    let union = Union::new(vec![none.clone(), ps.clone(), ps.clone()]).unwrap();
    assert_eq!(union.schema().time_unit(), Some("ps"));
    let error = Union::new(vec![ps.clone(), none, fs]).unwrap_err();
    assert!(matches!(error, TableError::UnlikeTimes { place: 3, .. }), "{error}");
    let added = ps.add_column(Field::new("charge", DataType::Float32, true)).await.unwrap();
    assert_eq!(ps.schema_now().await.unwrap().time_unit(), Some("ps"), "version {added}");
}

fn columns(rows: &arrow_array::RecordBatch) -> Vec<String> {
    rows.schema().fields().iter().map(|field| field.name().clone()).collect()
}

#[tokio::test]
async fn a_union_has_the_columns_that_were_added_since_it_was_made() {
    let tables = two().await;
    let union = Union::new(tables.clone()).unwrap();
    let before = union.version().await.unwrap();
    tables[1].add_column(Field::new("mass", DataType::Float64, true)).await.unwrap();
    let now = union.query(&Query::default()).await.unwrap().rows;
    assert_eq!(columns(&now), ["pid", "step", "x", "mass"]);
    assert_eq!((now.num_rows(), now.column(3).null_count()), (20, 20));
    assert_eq!(union.schema().columns().fields().len(), 4);
    let refined = union.refine(&Query::default().select(["mass"])).next().await.unwrap().unwrap();
    assert_eq!(columns(&refined.rows), ["mass"]);
    let without = Query::default().filter(Expression::parse("mass is null and x < 0.5").unwrap());
    assert_eq!(union.count(&without).await.unwrap().rows, 10);
    assert!(union.explain(&without).await.is_ok());
    // As in a single table, an older version has the columns that it had.
    let then = union.query(&Query::default().as_of(before)).await.unwrap().rows;
    assert_eq!(columns(&then), ["pid", "step", "x"]);
    assert!(matches!(union.count(&without.as_of(before)).await, Err(TableError::Filter(_))));
}

#[tokio::test]
async fn a_column_that_became_unlike_is_told_by_whatever_is_asked_of_a_union() {
    let tables = two().await;
    let union = Union::new(tables.clone()).unwrap();
    let before = union.version().await.unwrap();
    tables[0].add_column(Field::new("mass", DataType::Float32, true)).await.unwrap();
    assert_eq!(union.query(&Query::default()).await.unwrap().rows.num_columns(), 4);
    tables[1].add_column(Field::new("mass", DataType::Float64, true)).await.unwrap();
    let is_unlike = |error: TableError| match error {
        TableError::UnlikeColumn { place, column, .. } => assert_eq!((place, &*column), (2, "mass")),
        other => panic!("{other}"),
    };
    is_unlike(union.query(&Query::default()).await.unwrap_err());
    is_unlike(union.count(&Query::default()).await.unwrap_err());
    is_unlike(union.explain(&Query::default()).await.unwrap_err());
    is_unlike(union.refine(&Query::default()).next().await.unwrap_err());
    let mean = EstimateRequest::new(Subject::Mean(Column::named("x")));
    let both = Readable::Many(union);
    is_unlike(both.estimate(&Query::default(), &mean).await.unwrap_err());
    // An earlier version answers as before.
    assert_eq!(both.estimate(&Query::default().as_of(before), &mean).await.unwrap().rows_read, 20);
}

/// A column with these notes.
fn mass(notes: &[(&str, &str)]) -> Field {
    let notes: Metadata = notes.iter().copied().collect();
    Field::new("mass", DataType::Float64, true).with_metadata(notes)
}

#[tokio::test]
async fn of_what_is_noted_on_a_column_only_two_units_keep_tables_apart() {
    let tables = two().await;
    let (build, description) = (("seen by", "build 7"), ("description", "of an ion"));
    tables[0].add_column(mass(&[build, description])).await.unwrap();
    tables[1].add_column(mass(&[("seen by", "build 8"), ("unit", "u")])).await.unwrap();
    let union = Union::new(tables.clone()).unwrap();
    let expected = mass(&[build, description, ("unit", "u")]);
    assert_eq!(union.schema().columns().field(3), &expected);
    assert_eq!(union.query(&Query::default()).await.unwrap().rows.schema().field(3), &expected);
    // All batches have one schema, whichever table they come from.
    for query in [Query::default(), Query::default().select(["mass"])] {
        let mut scanning = Readable::Many(union.clone()).batches(&query);
        let mut rows = 0;
        while let Some(batch) = scanning.next().await.unwrap() {
            assert_eq!(batch.schema().field_with_name("mass").unwrap(), &expected);
            rows += batch.num_rows();
        }
        assert_eq!(rows, 20);
    }
    // A table without a unit does not make two others alike.
    let other = two().await.swap_remove(0);
    other.add_column(mass(&[("unit", "g")])).await.unwrap();
    let [none, unit] = [0, 1].map(|place: usize| tables[place].clone());
    for tables in [[none.clone(), unit.clone(), other.clone()], [other, none, unit]] {
        match Union::new(tables.to_vec()).unwrap_err() {
            TableError::UnlikeColumn { place: 3, problem, .. } => {
                assert!(problem.contains("unit u") && problem.contains("unit g"), "{problem}");
                assert!(!problem.contains("build"), "{problem}");
            }
            unexpected => panic!("{unexpected}"),
        }
    }
}

#[tokio::test]
async fn a_version_that_a_union_cannot_read_is_told_by_the_number_that_was_asked_for() {
    let tables = two().await;
    let union = Union::new(tables.clone()).unwrap();
    let seen = union.version().await.unwrap();
    let fresh = Union::new(tables.clone()).unwrap();
    let query = Query::default().as_of(seen);
    let refused = fresh.query(&query).await.unwrap_err();
    let expected =
        format!("this handle of 2 tables \"one\" has not seen a version {} of them lately", seen.0);
    assert_eq!((refused.to_string(), refused.kind()), (expected, ErrorKind::NotFound));
    assert!(
        refused.hint().unwrap().contains("ask this handle for its current version"),
        "{:?}",
        refused.hint()
    );
    // A split records the versions of the tables.
    let split = union.splits(&Query::default(), 1).await.unwrap().remove(0);
    assert_eq!(fresh.count(&split.query).await.unwrap().rows, 20);
    // The versions of the single tables differ greatly from their sum.
    for step in 1..6 {
        tables[1].append(block("a", 1, step, 0), &rows(step, 0, 10)).await.unwrap();
    }
    tables[1].delete(None, Some(0..3), None).await.unwrap();
    tables[1].vacuum().await.unwrap();
    let is_told = |error: TableError| {
        assert!(
            error.to_string().starts_with(&format!("version {} of 2 tables \"one\" is gone", seen.0)),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::NotFound);
    };
    is_told(union.query(&query).await.unwrap_err());
    is_told(union.count(&query).await.unwrap_err());
    is_told(union.explain(&query).await.unwrap_err());
    is_told(union.refine(&query).next().await.unwrap_err());
    is_told(fresh.count(&split.query).await.unwrap_err());
    let both = Readable::Many(union.clone());
    is_told(both.batches(&query).next().await.unwrap_err());
    let mean = EstimateRequest::new(Subject::Mean(Column::named("x")));
    is_told(both.estimate(&query, &mean).await.unwrap_err());
    // The current version is found nevertheless.
    assert_eq!(union.query(&Query::default()).await.unwrap().rows.num_rows(), 40);
}

#[tokio::test]
async fn a_table_whose_turn_comes_late_is_read_as_it_was_when_the_first_one_began() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let open = || async { Table::open(Arc::clone(&store), "late").await.unwrap() };
    let writer = Table::create(Arc::clone(&store), "late", schema()).await.unwrap();
    writer.begin("a", 1, 1).await.unwrap();
    writer.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
    let first = two().await.swap_remove(0);
    let both = Readable::Many(Union::new(vec![first, open().await]).unwrap());
    let mut scanning = both.batches(&Query::default());
    assert_eq!(scanning.next().await.unwrap().unwrap().num_rows(), 10);
    for step in 1..300 {
        writer.append(block("a", 1, step, 0), &rows(step, 0, 1)).await.unwrap();
    }
    writer.close().await.unwrap();
    let report = open().await.vacuum().await.unwrap();
    assert!(report.history > 0, "{report:?}");
    assert_eq!(scanning.next().await.unwrap().unwrap().num_rows(), 10, "its objects are all there");
    assert!(scanning.next().await.unwrap().is_none());
}

#[tokio::test]
async fn what_a_union_is_made_of_is_what_its_tables_are_made_of() {
    let tables = two().await;
    let union = Union::new(tables.clone()).unwrap();
    tables[1].begin("b", 1, 1).await.unwrap();
    tables[1].append(block("b", 1, 0, 0), &rows(0, 50, 7)).await.unwrap();
    tables[0].pack(&PackOptions::whole()).await.unwrap();
    tables[1].add_column(Field::new("mass", DataType::Float64, true)).await.unwrap();
    let info = Readable::Many(union.clone()).info().await.unwrap();
    assert_eq!((&*info.name, info.version), ("one", union.version().await.unwrap()));
    assert_eq!((info.rows, info.blocks, info.cubes, info.runs, info.steps), (27, 2, 1, 3, 3));
    let of_each = [tables[0].info().await.unwrap(), tables[1].info().await.unwrap()];
    assert_eq!(info.bytes, of_each.iter().map(|each| each.bytes).sum::<u64>());
    assert_eq!(info.schema.columns().fields().len(), 4);
}

/// Copies all cells of a store, as a backup does; each list takes one page.
pub async fn copied(from: &Arc<dyn Store>) -> Arc<dyn Store> {
    let to: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for partition in from.partition_keys(PartitionQuery::prefix("")).await.unwrap().partitions {
        let page = from.scan(ScanRequest::all(partition.clone())).await.unwrap();
        assert!(page.resume.is_none());
        let put = |batch: Batch, entry: ScanEntry| batch.put(entry.sort, entry.value);
        let batch = page.entries.into_iter().fold(Batch::on(partition), put);
        to.write(batch, WriteOptions::default()).await.unwrap();
    }
    to
}

/// Expects every question about a union to be refused because two of its tables have rows in common.
pub async fn is_refused(tables: &[&Table], places: (usize, usize)) {
    let union = Union::new(tables.iter().copied().cloned().collect()).unwrap();
    let (query, mean) = (Query::default(), EstimateRequest::new(Subject::Mean(Column::named("x"))));
    let both = Readable::Many(union.clone());
    for outcome in [
        union.query(&query).await.map(drop),
        union.count(&query).await.map(drop),
        union.count(&query.clone().first(3)).await.map(drop),
        union.explain(&query).await.map(drop),
        union.info().await.map(drop),
        union.splits(&query, 2).await.map(drop),
        union.refine(&query).next().await.map(drop),
        both.batches(&query).next().await.map(drop),
        both.estimate(&query, &mean).await.map(drop),
    ] {
        let refused = outcome.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
        assert!(refused.hint().unwrap().contains("open each store once"));
        match refused {
            TableError::SameTable { first, second } => assert_eq!((first, second), places),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_table_under_two_names_or_beside_its_copy_is_refused_and_copies_of_an_empty_one_are_not() {
    let template: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = Table::create(Arc::clone(&template), "run", schema()).await.unwrap();
    let mut stores = vec![copied(&template).await, template];
    let second = Table::open(Arc::clone(&stores[0]), "run").await.unwrap();
    assert_eq!(first.identity(), second.identity());
    for (table, from) in [(&first, 0), (&second, 100)] {
        table.begin("a", 1, 1).await.unwrap();
        table.append(block("a", 1, 0, 0), &rows(0, from, 10)).await.unwrap();
    }
    let union = Union::new(vec![first.clone(), second.clone()]).unwrap();
    assert_eq!(union.count(&Query::default()).await.unwrap().rows, 20);
    // Another handle of the same store, and a copy that has rows of its own besides.
    let again = Table::open(Arc::clone(&stores[1]), "run").await.unwrap();
    is_refused(&[&first, &second, &again], (1, 3)).await;
    stores.push(copied(&stores[0]).await);
    let backup = Table::open(Arc::clone(&stores[2]), "run").await.unwrap();
    backup.append(block("a", 1, 1, 0), &rows(1, 200, 10)).await.unwrap();
    is_refused(&[&first, &second, &backup], (2, 3)).await;
    // Without the rows that both have, they are two tables.
    backup.delete(Some("a"), Some(0..1), None).await.unwrap();
    let union = Union::new(vec![first, second, backup]).unwrap();
    assert_eq!(union.count(&Query::default()).await.unwrap().rows, 30);
}

#[tokio::test]
async fn a_table_beside_its_copy_is_refused_after_either_was_packed_and_after_both_were() {
    let original: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = Table::create(Arc::clone(&original), "run", schema()).await.unwrap();
    table.begin("a", 1, 1).await.unwrap();
    for step in 0..2 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 10)).await.unwrap();
    }
    let backup = Table::open(copied(&original).await, "run").await.unwrap();
    for packed in [&backup, &table] {
        assert!(packed.pack(&PackOptions::whole()).await.unwrap().objects_before > 0);
        is_refused(&[&table, &backup], (1, 2)).await;
    }
    // A step that both still have is enough, and without one they are two tables.
    backup.delete(Some("a"), Some(0..1), None).await.unwrap();
    is_refused(&[&table, &backup], (1, 2)).await;
    backup.delete(Some("a"), Some(1..2), None).await.unwrap();
    let union = Union::new(vec![table, backup]).unwrap();
    assert_eq!(union.count(&Query::default()).await.unwrap().rows, 20);
}

/// A store that makes versions of its table, and asks a union for each, once objects are to be read.
struct Busy {
    inner: Arc<dyn Store>,
    asks: Mutex<Option<Union>>,
}

impl Relay for Busy {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let met = async move {
            let asks = self.asks.lock().unwrap().take();
            if let Some(union) = asks {
                let table = Table::open(Arc::clone(&self.inner), "one").await.unwrap();
                for step in 1..300 {
                    table.append(block("a", 1, step, 0), &rows(step, 0, 1)).await.unwrap();
                    union.version().await.unwrap();
                }
            }
            self.inner.get_many(reads)
        };
        futures::stream::once(met).flatten().boxed()
    }
}

#[tokio::test]
async fn numbers_that_are_asked_together_are_of_one_version_however_many_others_ask_for_newer_ones() {
    let (inner, tables): (Arc<dyn Store>, _) = (Arc::new(MemoryStore::new()), two().await);
    let busy = Arc::new(Relayed(Busy { inner: inner.clone(), asks: Mutex::new(None) }));
    let writer = Table::create(inner, "one", schema()).await.unwrap();
    writer.begin("a", 1, 1).await.unwrap();
    writer.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
    let slow = Table::open(busy.clone(), "one").await.unwrap();
    let union = Union::new(vec![slow, tables[1].clone()]).unwrap();
    let before = union.version().await.unwrap();
    *busy.0.asks.lock().unwrap() = Some(union.clone());
    let x = || Column::named("x");
    let requests = [
        EstimateRequest::new(Subject::Quantile(x(), 0.5)),
        EstimateRequest::new(Subject::Mean(x())).within(Tolerance::Relative(0.01), None),
    ];
    let found = Readable::Many(union.clone()).estimate_all(&Query::default(), &requests).await.unwrap();
    assert!(busy.0.asks.lock().unwrap().is_none(), "no object was read");
    assert!(found.iter().all(|found| found.version == before), "{found:?}");
    // Nobody asks for it any more.
    writer.append(block("a", 1, 300, 0), &rows(300, 0, 1)).await.unwrap();
    union.version().await.unwrap();
    assert!(union.query(&Query::default().as_of(before)).await.is_err());
}

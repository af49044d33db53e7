//! Copies of a table in another store: they give the same answers, none is incomplete, and an interrupted
//! copy is finished or removed.

use super::rows::{block, create, open, rows, seen, steps_seen};
use arrow_schema::{DataType, Field};
use atoll_conformance::{Relay, Relayed};
use atoll_errors::ErrorKind;
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, Cell, PartitionQuery, ReadOptions, Store, StoreError, StoreFuture, WriteOptions, Written,
};
use atoll_tables::cube::Shape;
use atoll_tables::protocol::Version;
use atoll_tables::{AttributesOf, CopyProgress, CopyReport, PackOptions, Query, Table, TableError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

async fn copy(table: &Table, store: &Arc<dyn Store>) -> Result<CopyReport, TableError> {
    table.copy_to(store, "run", None, &mut |_| {}).await
}

/// Two runs, partly packed, with deleted rows, an added column, times, attributes, and an arriving step.
async fn some_table(store: &Arc<dyn Store>) -> Table {
    let table = create(store).await;
    table.begin("a", 1, 1).await.unwrap();
    table.begin("b", 3, 2).await.unwrap();
    for step in 0..40 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 200)).await.unwrap();
    }
    let shape = Shape { cube_rows: 100, leaf_rows: 200, object_bytes: 4 << 10, ..Shape::default() };
    table.pack(&PackOptions { shape, ..PackOptions::whole() }).await.unwrap();
    for rank in 0..2 {
        let rows = rows(7, i64::from(rank) * 1000, 50);
        table.append_at(block("b", 3, 7, rank), Some(0.5), &rows).await.unwrap();
    }
    table.append(block("b", 3, 8, 0), &rows(8, 0, 10)).await.unwrap();
    table.delete(None, None, Some("x > 0.75")).await.unwrap();
    table.delete(Some("a"), Some(3..5), None).await.unwrap();
    table.add_column(Field::new("charge", DataType::Float32, true)).await.unwrap();
    let deck = [("deck".to_owned(), Some("tube.in".into()))].into();
    table.note(AttributesOf::Run("a"), &deck).await.unwrap();
    table.note(AttributesOf::Step("a", 6), &deck).await.unwrap();
    table
}

async fn assert_same(left: &Table, right: &Table) {
    assert_eq!(left.version().await.unwrap(), right.version().await.unwrap());
    assert_eq!(left.steps(None).await.unwrap(), right.steps(None).await.unwrap());
    assert_eq!(left.runs().await.unwrap(), right.runs().await.unwrap());
    for of in [AttributesOf::Table, AttributesOf::Run("a"), AttributesOf::Step("a", 6)] {
        assert_eq!(left.attributes(of).await.unwrap(), right.attributes(of).await.unwrap());
    }
    assert_same_rows(left, right).await;
}

async fn assert_same_rows(left: &Table, right: &Table) {
    for query in [Query::default(), Query::default().sample(0.1).unwrap(), Query::default().first(17)] {
        let answers = (left.query(&query).await.unwrap(), right.query(&query).await.unwrap());
        assert_eq!(answers.0.rows, answers.1.rows);
        assert_eq!(answers.0.weights, answers.1.weights);
    }
}

#[tokio::test]
async fn a_copy_answers_as_what_it_is_a_copy_of_and_goes_its_own_way() {
    let (here, there) = (memory(), memory());
    let table = some_table(&here).await;
    let mut told = Vec::new();
    let report = table.copy_to(&there, "run", None, &mut |progress| told.push(progress)).await.unwrap();
    assert_eq!(report.version, table.version().await.unwrap());
    assert_eq!((report.rows, report.copied), (table.info().await.unwrap().rows, report.objects));
    assert_eq!(told.len() as u64, report.objects + 1);
    assert_eq!(told.last().map(|CopyProgress { bytes, .. }| *bytes), Some(report.bytes));
    let copied = open(&there).await;
    assert_same(&table, &copied).await;
    // The copy contains neither arriving steps nor earlier versions.
    assert_eq!(
        there.partition_keys(PartitionQuery::prefix("")).await.unwrap().partitions.len() as u64,
        report.objects + 3
    );
    let error = copied.query(&Query { as_of: Some(Version(3)), ..Query::default() }).await.unwrap_err();
    assert!(matches!(error, TableError::VersionGone { .. }), "{error}");
    copied.append(block("b", 3, 8, 1), &rows(8, 0, 10)).await.unwrap();
    assert!(copied.steps(Some("b")).await.unwrap().iter().all(|step| step.step != 8));
    // Original and copy continue independently, and are packed and vacuumed independently.
    Table::drop_table(&*here, "run").await.unwrap();
    copied.begin("a", 2, 1).await.unwrap();
    for step in 40..80 {
        copied.append(block("a", 2, step, 0), &rows(step, 0, 20)).await.unwrap();
    }
    let before = seen(&copied).await;
    copied.pack(&PackOptions::whole()).await.unwrap();
    copied.vacuum().await.unwrap();
    assert_eq!(seen(&open(&there).await).await, before);
}

#[tokio::test]
async fn a_table_is_copied_within_its_store_and_as_it_was() {
    let store = memory();
    let table = create(&store).await;
    let empty = table.copy_to(&store, "empty", None, &mut |_| {}).await.unwrap();
    assert_eq!((empty.version, empty.rows, empty.objects), (Version::EMPTY, 0, 0));
    let empty = Table::open(Arc::clone(&store), "empty").await.unwrap();
    empty.begin("a", 1, 1).await.unwrap();
    table.begin("a", 1, 1).await.unwrap();
    let version = table.append(block("a", 1, 1, 0), &rows(1, 0, 20)).await.unwrap();
    table.append(block("a", 1, 2, 0), &rows(2, 0, 20)).await.unwrap();
    table.copy_to(&store, "before", Some(version), &mut |_| {}).await.unwrap();
    let before = Table::open(Arc::clone(&store), "before").await.unwrap();
    assert_eq!(steps_seen(&before).await, [(1, 20)]);
    assert_eq!(before.version().await.unwrap(), version);
    let taken = table.copy_to(&store, "before", None, &mut |_| {}).await.unwrap_err();
    assert!(matches!(&taken, TableError::Taken { name } if name == "before"), "{taken}");
    assert_eq!(taken.kind(), ErrorKind::Conflict);
    let ahead = table.copy_to(&store, "later", Some(Version(99)), &mut |_| {}).await.unwrap_err();
    assert!(matches!(ahead, TableError::Edit(_)), "{ahead}");
    let nothing = Table::open(Arc::clone(&store), "later").await.unwrap_err();
    assert!(matches!(nothing, TableError::NotFound { .. }), "{nothing}");
    assert_eq!(Table::list(&*store).await.unwrap().len(), 3);
}

/// A store that runs out of space after a number of writes.
struct Full {
    store: Arc<dyn Store>,
    left: AtomicUsize,
}

impl Full {
    fn after(store: &Arc<dyn Store>, writes: usize) -> Arc<dyn Store> {
        Arc::new(Relayed(Self { store: Arc::clone(store), left: AtomicUsize::new(writes) }))
    }
}

impl Relay for Full {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        if self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            let error = StoreError::OutOfSpace { place: "the disk".to_owned(), source: None };
            return Box::pin(async { Err(error) });
        }
        self.store.write(batch, options)
    }
}

#[tokio::test]
async fn a_copy_that_is_broken_off_anywhere_is_no_table_until_it_is_finished() {
    let (here, there) = (memory(), memory());
    let table = some_table(&here).await;
    let mut writes = 0;
    // One more write each time: what exists is not written again, except for attributes and the end.
    while let Err(error) = copy(&table, &Full::after(&there, writes)).await {
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        writes += 1;
        if writes == 1 {
            assert!(Table::list(&*there).await.unwrap().is_empty());
            continue;
        }
        let opened = Table::open(Arc::clone(&there), "run").await.unwrap_err();
        assert!(matches!(opened, TableError::Arriving { .. }), "{opened}");
        let made =
            Table::create(Arc::clone(&there), "run", table.schema().as_ref().clone()).await.unwrap_err();
        assert!(matches!(made, TableError::Arriving { .. }), "{made}");
        assert!(Table::list(&*there).await.unwrap().is_empty());
    }
    assert!(writes > 5, "{writes}");
    assert_same(&table, &open(&there).await).await;
}

#[tokio::test]
async fn a_copy_goes_on_with_what_there_is_by_then_and_copies_no_object_twice() {
    let (here, there) = (memory(), memory());
    let table = some_table(&here).await;
    copy(&table, &Full::after(&there, 10)).await.unwrap_err();
    for step in 40..45 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 20)).await.unwrap();
    }
    let deck = [("deck".to_owned(), Some("other.in".into()))].into();
    table.note(AttributesOf::Run("a"), &deck).await.unwrap();
    let report = copy(&table, &there).await.unwrap();
    assert!(report.copied < report.objects && report.copied > 5, "{report:?}");
    assert_same(&table, &open(&there).await).await;
}

/// A store that does something once, right before a write to a partition whose name has this ending.
struct Before<F> {
    store: Arc<dyn Store>,
    end: &'static [u8],
    left: AtomicUsize,
    action: F,
}

impl<F: Fn(Arc<dyn Store>) -> StoreFuture<'static, ()> + Send + Sync + 'static> Relay for Before<F> {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let acts = batch.partition.ends_with(self.end) && self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        Box::pin(async move {
            if acts {
                (self.action)(Arc::clone(&self.store)).await?;
            }
            self.store.write(batch, options).await
        })
    }
}

/// A store that does `action` shortly before a copy ends: before its last write, which makes it a table
/// (`left` = 0), or before the write of its manifest (`left` = 1).
fn before_the_end(
    store: &Arc<dyn Store>,
    left: usize,
    action: impl Fn(Arc<dyn Store>) -> StoreFuture<'static, ()> + Send + Sync + 'static,
) -> Arc<dyn Store> {
    // The first write to the registry begins the copy.
    let (end, left): (&[u8], usize) = if left == 0 { (b".tables", 2) } else { (b"/m", 1) };
    Arc::new(Relayed(Before { store: Arc::clone(store), end, left: AtomicUsize::new(left), action }))
}

#[tokio::test]
async fn a_copy_that_is_dropped_on_its_way_becomes_no_table_and_leaves_no_rows() {
    let (here, there) = (memory(), memory());
    let table = some_table(&here).await;
    let drops = before_the_end(&there, 0, |store| {
        Box::pin(async move {
            Table::drop_table(&*store, "run").await.unwrap();
            Ok(())
        })
    });
    let error = copy(&table, &drops).await.unwrap_err();
    assert!(matches!(error, TableError::NotFound { .. }), "{error}");
    // The records that it was dropped remain, in its manifest and in the list of dropped tables.
    let left = there.partition_keys(PartitionQuery::prefix("")).await.unwrap().partitions;
    let is_record = |name: &[u8]| name.ends_with(b"/m") || name == b"\0atoll.dropped";
    assert!(left.iter().all(|name| is_record(name)), "{left:?}");
    // Another copy can be made.
    copy(&table, &there).await.unwrap();
    assert_same(&table, &open(&there).await).await;
}

#[tokio::test]
async fn of_two_copies_at_once_the_first_to_write_its_manifest_counts() {
    for (left, outer_is_earlier) in [(0, false), (0, true), (1, false), (1, true)] {
        let (here, there) = (memory(), memory());
        let table = some_table(&here).await;
        let earlier = table.version().await.unwrap();
        for step in 40..45 {
            table.append(block("a", 1, step, 0), &rows(step, 0, 20)).await.unwrap();
        }
        let (mut outer, mut inner) = (None, Some(earlier));
        if outer_is_earlier {
            std::mem::swap(&mut outer, &mut inner);
        }
        let (other, at_end) = (table.clone(), Arc::clone(&there));
        let races = before_the_end(&there, left, move |_| {
            let (other, there) = (other.clone(), Arc::clone(&at_end));
            Box::pin(async move {
                match other.copy_to(&there, "run", inner, &mut |_| {}).await {
                    // An arriving copy of another version than the one asked for is not continued.
                    Err(TableError::Arriving { .. }) => assert!(left == 0 && inner.is_some()),
                    ended => drop(ended.unwrap()),
                }
                if left == 1 {
                    let copied = open(&there).await;
                    copied.begin("c", 1, 1).await.unwrap();
                    copied.append(block("c", 1, 1, 0), &rows(1, 0, 30)).await.unwrap();
                }
                Ok(())
            })
        });
        let ended = table.copy_to(&races, "run", outer, &mut |_| {}).await;
        let copied = open(&there).await;
        match ended {
            Ok(report) => assert_eq!((left, report.version), (0, copied.version().await.unwrap())),
            Err(error) => {
                assert!(left == 1 && matches!(error, TableError::Arriving { .. } | TableError::Taken { .. }));
                assert_eq!(copied.steps(Some("c")).await.unwrap().len(), 1, "written behind the copy");
            }
        }
    }
}

/// A store from which a vacuum removes what is about to be copied.
struct Vacuumed {
    store: Arc<dyn Store>,
    left: AtomicUsize,
}

impl Relay for Vacuumed {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            let is_object = cell.partition.windows(3).any(|part| part == b"/o/");
            if is_object && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                let table = open(&self.store).await;
                table.pack(&PackOptions::whole()).await.unwrap();
                table.vacuum().await.unwrap();
            }
            self.store.get(cell, options).await
        })
    }
}

#[tokio::test]
async fn a_vacuum_beside_a_copy_makes_it_begin_with_the_version_that_is_current_then() {
    let (here, there) = (memory(), memory());
    let before = some_table(&here).await.version().await.unwrap();
    let vacuumed: Arc<dyn Store> =
        Arc::new(Relayed(Vacuumed { store: Arc::clone(&here), left: AtomicUsize::new(3) }));
    let report = copy(&open(&vacuumed).await, &there).await.unwrap();
    assert!(report.version > before, "{report:?}");
    assert_same(&open(&here).await, &open(&there).await).await;
    // Copied objects of the earlier version belong to no version, and are removed.
    assert!(open(&there).await.vacuum().await.unwrap().orphans > 0);
    assert_same_rows(&open(&here).await, &open(&there).await).await;
    let vacuumed: Arc<dyn Store> =
        Arc::new(Relayed(Vacuumed { store: Arc::clone(&here), left: AtomicUsize::new(1) }));
    let asked = open(&here).await.version().await.unwrap();
    open(&here).await.append(block("a", 1, 90, 0), &rows(90, 0, 20)).await.unwrap();
    let error = open(&vacuumed).await.copy_to(&there, "other", Some(asked), &mut |_| {}).await.unwrap_err();
    assert!(matches!(error, TableError::VersionGone { .. }), "{error}");
}

//! Objects that no version will ever name, because a load failed or the table was dropped: they do not stay.

use super::door::is_object;
use super::load::{objects, options, step, steps};
use super::rows::{block, create, open, rows, schema, steps_seen};
use atoll_conformance::{Relay, Relayed};
use atoll_errors::ErrorKind;
use atoll_memory::{MemoryStore, Options};
use atoll_store::clock::ManualClock;
use atoll_store::{
    Batch, Cell, Mutation, Outcome, PartitionQuery, Store, StoreError, StoreFuture, Timestamp, WriteOptions,
    Written,
};
use atoll_tables::cube::Shape;
use atoll_tables::{PackOptions, Table};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that creates one object, the first, and says each time that the outcome is unknown.
struct Doubtful {
    inner: Arc<dyn Store>,
    object: Mutex<Option<Vec<u8>>>,
}

fn puts_object(batch: &Batch) -> bool {
    is_object(&batch.partition) && batch.mutations.iter().any(|it| matches!(it, Mutation::Put(..)))
}

impl Relay for Doubtful {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let is_first = puts_object(&batch) && {
            let mut object = self.object.lock().unwrap();
            *object.get_or_insert_with(|| batch.partition.clone()) == batch.partition
        };
        Box::pin(async move {
            let written = self.inner.write(batch, options).await;
            if is_first {
                let reason = "it was planned so".to_owned();
                return Err(StoreError::Unknown { what: "a write", reason, source: None });
            }
            written
        })
    }
}

#[tokio::test]
async fn a_block_in_doubt_does_not_stay_if_its_load_fails() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&inner).await;
    table.begin("a", 1, 1).await.unwrap();
    let store = Doubtful { inner: Arc::clone(&inner), object: Mutex::new(None) };
    let store: Arc<dyn Store> = Arc::new(Relayed(store));
    // The handle lives on, and with it its session, during which no vacuum removes anything that it wrote.
    let loader = open(&store).await;
    let before = objects(&inner).await;
    let few = PackOptions { rows_min: 100_000, ..options() };
    let failed = loader.load("a", 1, &steps(1..=4), &few).await.unwrap_err();
    assert_eq!(failed.outcome(), Outcome::Unknown, "{failed}");
    assert_eq!(objects(&inner).await, before);
    loader.load("a", 1, &steps(1..=4), &few).await.unwrap();
    assert_eq!(objects(&inner).await, before + 4);
    assert_eq!(steps_seen(&table).await.len(), 4);
}

/// A store in which the table is dropped as somebody creates an object for the n-th time.
struct Dropped {
    inner: Arc<dyn Store>,
    after: u64,
    created: AtomicU64,
}

impl Relay for Dropped {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let is_creation = puts_object(&batch);
        let created = self.created.fetch_add(u64::from(is_creation), Ordering::SeqCst) + 1;
        Box::pin(async move {
            if is_creation && created == self.after {
                Table::drop_table(&*self.inner, "run").await.unwrap();
            }
            self.inner.write(batch, options).await
        })
    }
}

#[tokio::test]
async fn whoever_loads_many_objects_soon_notices_that_the_table_was_dropped_and_leaves_none() {
    let steps: Vec<_> = (0..20).map(|number| step(number, 1000)).collect();
    let shape = Shape { cube_rows: 20, leaf_rows: 30, object_bytes: 256, ..Shape::default() };
    let options = PackOptions { shape, ..options() };
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for after in [u64::MAX, 10] {
        create(&inner).await.begin("a", 1, 1).await.unwrap();
        let store = Dropped { inner: Arc::clone(&inner), after, created: AtomicU64::new(0) };
        let store = Arc::new(Relayed(store));
        let table = open(&(Arc::clone(&store) as Arc<dyn Store>)).await;
        let loaded = table.load("a", 1, &steps, &options).await;
        let created = store.created.load(Ordering::SeqCst);
        if after == u64::MAX {
            loaded.unwrap();
            assert!(created > 600, "{created} objects are too few to tell");
            Table::drop_table(&*inner, "run").await.unwrap();
        } else {
            assert_eq!(loaded.unwrap_err().kind(), ErrorKind::NotFound);
            assert!((10..400).contains(&created), "{created} objects");
        }
        assert_eq!(left(&inner).await, (0, 1), "dropped at {after}");
    }
}

/// The objects in a store, and the partitions with records of dropped tables.
async fn left(store: &Arc<dyn Store>) -> (usize, usize) {
    let page = store.partition_keys(PartitionQuery::prefix("")).await.unwrap();
    assert!(page.resume.is_none(), "too many for one page");
    let count = |is_one: fn(&[u8]) -> bool| page.partitions.iter().filter(|name| is_one(name)).count();
    (count(is_object), count(|name| name == b"\0atoll.dropped"))
}

/// A store with a clock, a table in it, and the names of objects in this many other tables, which are dropped
/// by then.
async fn with_dropped(tables: u64) -> (Arc<dyn Store>, Arc<ManualClock>, Table, Vec<Vec<u8>>) {
    let clock = Arc::new(ManualClock::starting_at(Timestamp(1_000_000_000)));
    let memory = MemoryStore::open(Options { clock: clock.clone(), ..Options::default() }).unwrap();
    let store: Arc<dyn Store> = Arc::new(memory);
    let stays = create(&store).await;
    let mut names = Vec::new();
    for number in 0..tables {
        let name = format!("dropped {number}");
        let table = Table::create(Arc::clone(&store), &name, schema()).await.unwrap();
        table.begin("a", 1, 1).await.unwrap();
        table.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
        let listed = store.partition_keys(PartitionQuery::prefix("")).await.unwrap().partitions;
        names.extend(listed.into_iter().filter(|name| is_object(name)));
        Table::drop_table(&*store, &name).await.unwrap();
    }
    assert_eq!((names.len() as u64, left(&store).await), (tables, (0, 1)));
    (store, clock, stays, names)
}

/// Writes these objects, as processes do that have not noticed the drop and are killed before they do.
async fn write_late(store: &Arc<dyn Store>, names: &[Vec<u8>]) {
    for name in names {
        store.put(Cell::new(name, b""), b"rows", WriteOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn what_a_killed_writer_left_in_a_dropped_table_is_swept_once_its_session_has_passed() {
    for by_vacuum in [true, false] {
        let (store, clock, stays, names) = with_dropped(1).await;
        let again = Table::create(Arc::clone(&store), "again", schema()).await.unwrap();
        again.begin("a", 1, 1).await.unwrap();
        clock.advance(Duration::from_secs(3599));
        stays.vacuum().await.unwrap();
        // Its session may stand until now: had it been swept before, this would stay for ever.
        write_late(&store, &names).await;
        clock.advance(Duration::from_secs(2));
        if by_vacuum {
            stays.vacuum().await.unwrap();
            assert_eq!(left(&store).await, (0, 0), "neither the object nor the record");
        } else {
            Table::drop_table(&*store, "again").await.unwrap();
            assert_eq!(left(&store).await, (0, 1), "only the record of the last drop");
        }
        // The table that stays is as it was.
        stays.begin("a", 1, 1).await.unwrap();
    }
}

#[tokio::test]
async fn one_vacuum_sweeps_a_few_dropped_tables_and_the_next_one_the_others() {
    let (store, clock, stays, names) = with_dropped(6).await;
    write_late(&store, &names).await;
    clock.advance(Duration::from_secs(3601));
    for expected in [(2, 1), (0, 0)] {
        stays.vacuum().await.unwrap();
        assert_eq!(left(&store).await, expected);
    }
}

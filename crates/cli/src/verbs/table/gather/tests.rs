//! Tests of gathering: what is recorded of a run, and what others write meanwhile.

use super::target_run::VERSION_ATTRIBUTE;
use super::*;
use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Batch, StoreFuture, WriteOptions, Written};
use atoll_tables::protocol::BlockId;
use atoll_tables::{AttributesOf, PackOptions, Roles};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn rows_with_long_texts_are_gathered_in_parts_that_fit() {
    let text = "x".repeat(2 << 10);
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..40_000).map(|_| &text)));
    let rows = RecordBatch::try_from_iter([("text", texts)]).unwrap();
    let parts: Vec<usize> = parts(&rows, 1000).map(|part| part.num_rows()).collect();
    assert_eq!(parts.iter().sum::<usize>(), 39_000);
    assert!(parts.iter().all(|rows| rows * text.len() <= STEP_BYTES), "{parts:?}");
}

async fn table_in(store: Arc<dyn Store>) -> Table {
    let roles = Roles { id: vec!["id".into()], index: vec!["id".into()], ..Roles::default() };
    let columns = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    Table::create(store, "t", TableSchema::new(columns, &roles).unwrap()).await.unwrap()
}

/// A store with `count` rows.
async fn source_of(count: i64) -> Table {
    let source = table_in(Arc::new(MemoryStore::default())).await;
    source.begin("r", 1, 1).await.unwrap();
    let id = BlockId { run: "r".into(), attempt: 1, step: 0, rank: 0 };
    source.append(id, &rows(count)).await.unwrap();
    source
}

fn rows(count: i64) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count));
    RecordBatch::try_from_iter([("id", ids)]).unwrap()
}

#[tokio::test]
async fn of_two_that_saw_a_run_alike_one_gathers_it_and_both_mean_one_version() {
    let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
    let late = TargetRun::of(&table, &source, "one").await.unwrap();
    let id = BlockId { run: "r".into(), attempt: 1, step: 1, rank: 0 };
    source.append(id, &rows(5)).await.unwrap();
    let first = TargetRun::of(&table, &source, "one").await.unwrap();
    assert_eq!(first.version, late.version);
    let attempt = first.begin(&table).await.unwrap();
    assert!(matches!(late.begin(&table).await, Err(Failure::Run { .. })), "it has begun");
    first.append(&table, attempt, 4, &rows(4)).await.unwrap();
    assert!(matches!(late.begin(&table).await, Err(Failure::Run { .. })), "it has steps");
    let again = TargetRun::of(&table, &source, "one").await.unwrap();
    assert_eq!((again.before().unwrap(), again.version, again.whole()), (4, first.version, None));
    let taken = again.begin(&table).await.unwrap();
    assert!(first.append(&table, attempt, 8, &rows(4)).await.is_err(), "it was taken over");
    again.append(&table, taken, 10, &rows(6)).await.unwrap();
    assert_eq!(TargetRun::of(&table, &source, "one").await.unwrap().before().unwrap(), 10);
}

#[tokio::test]
async fn a_run_of_one_store_is_not_gathered_on_from_another() {
    let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
    let seen = TargetRun::of(&table, &source, "one").await.unwrap();
    // It has as many versions, and the same rows.
    let replaced = source_of(10).await;
    let other = async || TargetRun::of(&table, &replaced, "one").await.err();
    assert!(matches!(other().await, Some(Failure::Run { .. })), "noted before the first step");
    seen.begin(&table).await.unwrap();
    assert!(matches!(other().await, Some(Failure::Run { .. })), "begun");
    TargetRun::of(&table, &source, "one").await.unwrap();
    // A run that an older program began gets its store from whoever goes on with it.
    let version = [(VERSION_ATTRIBUTE.to_owned(), Some(Value::String(seen.version.to_string())))].into();
    table.note(AttributesOf::Run("two"), &version).await.unwrap();
    let seen = TargetRun::of(&table, &source, "two").await.unwrap();
    seen.begin(&table).await.unwrap();
    let told = TargetRun::of(&table, &replaced, "two").await.err();
    assert!(matches!(told, Some(Failure::Run { .. })), "{told:?}");
}

#[tokio::test]
async fn rows_that_another_writer_appends_to_a_gathered_run_are_never_taken_for_rows_of_the_store() {
    let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
    let seen = TargetRun::of(&table, &source, "one").await.unwrap();
    let attempt = seen.begin(&table).await.unwrap();
    seen.append(&table, attempt, 4, &rows(4)).await.unwrap();
    let id = BlockId { run: "one".into(), attempt, step: 8, rank: 0 };
    table.append(id, &rows(1)).await.unwrap();
    for step in [8, 6] {
        let told = seen.append(&table, attempt, step, &rows(2)).await;
        assert!(matches!(told, Err(Failure::Run { .. })), "step {step}: {told:?}");
    }
    let again = TargetRun::of(&table, &source, "one").await.unwrap();
    assert!(matches!(again.before(), Err(Failure::Run { .. })));
    table.delete(Some("one"), None, None).await.unwrap();
    assert_eq!(TargetRun::of(&table, &source, "one").await.unwrap().before().unwrap(), 0);
}

#[tokio::test]
async fn rows_of_somebody_else_that_add_up_are_no_rows_of_the_store_either() {
    let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
    let seen = TargetRun::of(&table, &source, "one").await.unwrap();
    let attempt = seen.begin(&table).await.unwrap();
    seen.append(&table, attempt, 4, &rows(4)).await.unwrap();
    assert!(is_being_gathered(&table, "one").await.unwrap());
    // A single row is the step after the last, as `append` writes it, in an attempt of its own.
    let there = TargetRun::of(&table, &source, "one").await.unwrap().there;
    let theirs = table.begin_after("one", there.as_ref(), 1).await.unwrap().unwrap();
    table.append_next(("one".into(), theirs, 0), 0, None, &rows(1)).await.unwrap();
    assert!(seen.append(&table, attempt, 10, &rows(6)).await.is_err(), "it was taken over");
    assert!(seen.close(&table, &source, 5).await.is_err(), "5 rows are there, and one of them is theirs");
    let again = TargetRun::of(&table, &source, "one").await.unwrap();
    assert!(matches!(again.before(), Err(Failure::Run { .. })), "{:?}", again.before());
}

/// Appends a row to a store, packs it, and removes its older versions.
async fn vacuum(source: &Table, step: u64) {
    let id = BlockId { run: "r".into(), attempt: 1, step, rank: 0 };
    source.append(id, &rows(1)).await.unwrap();
    source.pack(&PackOptions::whole()).await.unwrap();
    source.vacuum().await.unwrap();
}

#[tokio::test]
async fn a_run_of_a_version_that_a_vacuum_took_is_gathered_from_its_beginning() {
    let (table, source) = (table_in(Arc::new(MemoryStore::default())).await, source_of(10).await);
    let mut seen = TargetRun::of(&table, &source, "one").await.unwrap();
    let first = seen.version;
    vacuum(&source, 1).await;
    seen.columns(&source).await.unwrap();
    assert!(seen.version > first, "nothing of it is there");
    let attempt = seen.begin(&table).await.unwrap();
    assert_eq!(TargetRun::of(&table, &source, "one").await.unwrap().version, seen.version, "it is noted");
    seen.append(&table, attempt, 4, &rows(4)).await.unwrap();
    vacuum(&source, 2).await;
    let mut again = TargetRun::of(&table, &source, "one").await.unwrap();
    let told = again.columns(&source).await.unwrap_err();
    assert!(matches!(&told, Failure::Run { problem, .. } if problem.contains("vacuum")), "{told}");
    assert!(told.hint().unwrap().contains("table delete"), "{told:?}");
    // Its attributes stay as long as a snapshot may show it.
    table.create_snapshot("kept", None).await.unwrap();
    table.delete(Some("one"), None, None).await.unwrap();
    let mut anew = TargetRun::of(&table, &source, "one").await.unwrap();
    assert_eq!(anew.version, seen.version);
    anew.columns(&source).await.unwrap();
    assert_eq!(anew.version, source.version().await.unwrap());
    anew.begin(&table).await.unwrap();
}

/// Another process that records version 3 of the store right before this one records what it found.
struct Noting {
    store: Arc<MemoryStore>,
    notes: AtomicBool,
}

impl Relay for Noting {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write(&self, batch: Batch, options: WriteOptions) -> StoreFuture<'_, Written> {
        let notes = self.notes.swap(false, Ordering::SeqCst);
        Box::pin(async move {
            if notes {
                let theirs = Table::open(Arc::clone(&self.store) as Arc<dyn Store>, "t").await.unwrap();
                let version = [(VERSION_ATTRIBUTE.to_owned(), Some("3".into()))].into();
                theirs.note(AttributesOf::Run("one"), &version).await.unwrap();
            }
            self.store.write(batch, options).await
        })
    }
}

#[tokio::test]
async fn a_version_that_somebody_else_noted_first_is_the_one_that_is_gathered() {
    let store = Arc::new(MemoryStore::default());
    table_in(Arc::clone(&store) as Arc<dyn Store>).await;
    let door = Arc::new(Relayed(Noting { store, notes: AtomicBool::new(false) }));
    let table = Table::open(Arc::clone(&door) as Arc<dyn Store>, "t").await.unwrap();
    let source = source_of(10).await;
    door.notes.store(true, Ordering::SeqCst);
    let seen = TargetRun::of(&table, &source, "one").await.unwrap();
    assert!(!door.notes.load(Ordering::SeqCst), "nobody noted");
    assert_eq!(seen.version, Version(3));
    assert_eq!(table.run_attributes("one").await.unwrap()[VERSION_ATTRIBUTE], "3");
}

//! Texts that a later write has in its condition: one that would be too long for that is refused before it is
//! written, so a table can always be dropped, and a copy of it finished.

use super::rows::{block, create, open, rows};
use arrow_schema::{DataType, Field, Schema};
use atoll_errors::ErrorKind;
use atoll_memory::MemoryStore;
use atoll_store::{Cell, PartitionQuery, ReadOptions, Store, StoreError, WriteOptions};
use atoll_tables::{Attributes, Roles, Table, TableError, TableSchema, column};
use std::collections::HashMap;
use std::sync::Arc;

/// A schema with a description of this length.
fn described(bytes: usize) -> TableSchema {
    let text = HashMap::from([("description".to_owned(), "x".repeat(bytes))]);
    let x = Field::new("x", DataType::Float64, false).with_metadata(text);
    let columns = Schema::new(vec![column("pid", DataType::Int64, false), x.into()]);
    let roles = Roles { id: vec!["pid".to_owned()], index: vec!["x".to_owned()], ..Roles::default() };
    TableSchema::new(columns, &roles).unwrap()
}

/// By how many bytes an entry was too long.
fn beyond(error: &TableError) -> usize {
    let TableError::Store(StoreError::Limit { what: "schema of a table", actual, max }) = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(error.hint().is_some_and(|hint| hint.contains("metadata")), "{error}");
    (actual - max) as usize
}

async fn partitions(store: &Arc<dyn Store>) -> usize {
    store.partition_keys(PartitionQuery::prefix("")).await.unwrap().partitions.len()
}

#[tokio::test]
async fn a_table_that_could_not_be_dropped_or_copied_is_refused_before_it_is_there() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let long = store.capabilities().limits.condition_bytes;
    let refused = Table::create(Arc::clone(&store), "run", described(long)).await.unwrap_err();
    let most = long - beyond(&refused);
    assert_eq!(beyond(&Table::create(Arc::clone(&store), "run", described(most + 1)).await.unwrap_err()), 1);
    assert_eq!(partitions(&store).await, 0);
    // The longest that is taken is copied and dropped.
    let table = Table::create(Arc::clone(&store), "run", described(most)).await.unwrap();
    table.copy_to(&store, "copy", None, &mut |_| {}).await.unwrap();
    Table::open(Arc::clone(&store), "copy").await.unwrap();
    for name in ["run", "copy"] {
        Table::drop_table(&*store, name).await.unwrap();
    }
    assert!(Table::list(&*store).await.unwrap().is_empty());
}

/// As an earlier build, or a store with longer conditions, may have left it.
#[tokio::test]
async fn a_table_whose_entry_is_too_long_is_still_opened_and_not_copied() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let long = store.capabilities().limits.condition_bytes;
    Table::create(Arc::clone(&store), "run", described(0)).await.unwrap();
    let cell = Cell::new("\0atoll.tables", "run");
    let text = store.get(cell, ReadOptions::default()).await.unwrap().unwrap();
    let mut entry: serde_json::Value = serde_json::from_slice(&text).unwrap();
    entry["schema"]["columns"][1]["metadata"]["description"] = "x".repeat(long).into();
    store.put(cell, entry.to_string().as_bytes(), WriteOptions::default()).await.unwrap();
    let table = Table::create(Arc::clone(&store), "run", described(long)).await.unwrap();
    let there = partitions(&store).await;
    let copied = table.copy_to(&store, "copy", None, &mut |_| {}).await.unwrap_err();
    assert!(beyond(&copied) > 0);
    assert_eq!(partitions(&store).await, there);
    assert!(matches!(
        Table::open(Arc::clone(&store), "copy").await.unwrap_err(),
        TableError::NotFound { .. }
    ));
}

#[tokio::test]
async fn notes_of_a_rank_that_could_not_be_removed_are_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    table.begin("a", 1, 1).await.unwrap();
    table.append(block("a", 1, 10, 0), &rows(10, 0, 3)).await.unwrap();
    let most = store.capabilities().limits.condition_bytes;
    let notes = |bytes: usize| Attributes::from([("n".to_owned(), "x".repeat(bytes).into())]);
    let refused = table.set_rank_notes("a", 1, 0, &notes(most)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit);
    assert!(refused.to_string().starts_with("set of notes of "), "{refused}");
    assert!(open(&store).await.rank_notes("a", 1).await.unwrap().is_empty());
    // Their text is {"n":"…"}.
    table.set_rank_notes("a", 1, 0, &notes(most - 8)).await.unwrap();
    table.delete(Some("a"), None, None).await.unwrap();
    assert!(open(&store).await.rank_notes("a", 1).await.unwrap().is_empty());
}

//! Attributes of a store as a whole, whether it has tables or not.

use super::rows::{create, open};
use atoll_memory::MemoryStore;
use atoll_store::{Cell, ErrorKind, Store, WriteOptions};
use atoll_tables::{AttributeChanges, Attributes, AttributesOf, Table, TableError};
use serde_json::json;
use std::sync::Arc;

fn changes(changes: &[(&str, Option<serde_json::Value>)]) -> AttributeChanges {
    changes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

#[tokio::test]
async fn a_store_keeps_values_with_their_types_beside_its_tables_and_without_any() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    assert_eq!(Table::store_attributes(&*store).await.unwrap(), Attributes::new());
    let first = changes(&[("project", Some(json!("tubes"))), ("seed", Some(json!(u64::MAX)))]);
    Table::note_store(&*store, &first).await.unwrap();
    assert!(Table::list(&*store).await.unwrap().is_empty(), "they are no table");
    let table = create(&store).await;
    table.note(AttributesOf::Table, &changes(&[("seed", Some(json!(1)))])).await.unwrap();
    let second = changes(&[("project", None), ("cutoff", Some(json!([1.5, true])))]);
    let noted = Table::note_store(&*store, &second).await.unwrap();
    let expected =
        Attributes::from([("seed".into(), json!(u64::MAX)), ("cutoff".into(), json!([1.5, true]))]);
    assert_eq!(noted, expected);
    Table::drop_table(&*store, open(&store).await.name()).await.unwrap();
    assert_eq!(Table::store_attributes(&*store).await.unwrap(), expected, "no table has them");
}

#[tokio::test]
async fn of_writers_at_once_none_loses_what_another_one_set() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let writers = (0..20).map(|number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let own = AttributeChanges::from([(format!("a{number}"), Some(json!(number)))]);
            Table::note_store(&*store, &own).await.unwrap();
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_eq!(Table::store_attributes(&*store).await.unwrap().len(), 20);
}

#[tokio::test]
async fn attributes_that_cannot_be_read_are_those_of_the_store_and_not_overwritten() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let cell = Cell::new("\0atoll.attributes", "");
    store.put(cell, b"{\"torn", WriteOptions::default()).await.unwrap();
    let read = Table::store_attributes(&*store).await.unwrap_err();
    assert!(matches!(read, TableError::StoreAttributes { .. }), "{read}");
    assert_eq!(read.kind(), ErrorKind::Corrupt);
    let belongs = Table::that_has(&store, cell.partition).await.unwrap().unwrap();
    assert_eq!(belongs.to_string(), "the attributes of the store");
    let noted = Table::note_store(&*store, &changes(&[("a", Some(json!(1)))])).await.unwrap_err();
    assert!(matches!(noted, TableError::StoreAttributes { .. }), "{noted}");
}

#[tokio::test]
async fn attributes_that_could_not_be_changed_again_are_refused_before_they_are_set() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = create(&store).await;
    let long = |bytes: usize| changes(&[("log", Some(json!("x".repeat(bytes))))]);
    let most = store.capabilities().limits.condition_bytes;
    table.note(AttributesOf::Run("a"), &changes(&[("seed", Some(json!(1)))])).await.unwrap();
    for refused in
        [table.note(AttributesOf::Run("a"), &long(most)).await, Table::note_store(&*store, &long(most)).await]
    {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
        assert!(refused.to_string().contains("set of attributes of "), "{refused}");
    }
    // What is set can be changed, up to the longest text.
    table.note(AttributesOf::Run("a"), &long(most - 1000)).await.unwrap();
    let noted = table.note(AttributesOf::Run("a"), &changes(&[("log", None)])).await.unwrap();
    assert_eq!(noted, Attributes::from([("seed".into(), json!(1))]));
}

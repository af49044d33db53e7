//! Marks: a store beside its copy is refused even after vacuums left nothing else that both have, and
//! attempts that began after the copy are rows of their own.

use super::rows::{block, create, open, rows};
use super::unions::{copied, is_refused};
use atoll_memory::MemoryStore;
use atoll_store::{Cell, PartitionQuery, ScanRequest, SortRange, Store, WriteOptions};
use atoll_tables::{PackOptions, Query, Table, Union};
use std::sync::Arc;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// Packs the table of a store and removes what the pack, and deletes before it, replaced.
async fn pack_and_vacuum(store: &Arc<dyn Store>) {
    let table = open(store).await;
    table.pack(&PackOptions::whole()).await.unwrap();
    assert!(table.vacuum().await.unwrap().objects > 0, "nothing was replaced");
    table.close().await.unwrap();
}

/// Removes the marks, as if a release without them had written the table.
async fn forget_marks(store: &Arc<dyn Store>) {
    let listed = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
    let manifest = listed.into_iter().find(|key| key.ends_with(b"/m")).unwrap();
    let request = ScanRequest { range: SortRange::prefix(b"m"), ..ScanRequest::all(manifest.as_slice()) };
    let marks = store.scan(request).await.unwrap().entries;
    assert!(!marks.is_empty(), "there was no mark");
    for mark in marks {
        store.delete(Cell::new(&manifest, &mark.sort), WriteOptions::default()).await.unwrap();
    }
}

async fn both(stores: &[Arc<dyn Store>; 2]) -> [Table; 2] {
    [open(&stores[0]).await, open(&stores[1]).await]
}

async fn count(tables: [Table; 2]) -> u64 {
    Union::new(tables.to_vec()).unwrap().count(&Query::default()).await.unwrap().rows
}

#[tokio::test]
async fn a_store_beside_its_copy_is_refused_when_deletes_packs_and_vacuums_left_nothing_else_in_common() {
    let original = memory();
    let table = create(&original).await;
    table.begin("a", 1, 1).await.unwrap();
    for step in 0..3 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 10)).await.unwrap();
    }
    table.close().await.unwrap();
    let stores = [copied(&original).await, original];
    for (store, own) in stores.iter().zip([1, 2]) {
        let table = open(store).await;
        table.delete(Some("a"), Some(2..3), None).await.unwrap();
        // An open session would keep the history.
        table.close().await.unwrap();
        pack_and_vacuum(store).await;
        // The first edits go too, and the manifest is written anew. The new steps are not alike.
        let table = open(store).await;
        for step in 3..103 {
            table.append(block("a", 1, step, 0), &rows(step, 0, own)).await.unwrap();
        }
        table.close().await.unwrap();
        let report = open(store).await.vacuum().await.unwrap();
        assert!(report.history > 0, "{report:?}");
    }
    let [one, other] = both(&stores).await;
    is_refused(&[&one, &other], (1, 2)).await;
    // Two steps of 10 rows are in both, and would count twice.
    for store in &stores {
        forget_marks(store).await;
    }
    assert_eq!(count(both(&stores).await).await, 2 * 20 + 100 + 200, "something else gave it away");
}

#[tokio::test]
async fn a_step_of_which_one_rank_came_before_the_copy_and_the_other_after_it_is_in_both() {
    let original = memory();
    let table = create(&original).await;
    table.begin("a", 1, 2).await.unwrap();
    table.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
    table.close().await.unwrap();
    let stores = [copied(&original).await, original];
    for store in &stores {
        open(store).await.append(block("a", 1, 0, 1), &rows(0, 100, 10)).await.unwrap();
        pack_and_vacuum(store).await;
    }
    let [one, other] = both(&stores).await;
    is_refused(&[&one, &other], (1, 2)).await;
}

#[tokio::test]
async fn a_table_that_is_a_copy_in_a_store_of_its_own_has_marks_and_is_another_table() {
    let original = memory();
    let table = create(&original).await;
    table.begin("a", 1, 1).await.unwrap();
    for step in 0..2 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 10)).await.unwrap();
    }
    let archive = memory();
    table.copy_to(&archive, "run", None, &mut |_| {}).await.unwrap();
    let stores = [copied(&archive).await, archive];
    for store in &stores {
        pack_and_vacuum(store).await;
    }
    let [one, other] = both(&stores).await;
    is_refused(&[&table, &one, &other], (2, 3)).await;
    assert_eq!(count([table, one]).await, 40);
}

#[tokio::test]
async fn attempts_that_began_after_the_copy_are_rows_of_their_own_however_alike_they_are() {
    let original = memory();
    let table = create(&original).await;
    table.begin("a", 1, 1).await.unwrap();
    table.close().await.unwrap();
    // A run that has begun and has no rows is a template too.
    let stores = [copied(&original).await, original];
    for store in &stores {
        open(store).await.append(block("a", 1, 0, 0), &rows(0, 0, 10)).await.unwrap();
    }
    assert_eq!(count(both(&stores).await).await, 20);
    // Two branches go on from one state, and each lets go of what they have in common.
    let branches = [copied(&stores[0]).await, Arc::clone(&stores[0])];
    let [one, other] = both(&branches).await;
    is_refused(&[&one, &other], (1, 2)).await;
    for store in &branches {
        let table = open(store).await;
        table.begin("a", 2, 1).await.unwrap();
        table.append(block("a", 2, 1, 0), &rows(1, 0, 10)).await.unwrap();
        table.delete(Some("a"), Some(0..1), None).await.unwrap();
        table.close().await.unwrap();
        pack_and_vacuum(store).await;
    }
    assert_eq!(count(both(&branches).await).await, 20);
}

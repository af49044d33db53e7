//! What a handle takes for the current version while it commits itself, and in a store that has gone back.

use super::rows::{block, create, open, rows, steps_seen};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Buffer, Cell, PartitionQuery, Read, ReadOptions, ScanEntry, ScanPage, ScanRequest, Store,
    StoreFuture, StoreStream, WriteOptions,
};
use atoll_tables::protocol::{EditError, Version};
use atoll_tables::{Table, TableError};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A store that counts reads. It lets a table commit after it has read a head and before it answers, or
/// answers with the same head for ever.
struct Late {
    inner: Arc<dyn Store>,
    commits: Mutex<Option<Table>>,
    head: Mutex<Option<Buffer>>,
    has_gone_back: AtomicBool,
    reads: AtomicUsize,
}

impl Late {
    fn new() -> Arc<Relayed<Self>> {
        Arc::new(Relayed(Self {
            inner: Arc::new(MemoryStore::new()),
            commits: Mutex::new(None),
            head: Mutex::new(None),
            has_gone_back: AtomicBool::new(false),
            reads: AtomicUsize::new(0),
        }))
    }
}

impl Relay for Late {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if cell.sort != b"h" {
            return self.inner.get(cell, options);
        }
        Box::pin(async move {
            if self.has_gone_back.load(Ordering::SeqCst) {
                return Ok(self.head.lock().unwrap().clone());
            }
            let found = self.inner.get(cell, options).await?;
            *self.head.lock().unwrap() = found.clone();
            let table = self.commits.lock().unwrap().take();
            if let Some(table) = table {
                table.begin("b", 1, 1).await.unwrap();
                self.reads.store(0, Ordering::SeqCst);
            }
            Ok(found)
        })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        self.reads.fetch_add(reads.len(), Ordering::SeqCst);
        self.inner.get_many(reads)
    }

    fn scan(&self, request: ScanRequest) -> StoreFuture<'_, ScanPage> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.scan(request)
    }
}

/// A table of several versions.
async fn written(store: &Arc<dyn Store>) -> Table {
    let table = create(store).await;
    table.begin("a", 1, 1).await.unwrap();
    for step in 0..5 {
        table.append(block("a", 1, step, 0), &rows(step, 0, 3)).await.unwrap();
    }
    table
}

#[tokio::test]
async fn a_look_beside_a_commit_of_the_same_handle_finds_what_that_made_and_reads_nothing_for_it() {
    let late = Late::new();
    let store: Arc<dyn Store> = late.clone();
    let table = written(&store).await;
    let before = table.version().await.unwrap();
    *late.commits.lock().unwrap() = Some(table.clone());
    assert_eq!(table.version().await.unwrap(), Version(before.0 + 1));
    assert!(late.commits.lock().unwrap().is_none(), "nothing was committed");
    assert_eq!(late.reads.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_store_that_has_gone_back_is_read_as_it_is_now() {
    let late = Late::new();
    let store: Arc<dyn Store> = late.clone();
    let table = written(&store).await;
    let before = table.version().await.unwrap();
    let head = late.head.lock().unwrap().clone();
    table.append(block("a", 1, 5, 0), &rows(5, 0, 3)).await.unwrap();
    *late.head.lock().unwrap() = head;
    late.has_gone_back.store(true, Ordering::SeqCst);
    assert_eq!(table.version().await.unwrap(), before, "not what the handle knew of a version that is lost");
}

/// The partition of the table's manifest, and its cells.
async fn manifest(store: &Arc<dyn Store>) -> (Vec<u8>, Vec<ScanEntry>) {
    let listed = store.partition_keys(PartitionQuery::prefix("\0atoll.table/")).await.unwrap().partitions;
    let partition = listed.into_iter().find(|key| key.ends_with(b"/m")).unwrap();
    let cells = store.scan(ScanRequest::all(partition.as_slice())).await.unwrap().entries;
    (partition, cells)
}

/// Puts the manifest back to cells that it had before, as a store does that has lost its last writes.
async fn go_back(store: &Arc<dyn Store>, cells: Vec<ScanEntry>) {
    let (partition, now) = manifest(store).await;
    let gone = now.into_iter().fold(Batch::on(partition), |batch, cell| batch.delete(cell.sort));
    let back = cells.into_iter().fold(gone, |batch, cell| batch.put(cell.sort, cell.value));
    store.write(back, WriteOptions::default()).await.unwrap();
}

/// The steps `0..5` and these, with the rows of each.
fn expected(more: &[u64]) -> Vec<(u64, usize)> {
    (0..5).chain(more.iter().copied()).map(|step| (step, 3)).collect()
}

#[tokio::test]
async fn what_is_appended_to_a_store_that_has_gone_back_stays_and_is_read() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = written(&store).await;
    let (_, before) = manifest(&store).await;
    let lost = table.append(block("a", 1, 5, 0), &rows(5, 0, 3)).await.unwrap();
    go_back(&store, before).await;
    let again = table.append(block("a", 1, 6, 0), &rows(6, 0, 3)).await.unwrap();
    assert_eq!(again, lost, "the version has the number of the lost one");
    assert_eq!(steps_seen(&open(&store).await).await, expected(&[6]), "the new rows were removed");
    assert_eq!(steps_seen(&table).await, expected(&[6]), "the handle reads the lost version");
    table.append(block("a", 1, 7, 0), &rows(7, 0, 3)).await.unwrap();
    assert_eq!(steps_seen(&open(&store).await).await, expected(&[6, 7]));
}

#[tokio::test]
async fn a_handle_that_looked_at_a_store_that_has_gone_back_knows_nothing_more_of_what_is_lost() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = written(&store).await;
    let (_, before) = manifest(&store).await;
    let lost = table.append(block("a", 1, 5, 0), &rows(5, 0, 3)).await.unwrap();
    go_back(&store, before).await;
    assert_eq!(table.version().await.unwrap(), Version(lost.0 - 1));
    // Another process takes the number of the lost version.
    let other = open(&store).await;
    assert_eq!(other.append(block("a", 1, 6, 0), &rows(6, 0, 3)).await.unwrap(), lost);
    assert_eq!(steps_seen(&table).await, expected(&[6]));
}

#[tokio::test]
async fn a_commit_that_fits_only_a_version_that_is_lost_is_refused() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = written(&store).await;
    let (_, before) = manifest(&store).await;
    let lost = table.begin("lost", 1, 1).await.unwrap();
    go_back(&store, before).await;
    let other = open(&store).await;
    assert_eq!(other.append(block("a", 1, 5, 0), &rows(5, 0, 3)).await.unwrap(), lost);
    // The head is what this handle knows, and the version is another one.
    let refused = table.append(block("lost", 1, 0, 0), &rows(0, 0, 3)).await.unwrap_err();
    assert!(matches!(refused, TableError::Edit(EditError::NotBegun { .. })), "{refused}");
    table.append(block("a", 1, 6, 0), &rows(6, 0, 3)).await.unwrap();
    for table in [&open(&store).await, &other, &table] {
        assert_eq!(steps_seen(table).await, expected(&[5, 6]));
    }
}

#[tokio::test]
async fn what_others_commit_after_a_version_that_is_lost_is_not_added_to_it() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let table = written(&store).await;
    let (_, before) = manifest(&store).await;
    table.append(block("a", 1, 5, 0), &rows(5, 0, 3)).await.unwrap();
    go_back(&store, before).await;
    let other = open(&store).await;
    for step in [6, 7] {
        other.append(block("a", 1, step, 0), &rows(step, 0, 3)).await.unwrap();
    }
    assert_eq!(steps_seen(&table).await, expected(&[6, 7]));
}

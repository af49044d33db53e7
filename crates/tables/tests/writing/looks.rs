//! What a handle takes for the current version while it commits itself, and in a store that has gone back.

use super::rows::{block, create, rows};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Buffer, Cell, Read, ReadOptions, ScanPage, ScanRequest, Store, StoreFuture, StoreStream};
use atoll_tables::Table;
use atoll_tables::protocol::Version;
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

//! A pack and a vacuum between what a question looks up and what it then reads: it is asked again, of what is there now.

use super::rows::{block, create, open, rows};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Buffer, Cell, Read, ReadOptions, Store, StoreFuture, StoreStream};
use atoll_tables::estimate::{Confidence, EstimateRequest, Subject};
use atoll_tables::expression::Column;
use atoll_tables::{PackOptions, Query, Readable, TableError, Union};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A store that packs and vacuums the table once it is armed and an object is to be read.
struct Vanishing {
    inner: Arc<dyn Store>,
    is_armed: AtomicBool,
}

impl Vanishing {
    async fn meet(&self, partition: &[u8]) {
        let is_object = partition.starts_with(b"\0atoll.table/") && !partition.ends_with(b"/m");
        if is_object && self.is_armed.swap(false, Ordering::Relaxed) {
            let table = open(&self.inner).await;
            table.pack(&PackOptions::whole()).await.unwrap();
            assert!(table.vacuum().await.unwrap().objects > 0);
        }
    }
}

impl Relay for Vanishing {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn get<'a>(&'a self, cell: Cell<'a>, options: ReadOptions) -> StoreFuture<'a, Option<Buffer>> {
        Box::pin(async move {
            self.meet(cell.partition).await;
            self.inner.get(cell, options).await
        })
    }

    fn get_many(&self, reads: Vec<Read>) -> StoreStream<'_, Option<Buffer>> {
        let met = async move {
            if let Some(read) = reads.first() {
                self.meet(&read.partition).await;
            }
            self.inner.get_many(reads)
        };
        futures::stream::once(met).flatten().boxed()
    }
}

#[tokio::test]
async fn whatever_is_asked_of_what_is_current_is_asked_again_once_a_vacuum_took_that() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let relayed = Arc::new(Relayed(Vanishing { inner: inner.clone(), is_armed: AtomicBool::new(false) }));
    let store: Arc<dyn Store> = relayed.clone();
    let writer = create(&inner).await;
    writer.begin("a", 1, 1).await.unwrap();
    let mut step = 0;
    // Nothing is asked twice of one handle, which would know what it read.
    for question in 0..7 {
        for _ in 0..3 {
            writer.append(block("a", 1, step, 0), &rows(step, 0, 100)).await.unwrap();
            step += 1;
        }
        let there = 100 * step;
        let table = open(&store).await;
        let union = Union::new(vec![table.clone()]).unwrap();
        let readable = if question < 3 { Readable::One(table) } else { Readable::Many(union) };
        relayed.0.is_armed.store(true, Ordering::Relaxed);
        let (query, x) = (Query::default(), Column::named("x"));
        let found = match question {
            0 | 3 => readable.query(&query).await.unwrap().rows.num_rows() as u64,
            1 | 4 => {
                let request = EstimateRequest::new(Subject::Sum(x));
                readable.estimate(&query, &request).await.unwrap().rows_read
            }
            2 | 5 => {
                let how = (Confidence::default(), false);
                readable.estimate_histogram(&query, &x, &[0.0, 0.5, 1.0], how).await.unwrap().rows_read
            }
            _ => {
                let (mut refining, mut rows) = (readable.refine(&query), 0);
                while let Some(refined) = refining.next().await.unwrap() {
                    rows += refined.rows.num_rows() as u64;
                }
                rows
            }
        };
        assert!(!relayed.0.is_armed.load(Ordering::Relaxed), "question {question} read no object");
        assert_eq!(found, there, "question {question}");
    }
    let table = open(&store).await;
    writer.append(block("a", 1, step, 0), &rows(step, 0, 100)).await.unwrap();
    let before = table.version().await.unwrap();
    relayed.0.is_armed.store(true, Ordering::Relaxed);
    let gone = table.query(&Query::default().as_of(before)).await.unwrap_err();
    assert!(matches!(gone, TableError::VersionGone { asked, .. } if asked == before), "{gone}");
}

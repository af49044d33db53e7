//! A pack and a vacuum between what a query looks up and what it then reads: the query is repeated on the
//! current version.

use super::rows::{block, create, open, rows};
use atoll_conformance::{Relay, Relayed};
use atoll_memory::MemoryStore;
use atoll_store::{Buffer, Cell, Read, ReadOptions, Store, StoreFuture, StoreStream};
use atoll_tables::estimate::{Confidence, EstimateRequest, Subject};
use atoll_tables::expression::Column;
use atoll_tables::{PackOptions, Query, Readable, TableError, Union};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A store that, for as many reads of objects as it is armed for, packs and vacuums the table first.
struct Vanishing {
    inner: Arc<dyn Store>,
    armed: AtomicUsize,
}

impl Vanishing {
    async fn meet(&self, partition: &[u8]) {
        let is_object = partition.starts_with(b"\0atoll.table/") && !partition.ends_with(b"/m");
        let less = |armed: usize| armed.checked_sub(1);
        if is_object && let Ok(armed) = self.armed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
            let table = open(&self.inner).await;
            if armed > 1 {
                // Something to pack for the next time.
                let attempt = table.begin_next("more", 1).await.unwrap();
                table.append(block("more", attempt, 0, 0), &rows(0, 5000, 10)).await.unwrap();
            }
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
    let relayed = Arc::new(Relayed(Vanishing { inner: inner.clone(), armed: AtomicUsize::new(0) }));
    let store: Arc<dyn Store> = relayed.clone();
    let writer = create(&inner).await;
    writer.begin("a", 1, 1).await.unwrap();
    let mut step = 0;
    // No question is asked twice of one handle, which would know what it has read.
    for question in 0..7 {
        for _ in 0..3 {
            writer.append(block("a", 1, step, 0), &rows(step, 0, 100)).await.unwrap();
            step += 1;
        }
        let there = 100 * step;
        let table = open(&store).await;
        let union = Union::new(vec![table.clone()]).unwrap();
        let readable = if question < 3 { Readable::One(table) } else { Readable::Many(union) };
        relayed.0.armed.store(1, Ordering::Relaxed);
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
        assert_eq!(relayed.0.armed.load(Ordering::Relaxed), 0, "question {question} read no object");
        assert_eq!(found, there, "question {question}");
    }
    let table = open(&store).await;
    writer.append(block("a", 1, step, 0), &rows(step, 0, 100)).await.unwrap();
    let before = table.version().await.unwrap();
    relayed.0.armed.store(1, Ordering::Relaxed);
    let gone = table.query(&Query::default().as_of(before)).await.unwrap_err();
    assert!(matches!(gone, TableError::VersionGone { asked, .. } if asked == before), "{gone}");
}

#[tokio::test]
async fn a_sum_that_is_refined_begins_anew_once_a_vacuum_took_the_version_whose_rows_were_counted() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let relayed = Arc::new(Relayed(Vanishing { inner: inner.clone(), armed: AtomicUsize::new(0) }));
    let store: Arc<dyn Store> = relayed.clone();
    let writer = create(&inner).await;
    writer.begin("a", 1, 1).await.unwrap();
    let sum = EstimateRequest::new(Subject::Sum(Column::named("x")));
    let mut step = 0;
    for is_union in [false, true] {
        for is_named in [false, true] {
            for _ in 0..3 {
                writer.append(block("a", 1, step, 0), &rows(step, 0, 100)).await.unwrap();
                step += 1;
            }
            let table = open(&store).await;
            let union = Union::new(vec![table.clone()]).unwrap();
            let readable = if is_union { Readable::Many(union) } else { Readable::One(table) };
            let version = readable.version().await.unwrap();
            let query = if is_named { Query::default().as_of(version) } else { Query::default() };
            let mut estimates = readable.refine_estimate(&query, &sum).await.unwrap();
            estimates.want(50);
            relayed.0.armed.store(1, Ordering::Relaxed);
            let first = estimates.next().await;
            assert_eq!(relayed.0.armed.load(Ordering::Relaxed), 0, "no object was read");
            if is_named {
                let gone = first.unwrap_err();
                let is_gone =
                    matches!(gone, TableError::VersionGone { .. } | TableError::UnionVersionGone { .. });
                assert!(is_gone, "{gone}");
                continue;
            }
            let (refined, _) = first.unwrap().unwrap();
            assert!(refined.version > version, "{:?}", refined.version);
            let (mut read, mut last) = (refined.rows.num_rows() as u64, None);
            while let Some((refined, estimate)) = estimates.next().await.unwrap() {
                read += refined.rows.num_rows() as u64;
                last = Some(estimate);
            }
            assert_eq!(read, 100 * step);
            assert!(last.is_some_and(|estimate| estimate.is_exact()), "batches of 50 rows");
        }
    }
}

#[tokio::test]
async fn whose_version_vanishes_again_and_again_is_told_so_in_the_end() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let relayed = Arc::new(Relayed(Vanishing { inner: inner.clone(), armed: AtomicUsize::new(0) }));
    let store: Arc<dyn Store> = relayed.clone();
    let writer = create(&inner).await;
    writer.begin("a", 1, 1).await.unwrap();
    for question in 0..8 {
        writer.append(block("a", 1, question, 0), &rows(question, 0, 100)).await.unwrap();
        let table = open(&store).await;
        let union = Union::new(vec![table.clone()]).unwrap();
        let readable = if question < 4 { Readable::One(table) } else { Readable::Many(union) };
        let query = Query::default();
        // More often than any query retries; afterwards nothing interferes.
        relayed.0.armed.store(1000, Ordering::Relaxed);
        let ended = match question % 4 {
            0 => readable.query(&query).await.map(drop),
            1 => {
                let request = EstimateRequest::new(Subject::Sum(Column::named("x")));
                readable.estimate(&query, &request).await.map(drop)
            }
            2 => readable.batches(&query).next().await.map(drop),
            _ => readable.refine(&query).next().await.map(drop),
        };
        let told = ended.unwrap_err();
        assert!(
            matches!(told, TableError::VersionGone { .. } | TableError::UnionVersionGone { .. }),
            "question {question}: {told}"
        );
        relayed.0.armed.store(0, Ordering::Relaxed);
        let rows = 100 * (question as usize + 1);
        assert!(readable.query(&query).await.unwrap().rows.num_rows() >= rows, "question {question}");
    }
}

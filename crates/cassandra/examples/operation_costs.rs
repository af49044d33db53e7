//! Measures what operations cost on a given cluster, as a basis for tuning the store:
//! `ATOLL_CASSANDRA=127.0.0.1:19042 cargo run --release -p atoll-cassandra --example operation_costs`.
//! `SPEED_CHUNK=BYTES` sets another size of chunks.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "../tests/common/mod.rs"]
mod common;

use atoll_conformance::SharedStore;
use atoll_store::{Buffer, ByteRange, Cell, Read, ReadOptions, WriteOptions};
use common::{Namespaces, contacts};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use std::sync::Arc;
use std::time::Instant;

fn random(len: usize, seed: u64) -> Buffer {
    Buffer::build(len, |bytes| fastrand::Rng::with_seed(seed).fill(bytes))
}

/// Runs `count` operations, `at_once` of them concurrently, and prints the rate per second.
async fn rate(what: &str, count: u64, at_once: usize, run: impl Fn(u64) -> BoxFuture<'static, ()>) {
    let started = Instant::now();
    stream::iter(0..count).map(run).buffer_unordered(at_once).collect::<Vec<()>>().await;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{what}: {:.0} a second, {:.2} ms each at {at_once} at once",
        count as f64 / seconds,
        seconds * 1e3 * at_once as f64 / count as f64
    );
}

fn put(store: &SharedStore, partition: String, sort: String) -> BoxFuture<'static, ()> {
    let store = store.clone();
    Box::pin(async move {
        store.put(Cell::new(&partition, &sort), &[7; 100], WriteOptions::default()).await.unwrap();
    })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let Some(contacts) = contacts() else { return };
    let namespaces = Namespaces::new(contacts, "speed");
    let mut options = namespaces.options(namespaces.fresh());
    if let Some(bytes) = std::env::var("SPEED_CHUNK").ok().and_then(|text| text.parse().ok()) {
        options.chunk_bytes = bytes;
    }
    let chunk = options.chunk_bytes;
    let store: SharedStore = Arc::new(atoll_cassandra::CassandraStore::open(options).await.unwrap());
    rate("warming up", 300, 4, |at| put(&store, format!("w{at}"), "a".into())).await;
    if std::env::var("SPEED_ONLY").is_err() {
        conditional(&store).await;
    }
    large(&store, chunk).await;
}

async fn conditional(store: &SharedStore) {
    rate("put, one partition", 300, 1, |at| put(store, "p".into(), at.to_string())).await;
    rate("put, one partition, 16 callers", 600, 16, |at| put(store, "p".into(), at.to_string())).await;
    rate("put, 64 partitions", 3000, 64, |at| put(store, format!("p{}", at % 64), at.to_string())).await;
    let swap = |at: u64| -> BoxFuture<'static, ()> {
        let store = store.clone();
        Box::pin(async move {
            let (cell, next) = (Cell::new("swap", "a"), at.to_string());
            let old = at.checked_sub(1).map(|old| old.to_string());
            let old = old.as_deref().map(str::as_bytes);
            store.compare_and_swap(cell, old, next.as_bytes(), WriteOptions::default()).await.unwrap();
        })
    };
    rate("compare and swap, one cell", 200, 1, swap).await;
    rate("append, one cell", 200, 1, |_| {
        let store = store.clone();
        Box::pin(async move {
            store.append(Cell::new("log", "a"), &[1; 100], WriteOptions::default()).await.unwrap();
        })
    })
    .await;
    let get = |at: u64| -> BoxFuture<'static, ()> {
        let store = store.clone();
        Box::pin(async move {
            let (partition, sort) = (format!("p{}", at % 64), at.to_string());
            store.get(Cell::new(&partition, &sort), ReadOptions::default()).await.unwrap();
        })
    };
    rate("get, one at a time", 300, 1, get).await;
    rate("get, 64 at once", 3000, 64, get).await;
    rate("create of 1 KiB, 64 at once", 3000, 64, |at| {
        let store = store.clone();
        Box::pin(async move {
            let name = format!("c{at}");
            store.create(Cell::new(&name, "a"), random(1024, at), WriteOptions::default()).await.unwrap();
        })
    })
    .await;
}

async fn large(store: &SharedStore, chunk: usize) {
    let (objects, bytes) = (16_u64, 8 << 20);
    let started = Instant::now();
    stream::iter(0..objects)
        .map(|at| async move {
            let name = format!("large {at}");
            store.create(Cell::new(&name, ""), random(bytes, at), WriteOptions::default()).await.unwrap();
        })
        .buffer_unordered(4)
        .collect::<Vec<()>>()
        .await;
    let megabytes = (objects as usize * bytes) as f64 / 1e6;
    println!("chunks of {chunk}: created at {:.0} MB/s", megabytes / started.elapsed().as_secs_f64());
    for part in [4 << 10, 64 << 10, 1 << 20] {
        let mut random = fastrand::Rng::with_seed(7);
        let reads: Vec<Read> = (0..(64 << 20) / part.max(64 << 10))
            .map(|_| {
                let offset = random.u64(0..(bytes - part) as u64);
                let name = format!("large {}", random.u64(0..objects));
                Read { range: ByteRange::new(offset, part as u64), immutable: true, ..Read::new(name, *b"") }
            })
            .collect();
        let (count, started) = (reads.len(), Instant::now());
        let found: usize = store
            .get_many(reads)
            .map(|(_, read)| read.unwrap().unwrap().len())
            .collect::<Vec<_>>()
            .await
            .iter()
            .sum();
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "chunks of {chunk}: parts of {part}: {:.0} a second, {:.0} MB/s",
            count as f64 / seconds,
            found as f64 / 1e6 / seconds
        );
    }
}

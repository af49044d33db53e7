//! Queries against brute force: every answer must equal that of plain loops over all rows, and the work of
//! answering is counted.
//!
//! The oracle knows only rows and runs: no blocks, bands or versions, and of weights and cuts only their
//! definition.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "queries/asked.rs"]
mod asked;
#[path = "queries/batches.rs"]
mod batches;
#[path = "queries/bulk.rs"]
mod bulk;
#[path = "queries/conditions.rs"]
mod conditions;
#[path = "queries/counted.rs"]
mod counted;
#[path = "queries/counts.rs"]
mod counts;
#[path = "queries/deletes.rs"]
mod deletes;
#[path = "queries/images.rs"]
mod images;
#[path = "queries/laws.rs"]
mod laws;
#[path = "queries/packs.rs"]
mod packs;
#[path = "queries/particles.rs"]
mod particles;
#[path = "queries/random.rs"]
mod random;
#[path = "../src/seeds.rs"]
mod seeds;
#[path = "queries/splits.rs"]
mod splits;
#[path = "queries/ties.rs"]
mod ties;
#[path = "queries/world.rs"]
mod world;

use std::future::Future;

/// Runs a future to completion.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

//! Packing: what it costs, what it saves, and that it changes nothing, whatever happens meanwhile.
//!
//! Random queries of packed tables against brute force are in `queries.rs`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "packing/background.rs"]
mod background;
#[path = "packing/bounds.rs"]
mod bounds;
#[path = "packing/cold.rs"]
mod cold;
#[path = "queries/counted.rs"]
mod counted;
#[path = "packing/failing.rs"]
mod failing;
#[path = "packing/growth.rs"]
mod growth;
#[path = "packing/meanwhile.rs"]
mod meanwhile;
#[path = "packing/paced.rs"]
mod paced;
#[path = "packing/paths.rs"]
mod paths;
#[path = "packing/races.rs"]
mod races;
#[path = "../src/seeds.rs"]
mod seeds;
#[path = "packing/stopping.rs"]
mod stopping;
#[path = "packing/texts.rs"]
mod texts;
#[path = "packing/tube.rs"]
mod tube;
#[path = "packing/work.rs"]
mod work;

use std::future::Future;

/// Runs a future to its end.
fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
